//! Ending another thread's import.

use super::{call, given, release};
use crate::objects::Cancel;
use crate::status::CStatus;
use std::mem::MaybeUninit;

/// Makes what an import's waiting can be ended with: `cancel` of
/// `gpuipc_import_options`. `*out` is to be given to `gpuipc_cancel_free`. May
/// serve any number of imports, also at the same time.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_cancel_new(out: Option<&mut MaybeUninit<Box<Cancel>>>) -> CStatus {
    call("gpuipc_cancel_new", || {
        given("out", out)?.write(Box::new(Cancel::new()));
        Ok(())
    })
}

/// With `cancelled` 1: imports that were given `cancel` end with
/// `GPUIPC_CANCELLED` within 20 ms, and later ones at once. A driver call under
/// way is not interrupted. With 0: later imports wait again.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_cancel_set(cancel: Option<&Cancel>, cancelled: u32) -> CStatus {
    call("gpuipc_cancel_set", || {
        given("cancel", cancel)?.set(cancelled != 0);
        Ok(())
    })
}

/// Gives it back. NULL is allowed. Imports under way that were given it go on,
/// and can be cancelled no more.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_cancel_free(cancel: Option<Box<Cancel>>) {
    release("gpuipc_cancel_free", cancel);
}
