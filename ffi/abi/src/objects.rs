//! What C holds pointers to.

#![allow(unsafe_code)]

pub mod feasibility;
#[cfg(feature = "multicast")]
pub mod multicast;
pub mod registered;
pub mod reservation;

pub use feasibility::Feasibility;
pub use registered::Registered;
pub use reservation::Reservation;

use crate::failure::Failure;
use crate::logger;
use gpuipc::core::MAX_HANDLES;
use gpuipc::{
    Attempt, Driver, Error, ExportOptions, GpuIpcMem, GpuIpcMemHandle, HANDLE_BYTES, ImportOptions,
    Ipc, IpcOptions, Memory, Status,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The library, opened: what exports and imports are made with.
#[derive(Debug)]
pub struct Library {
    ipc: Ipc,
}

/// Memory exported to other processes. While it lives, importers can map the
/// memory.
#[derive(Debug)]
pub struct Exported {
    exported: gpuipc::Exported,
}

/// Memory of another process, mapped here.
#[derive(Debug)]
#[cfg_attr(all(), repr(transparent))] // which cbindgen does not see: C sees no inside
pub struct Mem {
    pub(crate) mem: GpuIpcMem,
}

/// GPU memory of this process that can be shared.
#[derive(Debug)]
pub struct Buffer {
    pub(crate) buffer: gpuipc::Buffer,
}

/// What one thread ends another thread's import with.
#[derive(Debug)]
pub struct Cancel {
    flag: Arc<AtomicBool>,
}

const fn usable_from_any_thread<T: Send + Sync>() {}
const _: () = usable_from_any_thread::<Library>();
const _: () = usable_from_any_thread::<Exported>();
const _: () = usable_from_any_thread::<Mem>();
const _: () = usable_from_any_thread::<Buffer>();
const _: () = usable_from_any_thread::<Cancel>();

impl Library {
    pub(crate) fn open(options: &IpcOptions) -> Result<Self, Failure> {
        // First of all: in a forked child a lock may be held for ever.
        check_forked()?;
        logger::install()?;
        let driver = Driver::load().map_err(Error::from)?;
        Ok(Self::with_driver(driver, options)?)
    }

    /// For Rust programs: what `gpuipc_open` makes, with a driver of their own.
    ///
    /// # Errors
    /// As [`Ipc::with_options`].
    pub fn with_driver(driver: Driver, options: &IpcOptions) -> Result<Self, Error> {
        let ipc = Ipc::with_options(driver, options)?;
        Ok(Self { ipc })
    }

    /// # Safety
    /// As for [`Ipc::export`].
    pub(crate) unsafe fn export(
        &self,
        ptr: u64,
        len: usize,
        options: &ExportOptions,
    ) -> Result<Exported, Failure> {
        // SAFETY: as the caller says.
        let exported = unsafe { self.ipc.export(ptr, len, options) }?;
        Ok(Exported { exported })
    }

    pub(crate) fn import(&self, handles: &[u8], options: &ImportOptions) -> Result<Mem, Failure> {
        let mem = self.ipc.import(&decode(handles)?, options)?;
        Ok(Mem { mem })
    }

    pub(crate) fn close_idle_connections(&self) -> Result<(), Failure> {
        check_forked()?;
        self.ipc.close_idle_connections();
        Ok(())
    }

    pub(crate) fn buffer(
        &self,
        device: i32,
        memory: Memory,
        len: usize,
    ) -> Result<Buffer, Failure> {
        let driver = self.driver()?;
        let device = driver.device(device).map_err(Error::from)?;
        let buffer = gpuipc::Buffer::new(driver, device, memory, len)?;
        Ok(Buffer { buffer })
    }
}

impl Exported {
    pub(crate) fn handles(&self) -> &[GpuIpcMemHandle] {
        self.exported.handles()
    }

    pub(crate) fn len(&self) -> usize {
        // No more than there are addresses.
        usize::try_from(self.exported.len()).unwrap_or(usize::MAX)
    }

    /// # Safety
    /// As for [`gpuipc::Exported::leave`].
    pub(crate) unsafe fn leave(self) -> Result<(), Failure> {
        check_forked()?;
        // SAFETY: as the caller says.
        unsafe { self.exported.leave() };
        Ok(())
    }

    pub(crate) fn handle_bytes(&self, index: usize) -> Result<[u8; HANDLE_BYTES], Failure> {
        let handles = self.handles();
        let handle = handles.get(index).ok_or_else(|| {
            Failure::argument(format!(
                "index is {index}, but the number of handles is {}",
                handles.len()
            ))
        })?;
        Ok(handle.encode())
    }

    /// All handles, one after the other.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let handles = self.handles().iter();
        handles.flat_map(GpuIpcMemHandle::encode).collect()
    }

    pub(crate) fn attempts(&self) -> &[Attempt] {
        self.exported.attempts()
    }
}

impl Mem {
    pub(crate) fn unmap(self) -> Option<Reservation> {
        let reservation = self.mem.unmap()?;
        Some(Reservation { reservation })
    }

    pub(crate) fn attempts(&self) -> &[Attempt] {
        self.mem.attempts()
    }
}

impl Cancel {
    pub(crate) fn new() -> Self {
        Self {
            flag: Arc::new(AtomicBool::new(false)),
        }
    }

    pub(crate) fn set(&self, cancelled: bool) {
        self.flag.store(cancelled, Ordering::Relaxed);
    }

    /// For an import, which keeps it as long as it needs it.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }
}

/// The handles that stand one after the other in `bytes`.
pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<GpuIpcMemHandle>, Failure> {
    let (handles, rest) = bytes.as_chunks::<HANDLE_BYTES>();
    if handles.is_empty() || !rest.is_empty() {
        return Err(Failure::new(
            Status::HANDLE_LENGTH,
            format!(
                "length is {} bytes, but handles are {HANDLE_BYTES} bytes each and at least one: \
                 pass on all of the exporter's bytes",
                bytes.len()
            ),
        ));
    }
    if handles.len() > MAX_HANDLES {
        return Err(Failure::new(
            Status::HANDLE_LENGTH,
            format!(
                "length is {} bytes, but at most {MAX_HANDLES} handles are taken",
                bytes.len()
            ),
        ));
    }
    // Grows with the handles that are ones.
    let mut decoded = Vec::new();
    for handle in handles {
        decoded.push(GpuIpcMemHandle::decode(handle)?);
    }
    Ok(decoded)
}

/// Refuses what needs CUDA in a forked child.
pub(crate) fn check_forked() -> Result<(), Failure> {
    if gpuipc::is_forked() {
        return Err(Error::Forked.into());
    }
    Ok(())
}

/// Refuses a range that is not inside `all` bytes, before anything is touched.
pub(crate) fn check_inside(offset: usize, size: usize, all: usize) -> Result<(), Failure> {
    match offset.checked_add(size) {
        Some(end) if end <= all => Ok(()),
        _ => Err(Failure::argument(format!(
            "{size} bytes from {offset} on go beyond the {all} that there are"
        ))),
    }
}

/// One line an attempt.
pub(crate) fn lines(attempts: &[Attempt]) -> String {
    let lines: Vec<String> = attempts.iter().map(Attempt::to_string).collect();
    lines.join("\n")
}
