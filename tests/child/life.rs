//! What happens to a process around the library: signals, programs that it
//! starts, exec, its end.
#![allow(unsafe_code)]

use crate::{NotOk, TestChild};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static ALARMS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_alarm(_signal: libc::c_int) {
    ALARMS.fetch_add(1, Ordering::Relaxed);
}

/// An alarm every millisecond, whose handler interrupts system calls.
pub(crate) fn start_alarms() -> Result<(), NotOk> {
    // SAFETY: all zeros is a valid sigaction: no flags, so no SA_RESTART.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = count_alarm as extern "C" fn(libc::c_int) as usize;
    // SAFETY: the handler only adds to an atomic.
    let handled = unsafe { libc::sigaction(libc::SIGALRM, &action, core::ptr::null_mut()) };
    let millisecond = libc::timeval {
        tv_sec: 0,
        tv_usec: 1000,
    };
    let timer = libc::itimerval {
        it_interval: millisecond,
        it_value: millisecond,
    };
    // SAFETY: the timer is a local that outlives the call.
    let set = unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, core::ptr::null_mut()) };
    if handled == 0 && set == 0 {
        Ok(())
    } else {
        Err("no alarms".into())
    }
}

/// How many alarms came.
pub(crate) fn alarms() -> u64 {
    ALARMS.load(Ordering::Relaxed)
}

/// Starts a program that waits, as an application starts its helpers; its pid.
pub(crate) fn spawn_sleep() -> Result<u32, NotOk> {
    let child = std::process::Command::new("sleep").arg("60").spawn();
    child
        .map(|child| child.id())
        .map_err(|_| NotOk::from("sleep does not start"))
}

/// This program anew in the same process: what was open is closed.
pub(crate) fn exec() -> NotOk {
    let error = std::process::Command::new("/proc/self/exe").exec();
    NotOk::from(format!("exec: {error}").as_str())
}

/// What the exit handler drops, after the driver's own.
static LEFT: Mutex<Option<Left>> = Mutex::new(None);

/// Objects that live until the very end of the process.
struct Left {
    child: TestChild,
}

extern "C" fn drop_what_is_left() {
    let left = LEFT.lock().map(|mut left| left.take());
    if let Ok(Some(left)) = left {
        drop(left.child);
        // Without a panic, and without a word of the driver's, up to here.
        use std::io::Write;
        let mut stdout = std::io::stdout();
        let _ = stdout
            .write_all(b"dropped at the end\n")
            .and_then(|()| stdout.flush());
    }
}

/// Registers the exit handler; first of all, so that it runs last of all.
pub(crate) fn register_exit_handler() {
    // SAFETY: the handler takes a lock that nobody holds at exit.
    unsafe { libc::atexit(drop_what_is_left) };
}

/// Ends the process with all objects in a static.
pub(crate) fn exit_with_everything(child: TestChild) -> ! {
    if let Ok(mut left) = LEFT.lock() {
        *left = Some(Left { child });
    }
    // SAFETY: runs the exit handlers and ends the process, as `main`'s end does.
    unsafe { libc::exit(0) }
}

static GUARDING: AtomicBool = AtomicBool::new(false);
static GUARD: Mutex<Option<std::thread::JoinHandle<u64>>> = Mutex::new(None);

/// A thread that opens files all the time: a descriptor that someone closes
/// twice is one of its files, sooner or later.
pub(crate) fn start_guard() {
    GUARDING.store(true, Ordering::Relaxed);
    let thread = std::thread::spawn(|| {
        let mut lost = 0;
        while GUARDING.load(Ordering::Relaxed) {
            let Ok(file) = std::fs::File::open("/dev/null") else {
                continue;
            };
            let opened = rustix::fs::fstat(file.as_fd()).map(|stat| stat.st_rdev);
            std::thread::yield_now();
            let now = rustix::fs::fstat(file.as_fd()).map(|stat| stat.st_rdev);
            if opened.is_err() || opened != now {
                lost += 1;
                // Its number is someone else's now.
                core::mem::forget(file);
            }
        }
        lost
    });
    if let Ok(mut guard) = GUARD.lock() {
        *guard = Some(thread);
    }
}

/// Ends it; how many files it lost.
pub(crate) fn stop_guard() -> Result<u64, NotOk> {
    GUARDING.store(false, Ordering::Relaxed);
    let thread = GUARD.lock().ok().and_then(|mut guard| guard.take());
    let thread = thread.ok_or("no guard")?;
    thread.join().map_err(|_| NotOk::from("the guard panicked"))
}
