//! The environment variables of gpuipc, all of which are read here.

#![allow(unsafe_code)]

use std::ffi::OsString;
use std::sync::LazyLock;

/// The value of an environment variable; `None` where it is not set, and in a program
/// that runs with more rights than its caller.
///
/// Such a program (setuid, setgid, file capabilities: the kernel sets `AT_SECURE`)
/// obeys no variable of its caller's: one names a library to load, others a folder and
/// whom to trust. The dynamic loader treats `LD_LIBRARY_PATH` the same way.
#[must_use]
pub fn variable(name: &str) -> Option<OsString> {
    if is_secure() {
        return None;
    }
    std::env::var_os(name)
}

/// Whether this program runs with more rights than its caller, so that [`variable`]
/// answers nothing.
#[must_use]
pub fn is_secure() -> bool {
    static IS_SECURE: LazyLock<bool> = LazyLock::new(|| {
        // SAFETY: only looks the number up in what the kernel gave the program.
        unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
    });
    *IS_SECURE
}
