//! The system calls that no safe crate has: shared memory as a reference, signals, fork.
#![allow(unsafe_code)]

use crate::board::Board;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The signal that only interrupts the system call under way.
pub(crate) const POKE: Signal = Signal::USR1;

/// How long a forked child may take.
const CHILD_TIME: Duration = Duration::from_secs(20);

/// The board in a file that is long enough; stays mapped until the process ends.
pub(crate) fn map_board(file: impl AsFd) -> Result<&'static Board, Errno> {
    let (access, shared) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: the kernel chooses the address, so that nothing else is replaced.
    let at = unsafe {
        mmap(
            core::ptr::null_mut(),
            size_of::<Board>(),
            access,
            shared,
            file,
            0,
        )
    }?;
    // SAFETY: the mapping is page aligned, as long as a `Board` and never unmapped. A board is
    // atomics only: every value is valid, and other processes may change it at any time.
    Ok(unsafe { &*at.cast::<Board>() })
}

static ENDED: AtomicBool = AtomicBool::new(false);

/// Whether SIGINT, SIGTERM or SIGHUP has arrived, after [`handle_end_signals`].
pub(crate) fn is_asked_to_end() -> bool {
    ENDED.load(Ordering::Relaxed)
}

pub(crate) fn handle_end_signals() -> std::io::Result<()> {
    extern "C" fn end(_signal: libc::c_int) {
        ENDED.store(true, Ordering::Relaxed);
    }
    // Workers inherit it: a signal that comes before they handle it does not end them.
    handle(POKE, libc::SIG_IGN)?;
    [Signal::INT, Signal::TERM, Signal::HUP]
        .into_iter()
        .try_for_each(|signal| handle(signal, end as extern "C" fn(libc::c_int) as usize))
}

/// Handles [`POKE`] by nothing.
pub(crate) fn handle_poke() -> std::io::Result<()> {
    extern "C" fn nothing(_signal: libc::c_int) {}
    handle(POKE, nothing as extern "C" fn(libc::c_int) as usize)
}

fn handle(signal: Signal, handler: libc::sighandler_t) -> std::io::Result<()> {
    // SAFETY: all zeros is a valid sigaction: no flags, so no SA_RESTART, and no signal blocked.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    // SAFETY: reads one whole action; handlers do no more than store to an atomic.
    match unsafe { libc::sigaction(signal.as_raw(), &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Blocks [`POKE`] in this thread and in those that it starts, or lets it through again.
pub(crate) fn block_poke(blocked: bool) {
    // SAFETY: all zeros is an empty set on Linux.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is initialized, and the number is a valid signal's.
    unsafe { libc::sigaddset(&raw mut set, POKE.as_raw()) };
    let how = if blocked {
        libc::SIG_BLOCK
    } else {
        libc::SIG_UNBLOCK
    };
    // SAFETY: reads one initialized set; only this thread's mask changes.
    unsafe { libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) };
}

/// Forks a child that makes this check and exits. Returns what is wrong with that.
pub(crate) fn fork(check: impl FnOnce() -> bool) -> Result<(), String> {
    // SAFETY: the child of a process with threads may only do what needs none of their locks. It
    // makes the check, which calls a library that refuses before it takes any lock but the
    // allocator's, which the C library keeps usable in a forked child.
    match unsafe { libc::fork() } {
        -1 => Err(format!("fork: {}", std::io::Error::last_os_error())),
        0 => {
            let code = i32::from(!check());
            // SAFETY: ends the process; nothing of it is used afterwards.
            unsafe { libc::_exit(code) }
        }
        child => Pid::from_raw(child).map_or(Ok(()), wait),
    }
}

fn wait(child: Pid) -> Result<(), String> {
    let end = Instant::now() + CHILD_TIME;
    loop {
        match waitpid(Some(child), WaitOptions::NOHANG) {
            Ok(Some((_, status))) if status.exit_status() == Some(0) => return Ok(()),
            Ok(Some((_, status))) => {
                return Err(format!("the library works in a forked child ({status:?})"));
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(format!("waitpid: {errno}")),
            Ok(None) if Instant::now() > end => {
                // It may have ended just now.
                let _ = kill_process(child, Signal::KILL);
                let _ = waitpid(Some(child), WaitOptions::empty());
                return Err("a forked child hangs".to_owned());
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
