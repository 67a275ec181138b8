//! How the broker's thread starts and ends.

use crate::process::identity;
use crate::process::sync::{
    Builder, JoinHandle, Mutex, Receiver, RecvTimeoutError, TryRecvError, channel, current,
};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How long a drop waits for the thread.
const TIME_TO_END: Duration = Duration::from_secs(1);

/// What tells a thread to end.
pub(crate) trait Stop {
    /// Tells it; to be called once. Whether it hears it.
    fn stop(&self) -> bool;
}

/// A running thread; dropping it stops the thread.
#[derive(Debug)]
pub(crate) struct Thread<S: Stop> {
    stop: Arc<S>,
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    thread: JoinHandle<()>,
    /// Disconnected by the thread's end; nothing is ever sent.
    ended: Receiver<()>,
}

impl<S: Stop> Thread<S> {
    /// Starts `run`, which returns soon after `stop` tells it to, and owns all that
    /// it uses.
    pub(crate) fn start(
        stop: Arc<S>,
        run: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Self> {
        let (ending, ended) = channel::<()>();
        let thread = spawn_without_signals("gpuipc-broker", move || {
            let _ending = ending;
            run();
        })?;
        Ok(Self {
            stop,
            running: Mutex::new(Some(Running { thread, ended })),
        })
    }

    /// Whether the thread still runs.
    pub(crate) fn runs(&self) -> bool {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running
            .as_ref()
            .is_some_and(|running| running.ended.try_recv() == Err(TryRecvError::Empty))
    }

    /// What tells it to end.
    pub(crate) fn stop(&self) -> &S {
        &self.stop
    }
}

impl<S: Stop> Drop for Thread<S> {
    fn drop(&mut self) {
        let running = self
            .running
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if identity::is_forked() {
            // The thread is the parent's: there is nothing to join or detach.
            core::mem::forget(running);
            return;
        }
        let hears = self.stop.stop();
        // The thread itself may hold the last reference for a moment while it
        // answers; it ends by itself.
        let Some(running) =
            running.filter(|running| hears && running.thread.thread().id() != current().id())
        else {
            return;
        };
        // Not for ever: it may be in a driver call that hangs, or in a logger
        // that waits for this very thread. It owns all that it uses.
        if running.ended.recv_timeout(TIME_TO_END) == Err(RecvTimeoutError::Disconnected)
            && running.thread.join().is_err()
        {
            log::warn!(target: "gpuipc::broker", "the broker's thread had panicked");
        }
    }
}

/// Starts a thread that no signal is delivered to: signals are the
/// application's, and its handlers expect its own threads.
#[allow(unsafe_code)]
pub(super) fn spawn_without_signals(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    // SAFETY: a sigset_t is plain data, and all zeros is one.
    let mut all: libc::sigset_t = unsafe { core::mem::zeroed() };
    // SAFETY: as above.
    let mut before: libc::sigset_t = unsafe { core::mem::zeroed() };
    // SAFETY: `all` is a local sigset_t.
    unsafe { libc::sigfillset(&mut all) };
    // SAFETY: both sets are locals; only this thread's mask changes.
    let blocked = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before) };
    if blocked != 0 {
        return Err(std::io::Error::from_raw_os_error(blocked));
    }
    // A new thread inherits the mask of the one that starts it.
    let thread = Builder::new().name(name.to_owned()).spawn(run);
    // SAFETY: `before` is this thread's mask as the call above stored it.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, core::ptr::null_mut()) };
    thread
}
