//! What every call passes before its own work.

use crate::table::Call;
use crate::{Answer, faults, lifecycle};
use gpuipc::sys::CuResult;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a call: refuses it in a forked child, counts it, lets the fault
/// injector fail it, refuses it before `cuInit`; and lets no panic reach C.
pub(crate) fn pass(call: Call, work: impl FnOnce() -> Answer) -> CuResult {
    // The child's calls take no lock, which a thread of the parent may have
    // held when it forked.
    if lifecycle::is_forked() && !works_always(call) {
        return CuResult::NOT_INITIALIZED;
    }
    // After a panic the state may lack a part of one call's work but is whole
    // enough for the next: its maps are never half-written.
    let done = catch_unwind(AssertUnwindSafe(|| {
        if let Some(code) = faults::used(call as usize) {
            return Err(code);
        }
        let refused = lifecycle::refusal().filter(|_| call != Call::init && !works_always(call));
        refused.map_or_else(work, Err)
    }));
    match done {
        Ok(Ok(())) => CuResult::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => CuResult::UNKNOWN,
    }
}

/// Calls that need no driver.
fn works_always(call: Call) -> bool {
    matches!(
        call,
        Call::driver_get_version | Call::get_error_name | Call::get_error_string
    )
}
