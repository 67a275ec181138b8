//! Wakes the broker's thread, and says why.

use super::socket::Listener;
use super::thread::Stop;
use crate::process::private_fd::{File, PrivateFd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The end of a pipe that everyone but the thread has. (An eventfd has no inode of its
/// own, by which it could be told from another one under its number.)
#[derive(Debug)]
pub(super) struct Bell {
    rope: PrivateFd,
    stop: AtomicBool,
    added: Mutex<Vec<Listener>>,
}

/// The thread's end.
#[derive(Debug)]
pub(super) struct Ear(PrivateFd);

impl Bell {
    pub(super) fn new() -> rustix::io::Result<(Self, Ear)> {
        let (ear, rope) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let bell = Self {
            rope: PrivateFd::new(rope),
            stop: AtomicBool::new(false),
            added: Mutex::new(Vec::new()),
        };
        Ok((bell, Ear(PrivateFd::new(ear))))
    }

    /// Gives the thread one more socket to listen at.
    pub(super) fn add(&self, listener: Listener) {
        self.lock().push(listener);
        self.ring();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// The sockets that were added since the last call.
    pub(super) fn added(&self) -> Vec<Listener> {
        core::mem::take(&mut *self.lock())
    }

    /// What it needs to be heard.
    pub(super) const fn file(&self) -> File {
        self.rope.file()
    }

    fn ring(&self) -> bool {
        // A full pipe wakes the thread, too.
        self.rope.file().is_there()
            && matches!(
                rustix::io::write(&self.rope, &[1]),
                Ok(_) | Err(Errno::AGAIN)
            )
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Listener>> {
        self.added.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stop for Bell {
    fn stop(&self) -> bool {
        self.stop.store(true, Ordering::Release);
        self.ring()
    }
}

impl Ear {
    /// Hears all that was rung until now.
    pub(super) fn listen(&self) {
        let mut rung = [0; 64];
        while rustix::io::read(&self.0, &mut rung).is_ok_and(|rung| rung > 0) {}
    }

    pub(super) const fn file(&self) -> File {
        self.0.file()
    }
}

impl AsFd for Ear {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}
