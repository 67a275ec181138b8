//! The library's front door.

#![allow(unsafe_code)]

use crate::error::Error;
use crate::export::{self, Exported};
use crate::fd::broker::started::Started;
use crate::fd::broker::{Broker, Kept};
use crate::gpu::device_memory::{DeviceMemory, Keeper};
use crate::gpu::driver::Driver;
use crate::gpu::spare::Spare;
use crate::import;
use crate::import::can_import::{self, Outlook};
use crate::import::mem::GpuIpcMem;
use crate::options::{ExportOptions, ImportOptions, IpcOptions, Settings};
use crate::process::identity::Identity;
use crate::registered::{self, RegisteredMemory};
use crate::sys::CuDevicePtr;
use gpuipc_core::{GpuIpcMemHandle, RegisteredFields, TransportInfo};
use std::path::PathBuf;
use std::sync::Arc;

/// Exports and imports GPU memory through one driver. Cheap to clone; clones
/// share the broker. May be used from any thread.
#[derive(Clone, Debug)]
pub struct Ipc {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    driver: Driver,
    identity: Identity,
    settings: Settings,
    /// Started by the first export.
    broker: Started<Broker>,
    /// Makes exports cheap, if the options ask for it.
    _spare: Option<Spare>,
    /// To other processes' brokers.
    kept: Kept,
}

impl Ipc {
    /// Initializes the driver (`cuInit`) and reads the environment
    /// (`GPUIPC_TYPES`, `GPUIPC_TIMEOUT_MS`, `GPUIPC_SOCKET_DIR`,
    /// `GPUIPC_TRUST`, `GPUIPC_HOST_ID`), but not in a program with more rights than
    /// its caller. Creates no context and starts no thread.
    ///
    /// # Errors
    /// [`Error::Driver`] if `cuInit` fails, [`Error::Setting`] for an
    /// environment variable that says nothing sensible, [`Error::Forked`] in a
    /// process forked from one that had used the library, [`Error::Os`] if the
    /// kernel gives no random bytes.
    pub fn new(driver: Driver) -> Result<Self, Error> {
        Self::with_options(driver, &IpcOptions::default())
    }

    /// As [`Ipc::new`], with options that go before the environment.
    ///
    /// # Errors
    /// As [`Ipc::new`].
    pub fn with_options(driver: Driver, options: &IpcOptions) -> Result<Self, Error> {
        let identity = Identity::read()?;
        let mut settings = options.over(Settings::from_environment()?);
        // Whatever folder the process goes to later.
        let absolute = |folder: PathBuf| std::path::absolute(&folder).unwrap_or(folder);
        settings.socket_dir = settings.socket_dir.map(absolute);
        driver.init()?;
        let spare = settings.spare_descriptor.then(|| Spare::make(driver));
        let spare = spare.and_then(|made| {
            made.inspect_err(|error| {
                log::info!(target: "gpuipc::gpu", "no spare descriptor, exports cost what they cost: {error}");
            })
            .ok()
        });
        Ok(Self {
            inner: Arc::new(Inner {
                driver,
                _spare: spare,
                identity,
                settings,
                broker: Started::default(),
                kept: Kept::default(),
            }),
        })
    }

    /// The driver.
    #[must_use]
    pub fn driver(&self) -> Driver {
        self.inner.driver
    }

    /// Offers `len` bytes of GPU memory from `ptr` on to other processes.
    ///
    /// Works on memory of `cuMemAlloc` (RuntimeIpc), of `cuMemCreate` that asked
    /// for a handle type, in a GPU or on a host NUMA node (PosixFd, Fabric), and of a
    /// pool that was created with a handle type (PosixFd, Fabric). Needs no
    /// current context and leaves the caller's as it was. Exporting the same
    /// allocation again costs its look-ups and makes no second descriptor.
    ///
    /// A range over several VMM allocations that are mapped side by side gives a
    /// handle for each of them. With [`WHOLE_ALLOCATION`](crate::WHOLE_ALLOCATION) as
    /// `len` it is one: what the allocation around `ptr` has from there on.
    ///
    /// A handle gives the whole allocation. A handle of pool memory gives the whole pool:
    /// also what was never exported, and what the pool allocates later, until the pool is
    /// destroyed; ending the export does not take that back. The pool's descriptor is open
    /// at an `exec` of another thread between the driver's call and the one that makes it
    /// close-on-exec.
    ///
    /// The driver calls behind it: `cuPointerGetAttribute`; then
    /// `cuIpcGetMemHandle` in the context that allocated, or
    /// `cuMemRetainAllocationHandle` and `cuMemExportToShareableHandle`, or
    /// `cuMemPoolExportToShareableHandle`, once a pool, and
    /// `cuMemPoolExportPointer`. The first export starts the broker's thread.
    ///
    /// # Errors
    /// [`Error::NotExportable`] with the kind of memory and the cure,
    /// [`Error::Argument`] for `len` 0, [`Error::BrokerStart`],
    /// [`Error::Driver`] (out of memory, or a driver that has shut down),
    /// [`Error::Forked`].
    ///
    /// # Safety
    /// The bytes stay allocated and mapped during the call. No thread unmaps the same
    /// allocation (`cuMemUnmap`) while the result is dropped, or while the memory is
    /// exported again: the driver crashes where `cuMemUnmap` of an allocation meets
    /// `cuMemRelease` or `cuMemRetainAllocationHandle` of it (seen on an H200, driver
    /// 580). Unmapping before or after is fine. [`Ipc::export_from`] asks for none of
    /// this.
    pub unsafe fn export(
        &self,
        ptr: CuDevicePtr,
        len: usize,
        options: &ExportOptions,
    ) -> Result<Exported, Error> {
        // SAFETY: as the caller says.
        unsafe { export::export(self, ptr, len, options) }
    }

    /// Exports all of `memory`, as [`Ipc::export`] does, and keeps it: it is dropped
    /// after the export has ended. To go on using it, export an [`Arc`] of it.
    ///
    /// # Errors
    /// As [`Ipc::export`].
    pub fn export_from(
        &self,
        memory: impl DeviceMemory,
        options: &ExportOptions,
    ) -> Result<Exported, Error> {
        // SAFETY: the memory stays allocated and mapped while `memory` lives, which
        // `Exported` drops after its references.
        let mut exported = unsafe { self.export(memory.device_ptr(), memory.len(), options) }?;
        exported._keeper = Some(Keeper(Box::new(memory)));
        Ok(exported)
    }

    /// Maps the memory behind `handles`, by the first type that works through
    /// to an accessible address: PosixFd, Fabric, RuntimeIpc unless the options
    /// or `GPUIPC_TYPES` say otherwise. What a failed type had done is undone
    /// before the next one is tried.
    ///
    /// `handles` are all that the export gave, in any order. Memory in several
    /// allocations comes to lie at one contiguous address, all of it or nothing.
    ///
    /// In the exporting process itself this gives the original pointer, if the
    /// memory is on offer there, with access for the importing devices
    /// (`cuMemSetAccess`, `cuMemPoolSetAccess`). Of `cuMemAlloc` memory, whose peer access
    /// is its owner's, another GPU that the options name is refused.
    ///
    /// Nothing here orders one process's GPU work after another's: the
    /// application does, as it does for the memory's contents.
    ///
    /// # Errors
    /// [`Error::Import`] with every attempt, [`Error::Window`] for handles that
    /// are not all segments of one window, [`Error::DeviceNotVisible`] for a device
    /// that this process does not see, [`Error::Unsupported`] for a multicast
    /// object, [`Error::Argument`] for no handle, [`Error::Driver`], [`Error::Forked`].
    pub fn import(
        &self,
        handles: &[GpuIpcMemHandle],
        options: &ImportOptions,
    ) -> Result<GpuIpcMem, Error> {
        import::import(self, handles, options)
    }

    /// Registers a buffer: exports it as [`Ipc::export`] does, and puts the runtime's
    /// other transports (at most 16, each of another kind) beside its handles.
    ///
    /// Memory that cannot be exported is registered for the other transports alone,
    /// if there are some; [`RegisteredMemory::gpu_error`] says why.
    ///
    /// # Errors
    /// As [`Ipc::export`]; [`Error::Register`] for transports that the form does
    /// not allow.
    ///
    /// # Safety
    /// As for [`Ipc::export`].
    pub unsafe fn register(
        &self,
        ptr: CuDevicePtr,
        len: usize,
        transports: &[TransportInfo],
        options: &ExportOptions,
    ) -> Result<RegisteredMemory, Error> {
        // SAFETY: as the caller says.
        unsafe { registered::register(self, ptr, len, transports, options) }
    }

    /// Registers a buffer for the transports alone: nothing is exported, and the driver is
    /// not asked. The memory may be of any kind, and there may be no transport at all.
    ///
    /// # Errors
    /// [`Error::Register`] for what the form does not allow, [`Error::Forked`].
    pub fn register_transports(
        &self,
        ptr: CuDevicePtr,
        len: usize,
        transports: &[TransportInfo],
    ) -> Result<RegisteredMemory, Error> {
        registered::register_transports(self, ptr, len, transports)
    }

    /// What [`RegisteredMemory::fields`] says of memory of this process, with no pointer and
    /// no size: to see whether a peer's is this process's, or this host's.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn own_fields(&self) -> Result<RegisteredFields, Error> {
        registered::own_fields(self)
    }

    /// What a peer registered, from the bytes of [`RegisteredMemory::serialize`].
    ///
    /// Its memory is mapped as [`Ipc::import`] does. In the process that registered
    /// it, this gives the original pointer, as [`Ipc::import`] does. Where no type leads to the memory
    /// and there is another transport, it is left to that one:
    /// [`RegisteredMemory::gpu_error`] says why.
    ///
    /// # Errors
    /// [`Error::Registered`] for bytes that are no registered memory, else as
    /// [`Ipc::import`] if there is no other transport.
    pub fn deserialize(
        &self,
        bytes: &[u8],
        options: &ImportOptions,
    ) -> Result<RegisteredMemory, Error> {
        registered::deserialize(self, bytes, options)
    }

    /// Whether `handles` could be imported here, answered by type with reasons.
    /// Maps nothing, changes nothing, never fails.
    ///
    /// What can be tried without mapping is tried: the descriptor is fetched and
    /// imported, the fabric handle imported, and both given back; the exporter is
    /// asked whether the memory is unchanged; peers are looked up. It may wait as
    /// long as an import's timeout.
    #[must_use]
    pub fn can_import(&self, handles: &[GpuIpcMemHandle], options: &ImportOptions) -> Outlook {
        can_import::can_import(self, handles, options)
    }

    /// Closes the connections to other processes' brokers that are kept for the
    /// next import: at most eight, two descriptors each. The next import connects anew.
    pub fn close_idle_connections(&self) {
        self.inner.kept.clear();
    }

    pub(crate) fn kept_connections(&self) -> &Kept {
        &self.inner.kept
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.inner.identity
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// The broker, if an export has started it and it serves.
    pub(crate) fn running_broker(&self) -> Option<Arc<Broker>> {
        let broker = self.inner.broker.running()?;
        let is_whole = broker.is_whole(false);
        broker.tell();
        is_whole.then_some(broker)
    }

    /// The broker, started if it is not there yet or serves no more.
    pub(crate) fn broker(&self) -> Result<Arc<Broker>, Error> {
        let Inner {
            driver, settings, ..
        } = &*self.inner;
        let start = || Broker::start(*driver, settings);
        let is_whole = |broker: &Broker| broker.is_whole(true);
        let broker = self.inner.broker.or_start(is_whole, start)?;
        broker.tell();
        Ok(broker)
    }
}
