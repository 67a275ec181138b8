//! The program's allocator: the system's, which counts while it is asked to.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

static COUNTS: AtomicBool = AtomicBool::new(false);
static HELD: AtomicI64 = AtomicI64::new(0);

/// See the module.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: usize, sign: i64) {
    if COUNTS.load(Ordering::Relaxed) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        HELD.fetch_add(sign.saturating_mul(bytes), Ordering::Relaxed);
    }
}

// SAFETY: memory comes from the system's allocator and goes back to it, with the
// layouts that it is asked for; counting does not allocate and does not unwind.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller keeps this method's rules, which are the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: as above; all memory is the system's.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(layout.size(), -1);
        count(new_size, 1);
        // SAFETY: as above.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

/// Runs it; what it gives, and the bytes of the heap that it holds on to. What
/// other threads do meanwhile counts, too.
pub(super) fn held_by<T>(work: impl FnOnce() -> T) -> (T, i64) {
    HELD.store(0, Ordering::Relaxed);
    COUNTS.store(true, Ordering::Relaxed);
    let done = work();
    COUNTS.store(false, Ordering::Relaxed);
    (done, HELD.load(Ordering::Relaxed))
}
