//! What happens when giving something back fails: nothing can be done, so it is
//! said in the log. A destructor never panics.

use crate::driver::{DriverError, Result};
use crate::sys::CuResult;

/// Logs a failed undo as a warning. Silent when the driver has shut down (code
/// 4): at the end of a process it has taken everything back already.
pub(crate) fn report(what: &str, result: Result<()>) {
    match result {
        Ok(()) => {}
        Err(error) if is_shut_down(&error) => {}
        Err(error) => log::warn!(target: "gpuipc::gpu", "undo: {what} failed: {error}"),
    }
}

fn is_shut_down(error: &DriverError) -> bool {
    error.code() == Some(CuResult::DEINITIALIZED)
}
