//! The file behind one piece of memory.
//!
//! An unnamed file (`O_TMPFILE`) in the store's directory: a header, then the
//! bytes. It lives until the last descriptor anywhere is closed, so a process
//! that is killed leaves nothing behind. An exported descriptor is a duplicate
//! of it. Its room on the disk is taken when it is made, so no later write can
//! fail for want of it.

#![allow(unsafe_code)]

use crate::Answer;
use crate::args::{In, Out};
use crate::config::config;
use crate::header::{HEADER_LEN, Header, Kind, Place};
use crate::shelf;
use crate::store::Store;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};
use gpuipc_sys::CuResult;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    FallocateFlags, Mode, OFlags, fallocate, fchmod, fcntl_getfl, fstat, fstatvfs, ftruncate,
    openat,
};
use rustix::io::{dup, fcntl_dupfd_cloexec, pread, pwrite, retry_on_intr};

/// Where the bytes begin: a page of any machine.
pub(crate) const HEADER_BYTES: u64 = 64 << 10;
/// A pool's file ends here at the latest; it takes room only for what lives.
pub(crate) const MOST_POOL_BYTES: u64 = 1 << 42;
/// Descriptors held for memory in this process.
static OPEN: AtomicU64 = AtomicU64::new(0);

/// How many files this process holds open.
pub(crate) fn open_files() -> u64 {
    OPEN.load(Ordering::Relaxed)
}

/// One file, open.
#[derive(Debug)]
pub(crate) struct Storage {
    file: OwnedFd,
    header: Header,
}

impl Storage {
    /// Makes new memory, all zero.
    pub(crate) fn create(
        store: &Store,
        kind: Kind,
        place: Place,
        size: u64,
        block_offset: u64,
    ) -> Answer<Self> {
        let storage = Self::empty(store, kind, place, size, block_offset)?;
        storage.take_room(0, size)?;
        Ok(storage)
    }

    /// Makes a pool's file: it has no memory yet.
    pub(crate) fn create_pool(store: &Store, place: Place) -> Answer<Self> {
        Self::empty(store, Kind::Pool, place, MOST_POOL_BYTES, 0)
    }

    /// Makes a multicast object's file: in place of memory it has a table of
    /// `table` bytes.
    pub(crate) fn create_object(store: &Store, size: u64, table: u64) -> Answer<Self> {
        let storage = Self::empty(store, Kind::Multicast, Place::Switch, size, 0)?;
        let whole = HEADER_BYTES + table;
        retry_on_intr(|| fallocate(&storage.file, FallocateFlags::empty(), 0, whole))
            .map_err(|_| CuResult::OUT_OF_MEMORY)?;
        Ok(storage)
    }

    /// Makes a file with a header.
    fn empty(
        store: &Store,
        kind: Kind,
        place: Place,
        size: u64,
        block_offset: u64,
    ) -> Answer<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = openat(store.dir(), ".", flags, Mode::from_raw_mode(0o666))
            .map_err(|_| CuResult::OUT_OF_MEMORY)?;
        // The umask may have taken bits; other users open this memory too.
        fchmod(&file, Mode::from_raw_mode(0o666)).map_err(|_| CuResult::OPERATING_SYSTEM)?;
        let id = crate::store::random();
        let header = Header {
            kind,
            place,
            size,
            block_offset,
            id,
        };
        let written = pwrite(&file, &header.encode(), 0).map_err(|_| CuResult::OUT_OF_MEMORY)?;
        if written != HEADER_LEN {
            return Err(CuResult::OUT_OF_MEMORY);
        }
        Ok(Self::counted(file, header))
    }

    /// Takes room on the disk for a part of the memory, so that writing it
    /// cannot fail.
    pub(crate) fn take_room(&self, offset: u64, size: u64) -> Answer {
        let end = offset
            .checked_add(size)
            .filter(|end| *end <= self.header.size)
            .ok_or(CuResult::OUT_OF_MEMORY)?;
        // Asked first, since filling the disk to the brim harms others meanwhile.
        let room = fstatvfs(&self.file).map_err(|_| CuResult::OPERATING_SYSTEM)?;
        let wanted = size.saturating_add(HEADER_BYTES);
        if room.f_bavail.saturating_mul(room.f_frsize) < wanted {
            return Err(CuResult::OUT_OF_MEMORY);
        }
        if config().room_on_write {
            let long = fstat(&self.file).map(|stat| u64::try_from(stat.st_size).unwrap_or(0));
            return match long {
                Ok(long) if long >= HEADER_BYTES + end => Ok(()),
                Ok(_) => retry_on_intr(|| ftruncate(&self.file, HEADER_BYTES + end))
                    .map_err(|_| CuResult::OUT_OF_MEMORY),
                Err(_) => Err(CuResult::OPERATING_SYSTEM),
            };
        }
        let from = HEADER_BYTES + offset;
        retry_on_intr(|| fallocate(&self.file, FallocateFlags::empty(), from, end - offset))
            .map_err(|_| CuResult::OUT_OF_MEMORY)
    }

    /// Gives a part's room back; it reads as zeros from then on.
    pub(crate) fn give_room(&self, offset: u64, size: u64) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let from = HEADER_BYTES + offset;
        if let Err(error) = retry_on_intr(|| fallocate(&self.file, flags, from, size)) {
            log::warn!("{size} bytes of a pool cannot be given back: {error}");
        }
    }

    /// Sets the byte at an offset to 1 or 0.
    pub(crate) fn mark(&self, offset: u64, marked: bool) {
        // No room is taken for what reads as 0 already.
        if self.is_marked(offset) == marked {
            return;
        }
        if let Err(error) = pwrite(&self.file, &[u8::from(marked)], HEADER_BYTES + offset) {
            log::warn!("memory of a pool cannot be marked: {error}");
        }
    }

    /// Whether the byte at an offset is 1.
    pub(crate) fn is_marked(&self, offset: u64) -> bool {
        let mut byte = [0];
        pread(&self.file, &mut byte, HEADER_BYTES + offset).is_ok() && byte == [1]
    }

    /// Takes a descriptor that says it is memory. `None` if it is not.
    pub(crate) fn open(store: &Store, file: BorrowedFd<'_>) -> Option<Self> {
        let stat = fstat(file).ok()?;
        // One to read only is a dma-buf's, not one to import.
        if fcntl_getfl(file).ok()? & OFlags::RWMODE != OFlags::RDWR {
            return None;
        }
        if stat.st_dev != store.device()
            || rustix::fs::FileType::from_raw_mode(stat.st_mode)
                != rustix::fs::FileType::RegularFile
        {
            return None;
        }
        let mut bytes = [0; HEADER_LEN];
        if pread(file, &mut bytes, 0).ok()? != bytes.len() {
            return None;
        }
        let header = Header::decode(&bytes)?;
        // A pool's file grows; an object's has no memory.
        let long_enough = matches!(header.kind, Kind::Pool | Kind::Multicast)
            || header.size.checked_add(HEADER_BYTES)? <= u64::try_from(stat.st_size).ok()?;
        let own = fcntl_dupfd_cloexec(file, 0).ok().filter(|_| long_enough)?;
        Some(Self::counted(own, header))
    }

    fn counted(file: OwnedFd, header: Header) -> Self {
        OPEN.fetch_add(1, Ordering::Relaxed);
        let file = shelf::put(file);
        Self { file, header }
    }

    /// What the header says.
    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// The file, to be named, shown or passed on.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Another descriptor of it, closed on exec.
    pub(crate) fn duplicate(&self) -> Answer<OwnedFd> {
        fcntl_dupfd_cloexec(&self.file, 0).map_err(|_| CuResult::OPERATING_SYSTEM)
    }

    /// Another descriptor of it, which programs that are started inherit.
    pub(crate) fn duplicate_to_inherit(&self) -> Answer<OwnedFd> {
        dup(&self.file).map_err(|_| CuResult::OPERATING_SYSTEM)
    }

    /// A descriptor of it to read only, closed on exec.
    pub(crate) fn for_reading(&self) -> Answer<OwnedFd> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::open(own, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|_| CuResult::OPERATING_SYSTEM)
    }

    /// Copies memory out to the caller, by the kernel.
    pub(crate) fn read(&self, offset: u64, to: Out<c_void>, skip: usize, len: usize) -> Answer {
        self.in_bounds(offset, len)?;
        transfer(len, |done| {
            let place = to.raw().wrapping_byte_add(skip).wrapping_byte_add(done);
            // SAFETY: the caller of a copy gives room for its length; `skip`
            // and `len` stay inside it. The kernel checks the address itself
            // and answers EFAULT for one that is not mapped.
            unsafe {
                libc::pread(
                    self.file.as_raw_fd(),
                    place,
                    len - done,
                    position(offset, done),
                )
            }
        })
    }

    /// Copies memory in from the caller, by the kernel.
    pub(crate) fn write(&self, offset: u64, from: In<c_void>, skip: usize, len: usize) -> Answer {
        self.in_bounds(offset, len)?;
        transfer(len, |done| {
            let place = from.raw().wrapping_byte_add(skip).wrapping_byte_add(done);
            // SAFETY: the kernel only reads, and answers EFAULT for an address
            // that is not mapped.
            unsafe {
                libc::pwrite(
                    self.file.as_raw_fd(),
                    place,
                    len - done,
                    position(offset, done),
                )
            }
        })
    }

    /// Fills `len` bytes with one value.
    pub(crate) fn fill(&self, offset: u64, value: u8, len: usize) -> Answer {
        self.in_bounds(offset, len)?;
        let pattern = vec![value; len.min(1 << 20)];
        let mut done = 0;
        while done < len {
            let part = &pattern[..pattern.len().min(len - done)];
            self.write_bytes(offset + done as u64, part)?;
            done += part.len();
        }
        Ok(())
    }

    /// Reads memory into a buffer of ours.
    pub(crate) fn read_bytes(&self, offset: u64, to: &mut [u8]) -> Answer {
        self.in_bounds(offset, to.len())?;
        let mut done = 0;
        while done < to.len() {
            let at = HEADER_BYTES + offset + done as u64;
            match retry_on_intr(|| pread(&self.file, &mut to[done..], at)) {
                Ok(0) | Err(_) => return Err(CuResult::INVALID_VALUE),
                Ok(bytes) => done += bytes,
            }
        }
        Ok(())
    }

    /// Writes memory from a buffer of ours.
    pub(crate) fn write_bytes(&self, offset: u64, from: &[u8]) -> Answer {
        self.in_bounds(offset, from.len())?;
        let mut done = 0;
        while done < from.len() {
            let at = HEADER_BYTES + offset + done as u64;
            match retry_on_intr(|| pwrite(&self.file, &from[done..], at)) {
                Ok(0) | Err(_) => return Err(CuResult::INVALID_VALUE),
                Ok(bytes) => done += bytes,
            }
        }
        Ok(())
    }

    fn in_bounds(&self, offset: u64, len: usize) -> Answer {
        let end = offset.checked_add(len as u64);
        if end.is_some_and(|end| end <= self.header.size) {
            Ok(())
        } else {
            Err(CuResult::INVALID_VALUE)
        }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

fn position(offset: u64, done: usize) -> i64 {
    // `in_bounds` keeps it below a file's size, which is an i64.
    i64::try_from(HEADER_BYTES + offset + done as u64).unwrap_or(i64::MAX)
}

/// Repeats a partial copy until `len` bytes are done.
fn transfer(len: usize, mut step: impl FnMut(usize) -> isize) -> Answer {
    let mut done = 0;
    while done < len {
        match usize::try_from(step(done)) {
            Ok(0) => return Err(CuResult::INVALID_VALUE),
            Ok(bytes) => done += bytes,
            Err(_) if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {
            }
            Err(_) => return Err(CuResult::INVALID_VALUE),
        }
    }
    Ok(())
}
