//! The ledger: a sealed page in the exporter that says which of its descriptors
//! are on offer, for importers that fetch a descriptor by its number.
//!
//! A number alone proves nothing: it may be closed and be another file's by the
//! time somebody fetches it. So each offer with a descriptor has a slot here that
//! holds its token from before the handle exists until before the descriptor is
//! closed. Who fetches the descriptor first, then the ledger anew (the same
//! inode, at the same number, so no `exec` came between), and finds the token in
//! the slot, knows that the number meant the offered descriptor at the time of
//! the fetch.
//!
//! The page is a memfd with the seals SHRINK, GROW, FUTURE_WRITE and SEAL: a
//! fetched descriptor is the same open file, and must not let anyone but the
//! owner, through the mapping made before, write to it.
#![allow(unsafe_code)]

use crate::error::Error;
use crate::identity;
use crate::private_fd::PrivateFd;
use core::sync::atomic::{AtomicU64, Ordering};
use gpuipc_core::{LedgerEntry, Token};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a slot: one token.
pub(crate) const SLOT_BYTES: u64 = 16;
/// Offers with a descriptor at one time; more have no slot, and are only to be
/// had from the broker. The file is sparse: a page is taken when it is used.
const SLOTS: u32 = 65_536;
const BYTES: usize = SLOTS as usize * SLOT_BYTES as usize;

/// A page of tokens.
#[derive(Debug)]
pub(crate) struct Ledger {
    fd: PrivateFd,
    device: u64,
    inode: u64,
    words: &'static [[AtomicU64; 2]],
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    returned: Vec<u32>,
    never_used: u32,
}

impl Ledger {
    pub(crate) fn create() -> Result<Arc<Self>, Error> {
        let os = |step| move |errno| Error::os(step, errno);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd: OwnedFd = memfd_create("gpuipc-ledger", flags).map_err(os("memfd_create"))?;
        ftruncate(&fd, BYTES as u64).map_err(os("ftruncate of the ledger"))?;
        let stat = fstat(&fd).map_err(os("fstat of the ledger"))?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new shared mapping of a file that only this function knows,
        // wherever the kernel likes, replaces nothing.
        let mapped = unsafe {
            rustix::mm::mmap(
                core::ptr::null_mut(),
                BYTES,
                protection,
                MapFlags::SHARED,
                &fd,
                0,
            )
        }
        .map_err(os("mmap of the ledger"))?;
        let words = mapped.cast::<[AtomicU64; 2]>().cast_const();
        // SAFETY: BYTES bytes, page-aligned, of a file of that length that the
        // seals below keep at that length; atomics only, all zeros is valid;
        // unmapped by the drop alone, which nothing outlives that uses them.
        let words = unsafe { core::slice::from_raw_parts(words, SLOTS as usize) };
        let ledger = Self {
            fd: PrivateFd::new(fd),
            device: stat.st_dev,
            inode: stat.st_ino,
            words,
            free: Mutex::default(),
        };
        // SAFETY: the mapping made above; a forked child neither reads nor
        // clears its parent's slots (`identity::is_forked` comes first).
        unsafe { rustix::mm::madvise(mapped, BYTES, Advice::LinuxDontFork) }
            .map_err(os("madvise(MADV_DONTFORK) of the ledger"))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        fcntl_add_seals(ledger.fd.as_fd(), seals).map_err(os("seals of the ledger"))?;
        Ok(Arc::new(ledger))
    }

    /// Writes a token into a free slot; `None` if all are taken.
    pub(crate) fn enter(self: &Arc<Self>, token: &Token) -> Option<Entry> {
        let slot = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            match free.returned.pop() {
                Some(slot) => slot,
                None if free.never_used < SLOTS => {
                    free.never_used += 1;
                    free.never_used - 1
                }
                None => return None,
            }
        };
        let words = self.words.get(slot as usize)?;
        for (word, half) in words.iter().zip(halves(token)) {
            word.store(half, Ordering::Release);
        }
        Some(Entry {
            ledger: Arc::clone(self),
            slot,
        })
    }
}

/// A token as the two words of a slot, in memory order.
fn halves(token: &Token) -> [u64; 2] {
    let half = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte))
    };
    let (low, high) = token.as_bytes().split_at(8);
    [half(low).to_le(), half(high).to_le()]
}

impl Drop for Ledger {
    fn drop(&mut self) {
        if identity::is_forked() {
            // Not mapped in a child.
            return;
        }
        let address = self.words.as_ptr().cast_mut().cast();
        // SAFETY: exactly the mapping that `create` made; this is the last
        // reference to the ledger, so nobody uses the words any more.
        let unmapped = unsafe { rustix::mm::munmap(address, BYTES) };
        if let Err(errno) = unmapped {
            log::warn!(target: "gpuipc::broker", "undo: munmap of the ledger failed: {errno}");
        }
    }
}

/// A token in the ledger; taken out on drop, which must come before the close of
/// the descriptor that it vouches for.
#[derive(Debug)]
pub(crate) struct Entry {
    ledger: Arc<Ledger>,
    slot: u32,
}

impl Entry {
    /// What a ticket says about it.
    pub(crate) fn describe(&self) -> LedgerEntry {
        LedgerEntry {
            fd: self.ledger.fd.as_fd().as_raw_fd(),
            slot: self.slot,
            device: self.ledger.device,
            inode: self.ledger.inode,
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if identity::is_forked() {
            return;
        }
        if let Some(words) = self.ledger.words.get(self.slot as usize) {
            words
                .iter()
                .for_each(|word| word.store(0, Ordering::Release));
        }
        let mut free = self
            .ledger
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        free.returned.push(self.slot);
    }
}
