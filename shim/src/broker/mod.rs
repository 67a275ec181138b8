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
pub(crate) mod started;
pub(crate) mod thread;

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
use std::os::fd::OwnedFd;
use std::sync::Arc;
use thread::Thread;

/// A running broker; dropping it stops the thread.
#[derive(Debug)]
pub(crate) struct Broker {
    endpoint: Endpoint,
    /// Before what is to be there until it has ended.
    _thread: Thread<OwnedFd>,
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
                crate::losses::tell(&crate::losses::TABLE, error);
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
        let thread =
            Thread::start(stop, move || server.run()).map_err(|error| Error::BrokerStart {
                step: "starting a thread",
                errno: error.raw_os_error().unwrap_or(0),
                folder: None,
            })?;
        log::debug!(target: "gpuipc::broker", "serving as {endpoint}");
        Ok(Self {
            endpoint,
            _thread: thread,
            ledger,
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
