//! Registered memory: one buffer with every way to reach it.

use super::export::export_options;
use super::import::import_options;
use super::{ArrayRoom, ByteRoom, TextRoom, bytes, call, elements, given, release};
use crate::attempts::{CAttempt, CError};
use crate::failure::Failure;
use crate::objects::registered::{COwner, CTransport, GPUIPC_TRANSPORTS};
use crate::objects::{Library, Mem, Registered};
use crate::options::{ExportOptions, ImportOptions};
use crate::status::CStatus;
use core::ffi::c_char;
use gpuipc::{GpuIpcMem, Status};
use std::mem::MaybeUninit;
use std::ptr;

/// The `count` transports that C lends for reading.
///
/// # Safety
/// As for [`elements`].
unsafe fn transports<'a>(
    pointer: *const CTransport,
    count: usize,
) -> Result<&'a [CTransport], Failure> {
    if count > GPUIPC_TRANSPORTS {
        return Err(Failure::new(
            Status::REGISTERED_MEMORY,
            format!("count is {count}, but there are at most {GPUIPC_TRANSPORTS} transports"),
        ));
    }
    // SAFETY: the caller's promise is this function's; a transport takes any bytes.
    unsafe { elements("transports", pointer, count, GPUIPC_TRANSPORTS) }
}

/// Registers `len` bytes of GPU memory from `ptr` on (a `CUdeviceptr`): exports them as
/// `gpuipc_export_with` does (`GPUIPC_WHOLE_ALLOCATION` as there), and puts the `count`
/// `transports` of the caller, at most `GPUIPC_TRANSPORTS`, beside the handles. `transports` may be NULL if `count` is 0,
/// `options` may be NULL: the defaults.
///
/// Memory that cannot be exported is registered for the transports alone, if there are
/// some: `gpuipc_registered_gpu_error` says why.
///
/// `*out` is to be given to `gpuipc_registered_free`, which revokes the export.
///
/// Fails as `gpuipc_export_with`, with `GPUIPC_INVALID_ARGUMENT` for a transport
/// with too many bytes, and with `GPUIPC_REGISTERED_MEMORY` for too many
/// transports or two of one kind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_register(
    ipc: Option<&Library>,
    ptr: u64,
    len: usize,
    transports: *const CTransport,
    count: usize,
    options: *const ExportOptions,
    out: Option<&mut MaybeUninit<Box<Registered>>>,
) -> CStatus {
    call("gpuipc_register", || {
        let (ipc, out) = (given("ipc", ipc)?, given("out", out)?);
        // SAFETY: the caller's promise, for the time of this call.
        let transports = unsafe { self::transports(transports, count) }?;
        // SAFETY: the caller's promise, for the time of this call.
        let options = unsafe { export_options(options) }?;
        // SAFETY: the caller's promise about the memory.
        out.write(Box::new(unsafe {
            ipc.register(ptr, len, transports, &options)
        }?));
        Ok(())
    })
}

/// Registers `len` bytes from `ptr` on for the `transports` alone: nothing is exported, and
/// the driver is not asked. The memory may be of any kind, and `count` may be 0.
///
/// `*out` is to be given to `gpuipc_registered_free`.
///
/// Fails with `GPUIPC_INVALID_ARGUMENT` and `GPUIPC_REGISTERED_MEMORY` as `gpuipc_register`,
/// `GPUIPC_FORKED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_register_transports(
    ipc: Option<&Library>,
    ptr: u64,
    len: usize,
    transports: *const CTransport,
    count: usize,
    out: Option<&mut MaybeUninit<Box<Registered>>>,
) -> CStatus {
    call("gpuipc_register_transports", || {
        let (ipc, out) = (given("ipc", ipc)?, given("out", out)?);
        // SAFETY: the caller's promise, for the time of this call.
        let transports = unsafe { self::transports(transports, count) }?;
        out.write(Box::new(ipc.register_transports(ptr, len, transports)?));
        Ok(())
    })
}

/// Who this process is, and where: what `gpuipc_registered_owner` says of memory that it
/// registers, to see whether another process's memory is this process's, or this host's.
///
/// Fails with `GPUIPC_FORKED`.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_self(
    ipc: Option<&Library>,
    out: Option<&mut MaybeUninit<COwner>>,
) -> CStatus {
    call("gpuipc_self", || {
        let (ipc, out) = (given("ipc", ipc)?, given("out", out)?);
        out.write(ipc.own()?);
        Ok(())
    })
}

/// What another process registered, from the `len` bytes of its `gpuipc_registered_bytes`, which
/// need no alignment. Its memory is mapped as `gpuipc_import` does; in the process that
/// registered it this gives the original pointer, with the access or the error that
/// `gpuipc_import` gives there. Where no type of sharing leads to the
/// memory and there is a transport, it is left to that one: `gpuipc_registered_data` is
/// 0, and `gpuipc_registered_gpu_error` says why. `options` may be NULL: the defaults.
///
/// `*out` is to be given to `gpuipc_registered_free`, which unmaps.
///
/// Fails with `GPUIPC_REGISTERED_MEMORY` for bytes that are no registered memory,
/// `GPUIPC_HANDLE_...` for handles in them that are none, and without a transport as
/// `gpuipc_import`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_deserialize(
    ipc: Option<&Library>,
    bytes: *const u8,
    len: usize,
    options: *const ImportOptions,
    out: Option<&mut MaybeUninit<Box<Registered>>>,
) -> CStatus {
    call("gpuipc_deserialize", || {
        let ipc = given("ipc", ipc)?;
        // SAFETY: the caller's promise, for the time of this call.
        let bytes = unsafe { self::bytes("bytes", bytes, len) }?;
        let out = given("out", out)?;
        // SAFETY: the caller's promise, for the time of this call.
        let options = unsafe { import_options(options) }?;
        out.write(Box::new(ipc.deserialize(bytes, &options)?));
        Ok(())
    })
}

/// Writes the bytes to ship to importers into `buffer` of `len` bytes, and how many there
/// are into `*needed`: what `gpuipc_deserialize` takes. With length 0 it only writes
/// `*needed`, and the buffer may be NULL; with a buffer, `needed` may be NULL. Who holds
/// the bytes may ask for the memory: keep them like a password.
///
/// Fails with `GPUIPC_BUFFER_TOO_SMALL`, and then writes `*needed` only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_registered_bytes(
    registered: Option<&Registered>,
    buffer: *mut u8,
    len: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    call("gpuipc_registered_bytes", || {
        let registered = given("registered", registered)?;
        // SAFETY: the caller's promise, for the time of this call.
        let room = unsafe { ByteRoom::new(buffer, len, needed) }?;
        room.put(&registered.memory.serialize()?)
    })
}

/// The bytes of its GPU handles, as `gpuipc_exported_bytes` writes them; none for memory
/// that cannot be shared.
///
/// Fails with `GPUIPC_BUFFER_TOO_SMALL`, and then writes `*needed` only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_registered_handles(
    registered: Option<&Registered>,
    buffer: *mut u8,
    len: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    call("gpuipc_registered_handles", || {
        let registered = given("registered", registered)?;
        // SAFETY: the caller's promise, for the time of this call.
        let room = unsafe { ByteRoom::new(buffer, len, needed) }?;
        room.put(&registered.handles())
    })
}

/// The buffer's first byte in this process (a `CUdeviceptr`): the original pointer in its
/// owner, the mapping's elsewhere. 0 where no type of sharing leads to it, so that only a
/// transport does.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_registered_data(
    registered: Option<&Registered>,
    out: Option<&mut MaybeUninit<u64>>,
) -> CStatus {
    call("gpuipc_registered_data", || {
        let (registered, out) = (given("registered", registered)?, given("out", out)?);
        out.write(registered.memory.data().unwrap_or(0));
        Ok(())
    })
}

/// Bytes of the buffer.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_registered_len(
    registered: Option<&Registered>,
    out: Option<&mut MaybeUninit<u64>>,
) -> CStatus {
    call("gpuipc_registered_len", || {
        let (registered, out) = (given("registered", registered)?, given("out", out)?);
        out.write(registered.memory.len());
        Ok(())
    })
}

/// The buffer's address in its owner, as the owner says: for transports that name remote
/// memory by it. Never to be touched elsewhere.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_registered_original_ptr(
    registered: Option<&Registered>,
    out: Option<&mut MaybeUninit<u64>>,
) -> CStatus {
    call("gpuipc_registered_original_ptr", || {
        let (registered, out) = (given("registered", registered)?, given("out", out)?);
        out.write(registered.memory.original_pointer());
        Ok(())
    })
}

/// Who registered it, and where.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_registered_owner(
    registered: Option<&Registered>,
    out: Option<&mut MaybeUninit<COwner>>,
) -> CStatus {
    call("gpuipc_registered_owner", || {
        let (registered, out) = (given("registered", registered)?, given("out", out)?);
        out.write(registered.owner());
        Ok(())
    })
}

/// Its transports, in the order in which they were registered. An array function: see
/// above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_registered_transports(
    registered: Option<&Registered>,
    transports: *mut CTransport,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    call("gpuipc_registered_transports", || {
        let registered = given("registered", registered)?;
        // SAFETY: the caller's promise, for the time of this call.
        let room = unsafe { ArrayRoom::new("transports", transports, capacity, count) }?;
        room.put(registered.memory.transports(), CTransport::of)
    })
}

/// The mapping of another process's memory, for `gpuipc_mem_type_used` and its like; NULL
/// in the owner, and where nothing is mapped. It is `registered`'s: never to be given to
/// `gpuipc_mem_free` or `gpuipc_mem_unmap`, and gone with `gpuipc_registered_free`.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_registered_mapping(
    registered: Option<&Registered>,
    out: Option<&mut MaybeUninit<*const Mem>>,
) -> CStatus {
    call("gpuipc_registered_mapping", || {
        let (registered, out) = (given("registered", registered)?, given("out", out)?);
        let mapping = registered.memory.mapping();
        // `Mem` is transparent, so that a pointer to what is in it is one to it.
        let mapping = mapping.map_or(ptr::null(), ptr::from_ref::<GpuIpcMem>);
        out.write(mapping.cast());
        Ok(())
    })
}

/// Why the memory could not be exported, or not be mapped, where that was left to a
/// transport: as `gpuipc_last_error_read` would say of the call that failed. Its status
/// is `GPUIPC_OK` if nothing failed.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_registered_gpu_error(
    registered: Option<&Registered>,
    out: Option<&mut MaybeUninit<CError>>,
) -> CStatus {
    call("gpuipc_registered_gpu_error", || {
        let (registered, out) = (given("registered", registered)?, given("out", out)?);
        out.write(CError::of(registered.gpu_failure().as_ref()));
        Ok(())
    })
}

/// The same in words, empty if nothing failed. A text function: see above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_registered_gpu_error_text(
    registered: Option<&Registered>,
    buffer: *mut c_char,
    len: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    call("gpuipc_registered_gpu_error_text", || {
        let registered = given("registered", registered)?;
        // SAFETY: the caller's promise, for the time of this call.
        let room = unsafe { TextRoom::new(buffer, len, needed) }?;
        let failure = registered.gpu_failure();
        room.put(&failure.map_or_else(String::new, |failure| failure.text))
    })
}

/// The attempts behind it. An array function: see above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_registered_gpu_error_attempts(
    registered: Option<&Registered>,
    attempts: *mut CAttempt,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    call("gpuipc_registered_gpu_error_attempts", || {
        let registered = given("registered", registered)?;
        // SAFETY: the caller's promise, for the time of this call.
        let room = unsafe { ArrayRoom::new("attempts", attempts, capacity, count) }?;
        let failure = registered.gpu_failure();
        let attempts = failure.map_or_else(Vec::new, |failure| failure.attempts);
        room.put(&attempts, CAttempt::of)
    })
}

/// Revokes the export, or unmaps. NULL is allowed. In the owner the memory stays, as do
/// importers' mappings; elsewhere work that uses the memory must have ended, as with
/// `gpuipc_mem_free`. The transports are the caller's business.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_registered_free(registered: Option<Box<Registered>>) {
    release("gpuipc_registered_free", registered);
}
