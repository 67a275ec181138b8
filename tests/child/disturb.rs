//! What a program does to itself below the library: closes descriptors that are not its
//! own, puts files of its own in their place, logs by what panics.
#![allow(unsafe_code)]

use crate::NotOk;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Warnings and errors, until they are asked for; at a logger that panics, every line does.
struct Lines {
    told: Mutex<Vec<String>>,
    panics: AtomicBool,
}

static LINES: Lines = Lines {
    told: Mutex::new(Vec::new()),
    panics: AtomicBool::new(false),
};

impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.level() <= log::Level::Warn {
            let line = format!("{}: {}", record.level(), record.args());
            self.told.lock().expect("no panic in here").push(line);
        }
        // Only where nobody but the broker sees it.
        let is_broker = std::thread::current().name() == Some("gpuipc-broker");
        if is_broker && self.panics.load(Ordering::Relaxed) {
            // A panic that prints nothing.
            std::panic::resume_unwind(Box::new("a logger that panics"));
        }
    }

    fn flush(&self) {}
}

/// From now on warnings are kept; with `panics` every line of the broker's thread panics.
pub(crate) fn log(panics: bool) -> String {
    let _ = log::set_logger(&LINES);
    log::set_max_level(log::LevelFilter::Trace);
    LINES.panics.store(panics, Ordering::Relaxed);
    String::new()
}

/// What was told since the last time.
pub(crate) fn log_lines() -> String {
    let mut told = LINES.told.lock().expect("no panic in here");
    core::mem::take(&mut *told).join(" | ")
}

/// What is under a number.
pub(crate) fn link_of(number: RawFd) -> String {
    std::fs::read_link(format!("/proc/self/fd/{number}"))
        .map_or("nothing".to_owned(), |link| link.display().to_string())
}

/// Closes all sockets and pipes but the standard ones; with `replace`, /dev/zero comes
/// under their numbers. Gives these.
pub(crate) fn close_all(replace: bool) -> Result<Vec<RawFd>, NotOk> {
    let all = std::fs::read_dir("/proc/self/fd").map_err(|_| NotOk::from("/proc"))?;
    let numbers = all
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let ours = |number: &RawFd| {
        let link = link_of(*number);
        *number > 2 && (link.starts_with("socket:") || link.starts_with("pipe:"))
    };
    let numbers: Vec<RawFd> = numbers.filter(ours).collect();
    for number in &numbers {
        if replace {
            self::replace(*number)?;
        } else {
            // SAFETY: as in `replace`.
            unsafe { libc::close(*number) };
        }
    }
    Ok(numbers)
}

/// /dev/zero comes under this number.
pub(crate) fn replace(number: RawFd) -> Result<(), NotOk> {
    let zero = File::open("/dev/zero").map_err(|_| NotOk::from("/dev/zero"))?;
    // SAFETY: two numbers. What a program may do to a library in it, and what is tested
    // here: the number is the library's, whose code must look before it uses it.
    unsafe { libc::dup2(zero.as_raw_fd(), number) };
    Ok(())
}

/// Whether /dev/zero is still under all of these, here and in a forked child.
pub(crate) fn are_there(numbers: &[RawFd]) -> bool {
    let here = || numbers.iter().all(|number| link_of(*number) == "/dev/zero");
    // SAFETY: the child reads links and ends by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = i32::from(!here());
        // SAFETY: ends this process at once.
        unsafe { libc::_exit(code) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above; the status is a local.
    unsafe { libc::waitpid(child, &mut status, 0) };
    status == 0 && here()
}

/// Closes the standard error.
pub(crate) fn close_stderr() {
    // SAFETY: nothing in this process uses it from now on.
    unsafe { libc::close(2) };
}
