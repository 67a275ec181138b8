//! What a child holds, as a line that is the same when nothing leaked.

use gpuipc_emulated::counters;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The driver's live objects and this process's open descriptors by what they are.
pub(crate) fn state() -> String {
    wait_for_closes();
    let mut files = BTreeMap::<String, u32>::new();
    for entry in std::fs::read_dir("/proc/self/fd")
        .expect("/proc is there")
        .flatten()
    {
        if let Ok(target) = std::fs::read_link(entry.path()) {
            // Without numbers that differ from time to time.
            let target: String = target
                .to_string_lossy()
                .chars()
                .filter(|c| !c.is_ascii_digit())
                .collect();
            *files.entry(target).or_default() += 1;
        }
    }
    format!("{} | {files:?}", counters::read())
}

/// Until the threads have ended that close what other processes sent.
fn wait_for_closes() {
    let end = Instant::now() + Duration::from_secs(20);
    let is_closing = || {
        let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten();
        threads.flatten().any(|thread| {
            std::fs::read_to_string(thread.path().join("comm"))
                .is_ok_and(|name| name.trim_end() == "gpuipc-close")
        })
    };
    while is_closing() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// As [`state`], for a process that may open no file: a descriptor is asked for
/// its position, which changes nothing.
#[allow(unsafe_code)]
pub(crate) fn held() -> String {
    let is_open = |fd: &i32| {
        // SAFETY: moves no position, and any number may be asked about.
        let answer = unsafe { libc::lseek(*fd, 0, libc::SEEK_CUR) };
        let error = std::io::Error::last_os_error().raw_os_error();
        answer >= 0 || error != Some(libc::EBADF)
    };
    let open = (0..1024).filter(is_open).count();
    format!("{} | {open} descriptors", counters::read())
}
