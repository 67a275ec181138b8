//! The CUDA driver, found at run time: its plain types, the list of calls that sharing
//! memory needs, the loader, and a [`Driver`] with one method a call.
//!
//! Nothing here links with libcuda: [`Driver::load`] opens `libcuda.so.1` and fills a
//! [`DriverTable`] of function pointers. A stand-in for the driver, or a wrapper around
//! it, fills the same table ([`Driver::from_table`]), so that there is one code path
//! above it.
//!
//! A method is `unsafe` where a wrong argument, or a call at the wrong moment, can
//! unmap, free or destroy what somebody else uses, or crashes the driver. The crate
//! `gpuipc` builds on these methods; they add nothing to the driver's calls but this:
//!
//! * out-parameters become values, codes become a [`DriverError`] that names the call;
//! * calls that crash the driver side by side go one at a time in this process
//!   ([`Driver::mem_unmap`], [`Driver::ipc_open_mem_handle`]);
//! * calls that end stream captures of the process are made in the relaxed capture mode
//!   (`cuThreadExchangeStreamCaptureMode`), where the driver lets captures be;
//! * each call and its duration are logged at level trace under the target
//!   `gpuipc::gpu`.
#![cfg(target_os = "linux")]

mod calls;
mod driver;
pub mod environment;
mod load;
mod types;

#[cfg(feature = "cuda-driver-sys")]
mod cross_check;

pub(crate) use calls::info;
pub use calls::{CALLS, CallInfo, DriverTable};
pub use driver::{Driver, DriverCause, DriverError, Result};
pub use load::{DEFAULT_LIBRARY, LIBRARY_VARIABLE, LoadError, load};
pub use types::*;
