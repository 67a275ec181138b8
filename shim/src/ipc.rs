//! The functions of [`Ipc`]: export, import, register.

#![allow(unsafe_code)]

use crate::error::Error;
use crate::export::{self, Exported};
use crate::gpu::device_memory::{DeviceMemory, Keeper};
use crate::import;
use crate::import::can_import::{self, Feasibility};
use crate::import::mem::GpuIpcMem;
use crate::options::{ExportOptions, ImportOptions};
use crate::registered::{self, RegisteredMemory};
use crate::session::Ipc;
use crate::sys::CuDevicePtr;
use gpuipc_core::{GpuIpcMemHandle, RegisteredFields, TransportInfo};

impl Ipc {
    /// Exports `len` bytes of GPU memory from `ptr` on to other processes.
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
    ///
    /// # Example
    ///
    /// ```
    /// # use gpuipc::{Buffer, ExportOptions, Memory};
    /// # // SAFETY: the emulated driver's table follows CUDA's contract.
    /// # let driver = unsafe { gpuipc::Driver::from_table(gpuipc_emulated::table()) };
    /// # let ipc = gpuipc::Ipc::new(driver)?;
    /// let memory = Buffer::new(driver, 0, Memory::CudaMalloc, 4096)?;
    /// // SAFETY: `memory` lives longer than the export, and nobody unmaps a part of it.
    /// let exported = unsafe { ipc.export(memory.device_ptr(), 4096, &ExportOptions::default()) }?;
    /// let bytes: [u8; 384] = exported.handles()[0].encode();
    /// # assert_eq!(gpuipc::GpuIpcMemHandle::decode(&bytes)?.length(), 4096);
    /// # drop(exported);
    /// # Ok::<(), gpuipc::Error>(())
    /// ```
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
    /// after the export has ended. To go on using it, export an [`Arc`](std::sync::Arc) of it.
    ///
    /// # Errors
    /// As [`Ipc::export`].
    ///
    /// # Example
    ///
    /// ```
    /// # use gpuipc::{Buffer, ExportOptions, Memory};
    /// # // SAFETY: the emulated driver's table follows CUDA's contract.
    /// # let driver = unsafe { gpuipc::Driver::from_table(gpuipc_emulated::table()) };
    /// # let ipc = gpuipc::Ipc::new(driver)?;
    /// let memory = Buffer::new(driver, 0, Memory::VmmFd, 2 << 20)?;
    /// let exported = ipc.export_from(memory, &ExportOptions::default())?;
    /// assert_eq!(exported.handles().len(), 1);
    /// # Ok::<(), gpuipc::Error>(())
    /// ```
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
    /// memory is exported there, with access for the importing devices
    /// (`cuMemSetAccess`, `cuMemPoolSetAccess`). Of `cuMemAlloc` memory, whose peer access
    /// is its owner's, another GPU that the options name is refused.
    ///
    /// Nothing here orders one process's GPU work after another's: the
    /// application does, as it does for the memory's contents.
    ///
    /// # Errors
    /// [`Error::Import`] with every attempt, [`Error::Range`] for handles that
    /// are not all segments of one range, [`Error::DeviceNotVisible`] for a device
    /// that this process does not see, [`Error::Unsupported`] for a multicast
    /// object, [`Error::Argument`] for no handle, [`Error::Driver`], [`Error::Forked`].
    ///
    /// # Example
    ///
    /// ```
    /// # use gpuipc::{Buffer, ExportOptions, GpuIpcMemHandle, HandleType, ImportOptions, Memory};
    /// # use std::time::Duration;
    /// # // SAFETY: the emulated driver's table follows CUDA's contract.
    /// # let driver = unsafe { gpuipc::Driver::from_table(gpuipc_emulated::table()) };
    /// # let ipc = gpuipc::Ipc::new(driver)?;
    /// # let memory = Buffer::new(driver, 0, Memory::VmmFd, 2 << 20)?;
    /// # memory.write(0, b"weights")?;
    /// # let exported = ipc.export_from(memory, &ExportOptions::default())?;
    /// # let bytes = exported.handles()[0].encode();
    /// // `bytes` came from the exporter.
    /// let handle = GpuIpcMemHandle::decode(&bytes)?;
    /// let options = ImportOptions::default()
    ///     .device(0)
    ///     .types(&[HandleType::PosixFd, HandleType::Fabric])
    ///     .timeout(Duration::from_secs(1));
    /// let mem = ipc.import(&[handle], &options)?;
    /// let mut first = [0; 7];
    /// mem.read(0, &mut first)?;
    /// assert_eq!(&first, b"weights");
    /// # Ok::<(), gpuipc::Error>(())
    /// ```
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
    ///
    /// # Example
    ///
    /// ```
    /// # use gpuipc::{Buffer, ExportOptions, Memory, TransportInfo};
    /// # // SAFETY: the emulated driver's table follows CUDA's contract.
    /// # let driver = unsafe { gpuipc::Driver::from_table(gpuipc_emulated::table()) };
    /// # let ipc = gpuipc::Ipc::new(driver)?;
    /// # let key = [7; 16];
    /// let memory = Buffer::new(driver, 0, Memory::VmmFd, 2 << 20)?;
    /// let nic = TransportInfo::new(1, &key).map_err(gpuipc::Error::Registered)?;
    /// let options = ExportOptions::default();
    /// // SAFETY: `memory` lives longer than what is registered.
    /// let registered = unsafe { ipc.register(memory.device_ptr(), memory.len(), &[nic], &options) }?;
    /// let bytes = registered.serialize()?;
    /// # let there = ipc.deserialize(&bytes, &gpuipc::ImportOptions::default())?;
    /// # assert_eq!(there.transport(1), Some(nic));
    /// # drop(registered);
    /// # Ok::<(), gpuipc::Error>(())
    /// ```
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
    /// no size: to see whether another process's is this process's, or this host's.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn own_fields(&self) -> Result<RegisteredFields, Error> {
        registered::own_fields(self)
    }

    /// What another process registered, from the bytes of [`RegisteredMemory::serialize`].
    ///
    /// Its memory is mapped as [`Ipc::import`] does. In the process that registered
    /// it, this gives the original pointer, as [`Ipc::import`] does. Where no type leads to the memory
    /// and there is another transport, it is left to that one:
    /// [`RegisteredMemory::gpu_error`] says why.
    ///
    /// # Errors
    /// [`Error::Registered`] for bytes that are no registered memory, else as
    /// [`Ipc::import`] if there is no other transport.
    ///
    /// # Example
    ///
    /// ```
    /// # use gpuipc::{Buffer, ExportOptions, ImportOptions, Memory, TransportInfo};
    /// # // SAFETY: the emulated driver's table follows CUDA's contract.
    /// # let driver = unsafe { gpuipc::Driver::from_table(gpuipc_emulated::table()) };
    /// # let ipc = gpuipc::Ipc::new(driver)?;
    /// # let memory = Buffer::new(driver, 0, Memory::VmmFd, 2 << 20)?;
    /// # let nic = TransportInfo::new(1, &[7; 16]).map_err(gpuipc::Error::Registered)?;
    /// # // SAFETY: `memory` lives longer than what is registered.
    /// # let owner = unsafe {
    /// #     ipc.register(memory.device_ptr(), memory.len(), &[nic], &ExportOptions::default())
    /// # }?;
    /// # let bytes = owner.serialize()?;
    /// // `bytes` came from the owner.
    /// let buffer = ipc.deserialize(&bytes, &ImportOptions::default())?;
    /// match buffer.data() {
    ///     Some(ptr) => println!("{} bytes at {ptr:#x}", buffer.len()),
    ///     None => println!("only by a transport: {:?}", buffer.gpu_error()),
    /// }
    /// # assert_eq!(buffer.data(), Some(memory.device_ptr()));
    /// # Ok::<(), gpuipc::Error>(())
    /// ```
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
    /// asked whether the memory is unchanged; P2P access is looked up. It may wait as
    /// long as an import's timeout.
    ///
    /// # Example
    ///
    /// ```
    /// # use gpuipc::{Buffer, ExportOptions, ImportOptions, Memory};
    /// # // SAFETY: the emulated driver's table follows CUDA's contract.
    /// # let driver = unsafe { gpuipc::Driver::from_table(gpuipc_emulated::table()) };
    /// # let ipc = gpuipc::Ipc::new(driver)?;
    /// # let memory = Buffer::new(driver, 0, Memory::VmmFd, 2 << 20)?;
    /// # let exported = ipc.export_from(memory, &ExportOptions::default())?;
    /// # let handles = exported.handles();
    /// let feasibility = ipc.can_import(handles, &ImportOptions::default());
    /// for (handle_type, feasible) in &feasibility.types {
    ///     println!("{handle_type}: {feasible:?}");
    /// }
    /// assert!(feasibility.is_importable());
    /// # Ok::<(), gpuipc::Error>(())
    /// ```
    #[must_use]
    pub fn can_import(&self, handles: &[GpuIpcMemHandle], options: &ImportOptions) -> Feasibility {
        can_import::can_import(self, handles, options)
    }
}
