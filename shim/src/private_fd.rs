//! Descriptors that a forked child does not keep.
//!
//! A child that forks and does not exec holds copies of all descriptors: with a
//! copy of the broker's listener, connections to an exporter that has died would
//! hang instead of failing, and with a copy of an exported descriptor, GPU memory
//! would stay allocated. So a fork handler closes them in the child. (`exec`
//! closes them in any case: all are close-on-exec.)
#![allow(unsafe_code)]

use crate::identity;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, Once, PoisonError};

/// A descriptor of this process alone: closed on drop, and at fork in the child.
#[derive(Debug)]
pub(crate) struct PrivateFd {
    fd: ManuallyDrop<OwnedFd>,
    /// Where the fork handler finds it; `None` if there was no room.
    slot: Option<usize>,
}

impl PrivateFd {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        let slot = take_slot();
        if let Some(entry) = slot.and_then(entry) {
            entry.store(fd.as_raw_fd(), Ordering::Release);
        }
        Self {
            fd: ManuallyDrop::new(fd),
            slot,
        }
    }
}

impl AsFd for PrivateFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for PrivateFd {
    fn drop(&mut self) {
        if self.slot.is_some() && identity::is_forked() {
            // The handler closed it; the number may be another file's by now.
            return;
        }
        // Out of the table before the number can be another file's.
        if let Some(entry) = self.slot.and_then(entry) {
            entry.store(NONE, Ordering::Release);
        }
        // SAFETY: `fd` is not used again: this is the drop.
        unsafe { ManuallyDrop::drop(&mut self.fd) };
        if let Some(slot) = self.slot {
            free_slots().push(slot);
        }
    }
}

/// Slots are made in chunks that stay, so that the fork handler can read them
/// without a lock: another thread may hold any lock at the moment of a fork.
const CHUNK: usize = 1024;
type Chunk = [AtomicI32; CHUNK];
static CHUNKS: [AtomicPtr<Chunk>; 256] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 256];

/// In a slot that holds no descriptor.
const NONE: i32 = -1;

static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn free_slots() -> std::sync::MutexGuard<'static, Vec<usize>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A free slot; `None` once a quarter of a million are taken or without the handler.
fn take_slot() -> Option<usize> {
    if !install_handler() {
        return None;
    }
    let mut free = free_slots();
    if let Some(slot) = free.pop() {
        return Some(slot);
    }
    let number = CHUNKS
        .iter()
        .position(|chunk| chunk.load(Ordering::Acquire).is_null())?;
    let chunk: Box<Chunk> = Box::new([const { AtomicI32::new(NONE) }; CHUNK]);
    CHUNKS
        .get(number)?
        .store(Box::into_raw(chunk), Ordering::Release);
    free.extend((number * CHUNK..(number + 1) * CHUNK).rev());
    free.pop()
}

/// A slot's entry.
fn entry(slot: usize) -> Option<&'static AtomicI32> {
    let chunk = CHUNKS.get(slot / CHUNK)?.load(Ordering::Acquire);
    // SAFETY: null, or a chunk that `take_slot` leaked: initialized, aligned,
    // never freed, shared through atomics only.
    let chunk = unsafe { chunk.as_ref() }?;
    chunk.get(slot % CHUNK)
}

/// Registers the fork handler once; whether it is there.
fn install_handler() -> bool {
    static INSTALL: Once = Once::new();
    static INSTALLED: AtomicI32 = AtomicI32::new(0);
    INSTALL.call_once(|| {
        // SAFETY: the handler is async-signal-safe: it reads atomics and calls
        // close. It stays as long as this code is loaded.
        let result = unsafe { libc::pthread_atfork(None, None, Some(close_all_in_child)) };
        INSTALLED.store(i32::from(result == 0), Ordering::Release);
    });
    INSTALLED.load(Ordering::Acquire) != 0
}

extern "C" fn close_all_in_child() {
    for chunk in &CHUNKS {
        // SAFETY: as in `entry`.
        let Some(chunk) = (unsafe { chunk.load(Ordering::Acquire).as_ref() }) else {
            return;
        };
        for entry in chunk {
            let fd = entry.swap(NONE, Ordering::AcqRel);
            if fd != NONE {
                // SAFETY: a descriptor that this child inherited and that no
                // code in the child uses: its owner's drop does nothing here.
                unsafe { libc::close(fd) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_in_the_table_while_the_descriptor_lives() {
        let file = std::fs::File::open("/dev/null").expect("/dev/null is everywhere");
        let number = file.as_raw_fd();
        let fd = PrivateFd::new(file.into());
        let slot = fd.slot.expect("there is room");
        assert_eq!(
            entry(slot).expect("an entry").load(Ordering::Acquire),
            number
        );
        drop(fd);
        assert_eq!(entry(slot).expect("an entry").load(Ordering::Acquire), NONE);
    }

    #[test]
    fn more_descriptors_than_a_chunk_holds_find_room() {
        let file = std::fs::File::open("/dev/null").expect("/dev/null is everywhere");
        let fds: Vec<PrivateFd> = (0..CHUNK + 10)
            .map_while(|_| file.try_clone().ok())
            .map(|file| PrivateFd::new(file.into()))
            .collect();
        let mut slots: Vec<usize> = fds.iter().filter_map(|fd| fd.slot).collect();
        assert_eq!(slots.len(), fds.len());
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), fds.len());
    }
}
