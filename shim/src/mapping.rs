//! What the importer maps, step by step. Each step is an object that undoes
//! itself, so that a failure anywhere undoes exactly what was done before it.

use crate::attempt::{Failure, Reason, Step};
use crate::context::DeviceContext;
use crate::driver::{AllocationHandle, Driver, DriverError};
use crate::identity;
use crate::options::Access;
use crate::sys::{self, CuDevice, CuDevicePtr, CuMemAccessDesc, CuMemLocation};
use crate::undo;
use gpuipc_core::HandleType;

/// Address space: `cuMemAddressReserve`, `cuMemAddressFree` on drop.
#[derive(Debug)]
struct Reservation {
    driver: Driver,
    base: CuDevicePtr,
    size: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !identity::is_forked() {
            undo::report(
                "cuMemAddressFree",
                self.driver.mem_address_free(self.base, self.size),
            );
        }
    }
}

/// A whole VMM allocation mapped into a reservation of its own: `cuMemMap`,
/// `cuMemUnmap` on drop. The mapping itself keeps the memory allocated.
#[derive(Debug)]
pub(crate) struct VmmMapping {
    /// Freed after the unmap below.
    reservation: Reservation,
}

impl VmmMapping {
    /// Reserves, maps and gives `device` access: `size` is the whole allocation's.
    pub(crate) fn new(
        driver: Driver,
        handle: &AllocationHandle,
        size: usize,
        device: CuDevice,
        access: Access,
    ) -> Result<Self, (Step, DriverError)> {
        let failed = |step| move |error| (step, error);
        let base = driver
            .mem_address_reserve(size)
            .map_err(failed(Step::Reserve))?;
        let reservation = Reservation { driver, base, size };
        driver
            .mem_map(base, size, handle)
            .map_err(failed(Step::Map))?;
        let mapping = Self { reservation };
        let flags = match access {
            Access::ReadOnly => sys::access::READ,
            Access::ReadWrite => sys::access::READ_WRITE,
        };
        let location = CuMemLocation {
            kind: sys::location::DEVICE,
            id: device,
        };
        driver
            .mem_set_access(base, size, &[CuMemAccessDesc { location, flags }])
            .map_err(failed(Step::SetAccess))?;
        Ok(mapping)
    }

    /// The first byte of the allocation.
    pub(crate) const fn base(&self) -> CuDevicePtr {
        self.reservation.base
    }
}

impl Drop for VmmMapping {
    fn drop(&mut self) {
        if !identity::is_forked() {
            let Reservation { driver, base, size } = self.reservation;
            undo::report("cuMemUnmap", driver.mem_unmap(base, size));
        }
    }
}

/// A legacy handle opened in a context: `cuIpcOpenMemHandle`,
/// `cuIpcCloseMemHandle` in the same context on drop. The driver counts opens
/// of the same memory.
#[derive(Debug)]
pub(crate) struct LegacyMapping {
    driver: Driver,
    context: DeviceContext,
    base: CuDevicePtr,
}

impl LegacyMapping {
    /// Opens the handle and compares the length of what it leads to with `size`.
    pub(crate) fn open(
        driver: Driver,
        handle: &[u8; 64],
        size: u64,
        device: CuDevice,
    ) -> Result<Self, Failure> {
        let failed = |step| move |error| Failure::driver(step, HandleType::RuntimeIpc, &error);
        let context = DeviceContext::for_device(driver, device).map_err(failed(Step::Context))?;
        let base = context
            .with(|| driver.ipc_open_mem_handle(handle))
            .map_err(|error| {
                let step = if error.call.starts_with("cuIpc") {
                    Step::Open
                } else {
                    Step::Context
                };
                Failure::driver(step, HandleType::RuntimeIpc, &error)
            })?;
        let mapping = Self {
            driver,
            context,
            base,
        };
        let mapped = driver
            .pointer_attribute(sys::pointer_attribute::RANGE_SIZE, base)
            .map_err(failed(Step::Compare))?;
        if mapped != size {
            return Err(Failure::refused(Step::Compare, Reason::SizeMismatch));
        }
        Ok(mapping)
    }

    /// The first byte of the allocation.
    pub(crate) const fn base(&self) -> CuDevicePtr {
        self.base
    }
}

impl Drop for LegacyMapping {
    fn drop(&mut self) {
        if !identity::is_forked() {
            let closed = self
                .context
                .with(|| self.driver.ipc_close_mem_handle(self.base));
            undo::report("cuIpcCloseMemHandle", closed);
        }
    }
}
