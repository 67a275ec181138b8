//! What was imported.

use super::{ArrayRoom, TextRoom, buffer, bytes, call, call_with, given, initialized, release};
use crate::attempts::CAttempt;
use crate::objects::{self, Mem, Reservation};
use crate::status::CStatus;
use crate::values;
use core::ffi::c_char;
use std::mem::MaybeUninit;

/// The address (a `CUdeviceptr`) of the first byte that was exported.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_mem_ptr(mem: Option<&Mem>, out: Option<&mut MaybeUninit<u64>>) -> CStatus {
    call("gpuipc_mem_ptr", || {
        let (mem, out) = (given("mem", mem)?, given("out", out)?);
        out.write(mem.mem.device_ptr());
        Ok(())
    })
}

/// How many bytes were exported.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_mem_len(
    mem: Option<&Mem>,
    out: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    call("gpuipc_mem_len", || {
        let (mem, out) = (given("mem", mem)?, given("out", out)?);
        out.write(mem.mem.len());
        Ok(())
    })
}

/// How the memory was reached: one of `GPUIPC_TYPE_...`.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_mem_type_used(
    mem: Option<&Mem>,
    out: Option<&mut MaybeUninit<u32>>,
) -> CStatus {
    call("gpuipc_mem_type_used", || {
        let (mem, out) = (given("mem", mem)?, given("out", out)?);
        out.write(values::type_used(mem.mem.type_used()));
        Ok(())
    })
}

/// What was known about the memory at this very import: one of `GPUIPC_LIVENESS_...`.
/// Of legacy memory and memory of a pool the exporter is asked each time, also where it is
/// mapped here already.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_mem_liveness(
    mem: Option<&Mem>,
    out: Option<&mut MaybeUninit<u32>>,
) -> CStatus {
    call("gpuipc_mem_liveness", || {
        let (mem, out) = (given("mem", mem)?, given("out", out)?);
        out.write(values::liveness(mem.mem.liveness()));
        Ok(())
    })
}

/// The device that maps the memory, by this process's ordinal.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_mem_device(
    mem: Option<&Mem>,
    out: Option<&mut MaybeUninit<i32>>,
) -> CStatus {
    call("gpuipc_mem_device", || {
        let (mem, out) = (given("mem", mem)?, given("out", out)?);
        out.write(mem.mem.device());
        Ok(())
    })
}

/// The types that were tried before the one that worked, and why each failed: a
/// line each, empty if there are none. A text function: see above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_mem_attempts(
    mem: Option<&Mem>,
    buffer: *mut c_char,
    len: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    call("gpuipc_mem_attempts", || {
        let mem = given("mem", mem)?;
        // SAFETY: the caller's promise, for the time of this call.
        let room = unsafe { TextRoom::new(buffer, len, needed) }?;
        room.put(&objects::lines(mem.attempts()))
    })
}

/// The same attempts as structs. An array function: see above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_mem_attempt_list(
    mem: Option<&Mem>,
    attempts: *mut CAttempt,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    call("gpuipc_mem_attempt_list", || {
        let mem = given("mem", mem)?;
        // SAFETY: the caller's promise, for the time of this call.
        let room = unsafe { ArrayRoom::new("attempts", attempts, capacity, count) }?;
        room.put(mem.attempts(), CAttempt::of)
    })
}

/// Copies `len` bytes from `offset` on into `to`, on the CPU (`cuMemcpyDtoH`).
///
/// This process's own memory (`GPUIPC_TYPE_SAME_PROCESS`) is mapped a second time for the
/// copy, which only memory of `cuMemCreate` can be, and only while it is exported; else use
/// the original pointer.
///
/// Fails with `GPUIPC_INVALID_ARGUMENT` for a range beyond the memory, with
/// `GPUIPC_UNSUPPORTED` for own memory as above, and with `GPUIPC_DRIVER_CALL`, after which
/// `to` holds anything.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_mem_read(
    mem: Option<&Mem>,
    offset: usize,
    to: *mut u8,
    len: usize,
) -> CStatus {
    call("gpuipc_mem_read", || {
        let mem = given("mem", mem)?;
        objects::check_forked()?;
        // SAFETY: the caller's promise, for the time of this call.
        let to = unsafe { buffer("to", to, len) }?;
        objects::check_inside(offset, len, mem.mem.len())?;
        Ok(mem.mem.read(offset, initialized(to))?)
    })
}

/// Copies `len` bytes on the CPU at `from` to `offset` (`cuMemcpyHtoD`). When it
/// returns the bytes are there, and so is all other work of that context done.
///
/// Fails as `gpuipc_mem_read`, and with `GPUIPC_DRIVER_CALL` also where the mapping may be
/// read only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_mem_write(
    mem: Option<&Mem>,
    offset: usize,
    from: *const u8,
    len: usize,
) -> CStatus {
    call("gpuipc_mem_write", || {
        let mem = given("mem", mem)?;
        objects::check_forked()?;
        // SAFETY: the caller's promise, for the time of this call.
        let from = unsafe { bytes("from", from, len) }?;
        Ok(mem.mem.write(offset, from)?)
    })
}

/// Unmaps the memory, and gives back the address space that it took, where that is
/// this import's own or a `place`: `*out` is then a reservation, to be given to
/// `gpuipc_reservation_free`, and importing there again puts memory at the same address.
/// `*out` is NULL for a legacy mapping, for memory of a pool and for this process's own;
/// and where other ranges of the same allocation still use the mapping: then only this
/// range ends. (A placed mapping is never shared.) Does not wait for the GPU: work that
/// uses the memory must have ended.
///
/// `mem` is given back in any case but `GPUIPC_IN_CALLBACK`. `out` may be NULL: as `gpuipc_mem_free`.
///
/// Fails with `GPUIPC_NULL_ARGUMENT` without `mem`.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_mem_unmap(
    mem: Option<Box<Mem>>,
    out: Option<&mut MaybeUninit<Option<Box<Reservation>>>>,
) -> CStatus {
    call_with("gpuipc_mem_unmap", mem, |mem| {
        let reservation = given("mem", mem)?.unmap().map(Box::new);
        if let Some(out) = out {
            out.write(reservation);
        }
        Ok(())
    })
}

/// Unmaps the memory, unless other ranges of the same allocation are in use in this
/// process: they share one mapping, which the last of them undoes. NULL is allowed. Does not
/// wait for the GPU: work that uses the memory must have ended. Changes no thread's current
/// context.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_mem_free(mem: Option<Box<Mem>>) {
    release("gpuipc_mem_free", mem);
}
