//! Share GPU memory between processes.
//!
//! One process exports memory and gets a handle of 384 plain bytes that carries
//! every type of sharing which this memory allows. Another process, which may live
//! in another container or see other GPUs, imports the handle: each type is tried
//! until one leads to a mapped, accessible address. The mapping undoes itself.
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
//! # The layers, bottom up
//!
//! | layer | does | does not |
//! |---|---|---|
//! | `gpuipc_core` ([`core`]) | the handle's layout, its checks, the broker's messages | know CUDA or an operating system |
//! | [`sys`] | CUDA's types, the list of driver calls, the loader | decide anything |
//! | [`Driver`] | one method a driver call, `Result` out | check what the driver checks |
//! | contexts, mappings, allocations | one step each, undone on drop | know of types or handles |
//! | exports and the broker | hold what is exported, hand out descriptors, say whether memory is unchanged | map anything |
//! | imports | handles into their order, devices, one type after the other, one mapping an allocation | trust what a handle says |
//! | [`RegisteredMemory`] | a buffer with its handles and a runtime's other transports | use those |
//! | [`multicast`] | one object for several GPUs, phase by phase, agreed on by all members | run on a real driver unless asked to |
//! | [`Ipc`] | export, import with fallback | order the GPU work of two processes |
//!
//! # What it does not do
//!
//! It does not synchronize: nothing here orders one process's GPU work after
//! another's. It does not wait for the GPU before it unmaps. It does not send
//! handles from process to process. It protects no memory from whoever holds a
//! handle: a handle is a capability.
//!
//! # Threads, forks, logs
//!
//! Everything may be used and dropped on any thread. In a process forked from
//! one that had used the library ([`is_forked`]), exports and imports fail with
//! [`Error::Forked`], other calls with the driver's error, and drops do nothing,
//! since CUDA works in no such process. What happens is told through
//! the crate `log`, under the targets `gpuipc::gpu` and `gpuipc::broker`: a
//! handled failure as debug, a fallback that was taken as info, a failed undo as
//! a warning. Tokens are never printed.
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
