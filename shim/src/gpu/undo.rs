//! Failures of cleanup. Nothing can be done about them, so they are logged. A
//! destructor never panics.

use crate::gpu::driver::{DriverError, Result};
use crate::sys::CuResult;

/// Logs a failed undo as a warning. Silent when the driver has shut down (code 4) or the
/// context is gone (709): whichever it was has taken everything back already.
pub(crate) fn report(what: &str, result: Result<()>) {
    match result {
        Ok(()) => {}
        Err(error) if is_gone(&error) => {}
        Err(error) => log::warn!(target: "gpuipc::gpu", "undo: {what} failed: {error}"),
    }
}

fn is_gone(error: &DriverError) -> bool {
    matches!(
        error.code(),
        Some(CuResult::DEINITIALIZED | CuResult::CONTEXT_IS_DESTROYED)
    )
}
