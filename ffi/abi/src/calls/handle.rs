//! The bytes of handles, without a driver.

use super::{bytes, call, given};
use crate::failure::Failure;
use crate::objects;
use crate::status::CStatus;
use gpuipc::{GpuIpcMemHandle, HANDLE_BYTES, Status};
use std::mem::MaybeUninit;

/// Says whether the `len` bytes at `handles` are handles, as `gpuipc_import`
/// would, without a driver: not whether the memory can be reached.
///
/// Fails with `GPUIPC_HANDLE_LENGTH`, `GPUIPC_HANDLE_MAGIC`,
/// `GPUIPC_HANDLE_NEWER`, `GPUIPC_HANDLE_DAMAGED`, `GPUIPC_HANDLE_FIELD`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_handle_check(handles: *const u8, len: usize) -> CStatus {
    call("gpuipc_handle_check", || {
        // SAFETY: the caller's promise, for the time of this call.
        let handles = unsafe { bytes("handles", handles, len) }?;
        objects::decode(handles)?;
        Ok(())
    })
}

/// Checks the `len` bytes at `handle`, which are one handle, and tells what it
/// says: `*out` is a copy, aligned as C wants it.
///
/// Fails as `gpuipc_handle_check`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_handle_read(
    handle: *const u8,
    len: usize,
    out: Option<&mut MaybeUninit<GpuIpcMemHandle>>,
) -> CStatus {
    call("gpuipc_handle_read", || {
        // SAFETY: the caller's promise, for the time of this call.
        let handle = unsafe { bytes("handle", handle, len) }?;
        let out = given("out", out)?;
        if len != HANDLE_BYTES {
            return Err(Failure::new(
                Status::HANDLE_LENGTH,
                format!("length is {len} bytes, but a handle has {HANDLE_BYTES}"),
            ));
        }
        out.write(GpuIpcMemHandle::decode(handle)?);
        Ok(())
    })
}
