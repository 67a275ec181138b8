//! Fetching an exporter's descriptor by its number (`pidfd_getfd`, Linux 5.6),
//! where its broker does not give it.
//!
//! The kernel allows this to whoever may ptrace the exporter. Nothing here asks
//! for that right: a refusal is a failed attempt.

use crate::attempt::{Failure, Reason, Step};
use crate::broker::trusts_user;
use crate::ledger::SLOT_BYTES;
use crate::options::Trust;
use gpuipc_core::{Ticket, Token};
use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, pread};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::os::fd::{AsFd, OwnedFd};

/// The process with this pid. Only to be asked for a pid of the own pid
/// namespace: elsewhere the number is another process's.
pub(crate) fn open(pid: u32) -> Result<OwnedFd, Failure> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(Failure::refused(Step::FetchByNumber, Reason::ExporterGone))?;
    pidfd_open(pid, PidfdFlags::empty()).map_err(refused)
}

/// Fetches the descriptor that `ticket` names and proves that it is the one on offer.
pub(crate) fn fetch(
    process: impl AsFd,
    ticket: &Ticket,
    trust: &Trust,
) -> Result<OwnedFd, Failure> {
    let number = ticket.fd.ok_or(NO_DESCRIPTOR)?;
    // The order is the proof: the descriptor first, then the ledger anew.
    let fd = get(&process, number)?;
    if offer_lives(process, ticket, trust)? {
        Ok(fd)
    } else {
        Err(Failure::refused(
            Step::FetchByNumber,
            Reason::OfferWithdrawn,
        ))
    }
}

/// Whether the offer of `ticket` lives: its token stands in the ledger of a
/// process of a trusted user.
pub(crate) fn offer_lives(
    process: impl AsFd,
    ticket: &Ticket,
    trust: &Trust,
) -> Result<bool, Failure> {
    let entry = ticket.ledger.ok_or(NO_DESCRIPTOR)?;
    let ledger = get(&process, entry.fd)?;
    // Before anything is read: reading an unknown descriptor may wait or act.
    let stat = fstat(&ledger).map_err(refused)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
        || stat.st_dev != entry.device
        || stat.st_ino != entry.inode
    {
        return Ok(false);
    }
    // Who made the ledger.
    if !trusts_user(trust, stat.st_uid) {
        return Err(Failure::refused(Step::FetchByNumber, Reason::NotTrusted));
    }
    let mut bytes = [0; SLOT_BYTES as usize];
    let at = u64::from(entry.slot) * SLOT_BYTES;
    let read = pread(&ledger, &mut bytes, at).map_err(refused)?;
    Ok(read == bytes.len() && ticket.token.matches(&Token::new(bytes)))
}

/// In a handle that names none.
const NO_DESCRIPTOR: Failure = Failure::refused(Step::FetchByNumber, Reason::NoDescriptor);

fn get(process: &impl AsFd, number: i32) -> Result<OwnedFd, Failure> {
    pidfd_getfd(process.as_fd(), number, PidfdGetfdFlags::empty()).map_err(refused)
}

fn refused(errno: Errno) -> Failure {
    let reason = match errno {
        Errno::SRCH => Reason::ExporterGone,
        Errno::BADF => Reason::OfferWithdrawn,
        Errno::PERM | Errno::ACCESS => Reason::PtraceRefused,
        Errno::NOSYS => Reason::NoPidfd,
        _ => Reason::System,
    };
    Failure::os(Step::FetchByNumber, reason, errno)
}
