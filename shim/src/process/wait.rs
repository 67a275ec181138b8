//! Waits that always end: at a deadline, or when the caller cancels.

use crate::attempt::Reason;
use core::sync::atomic::{AtomicBool, Ordering};
use rustix::event::{PollFd, Timespec, poll};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a wait looks at the cancel flag.
const CANCEL_INTERVAL: Duration = Duration::from_millis(20);

/// How long one import may wait, over all its types.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub(crate) deadline: Instant,
    pub(crate) cancel: Option<Arc<AtomicBool>>,
}

/// Why a wait ended without what was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    TimedOut,
    Cancelled,
    System(Errno),
}

impl Ended {
    pub(crate) const fn reason(self) -> Reason {
        match self {
            Self::TimedOut => Reason::TimedOut,
            Self::Cancelled => Reason::Cancelled,
            Self::System(_) => Reason::System,
        }
    }
}

impl Wait {
    /// The same, but a quarter of the time that is left, and no more than `most`.
    pub(crate) fn short(&self, most: Duration) -> Self {
        let now = Instant::now();
        let left = self.deadline.saturating_duration_since(now);
        Self {
            deadline: now + (left / 4).min(most),
            cancel: self.cancel.clone(),
        }
    }

    /// The time left.
    pub(crate) fn left(&self) -> Result<Duration, Ended> {
        if self
            .cancel
            .as_ref()
            .is_some_and(|cancel| cancel.load(Ordering::Relaxed))
        {
            return Err(Ended::Cancelled);
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(Ended::TimedOut)
        } else {
            Ok(left)
        }
    }

    /// Sleeps, but not beyond the end.
    pub(crate) fn pause(&self, pause: Duration) -> Result<(), Ended> {
        std::thread::sleep(self.left()?.min(pause));
        self.left().map(drop)
    }

    /// Waits until one of `fds` is ready; their `revents` say which.
    pub(crate) fn poll(&self, fds: &mut [PollFd<'_>]) -> Result<(), Ended> {
        loop {
            let left = self.left()?;
            let slice = if self.cancel.is_some() {
                left.min(CANCEL_INTERVAL)
            } else {
                left
            };
            match poll(fds, Some(&timespec(slice))) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(Ended::System(errno)),
            }
        }
    }
}

/// A duration for the kernel.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_at_its_deadline() {
        let wait = Wait {
            deadline: Instant::now() + Duration::from_millis(20),
            cancel: None,
        };
        assert_eq!(wait.pause(Duration::from_secs(3600)), Err(Ended::TimedOut));
        assert_eq!(wait.poll(&mut []), Err(Ended::TimedOut));
    }

    #[test]
    fn a_cancelled_wait_ends_at_once() {
        let cancel = Arc::new(AtomicBool::new(false));
        let deadline = Instant::now() + Duration::from_secs(3600);
        let wait = Wait {
            deadline,
            cancel: Some(Arc::clone(&cancel)),
        };
        let canceller = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            cancel.store(true, Ordering::Relaxed);
        });
        assert_eq!(wait.poll(&mut []), Err(Ended::Cancelled));
        assert_eq!(wait.left(), Err(Ended::Cancelled));
        canceller.join().expect("the other thread ends");
    }
}
