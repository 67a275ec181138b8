//! Fetching an exporter's descriptor by its number (`pidfd_getfd`, Linux 5.6):
//! five system calls, where a request to the broker wakes another process.
//!
//! The kernel allows this to whoever may ptrace the exporter. Nothing here asks
//! for that right: where it is refused, the broker is asked, and where that cannot
//! be reached either, the refusal is a failed attempt.

use crate::attempt::{Failure, Reason, Step};
use crate::broker::trusts_user;
use crate::export::ledger::maker_of_entry;
use crate::options::Trust;
use gpuipc_core::Ticket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// An exporter's process, by a pidfd.
pub(crate) struct Process<F> {
    fd: F,
    /// Whether its user is known to be trusted: the kernel said so at the socket
    /// from which the descriptor is.
    known: bool,
}

impl<F: AsFd> Process<F> {
    /// The process behind the socket of a trusted user's broker.
    pub(crate) const fn behind_socket(fd: F) -> Self {
        Self { fd, known: true }
    }
}

/// The process with this pid. Only to be asked for a pid of the own pid
/// namespace: elsewhere the number is another process's.
pub(crate) fn open(pid: u32) -> Result<Process<OwnedFd>, Failure> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(Failure::refused(Step::FetchByNumber, Reason::ExporterGone))?;
    let fd = pidfd_open(pid, PidfdFlags::empty()).map_err(refused)?;
    Ok(Process { fd, known: false })
}

/// Fetches the descriptor that `ticket` names and proves that it is the one on offer.
pub(crate) fn fetch<F: AsFd>(
    process: &Process<F>,
    ticket: &Ticket,
    trust: &Trust,
) -> Result<OwnedFd, Failure> {
    let number = ticket.fd.ok_or(NO_DESCRIPTOR)?;
    // The order is the proof: the descriptor first, then the ledger anew.
    let fd = get(process, number)?;
    if offer_lives(process, ticket, trust)? {
        Ok(fd)
    } else {
        Err(Failure::refused(
            Step::FetchByNumber,
            Reason::OfferWithdrawn,
        ))
    }
}

/// Whether the offer of `ticket` lives: it stands in the ledger of a process of
/// a trusted user.
pub(crate) fn offer_lives<F: AsFd>(
    process: &Process<F>,
    ticket: &Ticket,
    trust: &Trust,
) -> Result<bool, Failure> {
    let entry = ticket.ledger.ok_or(NO_DESCRIPTOR)?;
    let ledger = get(process, entry.fd)?;
    let Some(maker) = maker_of_entry(&ledger, ticket, &entry).map_err(refused)? else {
        return Ok(false);
    };
    // The file alone proves nothing: its maker may have given it away.
    let trusted = process.known
        || user_of(process.fd.as_fd())
            .map_err(refused)?
            .is_some_and(|user| trusts_user(trust, user));
    if trusted && trusts_user(trust, maker) {
        Ok(true)
    } else {
        Err(Failure::refused(Step::FetchByNumber, Reason::NotTrusted))
    }
}

/// The effective uid of a process, by /proc; `None` where that does not say, or
/// no longer.
///
/// # Errors
/// Where this process has nothing left to look there with.
fn user_of(process: BorrowedFd<'_>) -> Result<Option<u32>, Errno> {
    let read = |path: String| match std::fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) => match Errno::from_io_error(&error) {
            Some(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => Err(errno),
            _ => Ok(String::new()),
        },
    };
    let info = read(format!("/proc/self/fdinfo/{}", process.as_raw_fd()))?;
    let Some(pid) = word(&info, "Pid:", 0) else {
        return Ok(None);
    };
    let user = word(&read(format!("/proc/{pid}/status"))?, "Uid:", 1);
    // Had the process ended before, the pid might have been another one's.
    let now = Timespec::default();
    let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&now));
    Ok(user.filter(|_| ended == Ok(0)))
}

/// The number at `at` in the first line that starts with `name`.
pub(crate) fn word(text: &str, name: &str, at: usize) -> Option<u32> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().nth(at)?.parse().ok()
}

/// In a handle that names none.
const NO_DESCRIPTOR: Failure = Failure::refused(Step::FetchByNumber, Reason::NoDescriptor);

fn get<F: AsFd>(process: &Process<F>, number: i32) -> Result<OwnedFd, Failure> {
    pidfd_getfd(&process.fd, number, PidfdGetfdFlags::empty()).map_err(refused)
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
