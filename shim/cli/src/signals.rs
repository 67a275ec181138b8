//! The signals that ask the program to end, taken by waiting instead of by a
//! handler, so that files are removed and memory is freed in the ordinary way.
#![allow(unsafe_code)]

use rustix::process::Signal;
use std::io;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

const SIGNALS: [(Signal, &str); 3] = [
    (Signal::INT, "SIGINT"),
    (Signal::TERM, "SIGTERM"),
    (Signal::HUP, "SIGHUP"),
];

/// The signals, blocked.
pub(crate) struct EndSignals {
    set: libc::sigset_t,
}

impl EndSignals {
    /// Blocks them in this thread and in all that it starts from now on.
    pub(crate) fn block() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigemptyset` writes one whole `sigset_t`, for which there is
        // room.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: `sigemptyset` above has initialized it; it fails for no set.
        let mut set = unsafe { set.assume_init() };
        for (signal, _) in SIGNALS {
            // SAFETY: `set` is initialized; the number is a valid signal's.
            unsafe { libc::sigaddset(&raw mut set, signal.as_raw()) };
        }
        // SAFETY: reads one initialized set and, asked for no old one, writes
        // nothing; only this thread's mask changes.
        let failed =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        Ok(Self { set })
    }

    /// Waits for one of them, at most until `end`. Its name, or `None` when the
    /// time is over.
    pub(crate) fn wait(&self, end: Option<Instant>) -> io::Result<Option<&'static str>> {
        loop {
            let left = end.map_or(Duration::from_secs(3600), |end| {
                end.saturating_duration_since(Instant::now())
                    .min(Duration::from_secs(3600))
            });
            let timeout = libc::timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            };
            // SAFETY: reads one initialized set and one time; a null pointer
            // asks for no details of the signal.
            let got = unsafe {
                libc::sigtimedwait(
                    &raw const self.set,
                    std::ptr::null_mut(),
                    &raw const timeout,
                )
            };
            if got > 0 {
                let name = SIGNALS.iter().find(|(signal, _)| signal.as_raw() == got);
                return Ok(Some(name.map_or("a signal", |(_, name)| name)));
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // The hour or the time is over.
                Some(libc::EAGAIN) if end.is_none_or(|end| Instant::now() < end) => {}
                Some(libc::EAGAIN) => return Ok(None),
                _ => return Err(error),
            }
        }
    }
}
