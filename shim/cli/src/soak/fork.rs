//! A forked child, in which the library must refuse, whatever the other threads of
//! its parent were doing.
#![allow(unsafe_code)]

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::time::{Duration, Instant};

/// How long the child may take.
const TIME: Duration = Duration::from_secs(20);

/// Forks a child that does no more than this check, and ends. Why it did not go as
/// it must.
pub(super) fn fork(check: impl FnOnce() -> bool) -> Result<(), String> {
    // SAFETY: the child of a process with threads may only do what needs none of
    // their locks. It makes the check, which calls a library that refuses before it
    // takes any lock but the allocator's, which the C library keeps usable in a
    // forked child, and ends by `_exit`, which runs no handler.
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
    let end = Instant::now() + TIME;
    loop {
        match waitpid(Some(child), WaitOptions::NOHANG) {
            Ok(Some((_, status))) if status.exit_status() == Some(0) => return Ok(()),
            Ok(Some((_, status))) => {
                return Err(format!(
                    "the library did not refuse in a forked child ({status:?})"
                ));
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(format!("waitpid: {errno}")),
            Ok(None) if Instant::now() > end => {
                // Reaped by the next look.
                let _ = kill_process(child, Signal::KILL);
                let _ = waitpid(Some(child), WaitOptions::empty());
                return Err("a forked child hangs".to_owned());
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_child_that_sees_something_else_is_told() {
        assert_eq!(super::fork(|| true), Ok(()));
        let text = super::fork(|| false).expect_err("it was wrong");
        assert!(text.contains("did not refuse"), "{text}");
    }
}
