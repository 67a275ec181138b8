//! Virtual memory management: allocations without an address, and addresses
//! without memory.

#![allow(unsafe_code)]

use super::{Driver, DriverCause, DriverError, OneAtATime, Result, Timer, call, owned_fd};
use crate::sys::{
    self, CuDevicePtr, CuMemAccessDesc, CuMemAllocationProp, CuMemFabricHandle, CuMemHandle,
    CuMemLocation, CuResult,
};
use crate::{identity, undo};
use core::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// One reference to a physical VMM allocation (`CUmemGenericAllocationHandle`),
/// released on drop (`cuMemRelease`).
///
/// Made by the driver's create, retain and import calls only: a made-up or twice
/// released handle crashes the process inside the real driver.
#[derive(Debug)]
pub struct AllocationHandle {
    pub(super) driver: Driver,
    pub(super) raw: CuMemHandle,
}

impl Drop for AllocationHandle {
    fn drop(&mut self) {
        if !identity::is_forked() {
            undo::report(
                "cuMemRelease",
                call!(self.driver, mem_release(self.raw), Some(&LAST_USERS)),
            );
        }
    }
}

impl Driver {
    /// `cuMemGetAllocationGranularity` (the minimum): sizes must be multiples.
    ///
    /// # Errors
    /// The driver's code.
    pub fn mem_granularity(self, prop: &CuMemAllocationProp) -> Result<usize> {
        let mut bytes = 0;
        call!(
            self,
            mem_get_allocation_granularity(&mut bytes, prop, sys::granularity::MINIMUM)
        )?;
        Ok(bytes)
    }

    /// `cuMemCreate`: physical memory without an address.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` (2); `NOT_PERMITTED` (800) or `NOT_SUPPORTED` (801) for
    /// a handle type that this machine does not do.
    pub fn mem_create(self, size: usize, prop: &CuMemAllocationProp) -> Result<AllocationHandle> {
        let mut handle = 0;
        call!(self, mem_create(&mut handle, size, prop, 0))?;
        Ok(AllocationHandle {
            driver: self,
            raw: handle,
        })
    }

    /// `cuMemRetainAllocationHandle`: one more reference to the allocation that
    /// is mapped at `ptr`. Needs no context.
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for memory that is no VMM mapping.
    pub fn mem_retain(self, ptr: CuDevicePtr) -> Result<AllocationHandle> {
        let mut handle = 0;
        call!(
            self,
            mem_retain_allocation_handle(&mut handle, address(ptr)),
            Some(&LAST_USERS)
        )?;
        Ok(AllocationHandle {
            driver: self,
            raw: handle,
        })
    }

    /// `cuMemGetAllocationPropertiesFromHandle`.
    ///
    /// # Errors
    /// The driver's code.
    pub fn mem_properties(self, handle: &AllocationHandle) -> Result<CuMemAllocationProp> {
        let mut prop = CuMemAllocationProp::default();
        call!(self, mem_get_allocation_properties(&mut prop, handle.raw))?;
        Ok(prop)
    }

    /// `cuMemExportToShareableHandle` as a file descriptor, which the driver
    /// opens close-on-exec.
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for memory that was not created for it or was
    /// itself imported.
    pub fn mem_export_fd(self, handle: &AllocationHandle) -> Result<OwnedFd> {
        let mut fd: i32 = -1;
        let out = core::ptr::from_mut(&mut fd).cast::<c_void>();
        call!(
            self,
            mem_export_to_shareable_handle(
                out,
                handle.raw,
                sys::handle_type::POSIX_FILE_DESCRIPTOR,
                0
            )
        )?;
        // SAFETY: the driver opened the descriptor for this call and says
        // success; it is the caller's to close, and nobody else knows it.
        unsafe { owned_fd(fd, sys::info::mem_export_to_shareable_handle.symbol) }
    }

    /// `cuMemExportToShareableHandle` as a fabric handle.
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for memory that was not created for it.
    pub fn mem_export_fabric(self, handle: &AllocationHandle) -> Result<[u8; 64]> {
        let mut fabric = CuMemFabricHandle { data: [0; 64] };
        let out = core::ptr::from_mut(&mut fabric).cast::<c_void>();
        call!(
            self,
            mem_export_to_shareable_handle(out, handle.raw, sys::handle_type::FABRIC, 0)
        )?;
        Ok(fabric.data)
    }

    /// `cuMemImportFromShareableHandle` of a file descriptor, which stays the
    /// caller's. Two imports of one descriptor are two references.
    ///
    /// # Errors
    /// `UNKNOWN` (999) for a descriptor that is not CUDA's.
    pub fn mem_import_fd(self, fd: BorrowedFd<'_>) -> Result<AllocationHandle> {
        let mut handle = 0;
        // The descriptor's number travels in the pointer argument.
        let number = usize::try_from(fd.as_raw_fd()).unwrap_or(usize::MAX);
        let value = core::ptr::without_provenance_mut::<c_void>(number);
        call!(
            self,
            mem_import_from_shareable_handle(
                &mut handle,
                value,
                sys::handle_type::POSIX_FILE_DESCRIPTOR
            )
        )?;
        Ok(AllocationHandle {
            driver: self,
            raw: handle,
        })
    }

    /// `cuMemImportFromShareableHandle` of a fabric handle.
    ///
    /// # Errors
    /// `NOT_SUPPORTED` (801) without the fabric or for bytes that it does not
    /// know, `NOT_PERMITTED` (800), `INVALID_HANDLE` (400).
    pub fn mem_import_fabric(self, fabric: &[u8; 64]) -> Result<AllocationHandle> {
        let mut handle = 0;
        let mut fabric = CuMemFabricHandle { data: *fabric };
        let value = core::ptr::from_mut(&mut fabric).cast::<c_void>();
        call!(
            self,
            mem_import_from_shareable_handle(&mut handle, value, sys::handle_type::FABRIC)
        )?;
        Ok(AllocationHandle {
            driver: self,
            raw: handle,
        })
    }

    /// `cuMemAddressReserve`: `size` bytes of address space, wherever.
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for a size that is not a multiple of the page size,
    /// `OUT_OF_MEMORY` (2).
    pub fn mem_address_reserve(self, size: usize) -> Result<CuDevicePtr> {
        self.mem_address_reserve_aligned(size, 0)
    }

    /// `cuMemAddressFree`: gives a whole reservation back.
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for anything but a reservation of that size.
    pub fn mem_address_free(self, ptr: CuDevicePtr, size: usize) -> Result<()> {
        call!(self, mem_address_free(ptr, size))
    }

    /// `cuMemMap` of a whole allocation (offset 0) into a reservation.
    ///
    /// # Errors
    /// `NOT_SUPPORTED` (801) for a size that is not the allocation's.
    pub fn mem_map(self, ptr: CuDevicePtr, size: usize, handle: &AllocationHandle) -> Result<()> {
        call!(self, mem_map(ptr, size, 0, handle.raw, 0))
    }

    /// `cuMemUnmap`. Does not wait for the GPU.
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for a range that is not mapped.
    pub fn mem_unmap(self, ptr: CuDevicePtr, size: usize) -> Result<()> {
        call!(self, mem_unmap(ptr, size), Some(&LAST_USERS))
    }

    /// `cuMemSetAccess`: gives each location its rights to a mapping.
    ///
    /// # Errors
    /// `INVALID_DEVICE` (101), `PEER_ACCESS_UNSUPPORTED` (217), `OUT_OF_MEMORY` (2).
    pub fn mem_set_access(
        self,
        ptr: CuDevicePtr,
        size: usize,
        access: &[CuMemAccessDesc],
    ) -> Result<()> {
        call!(
            self,
            mem_set_access(ptr, size, access.as_ptr(), access.len())
        )
    }

    /// `cuMemGetAccess`: a location's rights, one of [`sys::access`].
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for memory that is no VMM mapping.
    pub fn mem_access(self, ptr: CuDevicePtr, location: CuMemLocation) -> Result<u64> {
        let mut flags = 0;
        call!(self, mem_get_access(&mut flags, &location, ptr))?;
        Ok(flags)
    }
}

/// What may begin or end an allocation's last use goes one at a time. About the same
/// allocation, `cuMemUnmap` beside `cuMemRelease`, beside another `cuMemUnmap` or beside
/// a retain with its release ends the process inside the real driver (seen on an H200,
/// driver 580).
static LAST_USERS: OneAtATime = OneAtATime::new();

/// A device address as the pointer that a C prototype wants. Nobody
/// dereferences it.
fn address(ptr: CuDevicePtr) -> *mut c_void {
    core::ptr::without_provenance_mut(usize::try_from(ptr).unwrap_or(usize::MAX))
}
