//! The file behind one piece of memory.
//!
//! An unnamed file (`O_TMPFILE`) in the store's directory: a header, then the
//! bytes. It lives until the last descriptor anywhere is closed, so a process
//! that is killed leaves nothing behind. An exported descriptor is a duplicate
//! of it. Its room on the disk is taken when it is made, so no later write can
//! fail for want of it.

#![allow(unsafe_code)]

use crate::Answer;
use crate::border::{In, Out};
use crate::store::Store;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};
use gpuipc::sys::CuResult;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fchmod, fstat, fstatvfs, openat};
use rustix::io::{fcntl_dupfd_cloexec, pread, pwrite, retry_on_intr};

/// Where the bytes begin: a page of any machine.
pub(crate) const HEADER_BYTES: u64 = 64 << 10;
const MAGIC: &[u8; 8] = b"GPUIPCEM";
const VERSION: u32 = 1;

/// Layout of the header, little-endian.
mod field {
    use core::ops::Range;
    pub(super) const MAGIC: Range<usize> = 0..8;
    pub(super) const VERSION: Range<usize> = 8..12;
    pub(super) const KIND: Range<usize> = 12..16;
    pub(super) const PLACE: Range<usize> = 16..20;
    pub(super) const PLACE_ID: Range<usize> = 20..24;
    pub(super) const SIZE: Range<usize> = 24..32;
    pub(super) const BLOCK_OFFSET: Range<usize> = 32..40;
    pub(super) const ID: Range<usize> = 40..56;
    pub(super) const END: usize = 56;
}

/// Which family of calls made the memory; it decides who may open it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// `cuMemCreate`.
    Vmm,
    /// `cuMemAlloc`.
    Alloc,
    /// `cuMemHostAlloc`.
    Host,
}

/// Where the memory lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// A GPU, by the machine's number.
    Gpu(u32),
    /// A NUMA node of the host.
    Numa(u32),
}

/// What the header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// Who made it.
    pub(crate) kind: Kind,
    /// Where it lies.
    pub(crate) place: Place,
    /// Bytes of memory.
    pub(crate) size: u64,
    /// Where the memory begins in the driver's block of its maker.
    pub(crate) block_offset: u64,
    /// Random; the same memory in every process.
    pub(crate) id: [u8; 16],
}

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
        let total = size
            .checked_add(HEADER_BYTES)
            .ok_or(CuResult::OUT_OF_MEMORY)?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = openat(store.dir(), ".", flags, Mode::from_raw_mode(0o666))
            .map_err(|_| CuResult::OUT_OF_MEMORY)?;
        // The umask may have taken bits; other users open this memory too.
        fchmod(&file, Mode::from_raw_mode(0o666)).map_err(|_| CuResult::OPERATING_SYSTEM)?;
        // Asked first, since filling the disk to the brim harms others meanwhile.
        let room = fstatvfs(&file).map_err(|_| CuResult::OPERATING_SYSTEM)?;
        if room.f_bavail.saturating_mul(room.f_frsize) < total {
            return Err(CuResult::OUT_OF_MEMORY);
        }
        retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), HEADER_BYTES, size))
            .map_err(|_| CuResult::OUT_OF_MEMORY)?;
        let id = crate::store::random();
        let header = Header {
            kind,
            place,
            size,
            block_offset,
            id,
        };
        let written = pwrite(&file, &header.encode(), 0).map_err(|_| CuResult::OUT_OF_MEMORY)?;
        if written != field::END {
            return Err(CuResult::OUT_OF_MEMORY);
        }
        Ok(Self::counted(file, header))
    }

    /// Takes a descriptor that says it is memory. `None` if it is not.
    pub(crate) fn open(store: &Store, file: BorrowedFd<'_>) -> Option<Self> {
        let stat = fstat(file).ok()?;
        if stat.st_dev != store.device()
            || rustix::fs::FileType::from_raw_mode(stat.st_mode)
                != rustix::fs::FileType::RegularFile
        {
            return None;
        }
        let mut bytes = [0; field::END];
        if pread(file, &mut bytes, 0).ok()? != bytes.len() {
            return None;
        }
        let header = Header::decode(&bytes)?;
        let long_enough =
            header.size.checked_add(HEADER_BYTES)? <= u64::try_from(stat.st_size).ok()?;
        let own = fcntl_dupfd_cloexec(file, 0).ok().filter(|_| long_enough)?;
        Some(Self::counted(own, header))
    }

    fn counted(file: OwnedFd, header: Header) -> Self {
        OPEN.fetch_add(1, Ordering::Relaxed);
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
            let at = HEADER_BYTES + offset + done as u64;
            done += retry_on_intr(|| pwrite(&self.file, part, at))
                .map_err(|_| CuResult::INVALID_VALUE)?;
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

impl Header {
    fn encode(&self) -> [u8; field::END] {
        let kind: u32 = match self.kind {
            Kind::Vmm => 1,
            Kind::Alloc => 2,
            Kind::Host => 3,
        };
        let (place, place_id): (u32, u32) = match self.place {
            Place::Gpu(device) => (1, device),
            Place::Numa(node) => (2, node),
        };
        let mut bytes = [0; field::END];
        bytes[field::MAGIC].copy_from_slice(MAGIC);
        bytes[field::VERSION].copy_from_slice(&VERSION.to_le_bytes());
        bytes[field::KIND].copy_from_slice(&kind.to_le_bytes());
        bytes[field::PLACE].copy_from_slice(&place.to_le_bytes());
        bytes[field::PLACE_ID].copy_from_slice(&place_id.to_le_bytes());
        bytes[field::SIZE].copy_from_slice(&self.size.to_le_bytes());
        bytes[field::BLOCK_OFFSET].copy_from_slice(&self.block_offset.to_le_bytes());
        bytes[field::ID].copy_from_slice(&self.id);
        bytes
    }

    fn decode(bytes: &[u8; field::END]) -> Option<Self> {
        let small = |at: core::ops::Range<usize>| bytes[at].try_into().map(u32::from_le_bytes).ok();
        let large = |at: core::ops::Range<usize>| bytes[at].try_into().map(u64::from_le_bytes).ok();
        if &bytes[field::MAGIC] != MAGIC || small(field::VERSION)? != VERSION {
            return None;
        }
        let kind = match small(field::KIND)? {
            1 => Kind::Vmm,
            2 => Kind::Alloc,
            3 => Kind::Host,
            _ => return None,
        };
        let place = match (small(field::PLACE)?, small(field::PLACE_ID)?) {
            (1, device) => Place::Gpu(device),
            (2, node) => Place::Numa(node),
            _ => return None,
        };
        let (size, block_offset) = (large(field::SIZE)?, large(field::BLOCK_OFFSET)?);
        let sane = size > 0 && block_offset < crate::blocks::BLOCK;
        let id = bytes[field::ID].try_into().ok()?;
        sane.then_some(Self {
            kind,
            place,
            size,
            block_offset,
            id,
        })
    }
}
