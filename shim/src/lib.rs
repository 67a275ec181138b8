//! Share GPU memory between processes.
//!
//! The exporter turns a device pointer into a handle of 384 plain bytes. The handle
//! carries every type of sharing that the memory allows: CUDA's legacy IPC, a file
//! descriptor, a fabric handle. The importer may run in another container or see other
//! GPUs. It tries the types in order until one gives a mapped, accessible address, and
//! undoes what a failed type did. The mapping unmaps itself on drop.
//!
//! ```
//! use gpuipc::{Error, ExportOptions, Exported, GpuIpcMemHandle, ImportOptions, Ipc};
//!
//! // In either process `ipc` is `Ipc::new(Driver::load()?)?`.
//!
//! unsafe fn exporter(ipc: &Ipc, ptr: u64, len: usize) -> Result<(Exported, [u8; 384]), Error> {
//!     // SAFETY: the caller keeps the memory allocated and mapped.
//!     let exported = unsafe { ipc.export(ptr, len, &ExportOptions::default()) }?;
//!     let bytes = exported.handles()[0].encode();
//!     // Ship the bytes by any means; keep `exported` until they are imported.
//!     Ok((exported, bytes))
//! }
//!
//! fn importer(ipc: &Ipc, bytes: &[u8]) -> Result<(), Error> {
//!     let handle = GpuIpcMemHandle::decode(bytes)?;
//!     let mem = ipc.import(&[handle], &ImportOptions::default())?;
//!     println!("{} bytes at {:#x} by {}", mem.len(), mem.device_ptr(), mem.type_used());
//!     Ok(()) // unmapped here
//! }
//! # // SAFETY: the emulated driver's table follows CUDA's contract.
//! # let driver = unsafe { gpuipc::Driver::from_table(gpuipc_emulated::table()) };
//! # let ipc = gpuipc::Ipc::new(driver)?;
//! # let memory = gpuipc::Buffer::new(driver, 0, gpuipc::Memory::VmmFd, 2 << 20)?;
//! # // SAFETY: `memory` lives until the end.
//! # let (exported, bytes) = unsafe { exporter(&ipc, memory.device_ptr(), memory.len()) }?;
//! # importer(&ipc, &bytes)?;
//! # Ok::<(), Error>(())
//! ```
//!
//! # The layers
//!
//! Each layer uses those before it. `shim/tests/layers.rs` tests this.
//!
//! `gpuipc_core` ([`core`]) defines the bytes that cross a process border, and their
//! checks: handles, broker messages, registered memory. It knows neither CUDA nor an
//! operating system. `gpuipc_sys` ([`sys`]) has CUDA's types, the list of driver calls,
//! the loader, and [`Driver`] with one method per call. It checks nothing that the driver
//! checks.
//!
//! **process** knows Linux and not CUDA: the identity of this process, forks, private
//! descriptors, waits.
//!
//! **gpu** knows CUDA and not handles: contexts, references to allocations, reservations,
//! mappings and pools, each an object that undoes itself on drop.
//!
//! **fd** moves descriptors between processes: the broker's server and client, fetching by
//! number (`pidfd_getfd`), and the export table that lists the exported descriptors. It
//! asks a trait what is exported.
//!
//! **export** finds the allocations of a range, makes their handles, and keeps the
//! registry of live exports. **import** puts handles in order, chooses devices, and tries
//! one type after the other. It keeps one mapping per allocation, and trusts nothing that
//! a handle says.
//!
//! **registered** and **multicast** are built on exports and imports:
//! [`RegisteredMemory`] is a buffer with its handles and a runtime's other transports,
//! and a multicast object (with the feature `multicast`) joins the memory of several GPUs.
//!
//! [`Ipc`] is the front door to all of them.
//!
//! # Features
//!
//! `multicast` adds multicast objects (NVLS): a module of that name, and two methods of
//! [`Ipc`]. They have run on the emulated driver only. Without it the handle of a
//! multicast object is refused with [`Error::Unsupported`]. `cuda-driver-sys` converts to
//! and from that crate's types.
//!
//! # What it does not do
//!
//! It does not order one process's GPU work after another's, and does not wait for the
//! GPU before it unmaps. It does not send handles from process to process. It does not
//! protect memory from a process that has a handle: a handle is a capability.
//!
//! # Threads, forks, logs
//!
//! Everything may be used and dropped on any thread. In a process that was forked after
//! the library was used ([`is_forked`]), exports and imports fail with
//! [`Error::Forked`], other calls fail with the driver's error, and drops do nothing,
//! because CUDA does not work there.
//!
//! The library logs through the crate `log`, with the targets `gpuipc::gpu` and
//! `gpuipc::broker`: a handled failure as debug, a fallback as info, a failed cleanup as a
//! warning. Tokens are never logged.
#![deny(unsafe_code)]
#![cfg(target_os = "linux")]

mod attempt;
mod buffer;
mod error;
mod export;
mod fd;
#[doc(hidden)]
pub mod fuzzing;
mod gpu;
mod import;
mod ipc;
#[cfg(all(test, gpuipc_shuttle))]
mod model_check;
#[cfg(feature = "multicast")]
pub mod multicast;
mod options;
mod process;
mod registered;
mod session;

pub use attempt::{Attempt, Code, GpuPair, Reason, Step};
pub use buffer::{Buffer, Memory};
pub use error::{Error, ImportError, MemoryKind, NotExportable, RangeError};
pub use export::{Exported, WHOLE_ALLOCATION};
pub use gpu::device_memory::DeviceMemory;
pub use gpu::driver::{Driver, DriverCause, DriverError, device_uuid};
pub use gpu::reservation::Reservation;
pub use gpuipc_core as core;
pub use gpuipc_core::{
    DecodeError, DeviceUuid, GpuIpcMemHandle, HANDLE_BYTES, HandleType, Status, TransportInfo,
    TypeFlags,
};
pub use gpuipc_sys as sys;
pub use import::can_import::{Feasibility, Feasible};
pub use import::mem::{GpuIpcMem, Liveness, Used};
pub use import::range::check_range;
pub use options::{
    Access, DEFAULT_TIMEOUT, DeviceId, ExportOptions, ImportOptions, IpcOptions,
    SOCKET_DIR_VARIABLE, TIMEOUT_VARIABLE, TRUST_VARIABLE, TYPES_VARIABLE, Trust,
};
pub use process::identity::{HOST_ID_VARIABLE, host_id, is_forked};
pub use registered::RegisteredMemory;
pub use session::Ipc;
