//! Multicast (NVLS) for C: see the parent for the pattern.
//!
//! There is no way to allow it on a real driver from C: it has run on the
//! emulated driver only.

use super::{buffer, bytes, call, call_with, given, put_bytes, release};
use crate::callback;
use crate::failure::Failure;
use crate::objects::Library;
use crate::objects::multicast::{
    Exchange, gpuipc_multicast, gpuipc_multicast_buffer, gpuipc_multicast_object,
    gpuipc_multicast_team, team,
};
use crate::status::CStatus;
use core::ffi::c_void;
use gpuipc::HANDLE_BYTES;
use gpuipc::multicast::MESSAGE_BYTES;
use std::mem::MaybeUninit;

/// C's function and its context.
struct Gather {
    function: unsafe extern "C-unwind" fn(*mut c_void, *const u8, *mut u8, *mut u8, u32),
    context: *mut c_void,
}

// SAFETY: the context is only passed back to the caller's function. By the
// header the function is called on whichever thread joins or binds, one at a
// time, so its author has made it fit for that.
unsafe impl Send for Gather {}

impl Exchange for Gather {
    fn run(
        &self,
        message: &[u8; MESSAGE_BYTES],
        all: &mut [u8],
        heard: &mut [u8],
        timeout_ms: u32,
    ) {
        // SAFETY: the header promises the caller's function these places: a
        // message's bytes to read, as many for each member and one byte for each
        // to write. All outlive the call.
        let ask = || unsafe {
            (self.function)(
                self.context,
                message.as_ptr(),
                all.as_mut_ptr(),
                heard.as_mut_ptr(),
                timeout_ms,
            );
        };
        callback::run((), ask);
    }
}

/// Makes a multicast object (NVLS) for `num_devices` members, one GPU each, with
/// room for `size` bytes of each member's memory.
///
/// On any driver but gpuipc's emulated one every `gpuipc_multicast_...` call that needs
/// the driver returns `GPUIPC_MULTICAST_UNAVAILABLE` before it calls it.
///
/// `*out` is to be given to `gpuipc_multicast_object_free` once this process's
/// own member has joined: then all have.
///
/// Fails with `GPUIPC_MULTICAST_UNAVAILABLE` (the error's text has the stage, the
/// code and the cure), `GPUIPC_INVALID_ARGUMENT`, `GPUIPC_BROKER_START`,
/// `GPUIPC_FORKED`.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_multicast_create(
    ipc: Option<&Library>,
    size: usize,
    num_devices: u32,
    out: Option<&mut MaybeUninit<Box<gpuipc_multicast_object>>>,
) -> CStatus {
    call("gpuipc_multicast_create", || {
        let (ipc, out) = (given("ipc", ipc)?, given("out", out)?);
        out.write(Box::new(ipc.create_multicast(size, num_devices)?));
        Ok(())
    })
}

/// Writes the `GPUIPC_HANDLE_BYTES` of the object's handle into `buffer`, which
/// has `size` bytes. Send them to every member, this process's own too.
///
/// Fails with `GPUIPC_BUFFER_TOO_SMALL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_multicast_object_handle(
    object: Option<&gpuipc_multicast_object>,
    buffer: *mut u8,
    size: usize,
) -> CStatus {
    call("gpuipc_multicast_object_handle", || {
        let object = given("object", object)?;
        // SAFETY: the caller's promise, for the time of this call.
        let buffer = unsafe { self::buffer("buffer", buffer, size) }?;
        if size < HANDLE_BYTES {
            return Err(Failure::room(size, HANDLE_BYTES));
        }
        put_bytes(buffer, &object.handle_bytes());
        Ok(())
    })
}

/// Revokes the export. NULL is allowed. The object lives as long as a member has it.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_multicast_object_free(object: Option<Box<gpuipc_multicast_object>>) {
    release("gpuipc_multicast_object_free", object);
}

/// Imports the object behind the `len` bytes at `handle`, adds the GPU with the
/// ordinal `device` to it, and waits until every member of `team` has done the
/// same. A failure is told to the others, which then fail, too.
///
/// `*out` is to be given to `gpuipc_multicast_free`.
///
/// Fails with `GPUIPC_MULTICAST_UNAVAILABLE` for this member's own failure,
/// `GPUIPC_MULTICAST_TEAM` for another one's (the error's text names the member
/// and what is wrong with it), `GPUIPC_EXPORTER_GONE` and others as
/// `gpuipc_import`, `GPUIPC_INVALID_ARGUMENT`, `GPUIPC_NO_DEVICE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_multicast_join(
    ipc: Option<&Library>,
    handle: *const u8,
    len: usize,
    device: i32,
    team: Option<&gpuipc_multicast_team>,
    out: Option<&mut MaybeUninit<Box<gpuipc_multicast>>>,
) -> CStatus {
    call("gpuipc_multicast_join", || {
        let ipc = given("ipc", ipc)?;
        // SAFETY: the caller's promise, for the time of this call.
        let handle = unsafe { bytes("handle", handle, len) }?;
        let (described, out) = (given("team", team)?, given("out", out)?);
        let gather = Gather {
            function: given("team->gather", described.gather)?,
            context: described.context,
        };
        let team = self::team(described, gather)?;
        out.write(Box::new(ipc.join_multicast(handle, device, team)?));
        Ok(())
    })
}

/// Binds `len` bytes of this member's memory from `ptr` on to the first free
/// range of the object, and waits until every member has done the same: all call
/// it, and free their buffers, in the same order. The memory is `cuMemCreate`
/// memory on the member's GPU, made with a handle type; it stays allocated until
/// the buffer is closed.
///
/// `*out` is to be given to `gpuipc_multicast_buffer_close`, before or after
/// `multicast` is freed.
///
/// Fails with `GPUIPC_INVALID_ARGUMENT` for `ptr` or `len` against the granularity or
/// the allocation's size (the text has the numbers), `GPUIPC_MULTICAST_UNAVAILABLE`,
/// `GPUIPC_MULTICAST_TEAM`. Where the members named something else than one another,
/// or one of them was silent or died, every later call with `multicast` fails in the
/// same way: free it, and join a new object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_multicast_bind(
    multicast: Option<&gpuipc_multicast>,
    ptr: u64,
    len: usize,
    out: Option<&mut MaybeUninit<Box<gpuipc_multicast_buffer>>>,
) -> CStatus {
    call("gpuipc_multicast_bind", || {
        let (multicast, out) = (given("multicast", multicast)?, given("out", out)?);
        // SAFETY: the caller's promise about the memory.
        out.write(Box::new(unsafe { multicast.bind(ptr, len) }?));
        Ok(())
    })
}

/// The multicast address (a `CUdeviceptr`) of what was bound.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_multicast_buffer_ptr(
    buffer: Option<&gpuipc_multicast_buffer>,
    out: Option<&mut MaybeUninit<u64>>,
) -> CStatus {
    call("gpuipc_multicast_buffer_ptr", || {
        let (buffer, out) = (given("buffer", buffer)?, given("out", out)?);
        out.write(buffer.buffer.device_ptr());
        Ok(())
    })
}

/// Unbinds this member's memory; with the last buffer the object is unmapped
/// before. NULL is allowed. All members must be done with the address. The buffer
/// is freed in any case but `GPUIPC_IN_CALLBACK`.
///
/// Fails with `GPUIPC_MULTICAST_UNAVAILABLE` where the driver does not unbind.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_multicast_buffer_close(
    buffer: Option<Box<gpuipc_multicast_buffer>>,
) -> CStatus {
    call_with(
        "gpuipc_multicast_buffer_close",
        buffer,
        |buffer| match buffer {
            Some(buffer) => Ok(buffer.buffer.close()?),
            None => Ok(()),
        },
    )
}

/// Lets go of the member's side of the object, and of its team. NULL is allowed.
/// Buffers that are there stay.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_multicast_free(multicast: Option<Box<gpuipc_multicast>>) {
    release("gpuipc_multicast_free", multicast);
}
