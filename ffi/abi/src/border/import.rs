//! Mapping another process's memory.

use super::{bytes, call, given, options, put_defaults};
use crate::objects::{Cancel, Library, Mem};
use crate::options::ImportOptions;
use crate::status::CStatus;
use std::mem::MaybeUninit;

/// Fills `options` with the defaults. `struct_size` is
/// `sizeof(gpuipc_import_options)` where the caller is compiled.
///
/// Fails with `GPUIPC_INVALID_ARGUMENT` for a size that no header has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_import_options_init(
    options: *mut ImportOptions,
    struct_size: usize,
) -> CStatus {
    call("gpuipc_import_options_init", || {
        // SAFETY: the caller's promise.
        unsafe { put_defaults(options, struct_size) }
    })
}

/// What ends the import, unless it is NULL.
///
/// # Safety
/// `pointer` is NULL, or from `gpuipc_cancel_new` and not freed while the result
/// is used.
unsafe fn cancel<'a>(pointer: *const Cancel) -> Option<&'a Cancel> {
    // SAFETY: NULL is None; any other is valid by the caller's promise.
    unsafe { pointer.as_ref() }
}

/// Maps the memory behind the handles in the `len` bytes at `handles`, by the
/// first type of sharing that works. The bytes need no alignment; `len` is
/// `GPUIPC_HANDLE_BYTES` for each handle (this version imports memory of one).
/// `options` may be NULL: the defaults. What a type that failed had done is
/// undone before the next one is tried. The caller's current context stays.
///
/// `*out` is to be given to `gpuipc_mem_free`, which unmaps. In the exporting
/// process itself this gives the original pointer.
///
/// Nothing here orders one process's GPU work after another's.
///
/// Fails with `GPUIPC_EXPORTER_GONE`, `GPUIPC_OFFER_WITHDRAWN`,
/// `GPUIPC_TIMED_OUT`, `GPUIPC_CANCELLED`, `GPUIPC_OTHER_HOST` or else `GPUIPC_NO_TYPE_WORKED` (the
/// error has every attempt), `GPUIPC_HANDLE_...` for bytes that are no
/// handles, `GPUIPC_INVALID_ARGUMENT`, `GPUIPC_UNSUPPORTED`,
/// `GPUIPC_DRIVER_CALL`, `GPUIPC_NO_DEVICE`, `GPUIPC_FORKED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_import(
    ipc: Option<&Library>,
    handles: *const u8,
    len: usize,
    options: *const ImportOptions,
    out: Option<&mut MaybeUninit<Box<Mem>>>,
) -> CStatus {
    call("gpuipc_import", || {
        let ipc = given("ipc", ipc)?;
        // SAFETY: the caller's promise, for the time of this call.
        let handles = unsafe { bytes("handles", handles, len) }?;
        let out = given("out", out)?;
        // SAFETY: the caller's promise, for the time of this call.
        let options = match unsafe { self::options(options) }? {
            None => gpuipc::ImportOptions::default(),
            Some(options) => {
                // SAFETY: the caller's promise, for the time of this call.
                let cancel = unsafe { cancel(options.cancel) };
                options.check(cancel)?
            }
        };
        out.write(Box::new(ipc.import(handles, &options)?));
        Ok(())
    })
}
