//! References to VMM allocations. Each is released on drop.

#![allow(unsafe_code)]

use crate::gpu::undo;
use crate::process::identity;
use crate::sys::{CuDevice, CuDevicePtr, CuMemAllocationProp, CuMemHandle};
use gpuipc_core::DeviceUuid;
pub(crate) use gpuipc_sys::Result;
pub use gpuipc_sys::{Driver, DriverCause, DriverError};
use std::os::fd::{BorrowedFd, OwnedFd};

/// One reference to a physical VMM allocation (`CUmemGenericAllocationHandle`),
/// released on drop (`cuMemRelease`).
#[derive(Debug)]
pub(crate) struct AllocationHandle {
    driver: Driver,
    raw: CuMemHandle,
}

impl AllocationHandle {
    /// `cuMemCreate`.
    pub(crate) fn create(driver: Driver, size: usize, prop: &CuMemAllocationProp) -> Result<Self> {
        let raw = driver.mem_create(size, prop)?;
        Ok(Self { driver, raw })
    }

    /// `cuMulticastCreate`.
    #[cfg(feature = "multicast")]
    pub(crate) fn multicast(
        driver: Driver,
        prop: &crate::sys::CuMulticastObjectProp,
    ) -> Result<Self> {
        let raw = driver.multicast_create(prop)?;
        Ok(Self { driver, raw })
    }

    /// `cuMemRetainAllocationHandle` of the allocation that is mapped at `ptr`.
    ///
    /// # Safety
    /// Its owner does not unmap or release it during the call.
    pub(crate) unsafe fn retain(driver: Driver, ptr: CuDevicePtr) -> Result<Self> {
        // SAFETY: as the caller says.
        let raw = unsafe { driver.mem_retain(ptr) }?;
        Ok(Self { driver, raw })
    }

    /// `cuMemImportFromShareableHandle` of a descriptor, which stays the caller's.
    pub(crate) fn import_fd(driver: Driver, fd: BorrowedFd<'_>) -> Result<Self> {
        let raw = driver.mem_import_fd(fd)?;
        Ok(Self { driver, raw })
    }

    /// `cuMemImportFromShareableHandle` of a fabric handle.
    pub(crate) fn import_fabric(driver: Driver, fabric: &[u8; 64]) -> Result<Self> {
        let raw = driver.mem_import_fabric(fabric)?;
        Ok(Self { driver, raw })
    }

    /// `cuMemExportToShareableHandle` as a file descriptor.
    pub(crate) fn export_fd(&self) -> Result<OwnedFd> {
        // SAFETY: `raw` is a reference that the driver gave, and only the drop releases it.
        unsafe { self.driver.mem_export_fd(self.raw) }
    }

    /// `cuMemExportToShareableHandle` as a fabric handle.
    pub(crate) fn export_fabric(&self) -> Result<[u8; 64]> {
        // SAFETY: as in `export_fd`.
        unsafe { self.driver.mem_export_fabric(self.raw) }
    }

    /// `cuMemGetAllocationPropertiesFromHandle`.
    pub(crate) fn properties(&self) -> Result<CuMemAllocationProp> {
        // SAFETY: as in `export_fd`.
        unsafe { self.driver.mem_properties(self.raw) }
    }

    /// The driver's handle, for calls that take one while this lives.
    pub(crate) const fn raw(&self) -> CuMemHandle {
        self.raw
    }
}

impl Drop for AllocationHandle {
    fn drop(&mut self) {
        if identity::is_forked() {
            return;
        }
        // SAFETY: the driver gave the reference, and this is its only release. An owner
        // that unmaps the same allocation in another thread at the same time broke the
        // promise of the export that led here; mappings of imports are this crate's.
        let released = unsafe { self.driver.mem_release(self.raw) };
        undo::report("cuMemRelease", released);
    }
}

/// `cuDeviceGetUuid_v2`: a GPU's UUID as handles have it.
///
/// # Errors
/// `INVALID_DEVICE` (101).
pub fn device_uuid(driver: Driver, device: CuDevice) -> Result<DeviceUuid> {
    Ok(DeviceUuid(driver.device_uuid(device)?.bytes))
}
