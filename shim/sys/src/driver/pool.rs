//! Memory pools: sharing a pool, and the pointers in it.

#![allow(unsafe_code)]

use super::{Driver, DriverCause, DriverError, Result, Timer, call, owned_fd};
use crate::{
    self as sys, CuDevice, CuDevicePtr, CuMemAccessDesc, CuMemFabricHandle, CuMemLocation,
    CuMemPool, CuMemPoolProps, CuMemPoolPtrExportData, CuResult, CuStream,
};
use core::ffi::c_void;
use rustix::io::{FdFlags, fcntl_setfd};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

impl Driver {
    /// `cuMemPoolCreate`: a pool whose memory lies on one device, with these
    /// handle types (a sum of [`sys::handle_type`]).
    ///
    /// # Errors
    /// `NOT_SUPPORTED` (801), `NOT_PERMITTED` (800) for a handle type that this
    /// machine does not do.
    pub fn pool_create(self, device: CuDevice, handle_types: u32) -> Result<CuMemPool> {
        let _relaxed = self.relaxed();
        let mut pool = CuMemPool::NULL;
        let props = CuMemPoolProps {
            kind: sys::ALLOCATION_TYPE_PINNED,
            handle_types,
            location: CuMemLocation {
                kind: sys::location::DEVICE,
                id: device,
            },
            ..CuMemPoolProps::default()
        };
        call!(self, mem_pool_create(&mut pool, &props))?;
        Ok(pool)
    }

    /// `cuDeviceGetDefaultMemPool`: what `cuMemAllocAsync` allocates from unless
    /// told otherwise. It can never be shared.
    ///
    /// # Errors
    /// `INVALID_DEVICE` (101), `NOT_SUPPORTED` (801).
    pub fn default_pool(self, device: CuDevice) -> Result<CuMemPool> {
        let mut pool = CuMemPool::NULL;
        call!(self, device_get_default_mem_pool(&mut pool, device))?;
        Ok(pool)
    }

    /// `cuMemPoolDestroy`: the pool goes with the last of its allocations.
    ///
    /// # Safety
    /// `pool` is one that this driver gave, and was not destroyed.
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for a device's default pool.
    pub unsafe fn pool_destroy(self, pool: CuMemPool) -> Result<()> {
        let _relaxed = self.relaxed();
        call!(self, mem_pool_destroy(pool))
    }

    /// `cuMemAllocFromPoolAsync`: memory that is there for work on this stream.
    ///
    /// # Safety
    /// `pool` and `stream` are ones that this driver gave, and were not destroyed.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` (2), `INVALID_CONTEXT` (201).
    pub unsafe fn pool_alloc(
        self,
        pool: CuMemPool,
        bytes: usize,
        stream: CuStream,
    ) -> Result<CuDevicePtr> {
        let _relaxed = self.relaxed();
        let mut ptr = 0;
        call!(
            self,
            mem_alloc_from_pool_async(&mut ptr, bytes, pool, stream)
        )?;
        Ok(ptr)
    }

    /// `cuMemPoolExportToShareableHandle` as a file descriptor, made close-on-exec
    /// here: the driver opens it without, unlike that of an allocation (seen on an
    /// H200, driver 580). A program that another thread starts between the two calls
    /// inherits it.
    ///
    /// # Safety
    /// `pool` is one that this driver gave, and was not destroyed.
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for a pool without this handle type (a device's
    /// default pool never has one) and for an imported one.
    pub unsafe fn pool_export_fd(self, pool: CuMemPool) -> Result<OwnedFd> {
        let _relaxed = self.relaxed();
        let mut fd: i32 = -1;
        let out = core::ptr::from_mut(&mut fd).cast::<c_void>();
        let kind = sys::handle_type::POSIX_FILE_DESCRIPTOR;
        call!(
            self,
            mem_pool_export_to_shareable_handle(out, pool, kind, 0)
        )?;
        // SAFETY: the driver opened the descriptor for this call and says
        // success; it is the caller's to close, and nobody else knows it.
        let fd = unsafe { owned_fd(fd, sys::info::mem_pool_export_to_shareable_handle.symbol) }?;
        if let Err(errno) = fcntl_setfd(&fd, FdFlags::CLOEXEC) {
            log::warn!(target: "gpuipc::gpu", "a pool's descriptor stays open at exec: {errno}");
        }
        Ok(fd)
    }

    /// `cuMemPoolExportToShareableHandle` as a fabric handle.
    ///
    /// # Safety
    /// As for [`Driver::pool_export_fd`].
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for a pool without this handle type.
    pub unsafe fn pool_export_fabric(self, pool: CuMemPool) -> Result<[u8; 64]> {
        let _relaxed = self.relaxed();
        let mut fabric = CuMemFabricHandle { data: [0; 64] };
        let out = core::ptr::from_mut(&mut fabric).cast::<c_void>();
        let kind = sys::handle_type::FABRIC;
        call!(
            self,
            mem_pool_export_to_shareable_handle(out, pool, kind, 0)
        )?;
        Ok(fabric.data)
    }

    /// `cuMemPoolExportPointer`: what an importer of the pool needs for the
    /// allocation that begins at `ptr`.
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) before the pool itself was exported, and for a pointer
    /// that no allocation of a pool begins at.
    pub fn pool_export_pointer(self, ptr: CuDevicePtr) -> Result<[u8; 64]> {
        let _relaxed = self.relaxed();
        let mut data = CuMemPoolPtrExportData { reserved: [0; 64] };
        call!(self, mem_pool_export_pointer(&mut data, ptr))?;
        Ok(data.reserved)
    }

    /// `cuMemPoolImportFromShareableHandle` of a file descriptor, which stays
    /// the caller's.
    ///
    /// # Errors
    /// `UNKNOWN` (999) for a descriptor that is no pool's.
    pub fn pool_import_fd(self, fd: BorrowedFd<'_>) -> Result<CuMemPool> {
        let _relaxed = self.relaxed();
        let mut pool = CuMemPool::NULL;
        // The descriptor's number travels in the pointer argument.
        let number = usize::try_from(fd.as_raw_fd()).unwrap_or(usize::MAX);
        let value = core::ptr::without_provenance_mut::<c_void>(number);
        let kind = sys::handle_type::POSIX_FILE_DESCRIPTOR;
        call!(
            self,
            mem_pool_import_from_shareable_handle(&mut pool, value, kind, 0)
        )?;
        Ok(pool)
    }

    /// `cuMemPoolImportFromShareableHandle` of a fabric handle.
    ///
    /// # Errors
    /// `NOT_SUPPORTED` (801) without the fabric or for bytes that it does not know.
    pub fn pool_import_fabric(self, fabric: &[u8; 64]) -> Result<CuMemPool> {
        let _relaxed = self.relaxed();
        let mut pool = CuMemPool::NULL;
        let mut fabric = CuMemFabricHandle { data: *fabric };
        let value = core::ptr::from_mut(&mut fabric).cast::<c_void>();
        let kind = sys::handle_type::FABRIC;
        call!(
            self,
            mem_pool_import_from_shareable_handle(&mut pool, value, kind, 0)
        )?;
        Ok(pool)
    }

    /// `cuMemPoolSetAccess`: gives each location its rights to all memory of a pool.
    ///
    /// # Safety
    /// `pool` is one that this driver gave, and was not destroyed.
    ///
    /// # Errors
    /// `INVALID_DEVICE` (101), `PEER_ACCESS_UNSUPPORTED` (217).
    pub unsafe fn pool_set_access(self, pool: CuMemPool, access: &[CuMemAccessDesc]) -> Result<()> {
        let _relaxed = self.relaxed();
        call!(
            self,
            mem_pool_set_access(pool, access.as_ptr(), access.len())
        )
    }

    /// `cuMemPoolImportPointer`: the address of an allocation in an imported
    /// pool. It also succeeds for one that its owner has freed; reading that can
    /// break the context (seen on an H200, driver 580).
    ///
    /// # Safety
    /// `pool` is one that this driver gave, and was not destroyed.
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for bytes that are not of this pool.
    pub unsafe fn pool_import_pointer(
        self,
        pool: CuMemPool,
        data: &[u8; 64],
    ) -> Result<CuDevicePtr> {
        let _relaxed = self.relaxed();
        let mut ptr = 0;
        let mut data = CuMemPoolPtrExportData { reserved: *data };
        call!(self, mem_pool_import_pointer(&mut ptr, pool, &mut data))?;
        Ok(ptr)
    }
}
