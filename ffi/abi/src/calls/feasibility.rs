//! The question whether an import would work.

use super::import::import_options;
use super::{ArrayRoom, TextRoom, bytes, call, given, release};
use crate::objects::feasibility::TypeFeasibility;
use crate::objects::{Feasibility, Library};
use crate::options::ImportOptions;
use crate::status::{self, CStatus};
use core::ffi::c_char;
use std::mem::MaybeUninit;

/// Whether the handles in the `len` bytes at `handles` could be imported here with
/// these options, answered by type with reasons. Maps nothing and changes nothing.
/// `options` may be NULL: the defaults.
///
/// What can be tried without mapping is tried: the descriptor is fetched and
/// imported, the fabric handle imported, and both given back; the exporter is asked
/// whether the memory is unchanged; P2P access is looked up. So it may wait as long as an
/// import may, and be cancelled as one.
///
/// `*out` is to be given to `gpuipc_feasibility_free`. That the memory cannot be imported
/// is no failure of this call: see the feasibility.
///
/// Fails with `GPUIPC_HANDLE_...` for bytes that are no handles and
/// `GPUIPC_INVALID_ARGUMENT` for options that cannot be; with nothing else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_can_import(
    ipc: Option<&Library>,
    handles: *const u8,
    len: usize,
    options: *const ImportOptions,
    out: Option<&mut MaybeUninit<Box<Feasibility>>>,
) -> CStatus {
    call("gpuipc_can_import", || {
        let ipc = given("ipc", ipc)?;
        // SAFETY: the caller's promise, for the time of this call.
        let handles = unsafe { bytes("handles", handles, len) }?;
        let out = given("out", out)?;
        // SAFETY: the caller's promise, for the time of this call.
        let options = unsafe { import_options(options) }?;
        out.write(Box::new(ipc.can_import(handles, &options)?));
        Ok(())
    })
}

/// 1 if an import is worth trying: for this process's own memory, and where an answer
/// is `GPUIPC_FEASIBLE_YES` or `GPUIPC_FEASIBLE_UNKNOWN`. Else 0.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_feasibility_is_importable(
    feasibility: Option<&Feasibility>,
    out: Option<&mut MaybeUninit<u32>>,
) -> CStatus {
    call("gpuipc_feasibility_is_importable", || {
        let (feasibility, out) = (given("feasibility", feasibility)?, given("out", out)?);
        out.write(feasibility.is_importable().into());
        Ok(())
    })
}

/// 1 if the memory is this process's own, so that an import gives the original
/// pointer. Else 0.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_feasibility_is_own(
    feasibility: Option<&Feasibility>,
    out: Option<&mut MaybeUninit<u32>>,
) -> CStatus {
    call("gpuipc_feasibility_is_own", || {
        let (feasibility, out) = (given("feasibility", feasibility)?, given("out", out)?);
        out.write(feasibility.is_own().into());
        Ok(())
    })
}

/// What is to be expected of each type, in the order in which an import would try
/// them; those that it would not try come first. None where there is a problem. An
/// array function: see above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_feasibility_types(
    feasibility: Option<&Feasibility>,
    types: *mut TypeFeasibility,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    call("gpuipc_feasibility_types", || {
        let feasibility = given("feasibility", feasibility)?;
        // SAFETY: the caller's promise, for the time of this call.
        let room = unsafe { ArrayRoom::new("types", types, capacity, count) }?;
        room.put(feasibility.types(), TypeFeasibility::of)
    })
}

/// Why no import could succeed, whatever the type, as the status that
/// `gpuipc_import` would return: the handles are not one range, a device is not
/// there, the process was forked. `GPUIPC_OK` if there is no such problem.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_feasibility_problem(
    feasibility: Option<&Feasibility>,
    out: Option<&mut MaybeUninit<CStatus>>,
) -> CStatus {
    call("gpuipc_feasibility_problem", || {
        let (feasibility, out) = (given("feasibility", feasibility)?, given("out", out)?);
        let problem = feasibility.problem();
        out.write(problem.map_or(status::GPUIPC_OK, |failure| failure.status.0));
        Ok(())
    })
}

/// The problem in words, empty if there is none. A text function: see above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_feasibility_problem_text(
    feasibility: Option<&Feasibility>,
    buffer: *mut c_char,
    len: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    call("gpuipc_feasibility_problem_text", || {
        let feasibility = given("feasibility", feasibility)?;
        // SAFETY: the caller's promise, for the time of this call.
        let room = unsafe { TextRoom::new(buffer, len, needed) }?;
        let problem = feasibility.problem();
        room.put(&problem.map_or_else(String::new, |failure| failure.text))
    })
}

/// Gives it back. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_feasibility_free(feasibility: Option<Box<Feasibility>>) {
    release("gpuipc_feasibility_free", feasibility);
}
