//! The export table: a sealed page in the exporter that lists its exported descriptors,
//! for importers that fetch a descriptor by number.
//!
//! A number alone proves nothing: the descriptor may have been closed, and the number
//! may belong to another file when it is fetched. So each export with a descriptor has
//! a slot in the table. The slot holds the token and the number from before the handle
//! exists until before the descriptor is closed. An importer fetches the descriptor
//! first and the table second, and checks that the table has the same inode at the same
//! number, so that no `exec` happened in between. If the slot then holds the token, the
//! number meant the exported descriptor when it was fetched.
//!
//! The page is a memfd with the seals SHRINK, GROW, FUTURE_WRITE and SEAL. A fetched
//! descriptor is the same open file, so the seals keep everybody but the owner from
//! writing to it. The owner writes through a mapping that it made before.
#![allow(unsafe_code)]

use crate::error::Error;
use crate::process::identity;
use crate::process::private_fd::PrivateFd;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use gpuipc_core::{TABLE_ENTRY_BYTES as SLOT_BYTES, TableEntry, TablePlace, Ticket, Token};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::{Errno, pread};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// Exports with a descriptor at one time; more have no slot, and are only to be
/// had from the broker. The file is sparse: a page is taken when it is used.
const SLOTS: u32 = 65_536;
const BYTES: usize = SLOTS as usize * SLOT_BYTES;

/// The seals of an export table. What lacks one of them, or has another length, is none. The
/// kernel adds one against execution (vm.memfd_noexec).
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::FUTURE_WRITE)
    .union(SealFlags::SEAL);

/// The memfd's name, which /proc shows.
pub(crate) const NAME: &str = "gpuipc-exports";

/// A page of tokens.
pub(crate) struct ExportTable {
    fd: PrivateFd,
    device: u64,
    inode: u64,
    words: &'static [[AtomicU64; 4]],
    free: Mutex<Free>,
}

impl fmt::Debug for ExportTable {
    /// Without the slots: they hold tokens, and a forked child has not got them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportTable")
            .field("inode", &self.inode)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Free {
    returned: Vec<u32>,
    never_used: u32,
}

impl ExportTable {
    pub(crate) fn create() -> Result<Arc<Self>, Error> {
        let os = |step| move |errno| Error::os(step, errno);
        let limit = getrlimit(Resource::Fsize).current;
        if limit.is_some_and(|limit| limit < BYTES as u64) {
            // Growing the file would bring SIGXFSZ, which ends the process.
            return Err(os("ftruncate of the export table (RLIMIT_FSIZE)")(
                Errno::FBIG,
            ));
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // What a machine with vm.memfd_noexec asks for; Linux before 6.3 does not know it.
        let fd: OwnedFd = match memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => memfd_create(NAME, flags),
            made => made,
        }
        .map_err(os("memfd_create"))?;
        ftruncate(&fd, BYTES as u64).map_err(os("ftruncate of the export table"))?;
        let stat = fstat(&fd).map_err(os("fstat of the export table"))?;
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
        .map_err(os("mmap of the export table"))?;
        let words = mapped.cast::<[AtomicU64; 4]>().cast_const();
        // SAFETY: BYTES bytes, page-aligned, of a file of that length that the
        // seals below keep at that length; atomics only, all zeros is valid;
        // unmapped by the drop alone, which nothing outlives that uses them.
        let words = unsafe { core::slice::from_raw_parts(words, SLOTS as usize) };
        let table = Self {
            fd: PrivateFd::new(fd),
            device: stat.st_dev,
            inode: stat.st_ino,
            words,
            free: Mutex::default(),
        };
        // SAFETY: the mapping made above; a forked child neither reads nor
        // clears its parent's slots (`identity::is_forked` comes first).
        // Where that is refused it has them, and leaves them alone all the same.
        let _ = unsafe { rustix::mm::madvise(mapped, BYTES, Advice::LinuxDontFork) };
        fcntl_add_seals(table.fd.as_fd(), SEALS).map_err(os("seals of the export table"))?;
        Ok(Arc::new(table))
    }

    /// Writes a token, and the descriptor and the allocation that are exported under it,
    /// into a free slot; `None` if all are taken.
    pub(crate) fn enter(
        self: &Arc<Self>,
        token: &Token,
        fd: Option<i32>,
        allocation_id: u64,
    ) -> Option<Entry> {
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
        for (word, value) in words.iter().zip(slot_words(*token, fd, allocation_id)) {
            word.store(value, Ordering::Release);
        }
        Some(Entry {
            table: Arc::clone(self),
            slot,
        })
    }
}

/// A slot's bytes as words, in memory order.
fn slot_words(token: Token, fd: Option<i32>, allocation_id: u64) -> [u64; 4] {
    let bytes = TableEntry {
        token,
        allocation_id,
        fd,
    }
    .encode();
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    words
}

/// Who made a fetched export table, if it is one and says that `ticket`'s export of this
/// allocation lives, with the ticket's descriptor.
///
/// What was fetched may be anything that the exporter, or a forger, has at that
/// number. So the seals come first: only a file in memory has them, and asking
/// for them waits for no one, as other calls on an unknown file may.
pub(crate) fn maker_of_entry(
    table: &OwnedFd,
    ticket: &Ticket,
    allocation_id: u64,
    entry: &TablePlace,
) -> rustix::io::Result<Option<u32>> {
    match fcntl_get_seals(table) {
        Ok(seals) if seals.contains(SEALS) => {}
        // Of no file in memory.
        Ok(_) | Err(Errno::INVAL) => return Ok(None),
        // A filter that forbids to ask says nothing about the file.
        Err(errno) => return Err(errno),
    }
    let stat = fstat(table)?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if size != BYTES as u64 || stat.st_dev != entry.device || stat.st_ino != entry.inode {
        return Ok(None);
    }
    let mut bytes = [0; SLOT_BYTES];
    let at = u64::from(entry.slot) * SLOT_BYTES as u64;
    let read = pread(table, &mut bytes, at)?;
    let wanted = TableEntry {
        token: ticket.token,
        allocation_id,
        fd: ticket.fd,
    };
    let right = read == bytes.len() && TableEntry::decode(&bytes) == Some(wanted);
    Ok(right.then_some(stat.st_uid))
}

impl Drop for ExportTable {
    fn drop(&mut self) {
        if identity::is_forked() {
            // The mapping is the parent's, if the child has it at all.
            return;
        }
        let address = self.words.as_ptr().cast_mut().cast();
        // SAFETY: exactly the mapping that `create` made; this is the last
        // reference to the export table, so nobody uses the words any more.
        let unmapped = unsafe { rustix::mm::munmap(address, BYTES) };
        if let Err(errno) = unmapped {
            log::warn!(target: "gpuipc::broker", "undo: munmap of the export table failed: {errno}");
        }
    }
}

/// A token in the export table; taken out on drop, which must come before the close of
/// the descriptor that it vouches for.
#[derive(Debug)]
pub(crate) struct Entry {
    table: Arc<ExportTable>,
    slot: u32,
}

impl Entry {
    /// What a ticket says about it.
    pub(crate) fn describe(&self) -> TablePlace {
        TablePlace {
            fd: self.table.fd.as_fd().as_raw_fd(),
            slot: self.slot,
            device: self.table.device,
            inode: self.table.inode,
        }
    }

    /// Takes the token out: from now on nobody finds it. The slot stays this entry's.
    pub(crate) fn revoke(&self) {
        if let Some(words) = self.table.words.get(self.slot as usize) {
            words
                .iter()
                .for_each(|word| word.store(0, Ordering::Release));
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if identity::is_forked() {
            return;
        }
        self.revoke();
        let mut free = self
            .table
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        free.returned.push(self.slot);
    }
}
