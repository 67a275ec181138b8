//! The broker: the exporter's small server that hands out file descriptors and
//! says whether memory is still the one that was offered.
//!
//! One thread an `Ipc`, started by the first export, ended when the `Ipc` and
//! all its offers are gone; the shared object with its code stays loaded until the
//! process ends. It sleeps in `poll` when nothing happens. Requests
//! and replies are fixed-size messages over SOCK_SEQPACKET (their codec is in
//! `gpuipc_core`); a descriptor travels beside a reply as SCM_RIGHTS.

mod client;
mod kept;
mod name;
mod peer;
mod server;
mod socket;

pub(crate) use client::{Answer, Connection, Reach, ask, is_lost, process};
pub(crate) use kept::Kept;
pub(crate) use peer::trusts_user;

use crate::driver::Driver;
use crate::error::Error;
use crate::export::ledger::{Entry, Ledger};
use crate::identity;
use crate::options::Settings;
use gpuipc_core::{Endpoint, Token};
use name::{Folder, SocketFile};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A running broker; dropping it stops the thread.
#[derive(Debug)]
pub(crate) struct Broker {
    endpoint: Endpoint,
    /// Written once to stop the thread.
    stop: Arc<OwnedFd>,
    thread: Mutex<Option<Running>>,
    /// Proves offers to those who cannot ask; `None` where it could not be made.
    ledger: Option<Arc<Ledger>>,
    /// The name in the file system, removed on drop; `None` where no folder
    /// could be used.
    _file: Option<SocketFile>,
}

impl Broker {
    /// Opens both names and starts the thread.
    pub(crate) fn start(driver: Driver, settings: &Settings) -> Result<Self, Error> {
        let os = |step| {
            move |errno: rustix::io::Errno| Error::BrokerStart {
                step,
                errno: errno.raw_os_error(),
                folder: None,
            }
        };
        let endpoint = Endpoint(identity::random_bytes()?);
        let abstract_listener = name::listen_abstract(endpoint)?;
        let folder = Folder::of_this_user(settings.socket_dir.as_deref());
        let (file_listener, file) = match folder.listen(endpoint, &settings.trust) {
            Ok((listener, file)) => (Some(listener), Some(file)),
            // A folder that the user named must work; the default one is a second way.
            Err(error) if settings.socket_dir.is_some() => return Err(error),
            Err(error) => {
                log::info!(target: "gpuipc::broker", "no file name for the broker, only the abstract one: {error}");
                (None, None)
            }
        };
        let ledger = Ledger::create()
            .inspect_err(|error| {
                log::info!(target: "gpuipc::broker", "no ledger, offers are proven by the broker alone: {error}");
            })
            .ok();
        let stop = Arc::new(
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(os("eventfd"))?,
        );
        let server = server::Server::new(
            driver,
            endpoint,
            settings.trust.clone(),
            abstract_listener,
            file_listener,
            Arc::clone(&stop),
        );
        crate::pin::keep_loaded();
        let (ending, ended) = channel::<()>();
        let thread = spawn_without_signals(move || {
            let _ending = ending;
            server.run();
        })
        .map_err(|error| Error::BrokerStart {
            step: "starting a thread",
            errno: error.raw_os_error().unwrap_or(0),
            folder: None,
        })?;
        log::debug!(target: "gpuipc::broker", "serving as {endpoint}");
        Ok(Self {
            endpoint,
            ledger,
            stop,
            thread: Mutex::new(Some(Running { thread, ended })),
            _file: file,
        })
    }

    /// The name that a ticket carries.
    pub(crate) const fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// Puts an offer's token into the ledger, if there is one with room.
    pub(crate) fn enter(&self, token: &Token, fd: Option<i32>) -> Option<Entry> {
        self.ledger.as_ref()?.enter(token, fd)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if identity::is_forked() {
            // The thread is the parent's: there is nothing to join or detach.
            core::mem::forget(
                self.thread
                    .get_mut()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take(),
            );
            return;
        }
        // Fails only when the counter is full, and then it wakes the thread, too.
        let _ = rustix::io::write(self.stop.as_fd(), &1_u64.to_ne_bytes());
        let running = self
            .thread
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // The broker's own thread may hold the last reference for a moment
        // while it answers; it ends by itself.
        let Some(running) =
            running.filter(|running| running.thread.thread().id() != std::thread::current().id())
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

/// How long a drop waits for the thread.
const TIME_TO_END: Duration = Duration::from_secs(1);

/// The thread.
#[derive(Debug)]
struct Running {
    thread: JoinHandle<()>,
    /// Disconnected by the thread's end; nothing is ever sent.
    ended: Receiver<()>,
}

/// Starts a thread that no signal is delivered to: signals are the
/// application's, and its handlers expect its own threads.
#[allow(unsafe_code)]
fn spawn_without_signals(run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
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
    let thread = std::thread::Builder::new()
        .name("gpuipc-broker".to_owned())
        .spawn(run);
    // SAFETY: `before` is this thread's mask as the call above stored it.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, core::ptr::null_mut()) };
    thread
}
