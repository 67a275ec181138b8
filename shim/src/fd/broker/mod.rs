//! The broker: the exporter's small server. It hands out file descriptors, and says
//! whether memory is still the memory that was exported.
//!
//! Each `Ipc` has at most one broker thread. The first export starts it. It ends when
//! the `Ipc` and all of its exports are gone. The shared object that contains its code
//! stays loaded until the process ends. The thread sleeps in `poll`. Requests and
//! replies are messages of a fixed size over SOCK_SEQPACKET, which `gpuipc_core`
//! encodes. A descriptor is sent beside a reply as SCM_RIGHTS.

mod bell;
mod client;
mod credentials;
mod discard;
mod exports;
mod idle;
mod name;
mod server;
mod socket;
pub(crate) mod started;
pub(crate) mod thread;

pub(crate) use client::{Answer, Connection, Reach, ask, is_lost, process};
pub(crate) use credentials::trusts_user;
pub(crate) use discard::Foreign;
pub(crate) use exports::{Export, Exports, Given};
pub(crate) use idle::IdleConnections;

use crate::error::Error;
use crate::fd::export_table::{Entry, ExportTable};
use crate::options::{Settings, Trust};
use crate::process::identity;
use crate::process::losses;
use crate::process::private_fd::File;
use bell::Bell;
use gpuipc_core::{Endpoint, Token};
use log::Level;
use name::{Folder, Loss, SocketFile};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thread::Thread;

/// How long an export of what is exported relies on the last look at the broker.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// A broker; dropping it stops its thread.
///
/// What the system refuses it costs what it gives and no more: without one of its names
/// it is reached by the other one, without any there is no thread, and what needs no
/// broker is exported all the same.
#[derive(Debug)]
pub(crate) struct Broker {
    endpoint: Endpoint,
    trust: Trust,
    folder: Folder,
    /// Before what is to be there until it has ended.
    serving: Result<Serving, Loss>,
    /// Proves exports to those who cannot ask; `None` where it could not be made.
    table: Option<Arc<ExportTable>>,
    names: Mutex<Names>,
    /// To be told where no lock is held, which a logger may need.
    news: Mutex<Vec<(Level, String)>>,
}

#[derive(Debug)]
struct Serving {
    thread: Thread<Bell>,
    has_abstract_name: bool,
    /// What the thread needs, but for the socket of the name in the file system.
    files: Vec<File>,
}

#[derive(Debug)]
struct Names {
    /// The socket behind `file`.
    socket: Option<File>,
    /// The name in the file system, removed on drop; `None` where it could not be had.
    file: Option<SocketFile>,
    /// One that could not be had may be had at the next export.
    may_come: bool,
    /// When it was last looked whether all is there.
    looked: Instant,
}

impl Broker {
    /// Opens both names and starts the thread, which answers for `exports`.
    pub(crate) fn start(exports: Box<dyn Exports>, settings: &Settings) -> Result<Self, Error> {
        let endpoint = Endpoint(identity::random_bytes()?);
        let folder = Folder::of_this_user(settings.socket_dir.as_deref());
        let trust = settings.trust.clone();
        let mut news = Vec::new();
        let mut lost = Vec::new();
        let mut listeners = Vec::new();
        match name::listen_abstract(endpoint) {
            Ok(listener) => listeners.push(listener),
            Err(loss) => {
                news.push((
                    Level::Warn,
                    format!(
                        "the broker has no abstract name: {loss}; importers need the name in the \
                         folder (GPUIPC_SOCKET_DIR)"
                    ),
                ));
                lost.push(loss);
            }
        }
        let mut names = Names {
            socket: None,
            file: None,
            may_come: false,
            looked: Instant::now(),
        };
        match folder.listen(endpoint, &trust) {
            Ok((listener, file)) => {
                names.socket = Some(listener.file());
                names.file = Some(file);
                listeners.push(listener);
            }
            Err(loss) => {
                news.push((
                    Level::Warn,
                    format!(
                        "the broker has no name in a folder: {loss}; importers in other network \
                         namespaces do not reach it"
                    ),
                ));
                names.may_come = loss.may_pass();
                lost.push(loss);
            }
        }
        let serving = match lost.pop() {
            Some(loss) if listeners.is_empty() => Err(loss),
            _ => serve(exports, endpoint, &trust, listeners),
        };
        match &serving {
            Ok(_) => news.push((Level::Debug, format!("serving as {endpoint}"))),
            Err(loss) => {
                names.file = None;
                let told = losses::text(&losses::BROKER, loss);
                news.extend(told.map(|text| (Level::Warn, text)));
            }
        }
        let table = ExportTable::create()
            .inspect_err(|error| {
                let told = losses::text(&losses::TABLE, error);
                news.extend(told.map(|text| (Level::Warn, text)));
            })
            .ok();
        Ok(Self {
            endpoint,
            trust,
            folder,
            serving,
            table,
            names: Mutex::new(names),
            news: Mutex::new(news),
        })
    }

    /// The name that a ticket carries.
    pub(crate) const fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// Puts an export's token into the export table, if there is one with room.
    pub(crate) fn enter(
        &self,
        token: &Token,
        fd: Option<i32>,
        allocation_id: u64,
    ) -> Option<Entry> {
        self.table.as_ref()?.enter(token, fd, allocation_id)
    }

    /// Why nobody can ask it, if that is so.
    pub(crate) fn cannot_serve(&self) -> Option<Error> {
        self.serving.as_ref().err().map(Loss::error)
    }

    /// Whether whoever shares the network namespace reaches it.
    pub(crate) fn has_abstract_name(&self) -> bool {
        (self.serving.as_ref()).is_ok_and(|serving| serving.has_abstract_name)
    }

    /// Whether anybody can ask it.
    pub(crate) const fn serves(&self) -> bool {
        self.serving.is_ok()
    }

    /// Whether it serves as it did at its start; a name that was removed is made anew. One
    /// that does not is to be replaced. Looked for at each new export, and at most once a
    /// millisecond at an export of what is exported.
    pub(crate) fn is_whole(&self, is_new: bool) -> bool {
        let serving = match &self.serving {
            Ok(serving) => serving,
            Err(loss) => return !loss.may_pass(),
        };
        let mut names = self.names();
        let runs = serving.thread.runs();
        if runs && !is_new && names.looked.elapsed() < LOOK_INTERVAL {
            return true;
        }
        names.looked = Instant::now();
        let mut files = serving.files.iter().chain(&names.socket);
        if !runs || !files.all(|file| file.is_there()) {
            self.note(
                Level::Error,
                "the broker's thread has ended, or the program closed its descriptors: what was \
                 exported before is out of reach; another broker is started",
            );
            return false;
        }
        let is_lost = match &names.file {
            Some(file) => !file.is_there(),
            None => core::mem::take(&mut names.may_come),
        };
        if is_lost {
            // Not dropped: the name, if there is one, is another's.
            match self.folder.listen(self.endpoint, &self.trust) {
                Ok((listener, file)) => {
                    names.socket = Some(listener.file());
                    serving.thread.stop().add(listener);
                    names.file = Some(file);
                    self.note(
                        Level::Warn,
                        "the broker's name in its folder was removed: made anew",
                    );
                }
                Err(loss) => {
                    names.may_come = loss.may_pass();
                    names.file = None;
                    let text = format!("the broker's name in its folder is lost: {loss}");
                    self.note(Level::Warn, &text);
                }
            }
        }
        true
    }

    /// Tells what there is to tell. No lock is held, here or by the caller.
    pub(crate) fn tell(&self) {
        let news = core::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner));
        for (level, text) in news {
            log::log!(target: "gpuipc::broker", level, "{text}");
        }
    }

    fn note(&self, level: Level, text: &str) {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        news.push((level, text.to_owned()));
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the thread.
fn serve(
    exports: Box<dyn Exports>,
    endpoint: Endpoint,
    trust: &Trust,
    listeners: Vec<socket::Listener>,
) -> Result<Serving, Loss> {
    let (bell, ear) = Bell::new().map_err(Loss::of("pipe"))?;
    let has_abstract_name = listeners.iter().any(|listener| listener.is_abstract);
    let always = listeners.iter().filter(|listener| listener.is_abstract);
    let always = always.map(socket::Listener::file);
    let files = always.chain([bell.file(), ear.file()]).collect();
    let bell = Arc::new(bell);
    let server = server::Server::new(
        exports,
        endpoint,
        trust.clone(),
        listeners,
        Arc::clone(&bell),
        ear,
    );
    crate::process::nodelete::keep_loaded();
    let thread = Thread::start(bell, move || server.run()).map_err(|error| {
        let errno = rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::AGAIN);
        Loss::of("starting a thread")(errno)
    })?;
    Ok(Serving {
        thread,
        has_abstract_name,
        files,
    })
}
