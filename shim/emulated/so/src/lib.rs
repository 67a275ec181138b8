//! `libgpuipc_emulated.so`: the emulated CUDA driver under its C names, for
//! programs that link with `-lcuda` or load it by path. Thin wrappers over
//! [`gpuipc_emulated::table`].
//!
//! It has no SONAME, so that it never answers for the real `libcuda.so.1` in a
//! process that loads both. A symbol that the settings leave out, or that is
//! newer than their driver version, is still exported here, and answers
//! `NOT_FOUND`; `cuGetProcAddress_v2` does not find it.

use core::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use core::ptr;
use gpuipc_emulated::{ProcAddress, get_proc_address, table};
use gpuipc_sys::{
    CuAny, CuContext, CuDevice, CuDevicePtr, CuGraph, CuIpcMemHandle, CuMemAccessDesc,
    CuMemAllocationProp, CuMemHandle, CuMemLocation, CuMemPool, CuMemPoolProps,
    CuMemPoolPtrExportData, CuMulticastObjectProp, CuResult, CuStr, CuStream, CuUuid,
};

macro_rules! export {
    ($($field:ident: $symbol:literal, $version:literal, $need:ident, ($($arg:ident: $ty:ty),*);)*) => {
        $(
            #[doc = concat!("`", $symbol, "`.")]
            ///
            /// # Safety
            /// The arguments are as `cuda.h` demands.
            #[unsafe(export_name = $symbol)]
            pub unsafe extern "C" fn $field($($arg: $ty),*) -> CuResult {
                match table().$field {
                    // SAFETY: the same signature and the same demands: the
                    // caller's promise is passed on.
                    Some(entry) => unsafe { entry($($arg),*) },
                    None => CuResult::NOT_FOUND,
                }
            }
        )*
    };
}

gpuipc_sys::driver_calls!(export);

/// `CUdriverProcAddressQueryResult`.
mod query_result {
    use core::ffi::c_int;
    pub(crate) const SUCCESS: c_int = 0;
    pub(crate) const SYMBOL_NOT_FOUND: c_int = 1;
    pub(crate) const VERSION_NOT_SUFFICIENT: c_int = 2;
}

/// `cuGetProcAddress_v2`.
///
/// # Safety
/// The arguments are as `cuda.h` demands: `symbol` is null or a C string,
/// `function` and `status` are null or valid for a write.
#[unsafe(export_name = "cuGetProcAddress_v2")]
pub unsafe extern "C" fn get_proc_address_v2(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: c_ulonglong,
    status: *mut c_int,
) -> CuResult {
    // SAFETY: the caller's promise is passed on.
    unsafe { find(symbol, function, version, flags, status) }
}

/// The lookup itself. Its address, unlike that of an exported symbol, is never
/// another library's.
///
/// # Safety
/// As [`get_proc_address_v2`].
unsafe extern "C" fn find(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    _flags: c_ulonglong,
    status: *mut c_int,
) -> CuResult {
    if symbol.is_null() || function.is_null() {
        return CuResult::INVALID_VALUE;
    }
    // SAFETY: not null, so a C string by the caller's promise.
    let name = unsafe { CStr::from_ptr(symbol) }
        .to_str()
        .unwrap_or_default();
    let found = match name {
        "cuGetProcAddress" | "cuGetProcAddress_v2" => ProcAddress::Found(find as *const c_void),
        name => get_proc_address(name, u32::try_from(version).unwrap_or(0)),
    };
    let (address, query, code) = match found {
        ProcAddress::Found(address) => {
            (address.cast_mut(), query_result::SUCCESS, CuResult::SUCCESS)
        }
        ProcAddress::NotFound => (
            ptr::null_mut(),
            query_result::SYMBOL_NOT_FOUND,
            CuResult::NOT_FOUND,
        ),
        ProcAddress::NewerVersion => (
            ptr::null_mut(),
            query_result::VERSION_NOT_SUFFICIENT,
            CuResult::NOT_FOUND,
        ),
    };
    // SAFETY: not null, so valid for a write by the caller's promise.
    unsafe { function.write(address) };
    if !status.is_null() {
        // SAFETY: as above.
        unsafe { status.write(query) };
    }
    code
}
