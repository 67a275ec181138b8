//! Closes what another process sent, on threads that nobody waits for.
//!
//! The last `close` of a file can block for as long as its creator wants: a TCP socket
//! with SO_LINGER and unsent data, a file on a FUSE or NFS server, a terminal. So
//! neither the broker's thread nor an import closes a descriptor from another process,
//! or a connection whose unread messages hold one. A few threads close them, and end
//! when nothing is left to close.

use super::thread::spawn_without_signals;
use crate::process::identity;
use rustix::process::{Resource, getrlimit};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Threads that may sleep in a `close` at the same time.
const MOST_THREADS: usize = 4;

struct Closing {
    waiting: VecDeque<OwnedFd>,
    threads: usize,
}

static CLOSING: Mutex<Closing> = Mutex::new(Closing {
    waiting: VecDeque::new(),
    threads: 0,
});

fn closing() -> MutexGuard<'static, Closing> {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes a descriptor on another thread. While all of them sleep it stays open.
pub(super) fn close_elsewhere(fd: OwnedFd) {
    if identity::is_forked() {
        // The lock may be held for ever. The parent has the file open, too.
        return drop(fd);
    }
    let mut closing = closing();
    closing.waiting.push_back(fd);
    if closing.threads < MOST_THREADS {
        closing.threads += 1;
        drop(closing);
        crate::process::nodelete::keep_loaded();
        if spawn_without_signals("gpuipc-close", close_all).is_err() {
            // They wait for the next one.
            self::closing().threads -= 1;
        }
    }
}

/// Whether more wait to be closed than this process can afford: an eighth of its table.
pub(super) fn is_choked() -> bool {
    let waiting = u64::try_from(closing().waiting.len()).unwrap_or(u64::MAX);
    let limit = || getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    waiting > 16 && waiting > limit() / 8
}

fn close_all() {
    loop {
        let mut closing = closing();
        let Some(fd) = closing.waiting.pop_front() else {
            closing.threads -= 1;
            return;
        };
        drop(closing);
        drop(fd);
    }
}

/// A descriptor that another process gave. Dropped, it is closed elsewhere.
#[derive(Debug)]
pub(crate) struct Foreign(Option<OwnedFd>);

impl Foreign {
    pub(crate) const fn new(fd: OwnedFd) -> Self {
        Self(Some(fd))
    }

    /// Gives it to `take`. If that takes it, it is the driver's own and closed right here.
    pub(crate) fn give<T, E>(
        mut self,
        take: impl FnOnce(BorrowedFd<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let fd = self.0.take();
        let Some(fd) = fd else {
            unreachable!("taken by drop and here alone");
        };
        let taken = take(fd.as_fd());
        if taken.is_err() {
            self.0 = Some(fd);
        }
        taken
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Some(fd) = self.0.take() {
            close_elsewhere(fd);
        }
    }
}
