//! Calls about one allocation that end the process if they meet.
//!
//! The real driver frees its own memory twice if `cuMemUnmap` in one thread meets
//! `cuMemRelease`, `cuMemRetainAllocationHandle` or another `cuMemUnmap` of the same
//! allocation in another (seen on an H200, driver 580), now and then. Here the process
//! aborts whenever they meet, and says why.

use std::sync::{Mutex, PoisonError};

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
    /// Begins a call about the allocations behind `handles`.
    pub(crate) fn begin(call: &'static str, handles: Vec<u64>) -> Self {
        let meets = |(other, handle): &&Working| {
            (call == UNMAP || *other == UNMAP) && handles.contains(handle)
        };
        let mut working = WORKING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((other, handle)) = working.iter().find(meets) {
            eprintln!(
                "gpuipc-emulated: {call} and {other} of the allocation {handle:#x} in two threads at once: \
                 the real driver frees its own memory twice then"
            );
            std::process::abort();
        }
        working.extend(handles.iter().map(|handle| (call, *handle)));
        drop(working);
        // The real driver's work takes longer.
        std::thread::yield_now();
        Self { call, handles }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let mut working = WORKING.lock().unwrap_or_else(PoisonError::into_inner);
        for handle in &self.handles {
            let mut all = working.iter();
            if let Some(at) = all.position(|(call, own)| *call == self.call && own == handle) {
                working.swap_remove(at);
            }
        }
    }
}
