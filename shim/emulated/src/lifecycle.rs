//! `cuInit`, the version, and the ends: exit and fork.

#![allow(unsafe_code)]

use crate::Answer;
use crate::args::Out;
use crate::config::config;
use crate::state::{Session, State, state, try_state};
use crate::store::Store;
use crate::{fabric, multicast_store, owner};
use core::sync::atomic::{AtomicU8, Ordering};
use gpuipc_sys::{CuResult, EMULATED_DRIVER_VERSION};

/// Where this process is in the driver's life.
static PHASE: AtomicU8 = AtomicU8::new(FRESH);
const FRESH: u8 = 0;
const READY: u8 = 1;
/// Forked from a process that had initialized the driver: of no use any more.
const FORKED: u8 = 2;
/// Exit has begun.
const ENDED: u8 = 3;

/// The code with which every call but the version and error texts answers, if
/// the driver is not in use.
pub(crate) fn refusal() -> Option<CuResult> {
    match PHASE.load(Ordering::Acquire) {
        READY => None,
        ENDED => Some(CuResult::DEINITIALIZED),
        _ => Some(CuResult::NOT_INITIALIZED),
    }
}

/// Whether this is the child of a process that had initialized the driver.
pub(crate) fn is_forked() -> bool {
    PHASE.load(Ordering::Acquire) == FORKED
}

/// `cuInit`.
pub(crate) fn init(flags: u32) -> Answer {
    if flags != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    match PHASE.load(Ordering::Acquire) {
        READY => return Ok(()),
        FORKED => return Err(CuResult::NOT_INITIALIZED),
        ENDED => return Err(CuResult::DEINITIALIZED),
        _ => {}
    }
    let mut state = state();
    if PHASE.load(Ordering::Acquire) == READY {
        return Ok(());
    }
    start(&mut state)?;
    PHASE.store(READY, Ordering::Release);
    Ok(())
}

fn start(state: &mut State) -> Answer {
    for problem in &config().problems {
        eprintln!("gpuipc-emulated: {problem}; cuInit fails");
    }
    if !config().problems.is_empty() {
        return Err(CuResult::UNKNOWN);
    }
    // The driver needs a /proc of this pid namespace (seen on an H200, driver
    // 580: `unshare --pid --fork` without `--mount-proc` gives this code).
    let own = std::fs::read_link("/proc/self").ok();
    if own.and_then(|own| own.to_str()?.parse().ok()) != Some(std::process::id()) {
        return Err(CuResult::OPERATING_SYSTEM);
    }
    if config().sees_one_twice {
        return Err(CuResult::INVALID_DEVICE);
    }
    if config().visible.is_empty() {
        return Err(CuResult::NO_DEVICE);
    }
    let store = Store::open(&config().dir)?;
    let mut folders = fabric::folders(&store);
    folders.extend(multicast_store::folder_if_there(&store));
    owner::sweep(&store, &folders);
    let owner = owner::announce(&store)?;
    state.retained = vec![0; config().visible.len()];
    state.session = Some(Session { store, owner });
    // SAFETY: the handler is an `extern "C"` function without arguments that
    // stays loaded (the driver is never unloaded) and does only what a fork
    // handler may: atomics and one `close`.
    let registered = unsafe { libc::pthread_atfork(None, None, Some(in_forked_child)) };
    // SAFETY: the handler is an `extern "C"` function without arguments that
    // stays loaded.
    let at_exit = unsafe { libc::atexit(at_exit) };
    if registered != 0 || at_exit != 0 {
        Err(CuResult::OUT_OF_MEMORY)
    } else {
        Ok(())
    }
}

extern "C" fn in_forked_child() {
    // A child of a process that never initialized may still do so itself.
    let _ = PHASE.compare_exchange(READY, FORKED, Ordering::AcqRel, Ordering::Acquire);
    owner::forget_in_child();
}

extern "C" fn at_exit() {
    // A child only has its parent's names.
    if PHASE
        .compare_exchange(READY, ENDED, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
    {
        return;
    }
    // Where another thread is inside a call, the next start's sweep does it.
    if let Some(mut state) = try_state() {
        state.remove_names();
    }
}

/// `gpuipcEmulatedDriver`: no call of CUDA's. That it is there tells this driver
/// from a real one, also behind a wrapped table and in a loaded library.
pub(crate) fn emulated_driver(version: Out<i32>) -> Answer {
    version.put(EMULATED_DRIVER_VERSION)
}

/// `cuDriverGetVersion`.
pub(crate) fn driver_get_version(version: Out<i32>) -> Answer {
    version.put(i32::try_from(config().driver_version).map_err(|_| CuResult::UNKNOWN)?)
}
