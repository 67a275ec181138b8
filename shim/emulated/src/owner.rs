//! The lock that says a process lives.
//!
//! Each process that uses the emulated driver has a file `<id>.owner` with a
//! lock on its first byte (an open file description lock: it is seen across
//! pid, user and network namespaces and by other users, and ends with the
//! process). The file is locked *before* it gets its name, so a named file
//! without the lock is a dead process's. Sweepers lock the second byte
//! against each other, which an importer does not mistake for life.

#![allow(unsafe_code)]

use crate::Answer;
use crate::store::{self, Store};
use core::sync::atomic::{AtomicI32, Ordering};
use gpuipc_sys::CuResult;
use rustix::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags, fchmod, openat};

/// The descriptor that holds this process's lock, or -1. A number, since a
/// forked child closes it in a handler that may take no locks.
static LOCK: AtomicI32 = AtomicI32::new(-1);

const ALIVE: i64 = 0;
const SWEEPING: i64 = 1;

/// An owner's number; random.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct OwnerId(pub(crate) u64);

impl OwnerId {
    fn file_name(self) -> String {
        format!("{:016x}.owner", self.0)
    }

    /// The name of this owner's memory at an address.
    pub(crate) fn memory_name(self, address: u64) -> String {
        format!("{:016x}-{address:x}", self.0)
    }
}

/// Announces this process.
pub(crate) fn announce(store: &Store) -> Answer<OwnerId> {
    let id = OwnerId(u64::from_le_bytes(store::random()));
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let made = openat(store.dir(), ".", flags, Mode::from_raw_mode(0o666)).and_then(|file| {
        fchmod(&file, Mode::from_raw_mode(0o666))?;
        Ok(file)
    });
    let file = made.map_err(|error| failed(&error))?;
    if !try_lock(rustix::fd::AsFd::as_fd(&file), ALIVE) {
        return Err(failed(&"no lock"));
    }
    store::name_file(rustix::fd::AsFd::as_fd(&file), store.dir(), &id.file_name())
        .map_err(|error| failed(&error))?;
    LOCK.store(file.into_raw_fd(), Ordering::Release);
    Ok(id)
}

fn failed(error: &dyn core::fmt::Display) -> CuResult {
    log::error!("this process cannot be announced to the others: {error}");
    CuResult::OPERATING_SYSTEM
}

/// Lets go of the lock, in a forked child: it must not keep a dead parent
/// alive. Safe in a fork handler: one atomic and one `close`.
pub(crate) fn forget_in_child() {
    let lock = LOCK.swap(-1, Ordering::AcqRel);
    if lock >= 0 {
        // SAFETY: the number came from `into_raw_fd` in `announce`, and the
        // swap hands it to one closer only.
        drop(unsafe { <OwnedFd as rustix::fd::FromRawFd>::from_raw_fd(lock) });
    }
}

/// Takes this process's file away, at its end.
pub(crate) fn revoke(store: &Store, id: OwnerId) {
    store::remove_name(store.dir(), &id.file_name());
}

/// Whether an owner lives.
pub(crate) fn lives(store: &Store, id: OwnerId) -> bool {
    store::open_name(store.dir(), &id.file_name())
        .is_ok_and(|file| is_locked(rustix::fd::AsFd::as_fd(&file), ALIVE))
}

/// Removes what dead owners left in `dir` and the folders given.
pub(crate) fn sweep(store: &Store, folders: &[OwnedFd]) {
    for name in store::names(store.dir()) {
        let Some(owner) = name.strip_suffix(".owner") else {
            continue;
        };
        let Ok(file) = store::open_name(store.dir(), &name) else {
            continue;
        };
        let file = rustix::fd::AsFd::as_fd(&file);
        if is_locked(file, ALIVE) || !try_lock(file, SWEEPING) {
            continue;
        }
        let prefix = format!("{owner}-");
        let dirs = core::iter::once(store.dir()).chain(folders.iter().map(rustix::fd::AsFd::as_fd));
        for dir in dirs {
            for left in store::names(dir)
                .iter()
                .filter(|left| left.starts_with(&prefix))
            {
                store::remove_name(dir, left);
            }
        }
        // Last, so that a sweep that dies is finished by the next one.
        store::remove_name(store.dir(), &name);
    }
}

fn byte_lock(kind: i32, byte: i64) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    }
}

fn try_lock(file: BorrowedFd<'_>, byte: i64) -> bool {
    let mut lock = byte_lock(libc::F_WRLCK, byte);
    // SAFETY: the descriptor is open (borrowed), and F_OFD_SETLK reads one
    // `flock` that lives across the call.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) == 0 }
}

/// Shares a lock on a byte with others: it ends with the last descriptor of the
/// open file, wherever that is.
pub(crate) fn share_lock(file: BorrowedFd<'_>, byte: i64) -> bool {
    let mut lock = byte_lock(libc::F_RDLCK, byte);
    // SAFETY: as in `try_lock`.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) == 0 }
}

/// Waits for the lock on a byte, which others hold for moments only.
pub(crate) fn wait_lock(file: BorrowedFd<'_>, byte: i64) -> bool {
    loop {
        let mut lock = byte_lock(libc::F_WRLCK, byte);
        // SAFETY: as in `try_lock`; a signal may end the wait.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLKW, &raw mut lock) };
        let interrupted = std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted;
        if done == 0 || !interrupted {
            return done == 0;
        }
    }
}

/// Whether another open file than this one has a lock on a byte.
pub(crate) fn is_locked(file: BorrowedFd<'_>, byte: i64) -> bool {
    let mut lock = byte_lock(libc::F_WRLCK, byte);
    // SAFETY: as in `try_lock`; F_OFD_GETLK writes the same `flock`.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    asked == 0 && i32::from(lock.l_type) != libc::F_UNLCK
}
