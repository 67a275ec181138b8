//! Virtual memory management: allocations without an address, and addresses
//! without memory.

#![allow(unsafe_code)]

use super::{Driver, DriverCause, DriverError, OneAtATime, Result, Timer, call, owned_fd};
use crate::{
    self as sys, CuDevicePtr, CuMemAccessDesc, CuMemAllocationProp, CuMemFabricHandle, CuMemHandle,
    CuMemLocation, CuResult,
};
use core::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

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

    /// `cuMemCreate`: physical memory without an address, and one reference to it, which
    /// [`Driver::mem_release`] gives back.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` (2); `NOT_PERMITTED` (800) or `NOT_SUPPORTED` (801) for
    /// a handle type that this machine does not do.
    pub fn mem_create(self, size: usize, prop: &CuMemAllocationProp) -> Result<CuMemHandle> {
        let mut handle = 0;
        call!(self, mem_create(&mut handle, size, prop, 0))?;
        Ok(handle)
    }

    /// `cuMemRelease`: one reference less. The memory is freed with the last reference
    /// and mapping.
    ///
    /// # Safety
    /// `handle` is a reference that a call of this driver gave, and that was not
    /// released; a made-up one crashes the process. Nobody else unmaps the same
    /// allocation during the call: the driver frees its own memory twice where the two
    /// meet (seen on an H200, driver 580). The calls of this crate never meet.
    ///
    /// # Errors
    /// The driver's code.
    pub unsafe fn mem_release(self, handle: CuMemHandle) -> Result<()> {
        call!(self, mem_release(handle), Some(&LAST_USERS))
    }

    /// `cuMemRetainAllocationHandle`: one more reference to the allocation that
    /// is mapped at `ptr`. Needs no context.
    ///
    /// # Safety
    /// Nobody else unmaps or releases the allocation during the call, as for
    /// [`Driver::mem_release`].
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for memory that is no VMM mapping.
    pub unsafe fn mem_retain(self, ptr: CuDevicePtr) -> Result<CuMemHandle> {
        let mut handle = 0;
        call!(
            self,
            mem_retain_allocation_handle(&mut handle, address(ptr)),
            Some(&LAST_USERS)
        )?;
        Ok(handle)
    }

    /// `cuMemGetAllocationPropertiesFromHandle`.
    ///
    /// # Safety
    /// `handle` is a reference that a call of this driver gave, and that was not
    /// released.
    ///
    /// # Errors
    /// The driver's code.
    pub unsafe fn mem_properties(self, handle: CuMemHandle) -> Result<CuMemAllocationProp> {
        let mut prop = CuMemAllocationProp::default();
        call!(self, mem_get_allocation_properties(&mut prop, handle))?;
        Ok(prop)
    }

    /// `cuMemExportToShareableHandle` as a file descriptor, which the driver
    /// opens close-on-exec.
    ///
    /// # Safety
    /// `handle` is a reference that a call of this driver gave, and that was not
    /// released.
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for memory that was not created for it or was
    /// itself imported.
    pub unsafe fn mem_export_fd(self, handle: CuMemHandle) -> Result<OwnedFd> {
        let mut fd: i32 = -1;
        let out = core::ptr::from_mut(&mut fd).cast::<c_void>();
        call!(
            self,
            mem_export_to_shareable_handle(out, handle, sys::handle_type::POSIX_FILE_DESCRIPTOR, 0)
        )?;
        // SAFETY: the driver opened the descriptor for this call and says
        // success; it is the caller's to close, and nobody else knows it.
        unsafe { owned_fd(fd, sys::info::mem_export_to_shareable_handle.symbol) }
    }

    /// `cuMemExportToShareableHandle` as a fabric handle.
    ///
    /// # Safety
    /// `handle` is a reference that a call of this driver gave, and that was not
    /// released.
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for memory that was not created for it.
    pub unsafe fn mem_export_fabric(self, handle: CuMemHandle) -> Result<[u8; 64]> {
        let mut fabric = CuMemFabricHandle { data: [0; 64] };
        let out = core::ptr::from_mut(&mut fabric).cast::<c_void>();
        call!(
            self,
            mem_export_to_shareable_handle(out, handle, sys::handle_type::FABRIC, 0)
        )?;
        Ok(fabric.data)
    }

    /// `cuMemImportFromShareableHandle` of a file descriptor, which stays the
    /// caller's. Two imports of one descriptor are two references.
    ///
    /// # Errors
    /// `UNKNOWN` (999) for a descriptor that is not CUDA's.
    pub fn mem_import_fd(self, fd: BorrowedFd<'_>) -> Result<CuMemHandle> {
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
        Ok(handle)
    }

    /// `cuMemImportFromShareableHandle` of a fabric handle.
    ///
    /// # Errors
    /// `NOT_SUPPORTED` (801) without the fabric or for bytes that it does not
    /// know, `NOT_PERMITTED` (800), `INVALID_HANDLE` (400).
    pub fn mem_import_fabric(self, fabric: &[u8; 64]) -> Result<CuMemHandle> {
        let mut handle = 0;
        let mut fabric = CuMemFabricHandle { data: *fabric };
        let value = core::ptr::from_mut(&mut fabric).cast::<c_void>();
        call!(
            self,
            mem_import_from_shareable_handle(&mut handle, value, sys::handle_type::FABRIC)
        )?;
        Ok(handle)
    }

    /// `cuMemAddressReserve`: `size` bytes of address space at a multiple of
    /// `alignment`, a power of two or 0 for the driver's own.
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for a size that is not a multiple of the page size,
    /// `OUT_OF_MEMORY` (2).
    pub fn mem_address_reserve(self, size: usize, alignment: usize) -> Result<CuDevicePtr> {
        let mut ptr = 0;
        call!(self, mem_address_reserve(&mut ptr, size, alignment, 0, 0))?;
        Ok(ptr)
    }

    /// `cuMemAddressFree`: gives a whole reservation back.
    ///
    /// # Safety
    /// Nobody maps into it or uses it any more.
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for anything but a reservation of that size.
    pub unsafe fn mem_address_free(self, ptr: CuDevicePtr, size: usize) -> Result<()> {
        call!(self, mem_address_free(ptr, size))
    }

    /// `cuMemMap` of a whole allocation (offset 0) into a reservation.
    ///
    /// # Safety
    /// `handle` is as for [`Driver::mem_release`]. `ptr .. ptr + size` lies in one
    /// reservation that the caller may use: the driver maps past its end, too (seen on
    /// an H200, driver 580), over whatever lies there.
    ///
    /// # Errors
    /// `NOT_SUPPORTED` (801) for a size that is not the allocation's.
    pub unsafe fn mem_map(self, ptr: CuDevicePtr, size: usize, handle: CuMemHandle) -> Result<()> {
        call!(self, mem_map(ptr, size, 0, handle, 0))
    }

    /// `cuMemUnmap`. Does not wait for the GPU.
    ///
    /// # Safety
    /// Nobody uses the mappings any more, and nobody else releases, retains or unmaps
    /// the same allocations during the call, as for [`Driver::mem_release`].
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for a range that is not mapped.
    pub unsafe fn mem_unmap(self, ptr: CuDevicePtr, size: usize) -> Result<()> {
        call!(self, mem_unmap(ptr, size), Some(&LAST_USERS))
    }

    /// `cuMemSetAccess`: gives each location its rights to a mapping.
    ///
    /// # Safety
    /// Nobody relies on rights that this takes away.
    ///
    /// # Errors
    /// `INVALID_DEVICE` (101), `PEER_ACCESS_UNSUPPORTED` (217), `OUT_OF_MEMORY` (2).
    pub unsafe fn mem_set_access(
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
