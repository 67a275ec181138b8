//! `cuGetErrorName` and `cuGetErrorString`.

use crate::Answer;
use crate::args::Out;
use core::ffi::CStr;
use core::ptr;
use gpuipc_sys::{CuResult, CuStr};
use std::ffi::CString;
use std::sync::OnceLock;

/// CUDA's codes fit below this.
const MOST: u32 = 1000;

/// The names as C strings, made from the one list of codes.
fn names() -> &'static [(u32, CString)] {
    static NAMES: OnceLock<Vec<(u32, CString)>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let named = (0..MOST).filter_map(|code| Some((code, CuResult(code).name()?)));
        named
            .filter_map(|(code, name)| Some((code, CString::new(name).ok()?)))
            .collect()
    })
}

fn text_of(code: CuResult) -> &'static CStr {
    match code {
        CuResult::SUCCESS => c"no error",
        CuResult::INVALID_VALUE => c"invalid argument",
        CuResult::OUT_OF_MEMORY => c"out of memory",
        CuResult::NOT_INITIALIZED => c"initialization error",
        CuResult::DEINITIALIZED => c"driver shutting down",
        CuResult::NO_DEVICE => c"no CUDA-capable device is detected",
        CuResult::INVALID_DEVICE => c"invalid device ordinal",
        CuResult::INVALID_CONTEXT => c"invalid device context",
        CuResult::PEER_ACCESS_UNSUPPORTED => {
            c"peer access is not supported between these two devices"
        }
        CuResult::OPERATING_SYSTEM => c"OS call failed or operation not supported on this OS",
        CuResult::INVALID_HANDLE => c"invalid resource handle",
        CuResult::NOT_FOUND => c"named symbol not found",
        CuResult::CONTEXT_IS_DESTROYED => c"context is destroyed",
        CuResult::NOT_PERMITTED => c"operation not permitted",
        CuResult::NOT_SUPPORTED => c"operation not supported",
        CuResult::SYSTEM_NOT_READY => c"system not yet initialized",
        _ => c"unknown error",
    }
}

fn name_of(code: CuResult) -> Option<&'static CStr> {
    names()
        .iter()
        .find(|(known, _)| *known == code.0)
        .map(|(_, name)| name.as_c_str())
}

/// `cuGetErrorName`.
pub(crate) fn get_error_name(error: CuResult, text: Out<CuStr>) -> Answer {
    answer(text, name_of(error))
}

/// `cuGetErrorString`.
pub(crate) fn get_error_string(error: CuResult, text: Out<CuStr>) -> Answer {
    answer(text, name_of(error).map(|_| text_of(error)))
}

fn answer(to: Out<CuStr>, text: Option<&'static CStr>) -> Answer {
    to.put(text.map_or(ptr::null(), CStr::as_ptr))?;
    text.map(|_| ()).ok_or(CuResult::INVALID_VALUE)
}
