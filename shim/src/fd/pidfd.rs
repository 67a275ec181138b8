//! Fetches an exporter's descriptor by its number (`pidfd_getfd`, Linux 5.6). This
//! takes a few system calls and, unlike a request to the broker, does not wake the
//! exporter.
//!
//! The kernel allows it to processes that may ptrace the exporter. The library does not
//! ask for that right. If the kernel refuses, the broker is asked. If the broker cannot
//! be reached either, the refusal is a failed attempt.
//!
//! A handle may be forged, and every fetched descriptor must be closed. A close can
//! block for ever, and it drops the POSIX locks of this process on the file. So only
//! two descriptors are ever fetched: a file with the name of an export table, and one
//! that the export table of a trusted user's process lists.

use crate::attempt::{Failure, Reason, Step};
use crate::fd::broker::trusts_user;
use crate::fd::export_table::{self, maker_of_entry};
use crate::options::Trust;
use gpuipc_core::Ticket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, readlinkat};
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

/// What a handle says is exported.
pub(crate) struct ExportClaim<'a> {
    pub(crate) ticket: &'a Ticket,
    pub(crate) allocation_id: u64,
    pub(crate) trust: &'a Trust,
}

/// The process with this pid. Only to be asked for a pid of the own pid
/// namespace: elsewhere the number is another process's.
pub(crate) fn open(pid: u32) -> Result<Process<OwnedFd>, Failure> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(Failure::refused(Step::FetchByNumber, Reason::ExporterGone))?;
    let fd = pidfd_open(pid, PidfdFlags::empty()).map_err(refused)?;
    Ok(Process { fd, known: false })
}

/// Fetches the descriptor that the ticket names and proves that it is the one exported.
pub(crate) fn fetch<F: AsFd>(
    process: &Process<F>,
    claim: &ExportClaim<'_>,
) -> Result<OwnedFd, Failure> {
    const REVOKED: Failure = Failure::refused(Step::FetchByNumber, Reason::ExportRevoked);
    let number = claim.ticket.fd.ok_or(NO_DESCRIPTOR)?;
    // Before: the number is no other file's, as far as an honest exporter goes.
    if !export_lives(process, claim)? {
        return Err(REVOKED);
    }
    let fd = get(process, number)?;
    // The order is the proof: the descriptor first, then the export table anew.
    match maker(process, claim)? {
        Some(_) => Ok(fd),
        None => Err(REVOKED),
    }
}

/// Whether the export lives: it stands in the export table of a process of a trusted user.
pub(crate) fn export_lives<F: AsFd>(
    process: &Process<F>,
    claim: &ExportClaim<'_>,
) -> Result<bool, Failure> {
    let entry = claim.ticket.table.ok_or(NO_DESCRIPTOR)?;
    if !has_table_at(process, entry.fd)? {
        return Ok(false);
    }
    let Some(maker) = maker(process, claim)? else {
        return Ok(false);
    };
    // The file alone proves nothing: its maker may have given it away.
    let trusted = process.known
        || user_of(process.fd.as_fd())
            .map_err(refused)?
            .is_some_and(|user| trusts_user(claim.trust, user));
    if trusted && trusts_user(claim.trust, maker) {
        Ok(true)
    } else {
        Err(Failure::refused(Step::FetchByNumber, Reason::NotTrusted))
    }
}

/// The user who made the process's export table, if that says that the export lives.
fn maker<F: AsFd>(process: &Process<F>, claim: &ExportClaim<'_>) -> Result<Option<u32>, Failure> {
    let entry = claim.ticket.table.ok_or(NO_DESCRIPTOR)?;
    let table = get(process, entry.fd)?;
    maker_of_entry(&table, claim.ticket, claim.allocation_id, &entry).map_err(refused)
}

/// Whether a file of the export table's name has this number in the process, by /proc.
///
/// # Errors
/// Where that does not show it: in a pid namespace beside this one, too.
fn has_table_at<F: AsFd>(process: &Process<F>, number: i32) -> Result<bool, Failure> {
    let unseen = Failure::refused(Step::FetchByNumber, Reason::PtraceRefused);
    let fd = process.fd.as_fd();
    let pid = pid_of(fd).map_err(refused)?.ok_or(unseen)?;
    let link = format!("/proc/{pid}/fd/{number}");
    match readlinkat(CWD, link, Vec::new()) {
        Ok(text) => Ok(text
            .to_bytes()
            .strip_prefix(b"/memfd:")
            .is_some_and(|name| name.starts_with(export_table::NAME.as_bytes()))),
        Err(Errno::NOENT) if has_ended(fd) => Err(refused(Errno::SRCH)),
        // No such descriptor, if /proc shows the process at all.
        Err(Errno::NOENT) => match rustix::fs::stat(format!("/proc/{pid}/fd")) {
            Ok(_) => Ok(false),
            Err(_) => Err(unseen),
        },
        Err(errno) => Err(refused(errno)),
    }
}

/// The pid of a process in this pid namespace; `None` where it has none here, has
/// ended, or /proc does not say.
fn pid_of(process: BorrowedFd<'_>) -> Result<Option<u32>, Errno> {
    let info = read(&format!("/proc/self/fdinfo/{}", process.as_raw_fd()))?;
    Ok(word(&info, "Pid:", 0).filter(|pid| *pid != 0))
}

/// A file's text; nothing where it cannot be read.
///
/// # Errors
/// Where this process has nothing left to read it with.
fn read(path: &str) -> Result<String, Errno> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) => match Errno::from_io_error(&error) {
            Some(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => Err(errno),
            _ => Ok(String::new()),
        },
    }
}

/// The word at this place of the line that begins with `name`.
pub(crate) fn word(text: &str, name: &str, at: usize) -> Option<u32> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().nth(at)?.parse().ok()
}

fn has_ended(process: BorrowedFd<'_>) -> bool {
    let now = Timespec::default();
    poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&now)) != Ok(0)
}

/// The effective uid of a process, by /proc; `None` where that does not say, or
/// no longer.
///
/// # Errors
/// Where this process has nothing left to look there with.
fn user_of(process: BorrowedFd<'_>) -> Result<Option<u32>, Errno> {
    let Some(pid) = pid_of(process)? else {
        return Ok(None);
    };
    let user = word(&read(&format!("/proc/{pid}/status"))?, "Uid:", 1);
    // Had the process ended before, the pid might have been another one's.
    Ok(user.filter(|_| !has_ended(process)))
}

/// In a handle that names none.
const NO_DESCRIPTOR: Failure = Failure::refused(Step::FetchByNumber, Reason::NoDescriptor);

fn get<F: AsFd>(process: &Process<F>, number: i32) -> Result<OwnedFd, Failure> {
    pidfd_getfd(&process.fd, number, PidfdGetfdFlags::empty()).map_err(refused)
}

fn refused(errno: Errno) -> Failure {
    let reason = match errno {
        Errno::SRCH => Reason::ExporterGone,
        Errno::BADF => Reason::ExportRevoked,
        Errno::PERM | Errno::ACCESS => Reason::PtraceRefused,
        Errno::NOSYS => Reason::NoPidfd,
        _ => Reason::System,
    };
    Failure::os(Step::FetchByNumber, reason, errno)
}
