//! Where descriptors of emulated memory lie: above the process's soft limit of
//! open files, if the hard one allows that. A real driver's memory takes no place
//! in the table, so a program's limit must not bound how much it can have.
//!
//! A descriptor above the limit works like any other; only a new one cannot be
//! made there without raising the limit, which is done for that moment.

use rustix::fd::OwnedFd;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::{Mutex, PoisonError};

/// Held while the limit is raised.
static RAISED: Mutex<()> = Mutex::new(());

/// Runs what changes the process's limit of open files while this driver does not: it
/// raises the limit for moments, and would put the old one back over a new one.
pub fn change_limit<T>(change: impl FnOnce() -> T) -> T {
    let _alone = RAISED.lock().unwrap_or_else(PoisonError::into_inner);
    change()
}

/// Moves a descriptor above the limit; gives it back as it is where that cannot be.
pub(crate) fn put(fd: OwnedFd) -> OwnedFd {
    let _alone = RAISED.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = getrlimit(Resource::Nofile);
    let Some(soft) = limit.current else {
        return fd;
    };
    let Ok(first) = i32::try_from(soft) else {
        return fd;
    };
    if limit.maximum.is_some_and(|hard| hard <= soft) {
        return fd;
    }
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if setrlimit(Resource::Nofile, raised).is_err() {
        return fd;
    }
    let moved = fcntl_dupfd_cloexec(&fd, first);
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        log::warn!("the limit of open files stays raised: {error}");
    }
    moved.unwrap_or(fd)
}
