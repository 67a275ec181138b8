//! Exporting memory to other processes.

use super::{
    ArrayRoom, ByteRoom, TextRoom, buffer, call, call_with, given, options, put_bytes,
    put_defaults, release,
};
use crate::attempts::CAttempt;
use crate::failure::Failure;
use crate::objects::{self, Exported, Library};
use crate::options::ExportOptions;
use crate::status::CStatus;
use core::ffi::c_char;
use gpuipc::HANDLE_BYTES;
use std::mem::MaybeUninit;

/// Exports `len` bytes of GPU memory from `ptr` on (a `CUdeviceptr`) to other
/// processes, by every type of sharing that the memory allows: `cuMemAlloc`
/// memory by legacy IPC, `cuMemCreate` memory (in a GPU or on a host NUMA node) by
/// the handle types that it was created for, and memory of a pool by those of the
/// pool. A range over several `cuMemCreate` allocations that are mapped side by side
/// gives a handle for each of them; with `len` `GPUIPC_WHOLE_ALLOCATION` there is always
/// one, for what the allocation around `ptr` has from there on. Needs no current context and leaves the caller's
/// as it was. The first export starts a thread that answers importers.
///
/// `*out` is to be given to `gpuipc_exported_free`, which revokes the export. Until
/// then `cuMemCreate` memory stays allocated, whatever its owner frees;
/// `cuMemAlloc` memory and memory of a pool its owner must keep.
///
/// A handle gives the whole allocation, not only the range. A handle of pool memory gives
/// the whole pool: also what was never exported, and what the pool allocates later, until
/// the pool is destroyed. Ending the export does not take that back.
///
/// Fails with `GPUIPC_NOT_EXPORTABLE` (the error's text has the kind of memory
/// and the cure), `GPUIPC_INVALID_ARGUMENT` for `len` 0, `GPUIPC_BROKER_START`,
/// `GPUIPC_DRIVER_CALL`, `GPUIPC_FORKED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_export(
    ipc: Option<&Library>,
    ptr: u64,
    len: usize,
    out: Option<&mut MaybeUninit<Box<Exported>>>,
) -> CStatus {
    call("gpuipc_export", || {
        let (ipc, out) = (given("ipc", ipc)?, given("out", out)?);
        let options = gpuipc::ExportOptions::default();
        // SAFETY: the caller's promise about the memory.
        out.write(Box::new(unsafe { ipc.export(ptr, len, &options) }?));
        Ok(())
    })
}

/// The library's options; NULL gives the defaults.
///
/// # Safety
/// As for [`options`].
pub(super) unsafe fn export_options(
    options: *const ExportOptions,
) -> Result<gpuipc::ExportOptions, Failure> {
    // SAFETY: the caller's promise is this function's.
    match unsafe { self::options(options) }? {
        None => Ok(gpuipc::ExportOptions::default()),
        Some(options) => options.check(),
    }
}

/// As `gpuipc_export`, with options. `options` may be NULL: the defaults.
///
/// Fails as `gpuipc_export`, and with `GPUIPC_INVALID_ARGUMENT` for options that
/// cannot be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_export_with(
    ipc: Option<&Library>,
    ptr: u64,
    len: usize,
    options: *const ExportOptions,
    out: Option<&mut MaybeUninit<Box<Exported>>>,
) -> CStatus {
    call("gpuipc_export_with", || {
        let (ipc, out) = (given("ipc", ipc)?, given("out", out)?);
        // SAFETY: the caller's promise, for the time of this call.
        let options = unsafe { export_options(options) }?;
        // SAFETY: the caller's promise about the memory.
        out.write(Box::new(unsafe { ipc.export(ptr, len, &options) }?));
        Ok(())
    })
}

/// Fills `options` with the defaults. `struct_size` is
/// `sizeof(gpuipc_export_options)` where the caller is compiled.
///
/// Fails with `GPUIPC_INVALID_ARGUMENT` for a size that no header has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_export_options_init(
    options: *mut ExportOptions,
    struct_size: usize,
) -> CStatus {
    call("gpuipc_export_options_init", || {
        // SAFETY: the caller's promise.
        unsafe { put_defaults(options, struct_size) }
    })
}

/// How many bytes were exported: with `GPUIPC_WHOLE_ALLOCATION`, how many there are.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_exported_len(
    exported: Option<&Exported>,
    out: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    call("gpuipc_exported_len", || {
        let (exported, out) = (given("exported", exported)?, given("out", out)?);
        out.write(exported.len());
        Ok(())
    })
}

/// How many handles describe the memory: one for memory inside one allocation, else one
/// for each allocation. An importer needs all of them.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_exported_handle_count(
    exported: Option<&Exported>,
    out: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    call("gpuipc_exported_handle_count", || {
        let (exported, out) = (given("exported", exported)?, given("out", out)?);
        out.write(exported.handles().len());
        Ok(())
    })
}

/// Writes the bytes of handle `index`, `GPUIPC_HANDLE_BYTES` of them, into
/// `buffer`, which has `len` bytes and needs no alignment. Send them to the
/// importer by any means, unchanged; of several handles one after the other.
/// Who holds the bytes may ask for the memory: keep them like a password.
///
/// Fails with `GPUIPC_INVALID_ARGUMENT` for an index beyond the last,
/// `GPUIPC_BUFFER_TOO_SMALL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_exported_handle_bytes(
    exported: Option<&Exported>,
    index: usize,
    buffer: *mut u8,
    len: usize,
) -> CStatus {
    call("gpuipc_exported_handle_bytes", || {
        let exported = given("exported", exported)?;
        // SAFETY: the caller's promise, for the time of this call.
        let buffer = unsafe { self::buffer("buffer", buffer, len) }?;
        let bytes = exported.handle_bytes(index)?;
        if len < HANDLE_BYTES {
            return Err(Failure::room(len, HANDLE_BYTES));
        }
        put_bytes(buffer, &bytes);
        Ok(())
    })
}

/// Writes the bytes of all handles, one after the other, into `buffer` of `len`
/// bytes, and how many there are into `*needed`: what `gpuipc_import` takes. With
/// length 0 it only writes `*needed`, and the buffer may be NULL; with a buffer,
/// `needed` may be NULL.
///
/// Fails with `GPUIPC_BUFFER_TOO_SMALL`, and then writes `*needed` only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_exported_bytes(
    exported: Option<&Exported>,
    buffer: *mut u8,
    len: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    call("gpuipc_exported_bytes", || {
        let exported = given("exported", exported)?;
        // SAFETY: the caller's promise, for the time of this call.
        let room = unsafe { ByteRoom::new(buffer, len, needed) }?;
        room.put(&exported.bytes())
    })
}

/// The types that the memory was made for but that could not be exported, and
/// why: a line each, empty if there are none. A text function: see above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_exported_attempts(
    exported: Option<&Exported>,
    buffer: *mut c_char,
    len: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    call("gpuipc_exported_attempts", || {
        let exported = given("exported", exported)?;
        // SAFETY: the caller's promise, for the time of this call.
        let room = unsafe { TextRoom::new(buffer, len, needed) }?;
        room.put(&objects::lines(exported.attempts()))
    })
}

/// The same attempts as structs. An array function: see above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_exported_attempt_list(
    exported: Option<&Exported>,
    attempts: *mut CAttempt,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    call("gpuipc_exported_attempt_list", || {
        let exported = given("exported", exported)?;
        // SAFETY: the caller's promise, for the time of this call.
        let room = unsafe { ArrayRoom::new("attempts", attempts, capacity, count) }?;
        room.put(exported.attempts(), CAttempt::of)
    })
}

/// Revokes the export, unless the same allocation is exported elsewhere in this
/// process, too. NULL is allowed. Importers that have mapped the memory keep
/// their mappings; later ones find the export revoked. (A fabric handle leads to the
/// memory as long as that is allocated: the driver asks nobody.)
///
/// Waits for the library's thread, a second at most, if that is in a driver call about
/// the memory, and releases the driver's reference itself. So the memory may be unmapped
/// afterwards, or before, but not by another thread meanwhile: the real driver does not
/// survive `cuMemRelease` and `cuMemUnmap` of one allocation at once (seen on an H200,
/// driver 580).
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_exported_free(exported: Option<Box<Exported>>) {
    release("gpuipc_exported_free", exported);
}

/// Lets the export live without this object, until the memory is freed or the process
/// ends: for owners who cannot say when every importer has imported. `exported` is given
/// back in any case but `GPUIPC_IN_CALLBACK`, and must not be used any more.
///
/// The driver tells nobody of a free: each later export and each call of this looks at a
/// few of the exports that were left, and ends those whose memory is gone. `cuMemCreate`
/// memory that its owner has unmapped and released stays allocated until then; it must not be
/// unmapped by one thread while another one exports, or leaves an export. The library's thread
/// runs on, after `gpuipc_close`, too.
///
/// Fails with `GPUIPC_NULL_ARGUMENT`, `GPUIPC_FORKED`.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_exported_leave(exported: Option<Box<Exported>>) -> CStatus {
    call_with("gpuipc_exported_leave", exported, |exported| {
        let exported = given("exported", exported)?;
        // SAFETY: the header asks it of the caller.
        unsafe { exported.leave() }
    })
}
