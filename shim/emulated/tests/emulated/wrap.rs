//! Faults in front of any driver's table: here a small one of the tests' own.

use crate::driver::*;
use crate::scene;
use core::ffi::{c_int, c_uint, c_ulonglong};
use gpuipc_emulated::{counters, faults, table};
use gpuipc_sys::{CuDevicePtr, CuMemHandle, CuResult, DriverTable};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SIZE: usize = 2 * MIB;
static INNER: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn inner_init(flags: c_uint) -> CuResult {
    INNER.fetch_add(1, Ordering::SeqCst);
    CuResult(flags)
}

unsafe extern "C" fn inner_version(version: *mut c_int) -> CuResult {
    // SAFETY: the tests pass a place for a version.
    unsafe { version.write(12345) };
    CuResult::SUCCESS
}

unsafe extern "C" fn inner_map(
    _: CuDevicePtr,
    _: usize,
    _: usize,
    _: CuMemHandle,
    _: c_ulonglong,
) -> CuResult {
    INNER.fetch_add(1, Ordering::SeqCst);
    CuResult::SUCCESS
}

/// A driver with three calls.
fn small() -> DriverTable {
    let mut calls = DriverTable::EMPTY;
    calls.init = Some(inner_init);
    calls.driver_get_version = Some(inner_version);
    calls.mem_map = Some(inner_map);
    calls
}

macro_rules! call {
    ($table:expr, $field:ident($($arg:expr),*)) => {{
        let entry = $table.$field.expect("the symbol is there");
        #[allow(clippy::macro_metavars_in_unsafe)] // Arguments are places and numbers.
        // SAFETY: the functions above take anything; places live across the call.
        unsafe {
            entry($($arg),*)
        }
    }};
}

scene!(any_table_is_wrapped, || {
    let bare: &'static DriverTable = Box::leak(Box::new(small()));
    let wrapped = faults::wrap(bare);
    assert!(
        std::ptr::eq(faults::wrap(bare), wrapped),
        "the same wrapper"
    );
    assert!(std::ptr::eq(faults::wrap(wrapped), wrapped), "not twice");
    assert!(
        std::ptr::eq(faults::wrap(table()), table()),
        "the emulated one is wrapped"
    );
    assert!(wrapped.mem_create.is_none() && wrapped.cu_count() == 3);

    faults::fail("cuMemMap", 2, CuResult::NOT_SUPPORTED, 1);
    let map = || call!(wrapped, mem_map(0, 0, 0, 0, 0));
    assert_eq!(map(), CuResult::SUCCESS);
    assert_eq!(map(), CuResult::NOT_SUPPORTED);
    assert_eq!(
        INNER.load(Ordering::SeqCst),
        1,
        "a failed call does not reach the driver"
    );
    assert_eq!(map(), CuResult::SUCCESS);
    assert_eq!(faults::calls("cuMemMap"), 3);
    assert_eq!(
        call!(wrapped, init(801)),
        CuResult::NOT_SUPPORTED,
        "the driver's own answer"
    );
    let mut version = 0;
    assert_eq!(
        call!(wrapped, driver_get_version(&mut version)),
        CuResult::SUCCESS
    );
    assert_eq!(version, 12345);

    let second: &'static DriverTable = Box::leak(Box::new(small()));
    let other = faults::wrap(second);
    assert!(!std::ptr::eq(other, wrapped), "a wrapper of its own");
    faults::fail("cuMemMap", 1, CuResult::UNKNOWN, u32::MAX);
    assert_eq!(
        call!(other, mem_map(0, 0, 0, 0, 0)),
        CuResult::UNKNOWN,
        "rules are shared"
    );
    assert_eq!(map(), CuResult::UNKNOWN);
    faults::clear();
    assert_eq!(map(), CuResult::SUCCESS);
});

trait Count {
    fn cu_count(&self) -> usize;
}

impl Count for DriverTable {
    fn cu_count(&self) -> usize {
        format!("{self:?}").matches("Some(").count()
    }
}

scene!(a_call_takes_longer, || {
    start_on(0);
    faults::delay("cuMemAlloc_v2", 2, 60, 1);
    let time = || {
        let start = Instant::now();
        free(alloc(4096).expect("memory")).expect("free");
        start.elapsed()
    };
    let (first, second, third) = (time(), time(), time());
    assert!(second >= Duration::from_millis(60), "{second:?}");
    assert!(
        first < second && third < second,
        "{first:?} {second:?} {third:?}"
    );
    faults::delay("cuMemAlloc_v2", 1, 20, 1);
    faults::fail("cuMemAlloc_v2", 1, CuResult::OUT_OF_MEMORY, 1);
    let start = Instant::now();
    assert_eq!(alloc(4096), Err(CuResult::OUT_OF_MEMORY), "both");
    assert!(start.elapsed() >= Duration::from_millis(20));
});

scene!(a_delay_holds_nobody_else, || {
    assert_eq!(cu!(init(0)), CuResult::SUCCESS);
    let context = use_device(0);
    faults::delay("cuMemCreate", 1, 500, 1);
    let slow = std::thread::spawn(|| create_fd(SIZE));
    while faults::calls("cuMemCreate") == 0 {
        std::thread::yield_now();
    }
    let start = Instant::now();
    free(alloc(4096).expect("memory")).expect("free");
    assert!(
        start.elapsed() < Duration::from_millis(400),
        "{:?}",
        start.elapsed()
    );
    release(slow.join().expect("the thread")).expect("release");
    assert_ne!(context.0, 0);
});

/// Makes and shares memory, and undoes what was done, whatever fails.
fn round(failed: &mut u32) {
    let Ok(handle) = create(SIZE, prop(1, 0, 1)) else {
        *failed += 1;
        return;
    };
    let fd = export_fd(handle);
    let imported = fd.and_then(import_fd);
    if let Ok(ptr) = reserve(SIZE) {
        if map(ptr, SIZE, 0, handle).is_ok() {
            if set_access(ptr, SIZE, 1, 0, 3).is_err() {
                *failed += 1;
            }
            unmap(ptr, SIZE).expect("never fails by chance");
        } else {
            *failed += 1;
        }
        unreserve(ptr, SIZE).expect("never fails by chance");
    } else {
        *failed += 1;
    }
    if let Ok(imported) = imported {
        release(imported).expect("never fails by chance");
    } else {
        *failed += 1;
    }
    release(handle).expect("never fails by chance");
    if let Ok(fd) = fd {
        close_fd(fd);
    }
}

scene!(failures_by_chance_leave_nothing, || {
    start_on(0);
    let before = counters::read();
    faults::random(42, 200, &[]);
    let mut failed = 0;
    for _ in 0..300 {
        round(&mut failed);
    }
    assert!((150..600).contains(&failed), "{failed} failures");
    assert_eq!(counters::read(), before);
    faults::clear();
    let mut after = 0;
    round(&mut after);
    assert_eq!(after, 0);
    faults::random(42, 1000, &["cuMemRelease"]);
    let handle = create_fd(SIZE);
    assert!(release(handle).is_err(), "named, so it fails too");
});

scene!(
    chances_and_delays_of_the_environment,
    [
        ("GPUIPC_EMULATED_RANDOM", "1:1000:cuMemAddressReserve"),
        ("GPUIPC_EMULATED_DELAY", "cuMemCreate@1=30")
    ],
    || {
        start_on(0);
        assert!(reserve(SIZE).is_err());
        let start = Instant::now();
        create_fd(SIZE);
        assert!(start.elapsed() >= Duration::from_millis(30));
    }
);

scene!(a_forked_child_of_a_wrapped_driver_has_no_faults, || {
    let wrapped = faults::wrap(Box::leak(Box::new(small())));
    assert_eq!(call!(wrapped, init(0)), CuResult::SUCCESS);
    faults::fail("cuMemMap", 1, CuResult::UNKNOWN, u32::MAX);
    assert_eq!(call!(wrapped, mem_map(0, 0, 0, 0, 0)), CuResult::UNKNOWN);
    // SAFETY: the child makes one call without locks, and `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = call!(wrapped, mem_map(0, 0, 0, 0, 0));
        // SAFETY: async-signal-safe.
        unsafe { libc::_exit(code.0 as i32) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above; `status` lives across the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
        "{status}"
    );
});
