//! What happens to another process in the middle of a call of the library: at a driver
//! call, and over before that begins.

use crate::NotOk;
use gpuipc_emulated::faults;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::sync::atomic::{AtomicU32, Ordering};

static TARGET: AtomicU32 = AtomicU32::new(0);

/// Before the `nth` next use of a driver call the process is killed, or stopped.
pub(crate) fn at(symbol: &str, nth: u32, what: &str, pid: u32) -> Result<(), NotOk> {
    let act = match what {
        "kill" => kill,
        "stop" => || gpuipc_tests::stop(TARGET.load(Ordering::SeqCst)),
        _ => return Err("kill or stop".into()),
    };
    TARGET.store(pid, Ordering::SeqCst);
    faults::before(symbol, nth, act);
    Ok(())
}

/// Its files are closed when this returns.
fn kill() {
    let pid = i32::try_from(TARGET.load(Ordering::SeqCst)).ok();
    let pid = pid.and_then(Pid::from_raw).expect("a pid");
    let process = pidfd_open(pid, PidfdFlags::empty()).expect("it lives");
    kill_process(pid, Signal::KILL).expect("it lives");
    poll(&mut [PollFd::new(&process, PollFlags::IN)], None).expect("it ends");
}
