//! What went wrong, in full.

use super::{ArrayRoom, TextRoom, caught, given};
use crate::attempts::{CAttempt, CError};
use crate::failure::Failure;
use crate::last_error;
use crate::status::{self, CStatus};
use core::ffi::c_char;
use gpuipc::Status;
use std::mem::MaybeUninit;

/// A question about the last error, which stays as it is.
fn ask(body: impl FnOnce() -> Result<(), Failure>) -> CStatus {
    caught(body).map_or_else(|failure| failure.status.0, |()| status::GPUIPC_OK)
}

/// What this thread's last call said, in full: the function, the cause, every
/// attempt with its step, code and hint. Empty if that call returned
/// `GPUIPC_OK`. The calls that return no status, and those about the last error, do
/// not change it. A text function: see above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_last_error(
    buffer: *mut c_char,
    len: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    ask(|| {
        // SAFETY: the caller's promise, for the time of this call.
        let room = unsafe { TextRoom::new(buffer, len, needed) }?;
        room.put(&last_error::text())
    })
}

/// The same in numbers: the status, the kind of memory that cannot be shared, the
/// code of the driver or the kernel.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_last_error_read(out: Option<&mut MaybeUninit<CError>>) -> CStatus {
    ask(|| {
        let out = given("out", out)?;
        out.write(CError::of(last_error::get().as_ref()));
        Ok(())
    })
}

/// The attempts behind this thread's last error, in order: what an export or an
/// import tried, and how each failed. None for most errors. An array function: see
/// above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_last_error_attempts(
    attempts: *mut CAttempt,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    ask(|| {
        // SAFETY: the caller's promise, for the time of this call.
        let room = unsafe { ArrayRoom::new("attempts", attempts, capacity, count) }?;
        let attempts = last_error::get().map_or_else(Vec::new, |failure| failure.attempts);
        room.put(&attempts, CAttempt::of)
    })
}

/// The status in one sentence. Never NULL, and never freed; also for numbers
/// that this library does not know.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_status_text(status: CStatus) -> *const c_char {
    status::text(Status(status)).as_ptr()
}

/// The status's name without `GPUIPC_`, such as `TIMED_OUT`; `UNKNOWN` for a
/// number that this library does not know. Never NULL, and never freed.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_status_name(status: CStatus) -> *const c_char {
    status::name(Status(status)).as_ptr()
}
