//! Imported memory, which unmaps itself on drop.

#![allow(unsafe_code)]

use crate::attempt::Attempt;
use crate::error::Error;
use crate::gpu::context::DeviceContext;
use crate::gpu::driver::Driver;
use crate::gpu::mapping::VmmMapping;
use crate::gpu::reservation::Reservation;
use crate::import::cache::Slot;
use crate::import::imported_pool::PooledMapping;
use crate::import::legacy::LegacyMapping;
use crate::import::own_memory::OwnMemory;
use crate::process::identity;
use crate::sys::{CuDevice, CuDevicePtr, CuStream};
use core::fmt;
use gpuipc_core::HandleType;
use std::sync::{Arc, OnceLock};

/// GPU memory of another process, mapped here. Dropping it unmaps, unless other
/// ranges of the same allocation are in use in this process: they share one
/// mapping, which the last of them undoes.
///
/// The drop does not wait for the GPU: work that uses the memory must have
/// ended before. It may happen on any thread; it changes no thread's current
/// context; in a forked child and after the driver has shut down it does nothing.
#[derive(Debug)]
pub struct GpuIpcMem {
    shared: Arc<Shared>,
    offset: u64,
    len: usize,
}

/// A mapping, and how it came about: what the ranges of one allocation share.
#[derive(Debug)]
pub(crate) struct Shared {
    driver: Driver,
    device: CuDevice,
    mapping: Mapping,
    pub(crate) used: Used,
    pub(crate) liveness: Liveness,
    pub(crate) attempts: Vec<Attempt>,
    /// For copies; kept once there was one.
    context: OnceLock<DeviceContext>,
    /// Host memory that may only be read: the driver copies it by the CPU, and a
    /// copy into it ends the process (seen on an H200, driver 580).
    pub(crate) is_read_only_host: bool,
    /// Where others find it; nowhere if it is not to be shared.
    slot: Option<Arc<Slot>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !identity::is_forked()
            && let Some(slot) = &self.slot
        {
            slot.clean();
        }
    }
}

/// What holds the address.
#[derive(Debug)]
pub(crate) enum Mapping {
    Vmm(VmmMapping),
    Legacy(Arc<LegacyMapping>),
    Pooled(PooledMapping),
    /// This process's own memory: its owner holds it.
    Own(OwnMemory),
}

/// How the memory was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Used {
    /// By this type.
    Type(HandleType),
    /// It is this process's own memory: the original pointer, which stays its
    /// owner's to free.
    SameProcess,
}

impl fmt::Display for Used {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type(handle_type) => handle_type.fmt(f),
            Self::SameProcess => f.pad("SameProcess"),
        }
    }
}

/// What is known about the memory behind a mapping at the time of its import.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Liveness {
    /// The mapping holds a reference: it is the memory that was exported, and
    /// stays so, whatever its owner does.
    Referenced,
    /// The exporter says that it is still the memory that was exported. It must
    /// stay allocated: neither a legacy mapping nor one of a pool's memory holds a
    /// reference.
    MemoryUnchanged,
    /// The exporter lives and still exports it, but could not be asked whether
    /// its owner has freed it meanwhile.
    ExportLives,
    /// Nobody could be asked. A legacy handle of freed memory opens whatever
    /// lies at its address by then, and reading freed memory of a pool can break
    /// the context (both seen on an H200, driver 580).
    Unknown,
}

impl GpuIpcMem {
    /// A range of a mapping.
    pub(crate) const fn new(shared: Arc<Shared>, offset: u64, len: usize) -> Self {
        Self {
            shared,
            offset,
            len,
        }
    }

    /// The device that maps the memory, by this process's ordinal.
    #[must_use]
    pub fn device(&self) -> CuDevice {
        self.shared.device
    }

    /// The first byte of the range that was exported.
    #[must_use]
    pub fn device_ptr(&self) -> CuDevicePtr {
        self.shared.mapping.base() + self.offset
    }

    /// The range's length in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a range is never empty
    pub const fn len(&self) -> usize {
        self.len
    }

    /// How the memory was reached.
    #[must_use]
    pub fn type_used(&self) -> Used {
        self.shared.used
    }

    /// What is known about the memory behind the mapping, as of the time when it
    /// was made.
    #[must_use]
    pub fn liveness(&self) -> Liveness {
        self.shared.liveness
    }

    /// The types that were tried before, and why each failed.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.shared.attempts
    }

    /// Unmaps, and gives back the address space if it was this import's own or a
    /// [`place`](crate::ImportOptions::place): importing there again puts memory at
    /// the same address, as long as nobody lets go of it.
    ///
    /// `None` for RuntimeIpc, for memory of a pool and for this process's own; and
    /// where other ranges of the same allocation still use the mapping: then only
    /// this range ends. (A placed mapping is never shared.)
    #[must_use]
    pub fn unmap(self) -> Option<Arc<Reservation>> {
        let shared = Arc::into_inner(self.shared)?;
        match &shared.mapping {
            Mapping::Vmm(mapping) => Some(mapping.reservation()),
            Mapping::Legacy(_) | Mapping::Pooled(_) | Mapping::Own(_) => None,
        }
    }

    /// Copies bytes out (`cuMemcpyDtoH`), from `offset` of the range on, in the
    /// current context if it is the mapping device's, else in its primary one,
    /// which stays in use from then on until the drop.
    ///
    /// The copy waits for earlier work of the default stream and of the streams that
    /// wait for it. While one of these captures, the copy goes by a stream of its own
    /// and waits for nothing: work on the default stream would invalidate the capture.
    ///
    /// What this very process exported ([`Used::SameProcess`]) may be freed by its owner
    /// at any time. For the copy it is mapped a second time, which only memory of
    /// `cuMemCreate` can be, and only while it is exported.
    ///
    /// # Errors
    /// [`Error::Argument`] for bytes beyond the range; [`Error::Unsupported`] for this
    /// process's own memory, where it cannot be mapped a second time; [`Error::Driver`];
    /// [`Error::Forked`].
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        self.copy(offset, to.len(), |context, from| {
            copy_out(self.shared.driver, context, from, to)
        })
    }

    /// Copies bytes in (`cuMemcpyHtoD`, `cuStreamSynchronize`), as [`Self::read`]
    /// copies them out. When it returns the bytes are there, and the earlier work of
    /// the default stream is done.
    ///
    /// # Errors
    /// As [`Self::read`]'s; [`Error::Driver`]
    /// (`INVALID_VALUE` where the mapping is read-only; [`Error::Argument`] where it
    /// is of host memory, too).
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), Error> {
        self.copy(offset, from.len(), |context, to| {
            if self.shared.is_read_only_host {
                return Err(Error::Argument {
                    name: "self",
                    rule: "the mapping may only be read",
                });
            }
            copy_in(self.shared.driver, context, to, from)
        })
    }

    /// Copies with the address of a range, at which the memory is mapped meanwhile.
    fn copy(
        &self,
        offset: usize,
        len: usize,
        copy: impl FnOnce(&DeviceContext, CuDevicePtr) -> Result<(), Error>,
    ) -> Result<(), Error> {
        identity::process_id()?;
        check_inside(offset, len, self.len)?;
        let Shared {
            driver,
            device,
            mapping,
            ..
        } = &*self.shared;
        let held = match mapping {
            Mapping::Own(own) => Some(own.map(*driver, *device)?),
            _ => None,
        };
        let base = held.as_ref().map_or(mapping.base(), VmmMapping::base);
        copy(self.shared.context()?, base + self.offset + offset as u64)
    }
}

impl Shared {
    pub(crate) fn new(
        driver: Driver,
        device: CuDevice,
        (mapping, liveness): (Mapping, Liveness),
        used: Used,
        attempts: Vec<Attempt>,
        slot: Option<Arc<Slot>>,
    ) -> Self {
        Self {
            driver,
            device,
            mapping,
            used,
            liveness,
            attempts,
            context: OnceLock::new(),
            is_read_only_host: false,
            slot,
        }
    }

    fn context(&self) -> Result<&DeviceContext, Error> {
        if let Some(context) = self.context.get() {
            return Ok(context);
        }
        let context = DeviceContext::for_device(self.driver, self.device)?;
        Ok(self.context.get_or_init(|| context))
    }
}

impl Mapping {
    /// The first byte of the first allocation.
    fn base(&self) -> CuDevicePtr {
        match self {
            Self::Vmm(mapping) => mapping.base(),
            Self::Legacy(mapping) => mapping.base(),
            Self::Pooled(mapping) => mapping.base(),
            Self::Own(own) => own.base,
        }
    }
}

/// Refuses a range that is not inside `all` bytes.
pub(crate) fn check_inside(offset: usize, len: usize, all: usize) -> Result<(), Error> {
    match offset.checked_add(len) {
        Some(end) if end <= all => Ok(()),
        _ => Err(Error::Argument {
            name: "offset",
            rule: "the range goes beyond the memory",
        }),
    }
}

/// A stream of its own, for copies while a stream captures that waits for the default
/// one: work on the default stream would invalidate that capture.
struct Aside {
    driver: Driver,
    stream: CuStream,
}

impl Aside {
    /// `None` where no capture minds the default stream.
    fn from_captures(driver: Driver) -> Result<Option<Self>, Error> {
        if !driver.legacy_stream_is_captured() {
            return Ok(None);
        }
        let stream = driver.stream_create()?;
        Ok(Some(Self { driver, stream }))
    }

    /// `cuMemcpyAsync`, and a wait for it.
    ///
    /// # Safety
    /// Both ranges may be copied, and no Rust reference but the caller's covers them.
    unsafe fn copy(&self, to: CuDevicePtr, from: CuDevicePtr, len: usize) -> Result<(), Error> {
        // SAFETY: as the caller says; the copy is over when this returns.
        unsafe { self.driver.memcpy_async(to, from, len, self.stream) }?;
        // SAFETY: created by this object, which destroys it on drop.
        Ok(unsafe { self.driver.stream_synchronize(self.stream) }?)
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // SAFETY: created by this object, and its work is over.
        let destroyed = unsafe { self.driver.stream_destroy(self.stream) };
        crate::gpu::undo::report("cuStreamDestroy", destroyed);
    }
}

/// Copies device memory out. `from` has as many bytes as `to`.
pub(crate) fn copy_out(
    driver: Driver,
    context: &DeviceContext,
    from: CuDevicePtr,
    to: &mut [u8],
) -> Result<(), Error> {
    // SAFETY: the callers pass a checked range of memory that the driver mapped
    // or allocated for them on a device, so no Rust reference covers it. It stays
    // so during the call: they hold it.
    context.with(|| match Aside::from_captures(driver)? {
        // SAFETY: as above.
        None => Ok(unsafe { driver.memcpy_dtoh(to, from) }?),
        // SAFETY: as above; the bytes of `to` are this call's until the wait is over.
        Some(aside) => unsafe {
            aside.copy(to.as_mut_ptr().expose_provenance() as u64, from, to.len())
        },
    })
}

/// Copies into device memory, and waits: a copy from pageable memory may return
/// before the bytes are there (CUDA's "API synchronization behavior"). `to` has
/// as many bytes as `from`.
pub(crate) fn copy_in(
    driver: Driver,
    context: &DeviceContext,
    to: CuDevicePtr,
    from: &[u8],
) -> Result<(), Error> {
    context.with(|| {
        if let Some(aside) = Aside::from_captures(driver)? {
            let from_address = from.as_ptr().expose_provenance() as u64;
            // SAFETY: as in `copy_out`.
            return unsafe { aside.copy(to, from_address, from.len()) };
        }
        // SAFETY: as in `copy_out`.
        unsafe { driver.memcpy_htod(to, from) }?;
        // SAFETY: the default stream is always there.
        Ok(unsafe { driver.stream_synchronize(CuStream::DEFAULT) }?)
    })
}
