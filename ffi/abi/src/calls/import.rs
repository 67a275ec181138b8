//! Mapping another process's memory.

use super::{bytes, call, elements, given, options, put_defaults};
use crate::failure::Failure;
use crate::objects::{Library, Mem};
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

/// The most access devices of an import: more than any machine has.
const MOST_DEVICES: usize = 1024;

/// The object behind a pointer of the options, unless that is NULL.
///
/// # Safety
/// `pointer` is NULL, or to an object of the library's that is not freed while the
/// result is used.
unsafe fn object<'a, T>(pointer: *const T) -> Option<&'a T> {
    // SAFETY: NULL is None; any other is valid by the caller's promise.
    unsafe { pointer.as_ref() }
}

/// The library's options; NULL gives the defaults.
///
/// # Safety
/// As for [`options`], and so is what they point to.
pub(super) unsafe fn import_options(
    options: *const ImportOptions,
) -> Result<gpuipc::ImportOptions, Failure> {
    // SAFETY: the caller's promise is this function's.
    let Some(options) = unsafe { self::options(options) }? else {
        return Ok(gpuipc::ImportOptions::default());
    };
    // SAFETY: as above.
    let cancel = unsafe { object(options.cancel) };
    // SAFETY: as above.
    let place = unsafe { object(options.place) };
    // A u32 is not more than a usize on the machines that this is for.
    let count = options.access_device_count as usize;
    // SAFETY: as above; a device takes any bytes.
    let more = unsafe {
        elements(
            "access_devices",
            options.access_devices,
            count,
            MOST_DEVICES,
        )
    }?;
    options.check(cancel, place, more)
}

/// Maps the memory behind the handles in the `len` bytes at `handles`, by the
/// first type of sharing that works. The bytes need no alignment; `len` is
/// `GPUIPC_HANDLE_BYTES` for each handle. They are all that the export gave, in any
/// order: memory in several allocations comes to lie at one contiguous address, all of
/// it or nothing. `options` may be NULL: the defaults. What a type that failed had done
/// is undone before the next one is tried. The caller's current context stays.
///
/// `*out` is to be given to `gpuipc_mem_free`, which unmaps. In the exporting
/// process itself this gives the original pointer, and access for the importing device and
/// `access_devices`; `cuMemAlloc` memory cannot be given to another GPU that these options
/// name, which is an error (`cuCtxEnablePeerAccess` is its owner's), nor can own memory have
/// a `place`. `gpuipc_deserialize` does the same. Ranges of one `cuMemCreate` allocation
/// that are imported with the same device and access share one mapping; a legacy handle is
/// opened once in a process, and its exporter asked at each import.
///
/// Nothing here orders one process's GPU work after another's.
///
/// Fails with `GPUIPC_EXPORTER_GONE`, `GPUIPC_EXPORT_REVOKED`,
/// `GPUIPC_TIMED_OUT`, `GPUIPC_CANCELLED`, `GPUIPC_OTHER_HOST` or else `GPUIPC_NO_TYPE_WORKED` (the
/// error has every attempt), `GPUIPC_HANDLE_...` for bytes that are no
/// handles, `GPUIPC_NOT_ONE_RANGE` if some are missing, doubled or of other memory,
/// `GPUIPC_INVALID_ARGUMENT`, `GPUIPC_UNSUPPORTED`,
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
        let options = unsafe { import_options(options) }?;
        out.write(Box::new(ipc.import(handles, &options)?));
        Ok(())
    })
}
