//! Calls about one allocation that the real driver does not bear in two threads at once.
//!
//! The real driver now and then ends the process if `cuMemUnmap` in one thread meets
//! `cuMemRelease`, another `cuMemUnmap`, or `cuMemRetainAllocationHandle` with its
//! release, of the same allocation in another (seen on an H200, driver 580). Here the
//! process aborts whenever they meet, and says why.
//!
//! Where threads open and close the same legacy memory, `cuIpcOpenMemHandle` answers
//! `CUDA_ERROR_ALREADY_MAPPED` now and then (seen on the same). Which calls must meet
//! for it is a guess: here it is an open beside a first open or a last close.

use crate::piece::OpenKey;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A call that is in its work, and what about.
type Working = (&'static str, u64);

static WORKING: Mutex<Vec<Working>> = Mutex::new(Vec::new());

/// A call's part in this.
pub(crate) struct Work {
    call: &'static str,
    handles: Vec<u64>,
}

pub(crate) const UNMAP: &str = "cuMemUnmap";
pub(crate) const RELEASE: &str = "cuMemRelease";
pub(crate) const RETAIN: &str = "cuMemRetainAllocationHandle";

impl Work {
    /// Begins a call about the allocations behind `handles`. Whoever looked them up still
    /// locks the state, and unlocks it before [`Self::goes_on`].
    pub(crate) fn begin(call: &'static str, handles: Vec<u64>) -> Self {
        let meets = |(other, handle): &&Working| {
            (call == UNMAP || *other == UNMAP) && handles.contains(handle)
        };
        let mut working = locked(&WORKING);
        if let Some((other, handle)) = working.iter().find(meets) {
            eprintln!(
                "gpuipc-emulated: {call} and {other} of the allocation {handle:#x} in two threads at once: \
                 the real driver does not survive that"
            );
            std::process::abort();
        }
        working.extend(handles.iter().map(|handle| (call, *handle)));
        Self { call, handles }
    }

    /// The real driver's work takes longer.
    pub(crate) fn goes_on(&self) {
        std::thread::yield_now();
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let mut working = locked(&WORKING);
        for handle in &self.handles {
            let mut all = working.iter();
            if let Some(at) = all.position(|(call, own)| *call == self.call && own == handle) {
                working.swap_remove(at);
            }
        }
    }
}

static MOVING: Mutex<Vec<OpenKey>> = Mutex::new(Vec::new());

/// A first open or a last close of a legacy handle.
pub(crate) struct Moving(OpenKey);

impl Moving {
    /// `None` if there is one of that handle.
    pub(crate) fn begin(key: OpenKey) -> Option<Self> {
        let mut moving = locked(&MOVING);
        if moving.contains(&key) {
            return None;
        }
        moving.push(key);
        drop(moving);
        std::thread::yield_now();
        Some(Self(key))
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        locked(&MOVING).retain(|key| *key != self.0);
    }
}

/// Whether there is a [`Moving`] of a handle.
pub(crate) fn is_moving(key: &OpenKey) -> bool {
    locked(&MOVING).contains(key)
}

fn locked<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}
