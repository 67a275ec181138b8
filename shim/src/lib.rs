//! Share GPU memory between processes.
//!
//! Placeholder: layers.
#![deny(unsafe_code)]
#![cfg(target_os = "linux")]

pub mod sys;

mod attempt;
mod broker;
mod buffer;
mod context;
mod driver;
mod error;
mod export;
mod identity;
mod import;
mod ipc;
mod mapping;
mod mem;
mod offer;
mod options;
mod undo;

pub use attempt::{Attempt, Code, Reason, Step};
pub use buffer::{Buffer, Memory};
pub use driver::{AllocationHandle, Driver, DriverCause, DriverError};
pub use error::{Error, ImportError, MemoryKind, NotExportable};
pub use export::Exported;
pub use gpuipc_core as core;
pub use gpuipc_core::{DecodeError, GpuIpcMemHandle, HANDLE_BYTES, HandleType, Status, TypeFlags};
pub use ipc::Ipc;
pub use mem::{GpuIpcMem, Liveness, Used};
pub use options::{
    Access, DEFAULT_TIMEOUT, ExportOptions, ImportOptions, SOCKET_DIR_VARIABLE, TIMEOUT_VARIABLE,
    TYPES_VARIABLE,
};
