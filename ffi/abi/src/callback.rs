//! What holds while the library calls C: on that thread only the functions that ask
//! for the last error and for constants work, until the callback returns. The library
//! may hold locks meanwhile, and a call from there would wait for its own thread.

use crate::failure::Failure;
use gpuipc::Status;
use std::cell::Cell;

thread_local! {
    /// Whether this thread is in a callback.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in a callback.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// Runs C's function. A callback is never called from inside another one.
pub(crate) fn run(function: impl FnOnce()) {
    INSIDE.set(true);
    function();
    INSIDE.set(false);
}

/// Refuses a call from inside a callback.
pub(crate) fn check() -> Result<(), Failure> {
    if !is_inside() {
        return Ok(());
    }
    Err(Failure::new(
        Status::IN_CALLBACK,
        "a callback of the library's called it back; call it after the callback has returned"
            .to_owned(),
    ))
}
