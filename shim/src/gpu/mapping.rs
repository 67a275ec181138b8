//! The steps of a mapping. Each step is an object that undoes itself on drop, so a
//! failure undoes exactly the steps before it.

#![allow(unsafe_code)]

use crate::gpu::driver::{AllocationHandle, Driver, DriverCause, DriverError};
use crate::gpu::reservation::{Place, Reservation};
use crate::gpu::undo;
use crate::process::identity;
use crate::sys::{CuDevicePtr, CuMemAccessDesc, CuResult, pointer_attribute};
use std::sync::Arc;

/// Whole VMM allocations mapped side by side into a reservation: `cuMemMap`
/// each, one `cuMemUnmap` over all on drop. The mapping itself keeps the memory
/// allocated.
#[derive(Debug)]
pub(crate) struct VmmMapping {
    driver: Driver,
    base: CuDevicePtr,
    /// Bytes that were reserved for it.
    size: usize,
    mapped: usize,
    /// Freed after the unmap.
    reservation: Arc<Reservation>,
}

impl VmmMapping {
    /// Reserves room for `size` bytes, with nothing mapped yet.
    pub(crate) fn reserve(driver: Driver, size: usize) -> Result<Self, DriverError> {
        let reservation = Reservation::reserve(driver, size)?;
        Ok(Self {
            driver,
            base: reservation.base(),
            size,
            mapped: 0,
            reservation: Arc::new(reservation),
        })
    }

    /// The same in a reservation that is there already; `None` if it has no room
    /// for `size` bytes at that place.
    pub(crate) fn at(driver: Driver, place: &Place, size: usize) -> Option<Self> {
        let end = place.offset.checked_add(size)?;
        (end <= place.reservation.size()).then(|| Self {
            driver,
            base: place.reservation.base() + place.offset as u64,
            size,
            mapped: 0,
            reservation: Arc::clone(&place.reservation),
        })
    }

    /// Maps one more allocation, of `size` bytes, behind what is mapped. The
    /// driver does not take a size that is not the allocation's.
    pub(crate) fn append(
        &mut self,
        handle: &AllocationHandle,
        size: usize,
    ) -> Result<(), DriverError> {
        let address = self.base + self.mapped as u64;
        if self.size - self.mapped < size {
            return Err(DriverError {
                call: "cuMemMap",
                cause: DriverCause::Code(CuResult::INVALID_VALUE),
            });
        }
        // SAFETY: the handle is a reference that lives; the place is inside what was
        // reserved for this mapping, checked above, and nothing else maps there.
        unsafe { self.driver.mem_map(address, size, handle.raw()) }?;
        self.mapped += size;
        Ok(())
    }

    /// Gives every location its rights to all that is mapped.
    pub(crate) fn give_access(&self, rights: &[CuMemAccessDesc]) -> Result<(), DriverError> {
        // SAFETY: the mapping is this object's alone, and its first rights are given here.
        unsafe { self.driver.mem_set_access(self.base, self.mapped, rights) }
    }

    /// Whether the driver says that the allocation mapped `offset` bytes behind
    /// the base has `size` bytes. Drivers before CUDA 11.7 do not say.
    pub(crate) fn has_size(&self, offset: usize, size: usize) -> Result<bool, DriverError> {
        let at = self.base + offset as u64;
        match self
            .driver
            .pointer_attribute(pointer_attribute::MAPPING_SIZE, at)
        {
            Ok(mapped) => Ok(mapped == size as u64),
            Err(error) if error.code() == Some(CuResult::INVALID_VALUE) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The first byte of the first allocation.
    pub(crate) const fn base(&self) -> CuDevicePtr {
        self.base
    }

    /// The address space, which outlives the mapping then.
    pub(crate) fn reservation(&self) -> Arc<Reservation> {
        Arc::clone(&self.reservation)
    }
}

impl Drop for VmmMapping {
    fn drop(&mut self) {
        if self.mapped > 0 && !identity::is_forked() {
            // SAFETY: mapped by this object, whose users are gone; the allocation's
            // references in this crate are released under the same lock.
            let unmapped = unsafe { self.driver.mem_unmap(self.base, self.mapped) };
            undo::report("cuMemUnmap", unmapped);
        }
    }
}
