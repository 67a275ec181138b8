//! What a peer holds, as a line that is the same when nothing leaked.

use gpuipc_emulated::counters;
use std::collections::BTreeMap;

/// The driver's live objects and this process's open descriptors by what they are.
pub(crate) fn state() -> String {
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
