//! What holds while the library calls C: on that thread only the functions that ask
//! for the last error and for constants work, until the callback returns. The library
//! may hold locks meanwhile, and a call from there would wait for its own thread.

use crate::calls;
use crate::failure::Failure;
use gpuipc::Status;
use std::cell::Cell;
use std::mem::ManuallyDrop;

thread_local! {
    /// Whether this thread is in a callback.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is in a callback.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// Runs C's function. A callback is never called from inside another one. `lock` is held
/// meanwhile, and let go of if the function does not return.
pub(crate) fn run<T>(lock: T, function: impl FnOnce()) {
    INSIDE.set(true);
    let unwound = Unwound(Some(lock));
    function();
    let Unwound(lock) = &mut *ManuallyDrop::new(unwound);
    drop(lock.take());
    INSIDE.set(false);
}

/// Dropped only where C's function is being left in another way than by returning.
struct Unwound<T>(Option<T>);

impl<T> Drop for Unwound<T> {
    /// The thread must not be unwound further: above are Rust's frames, which neither
    /// `pthread_exit` nor a C++ exception may pass. An exception ends the process, as one that
    /// nobody catches does. Else the thread is to end, as by an interpreter that shuts down in
    /// another thread: it stays here, so that the process can end in order.
    fn drop(&mut self) {
        drop(self.0.take());
        if calls::is_throwing_cpp() {
            std::process::abort();
        }
        loop {
            std::thread::park();
        }
    }
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
