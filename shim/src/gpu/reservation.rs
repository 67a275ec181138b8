//! Reserved address space, and addresses in it to map memory at.

#![allow(unsafe_code)]

use crate::error::Error;
use crate::gpu::driver::{self, Driver};
use crate::gpu::undo;
use crate::process::identity;
use crate::sys::CuDevicePtr;
use std::sync::Arc;

/// Address space: `cuMemAddressReserve`, and `cuMemAddressFree` when the last
/// one who holds it drops it.
///
/// Memory that is imported to a place in it ([`ImportOptions::place`]) keeps it,
/// so that it is never freed under a mapping.
///
/// ```
/// # use gpuipc::{Buffer, ExportOptions, ImportOptions, Memory, Reservation};
/// # // SAFETY: the emulated driver's table follows CUDA's contract.
/// # let driver = unsafe { gpuipc::Driver::from_table(gpuipc_emulated::table()) };
/// # let ipc = gpuipc::Ipc::new(driver)?;
/// # let memory = Buffer::new(driver, 0, Memory::VmmFd, 2 << 20)?;
/// # let exported = ipc.export_from(memory, &ExportOptions::default())?;
/// # let handles = exported.handles();
/// let room = Reservation::new(driver, 4 << 20)?;
/// // In another process than the exporter's, the memory comes to lie 2 MiB behind `room.base()`.
/// let options = ImportOptions::default().place(&room, 2 << 20);
/// let mem = ipc.import(handles, &options);
/// # assert_eq!(room.size(), 4 << 20);
/// # Ok::<(), gpuipc::Error>(())
/// ```
///
/// [`ImportOptions::place`]: crate::ImportOptions::place
#[derive(Debug)]
pub struct Reservation {
    driver: Driver,
    base: CuDevicePtr,
    size: usize,
    /// Someone else frees it.
    is_callers: bool,
}

impl Reservation {
    /// Reserves `size` bytes, a multiple of the granularity (2 MiB on an H200),
    /// at an address that the driver chooses.
    ///
    /// # Errors
    /// [`Error::Driver`]: `INVALID_VALUE` (1) for another size,
    /// `OUT_OF_MEMORY` (2).
    pub fn new(driver: Driver, size: usize) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self::reserve(driver, size)?))
    }

    /// A reservation of the caller's own (`cuMemAddressReserve`), for mapping
    /// into it. It is not freed here.
    ///
    /// # Safety
    /// `base` and `size` are those of one whole reservation of this process, and
    /// it stays reserved until this object and all mappings in it are gone. The
    /// driver itself maps past the end of a reservation (seen on an H200, driver
    /// 580), over whatever comes to lie there.
    #[must_use]
    pub unsafe fn of_caller(driver: Driver, base: CuDevicePtr, size: usize) -> Arc<Self> {
        Arc::new(Self {
            driver,
            base,
            size,
            is_callers: true,
        })
    }

    pub(crate) fn reserve(driver: Driver, size: usize) -> driver::Result<Self> {
        let base = driver.mem_address_reserve(size, 0)?;
        Ok(Self {
            driver,
            base,
            size,
            is_callers: false,
        })
    }

    /// The first address.
    #[must_use]
    pub const fn base(&self) -> CuDevicePtr {
        self.base
    }

    /// Bytes of address space.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.is_callers && !identity::is_forked() {
            // SAFETY: reserved by this object, which every mapping in it holds.
            let freed = unsafe { self.driver.mem_address_free(self.base, self.size) };
            undo::report("cuMemAddressFree", freed);
        }
    }
}

/// Where in a reservation memory is to be mapped.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) reservation: Arc<Reservation>,
    /// Bytes from its base.
    pub(crate) offset: usize,
}
