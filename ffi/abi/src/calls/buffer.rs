//! GPU memory of one's own, for programs that have no allocator.

use super::{buffer, bytes, call, given, initialized, release};
use crate::failure::Failure;
use crate::kinds;
use crate::objects::{self, Buffer, Library};
use crate::status::CStatus;
use std::mem::MaybeUninit;

/// Allocates `len` bytes on `device` (by this process's ordinal) that can be
/// shared in the way that `memory` (`GPUIPC_MEMORY_...`) says. A runtime has an
/// allocator of its own; this one shows what that must ask for, and serves small
/// programs. In the current context if it is that device's, else in its primary
/// one, which it keeps in use. The memory's contents are not set.
///
/// `*out` is to be given to `gpuipc_buffer_free`.
///
/// Fails with `GPUIPC_INVALID_ARGUMENT`, `GPUIPC_NO_DEVICE`, `GPUIPC_DRIVER_CALL`
/// (out of memory; no fabric here), `GPUIPC_FORKED`.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_buffer_new(
    ipc: Option<&Library>,
    device: i32,
    memory: u32,
    len: usize,
    out: Option<&mut MaybeUninit<Box<Buffer>>>,
) -> CStatus {
    call("gpuipc_buffer_new", || {
        let (ipc, out) = (given("ipc", ipc)?, given("out", out)?);
        let memory = kinds::memory(memory)
            .ok_or_else(|| Failure::argument(format!("there is no memory {memory}")))?;
        out.write(Box::new(ipc.buffer(device, memory, len)?));
        Ok(())
    })
}

/// The address (a `CUdeviceptr`) of the first byte.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_buffer_ptr(
    buffer: Option<&Buffer>,
    out: Option<&mut MaybeUninit<u64>>,
) -> CStatus {
    call("gpuipc_buffer_ptr", || {
        let (buffer, out) = (given("buffer", buffer)?, given("out", out)?);
        out.write(buffer.buffer.device_ptr());
        Ok(())
    })
}

/// How many bytes were asked for.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_buffer_len(
    buffer: Option<&Buffer>,
    out: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    call("gpuipc_buffer_len", || {
        let (buffer, out) = (given("buffer", buffer)?, given("out", out)?);
        out.write(buffer.buffer.len());
        Ok(())
    })
}

/// Copies `len` bytes from `offset` on into `to`, on the CPU (`cuMemcpyDtoH`).
///
/// Fails with `GPUIPC_INVALID_ARGUMENT` for a range beyond the buffer, and with
/// `GPUIPC_DRIVER_CALL`, after which `to` holds anything.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_buffer_read(
    buffer: Option<&Buffer>,
    offset: usize,
    to: *mut u8,
    len: usize,
) -> CStatus {
    call("gpuipc_buffer_read", || {
        let object = given("buffer", buffer)?;
        objects::check_forked()?;
        // SAFETY: the caller's promise, for the time of this call.
        let to = unsafe { self::buffer("to", to, len) }?;
        objects::check_inside(offset, len, object.buffer.len())?;
        Ok(object.buffer.read(offset, initialized(to))?)
    })
}

/// Copies `len` bytes on the CPU at `from` to `offset` (`cuMemcpyHtoD`). When it
/// returns the bytes are there, and so is all other work of that context done.
///
/// Fails with `GPUIPC_INVALID_ARGUMENT` for a range beyond the buffer,
/// `GPUIPC_DRIVER_CALL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_buffer_write(
    buffer: Option<&Buffer>,
    offset: usize,
    from: *const u8,
    len: usize,
) -> CStatus {
    call("gpuipc_buffer_write", || {
        let buffer = given("buffer", buffer)?;
        objects::check_forked()?;
        // SAFETY: the caller's promise, for the time of this call.
        let from = unsafe { bytes("from", from, len) }?;
        Ok(buffer.buffer.write(offset, from)?)
    })
}

/// Frees the memory. NULL is allowed. Work that uses it must have ended; exports of
/// it are to be freed before.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_buffer_free(buffer: Option<Box<Buffer>>) {
    release("gpuipc_buffer_free", buffer);
}
