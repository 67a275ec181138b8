//! Attempts and errors as structs of C.

use crate::failure::Failure;
use crate::{kinds, reasons};
use core::ffi::c_char;
use gpuipc::Attempt;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::mem::offset_of;
use std::sync::{Mutex, PoisonError};

/// For `segment` of an attempt: the memory has only one, or it was not about one of
/// them.
pub const GPUIPC_SEGMENT_NONE: u32 = u32::MAX;

/// One type that was tried and did not work. Of 96 bytes for ever; what comes
/// takes reserved ones.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CAttempt {
    /// The type that was tried: `GPUIPC_TYPE_...`.
    pub handle_type: u32,
    /// Where it ended: `GPUIPC_STEP_...`.
    pub step: u32,
    /// Why: `GPUIPC_REASON_...`.
    pub reason: u32,
    /// What `code` is: `GPUIPC_CODE_...`.
    pub code_kind: u32,
    /// What the driver or the kernel answered.
    pub code: i32,
    /// The segment of the memory at which it ended, from 0, or `GPUIPC_SEGMENT_NONE`.
    pub segment: u32,
    /// How long the attempt took, in nanoseconds.
    pub elapsed_ns: u64,
    /// The step in words. The library's, for ever.
    pub step_text: *const c_char,
    /// The reason in words. The library's, for ever.
    pub reason_text: *const c_char,
    /// What to do about it. The library's, for ever.
    pub hint_text: *const c_char,
    /// 0.
    pub reserved_long: u64,
    /// Where there was no way between two GPUs, the UUID of the importing one; else
    /// zeros.
    pub pair_from: [u8; 16],
    /// The UUID of the GPU that holds the memory; else zeros.
    pub pair_to: [u8; 16],
}

/// What a call that failed said, in numbers. Of 32 bytes for ever; what comes
/// takes reserved ones.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CError {
    /// What the call returned; `GPUIPC_OK` if it succeeded.
    pub status: u32,
    /// With `GPUIPC_NOT_EXPORTABLE`: what the memory is, `GPUIPC_KIND_...`. Else 0.
    pub memory_kind: u32,
    /// What `code` is: `GPUIPC_CODE_...`.
    pub code_kind: u32,
    /// The answer of the driver or the kernel, where one call decided. What
    /// failed within attempts is told by those.
    pub code: i32,
    /// How many attempts `gpuipc_last_error_attempts` gives.
    pub attempt_count: u32,
    /// 0.
    pub reserved: u32,
    /// 0.
    pub reserved_long: u64,
}

const _: () = assert!(
    size_of::<CAttempt>() == 96
        && offset_of!(CAttempt, elapsed_ns) == 24
        && offset_of!(CAttempt, step_text) == 32
        && offset_of!(CAttempt, reserved_long) == 56
        && offset_of!(CAttempt, pair_to) == 80,
    "C callers were compiled with these places, which leave no padding"
);
const _: () = assert!(
    size_of::<CError>() == 32 && offset_of!(CError, reserved_long) == 24,
    "C callers were compiled with these places, which leave no padding"
);

impl CAttempt {
    pub(crate) fn of(attempt: &Attempt) -> Self {
        let (code_kind, code) = reasons::code(attempt.code);
        Self {
            handle_type: attempt.handle_type.flag().bits().into(),
            step: reasons::step(attempt.step),
            reason: reasons::reason(attempt.reason),
            code_kind,
            code,
            segment: attempt.segment.unwrap_or(GPUIPC_SEGMENT_NONE),
            elapsed_ns: u64::try_from(attempt.elapsed.as_nanos()).unwrap_or(u64::MAX),
            step_text: constant(attempt.step.name()).as_ptr(),
            reason_text: constant(attempt.reason.why()).as_ptr(),
            hint_text: constant(attempt.reason.hint()).as_ptr(),
            reserved_long: 0,
            pair_from: attempt.gpu_pair.map_or([0; 16], |gpu_pair| gpu_pair.from.0),
            pair_to: attempt.gpu_pair.map_or([0; 16], |gpu_pair| gpu_pair.to.0),
        }
    }

    /// In place of one where nothing failed: zeros and empty texts.
    pub(crate) fn none() -> Self {
        Self {
            handle_type: 0,
            step: reasons::GPUIPC_STEP_OTHER,
            reason: reasons::GPUIPC_REASON_OTHER,
            code_kind: reasons::GPUIPC_CODE_NONE,
            code: 0,
            segment: GPUIPC_SEGMENT_NONE,
            elapsed_ns: 0,
            step_text: c"".as_ptr(),
            reason_text: c"".as_ptr(),
            hint_text: c"".as_ptr(),
            reserved_long: 0,
            pair_from: [0; 16],
            pair_to: [0; 16],
        }
    }
}

impl CError {
    pub(crate) fn of(failure: Option<&Failure>) -> Self {
        let (code_kind, code) = failure.map_or((reasons::GPUIPC_CODE_NONE, 0), |failure| {
            reasons::code(failure.code)
        });
        Self {
            status: failure.map_or(0, |failure| failure.status.0),
            memory_kind: failure
                .and_then(|failure| failure.kind)
                .map_or(kinds::GPUIPC_KIND_OTHER, kinds::kind),
            code_kind,
            code,
            attempt_count: failure.map_or(0, |failure| {
                u32::try_from(failure.attempts.len()).unwrap_or(u32::MAX)
            }),
            reserved: 0,
            reserved_long: 0,
        }
    }
}

/// One of the library's constant texts with a NUL at its end. Each is made once
/// and kept, since C may hold on to it.
fn constant(text: &'static str) -> &'static CStr {
    static KNOWN: Mutex<Option<HashMap<&'static str, &'static CStr>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known
        .get_or_insert_default()
        .entry(text)
        .or_insert_with(|| {
            // No text of ours has a NUL in it.
            Box::leak(CString::new(text).unwrap_or_default().into_boxed_c_str())
        })
}
