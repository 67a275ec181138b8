//! The raw level: CUDA's types, the list of driver calls, and the loader.
//!
//! This is the only place that knows symbol names and `dlopen`. The
//! [`DriverTable`] of function pointers is the seam: the real driver, the
//! emulated one and a fault injector all fill or wrap the same table, so that
//! there is one code path above it.

mod calls;
mod load;
mod types;

#[cfg(feature = "cuda-driver-sys")]
mod cross_check;

pub(crate) use calls::info;
pub use calls::{CALLS, CallInfo, DriverTable};
pub use load::{DEFAULT_LIBRARY, LIBRARY_VARIABLE, LoadError, load};
pub use types::*;
