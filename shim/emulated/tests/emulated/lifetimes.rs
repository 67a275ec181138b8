//! Who dies when: kill, exit, fork, and what the next start sweeps.

use crate::child::TestChild;
use crate::driver::*;
use crate::scene;
use crate::scene::names;
use gpuipc_sys::{CuIpcMemHandle, CuResult};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SIZE: usize = 4 * MIB;

fn exported_by(child: &mut TestChild) -> CuIpcMemHandle {
    let ptr = child.ask(&format!("alloc {SIZE}")).expect("memory");
    CuIpcMemHandle {
        reserved: child.ask_bytes(&format!("handle {ptr}")),
    }
}

scene!(
    a_killed_exporters_handle_is_invalid_and_its_descriptor_lives,
    || {
        start_on(0);
        let mut exporter = TestChild::new();
        let legacy = exported_by(&mut exporter);
        let handle = exporter.ask(&format!("create {SIZE} 1")).expect("memory");
        let there = exporter
            .ask(&format!("map {handle} {SIZE} 3"))
            .expect("a mapping");
        exporter
            .ask(&format!("write {there} 43690"))
            .expect("a write");
        let number = exporter
            .ask(&format!("export {handle}"))
            .expect("a descriptor");
        let path = format!("/proc/{}/fd/{number}", exporter.pid());
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .expect("its descriptor");
        let open = ipc_open(legacy, 1).expect("open while alive");
        exporter.kill();
        assert_eq!(ipc_open(legacy, 1), Ok(open), "it is open here");
        assert_eq!(read(open), Ok(0));
        assert_eq!((ipc_close(open), ipc_close(open)), (Ok(()), Ok(())));
        assert_eq!(ipc_open(legacy, 1), Err(CuResult::INVALID_HANDLE));
        let imported = import_fd(file.as_raw_fd()).expect("import after its death");
        let ptr = map_for(imported, SIZE, 0, 1).expect("a mapping");
        assert_eq!(read(ptr), Ok(0xaaaa));
    }
);

scene!(a_dead_exporters_forked_child_does_not_keep_it_alive, || {
    start_on(0);
    let mut exporter = TestChild::new();
    let legacy = exported_by(&mut exporter);
    let child = exporter.ask("fork").expect("a child") as i32;
    let open = ipc_open(legacy, 1).expect("open");
    ipc_close(open).expect("close");
    exporter.kill();
    // Until the child has run its fork handler it still has the lock.
    let end = Instant::now() + Duration::from_secs(2);
    while let Ok(ptr) = ipc_open(legacy, 1) {
        assert!(Instant::now() < end, "the child keeps its parent alive");
        ipc_close(ptr).expect("close");
    }
    assert_eq!(ipc_open(legacy, 1), Err(CuResult::INVALID_HANDLE));
    // SAFETY: a signal to the child that the child made.
    unsafe { libc::kill(child, libc::SIGKILL) };
});

scene!(the_next_start_sweeps_what_a_killed_process_left, || {
    let mut exporter = TestChild::new();
    let mut survivor = TestChild::new();
    let dead = exported_by(&mut exporter);
    let alive = exported_by(&mut survivor);
    assert_eq!(names().len(), 4, "two owners, two names");
    exporter.kill();
    assert_eq!(names().len(), 4, "nobody cleaned up yet");
    start_on(0);
    assert_eq!(names().len(), 3, "the survivor's two, and this owner");
    assert_eq!(ipc_open(dead, 1), Err(CuResult::INVALID_HANDLE));
    assert!(ipc_open(alive, 1).is_ok());
});

scene!(a_normal_exit_leaves_no_names, || {
    let mut exporter = TestChild::new();
    exported_by(&mut exporter);
    assert_eq!(names().len(), 2);
    exporter.end();
    assert_eq!(names(), [""; 0]);
});

scene!(sweeping_beside_kills_harms_no_live_owner, || {
    start_on(0);
    let ptr = alloc(SIZE).expect("memory");
    write(ptr, 5).expect("a write");
    let handle = ipc_handle(ptr).expect("a handle");
    for _ in 0..10 {
        let mut victims = [TestChild::new(), TestChild::new()];
        for victim in &mut victims {
            exported_by(victim);
            let there = victim.open(handle).expect("open");
            assert_eq!(victim.read(there), Ok(5));
        }
        victims.into_iter().for_each(TestChild::kill);
    }
    let mut last = TestChild::new();
    assert!(last.open(handle).is_ok());
    last.end();
    assert_eq!(names().len(), 2, "this owner and its memory: {:?}", names());
});

scene!(in_a_forked_child_every_call_says_not_initialized, || {
    start_on(0);
    let ptr = alloc(SIZE).expect("memory");
    let handle = create_fd(SIZE);
    let fd = export_fd(handle).expect("a descriptor");
    // SAFETY: the child calls the driver, which takes no lock there, and ends
    // with `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let gone = CuResult::NOT_INITIALIZED;
        let right = cu!(init(0)) == gone
            && alloc(4096) == Err(gone)
            && read(ptr) == Err(gone)
            && import_fd(fd) == Err(gone)
            && release(handle) == Err(gone)
            && cu!(ctx_synchronize()) == gone;
        let mut name = std::ptr::null();
        let named = cu!(get_error_name(gone, &mut name)) == CuResult::SUCCESS && !name.is_null();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if right && named { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    write(ptr, 1).expect("the parent goes on");
    let mut child = TestChild::new();
    assert!(child.open(ipc_handle(ptr).expect("a handle")).is_ok());
});

scene!(a_child_forked_beside_busy_threads_never_waits, || {
    start_on(0);
    // Rules that never come true, so many that a thread is nearly always inside
    // their lock.
    for _ in 0..20_000 {
        gpuipc_emulated::faults::fail("cuMemAlloc_v2", u32::MAX, CuResult::UNKNOWN, 1);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let threads = [(); 2].map(|()| {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            use_device(0);
            while !stop.load(Ordering::SeqCst) {
                free(alloc(4096).expect("memory")).expect("free");
            }
        })
    });
    for _ in 0..200 {
        // SAFETY: the child makes driver calls, which take no lock there, and
        // ends with `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends a child that waits for ever.
            unsafe { libc::alarm(5) };
            let gone = Err(CuResult::NOT_INITIALIZED);
            let right =
                alloc(4096) == gone && ok(cu!(ctx_synchronize())) == Err(CuResult::NOT_INITIALIZED);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!right)) };
        }
        let mut status = -1;
        // SAFETY: waits for the child made above.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }
    stop.store(true, Ordering::SeqCst);
    for thread in threads {
        thread.join().expect("the thread");
    }
});

scene!(a_child_that_exits_does_not_take_its_parents_names, || {
    start_on(0);
    let handle = ipc_handle(alloc(SIZE).expect("memory")).expect("a handle");
    // SAFETY: the child runs its exit handlers and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: runs the exit handlers, which is what is tested.
        unsafe { libc::exit(0) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert!(TestChild::new().open(handle).is_ok());
});

scene!(calls_before_init, || {
    let none = CuResult::NOT_INITIALIZED;
    assert_eq!(alloc(4096), Err(none));
    assert_eq!(reserve(2 * MIB), Err(none));
    let mut count = -1;
    assert_eq!(cu!(device_get_count(&mut count)), none);
    let mut version = 0;
    assert_eq!(cu!(driver_get_version(&mut version)), CuResult::SUCCESS);
    assert_eq!(version, 13000);
    assert_eq!(cu!(init(1)), CuResult::INVALID_VALUE);
    assert_eq!(cu!(init(0)), CuResult::SUCCESS);
    assert_eq!(cu!(init(0)), CuResult::SUCCESS);
});

extern "C" fn calls_at_exit() {
    if cu!(ctx_synchronize()) != CuResult::DEINITIALIZED {
        // SAFETY: ends the process with a failure.
        unsafe { libc::_exit(9) };
    }
}

scene!(after_exit_has_begun_calls_say_deinitialized, || {
    // SAFETY: a handler without arguments; it runs after the driver's own,
    // which is registered later.
    assert_eq!(unsafe { libc::atexit(calls_at_exit) }, 0);
    start_on(0);
});
