//! The faults as a layer over a driver's table.

#![allow(unsafe_code)]

use super::rules;
use crate::table::Call;
use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use gpuipc_sys::{
    CuAny, CuContext, CuDevice, CuDevicePtr, CuGraph, CuIpcMemHandle, CuMemAccessDesc,
    CuMemAllocationProp, CuMemHandle, CuMemLocation, CuMemPool, CuMemPoolProps,
    CuMemPoolPtrExportData, CuMulticastObjectProp, CuResult, CuStr, CuStream, CuUuid, DriverTable,
};
use std::sync::{Mutex, OnceLock, PoisonError};

/// How many tables a process may wrap: C's functions carry no data, so each
/// wrapped table has entries of its own, made at compile time.
const SLOTS: usize = 4;

struct Slot {
    inner: OnceLock<&'static DriverTable>,
    outer: OnceLock<DriverTable>,
}

static WRAPPED: [Slot; SLOTS] = [const {
    Slot {
        inner: OnceLock::new(),
        outer: OnceLock::new(),
    }
}; SLOTS];

/// A driver was initialized through a wrapped table.
static IN_USE: AtomicBool = AtomicBool::new(false);
/// This is a forked child of such a process: a thread of the parent may have
/// held the rules' lock, so nothing here is asked any more.
static FORKED: AtomicBool = AtomicBool::new(false);

/// The same driver with the faults of this module in front of it. A symbol
/// that the driver lacks stays missing. A table that is a wrapped one already
/// is given back as it is, and the same table always gives the same wrapper.
///
/// # Panics
/// If more than four different tables are wrapped in one process.
#[must_use]
pub fn wrap(table: &'static DriverTable) -> &'static DriverTable {
    /// One at a time finds or takes a slot.
    static CHOOSING: Mutex<()> = Mutex::new(());
    let _guard = CHOOSING.lock().unwrap_or_else(PoisonError::into_inner);
    watch_forks();
    for (index, slot) in WRAPPED.iter().enumerate() {
        if slot.outer.get().is_some_and(|outer| ptr::eq(outer, table)) {
            return table;
        }
        if ptr::eq(*slot.inner.get_or_init(|| table), table) {
            return slot.outer.get_or_init(|| match index {
                0 => wrapped::<0>(table),
                1 => wrapped::<1>(table),
                2 => wrapped::<2>(table),
                _ => wrapped::<3>(table),
            });
        }
    }
    panic!("this process has wrapped {SLOTS} other tables already");
}

fn watch_forks() {
    extern "C" fn in_child() {
        if IN_USE.load(Ordering::Acquire) {
            FORKED.store(true, Ordering::Release);
        }
    }
    static WATCHED: OnceLock<()> = OnceLock::new();
    WATCHED.get_or_init(|| {
        // SAFETY: the handler is an `extern "C"` function without arguments
        // that stays loaded and does only what a fork handler may: atomics.
        let registered = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if registered != 0 {
            log::warn!("forks are not noticed: a forked child may wait for ever in a wrapped call");
        }
    });
}

/// The code with which this use fails.
fn before(call: Call) -> Option<CuResult> {
    if FORKED.load(Ordering::Acquire) {
        return None;
    }
    rules::used(call as usize)
}

fn after(call: Call, code: CuResult) {
    if call == Call::init && code == CuResult::SUCCESS {
        IN_USE.store(true, Ordering::Release);
    }
}

macro_rules! make_wrapper {
    ($($field:ident: $symbol:literal, $version:literal, $need:ident, ($($arg:ident: $ty:ty),*);)*) => {
        /// The entries in front of one slot's table.
        mod entry {
            use super::*;
            $(
                pub(super) unsafe extern "C" fn $field<const SLOT: usize>($($arg: $ty),*) -> CuResult {
                    if let Some(code) = before(Call::$field) {
                        return code;
                    }
                    let Some(inner) = WRAPPED[SLOT].inner.get().and_then(|table| table.$field) else {
                        return CuResult::NOT_FOUND;
                    };
                    // SAFETY: the same call with the same arguments: the
                    // caller's promise to the driver is passed on.
                    let code = unsafe { inner($($arg),*) };
                    after(Call::$field, code);
                    code
                }
            )*
        }

        fn wrapped<const SLOT: usize>(table: &DriverTable) -> DriverTable {
            let mut wrapped = DriverTable::EMPTY;
            $(wrapped.$field = table.$field.map(|_| entry::$field::<SLOT> as _);)*
            wrapped
        }
    };
}

gpuipc_sys::driver_calls!(make_wrapper);
