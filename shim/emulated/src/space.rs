//! Addresses of this process that stand for device memory.
//!
//! A [`Region`] is a piece of address space without CPU access: a stray read
//! or write faults as it does with a real GPU. Only host memory is ever shown
//! to the CPU inside one. No Rust reference points into a region.

#![allow(unsafe_code)]

use core::ffi::c_void;
use core::ptr;
use rustix::fd::AsFd;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::io;

/// Reserved addresses; they are given back on drop.
#[derive(Debug)]
pub(crate) struct Region {
    base: u64,
    size: u64,
}

fn pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address as usize)
}

impl Region {
    /// Reserves `size` bytes at a multiple of `align` (a power of two, at least
    /// a page), at `wish` if that is free. `None` where no addresses are left.
    pub(crate) fn new(size: u64, align: u64, wish: Option<u64>) -> Option<Self> {
        if let Some(region) = wish
            .filter(|wish| wish.is_multiple_of(align))
            .and_then(|wish| Self::at(wish, size))
        {
            return Some(region);
        }
        let room = usize::try_from(size.checked_add(align)?).ok()?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice
        // touches nothing that exists.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), room, ProtFlags::empty(), flags) }.ok()?;
        let start = start.expose_provenance() as u64;
        let end = start + room as u64;
        let base = start.next_multiple_of(align);
        unmap(start, base - start);
        unmap(base + size, end - (base + size));
        Some(Self { base, size })
    }

    /// Exactly there, or not at all.
    fn at(wish: u64, size: u64) -> Option<Self> {
        let bytes = usize::try_from(size).ok()?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: FIXED_NOREPLACE never replaces a mapping that exists.
        let start =
            unsafe { mmap_anonymous(pointer(wish), bytes, ProtFlags::empty(), flags) }.ok()?;
        let base = start.expose_provenance() as u64;
        let region = Self { base, size };
        // Kernels before 4.17 ignore the flag and may choose another address.
        (base == wish).then_some(region)
    }

    /// The first address.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Length in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    fn inside(&self, offset: u64, len: u64) -> io::Result<(*mut c_void, usize)> {
        let end = offset
            .checked_add(len)
            .filter(|end| *end <= self.size && len > 0);
        match (end, usize::try_from(len)) {
            (Some(_), Ok(len)) => Ok((pointer(self.base + offset), len)),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Lets the CPU see `file` from `from` on at `offset` of the region. The
    /// caller has made sure that the file has that many bytes, with room on
    /// its disk.
    pub(crate) fn show(
        &self,
        offset: u64,
        len: u64,
        file: impl AsFd,
        from: u64,
        writable: bool,
    ) -> io::Result<()> {
        let (place, len) = self.inside(offset, len)?;
        let protection = if writable {
            ProtFlags::READ | ProtFlags::WRITE
        } else {
            ProtFlags::READ
        };
        // SAFETY: FIXED replaces pages of this region only (`inside` checked
        // it), which this value owns and no Rust reference points into.
        unsafe {
            mmap(
                place,
                len,
                protection,
                MapFlags::SHARED | MapFlags::FIXED,
                file,
                from,
            )
        }?;
        // SAFETY: the pages were mapped right above; the advice only says that
        // a forked child does not get them, as it gets none from the driver.
        unsafe { madvise(place, len, Advice::LinuxDontFork) }?;
        Ok(())
    }

    /// Takes CPU access away again.
    pub(crate) fn hide(&self, offset: u64, len: u64) -> io::Result<()> {
        let (place, len) = self.inside(offset, len)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: as in `show`: pages of this region only.
        unsafe { mmap_anonymous(place, len, ProtFlags::empty(), flags) }?;
        Ok(())
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        unmap(self.base, self.size);
    }
}

/// Gives back addresses that the caller owns.
fn unmap(start: u64, len: u64) {
    if len == 0 {
        return;
    }
    // SAFETY: both callers own the addresses (a fresh mapping's edges, a
    // region's own), and no Rust reference points into them.
    let done = unsafe { munmap(pointer(start), len as usize) };
    if let Err(error) = done {
        log::warn!("addresses {start:#x}+{len:#x} cannot be given back: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::Region;

    #[test]
    fn a_region_is_aligned_and_its_addresses_come_back() {
        let region = Region::new(4 << 20, 2 << 20, None).expect("addresses");
        assert!(region.base().is_multiple_of(2 << 20));
        let base = region.base();
        assert!(Region::at(base, 4 << 20).is_none(), "taken");
        drop(region);
        assert_eq!(
            Region::new(4 << 20, 2 << 20, Some(base))
                .expect("addresses")
                .base(),
            base
        );
    }
}
