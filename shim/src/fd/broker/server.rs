//! The broker's thread. It accepts connections, checks their users, and answers one
//! request at a time.
//!
//! It receives no descriptors from clients, does not wait for a client, and closes
//! nothing that a client sent. A panic, for example in a logger, ends one turn of the
//! loop and not the thread. The thread ends when it is told to, or when the program has
//! closed its descriptors.

use super::bell::{Bell, Ear};
use super::credentials::PeerCredentials;
use super::discard::is_choked;
use super::exports::{Export, Exports, Given};
use super::socket::{Fds, Line, Listener, receive_bytes, send};
use crate::gpu::driver::DriverError;
use crate::options::Trust;
use crate::process::wait::timespec;
use core::panic::AssertUnwindSafe;
use gpuipc_core::{Endpoint, REQUEST_BYTES, Reply, ReplyStatus, Request, RequestKind};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Clients served at once; more wait in the kernel's backlog.
const MAX_CLIENTS: usize = 128;
/// How long a client may be connected without a request. Importers ask at once.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same while others wait because all places are taken: the client that has
/// been silent longest makes room then.
const PATIENCE_WHEN_FULL: Duration = Duration::from_millis(50);
/// How long the listeners are left alone after the file table was full: `poll`
/// would report them for ever.
const TABLE_FULL_PAUSE: Duration = Duration::from_millis(50);

/// The same while too much that clients sent waits to be closed.
const CHOKED_PAUSE: Duration = Duration::from_secs(1);

/// Before the next turn after a `poll` that failed, or a panic.
const FAILED_PAUSE: Duration = Duration::from_millis(20);

/// What the thread owns.
#[derive(Debug)]
pub(super) struct Server {
    exports: Box<dyn Exports>,
    endpoint: Endpoint,
    trust: Trust,
    listeners: Vec<Listener>,
    bell: Arc<Bell>,
    ear: Ear,
    clients: Vec<Client>,
    /// No accepting before this.
    paused_until: Option<Instant>,
    /// What has failed was told; it is told again once it has worked in between.
    told: Told,
}

#[derive(Debug, Default)]
struct Told {
    poll: bool,
    accept: bool,
}

/// A connection.
#[derive(Debug)]
struct Client {
    line: Line,
    /// Another copy of the library in this process.
    own: bool,
    /// When it connected, or last had an answer.
    silent_since: Instant,
}

/// What becomes of a connection.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Keep,
    Close,
}

/// Whether there is a next turn.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    Next,
    Last,
}

impl Server {
    pub(super) fn new(
        exports: Box<dyn Exports>,
        endpoint: Endpoint,
        trust: Trust,
        listeners: Vec<Listener>,
        bell: Arc<Bell>,
        ear: Ear,
    ) -> Self {
        Self {
            exports,
            endpoint,
            trust,
            listeners,
            bell,
            ear,
            clients: Vec::new(),
            paused_until: None,
            told: Told::default(),
        }
    }

    /// Serves until told to stop, or until the program has closed what it needs.
    pub(super) fn run(mut self) {
        // Where a logger may panic, what a turn has to do is done before it says so.
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.turn())) {
                Ok(Turn::Next) => {}
                Ok(Turn::Last) => return,
                Err(panic) => {
                    // Dropped, it might panic again.
                    core::mem::forget(panic);
                    // Whatever panics at every turn must not take a whole processor.
                    std::thread::sleep(FAILED_PAUSE);
                }
            }
        }
    }

    fn turn(&mut self) -> Turn {
        let now = Instant::now();
        self.clients
            .retain(|client| now < client.silent_since + PATIENCE);
        if self.paused_until.is_some_and(|until| until <= now) {
            self.paused_until = None;
        }
        let ready = self.wait(now);
        if self.bell.is_stopped() {
            return Turn::Last;
        }
        if !self.has_its_own(&ready) {
            // The next export starts another one, and says so.
            return Turn::Last;
        }
        if ready.bell {
            self.ear.listen();
            self.take_added();
        }
        // Clients first: those that leave make room. From the back, so that
        // removing one moves none that is still to come.
        for index in (0..self.clients.len()).rev() {
            if ready.clients.get(index).copied().unwrap_or(false)
                && (!self.clients[index].line.is_there()
                    || serve(&*self.exports, self.endpoint, &mut self.clients[index])
                        == Fate::Close)
            {
                self.clients.swap_remove(index);
            }
        }
        for (index, _) in ready
            .listeners
            .iter()
            .enumerate()
            .filter(|(_, ready)| **ready)
        {
            self.accept(index);
        }
        Turn::Next
    }

    /// Whether what is ready is this thread's: numbers that the program closed may be its
    /// own files' by now, and what was a wait for them would never be one again.
    fn has_its_own(&self, ready: &Ready) -> bool {
        let listeners = self.listeners.iter().zip(&ready.listeners);
        let mut ready_ones = listeners.filter(|(_, ready)| **ready);
        (!ready.bell || self.ear.file().is_there())
            && ready_ones.all(|(listener, _)| listener.file().is_there())
    }

    /// One more name, perhaps in the place of one that was removed.
    fn take_added(&mut self) {
        for added in self.bell.added() {
            self.listeners
                .retain(|listener| listener.is_abstract != added.is_abstract);
            self.listeners.push(added);
        }
    }

    fn wait(&mut self, now: Instant) -> Ready {
        let room_from = self.room_from();
        let accepting = self.paused_until.is_none() && room_from.is_none_or(|from| from <= now);
        let listening = if accepting {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        let mut fds = Vec::with_capacity(1 + self.listeners.len() + self.clients.len());
        fds.push(PollFd::new(&self.ear, PollFlags::IN));
        fds.extend(
            self.listeners
                .iter()
                .map(|listener| PollFd::new(listener, listening)),
        );
        fds.extend(
            self.clients
                .iter()
                .map(|client| PollFd::new(&client.line, PollFlags::IN)),
        );
        let expiries = self
            .clients
            .iter()
            .map(|client| client.silent_since + PATIENCE);
        let wake = expiries
            .chain(self.paused_until)
            .chain(room_from.filter(|from| *from > now))
            .min();
        // Rounded up, so that a wait never ends just before its time.
        let timeout = wake
            .map(|wake| timespec(wake.saturating_duration_since(now) + Duration::from_millis(1)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ready::default(),
            Err(errno) => {
                // Out of kernel memory, or a filter that forbids it: the exports
                // stay, and who cannot ask may fetch by number.
                drop(fds);
                std::thread::sleep(FAILED_PAUSE);
                if !core::mem::replace(&mut self.told.poll, true) {
                    log::warn!(
                        target: "gpuipc::broker",
                        "poll failed: {errno}; the broker answers nobody until it works \
                         (a seccomp filter without ppoll, or a limit of open files below {})",
                        MAX_CLIENTS + 4
                    );
                }
                return Ready::default();
            }
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let ready = Ready {
            bell: ready.next().unwrap_or(false),
            listeners: ready.by_ref().take(self.listeners.len()).collect(),
            clients: ready.collect(),
        };
        self.told.poll = false;
        ready
    }

    /// When the next connection may be accepted; `None` for at once.
    fn room_from(&self) -> Option<Instant> {
        if self.clients.len() < MAX_CLIENTS {
            return None;
        }
        let oldest = self.clients.iter().map(|client| client.silent_since).min();
        oldest.map(|oldest| oldest + PATIENCE_WHEN_FULL)
    }

    /// Makes room for one more, if somebody has been silent for long enough.
    fn make_room(&mut self) -> bool {
        loop {
            match self.room_from() {
                None => return true,
                Some(from) if from > Instant::now() => return false,
                Some(_) => {}
            }
            let silent = |index: &usize| self.clients[*index].silent_since;
            let Some(oldest) = (0..self.clients.len()).min_by_key(silent) else {
                return true;
            };
            // Its request may have come meanwhile: then it is not silent.
            let since = self.clients[oldest].silent_since;
            let fate = serve(&*self.exports, self.endpoint, &mut self.clients[oldest]);
            if fate == Fate::Close || self.clients[oldest].silent_since == since {
                log::debug!(target: "gpuipc::broker", "a silent client makes room");
                self.clients.swap_remove(oldest);
            }
        }
    }

    fn accept(&mut self, listener: usize) {
        // One for one, so that those who came first are looked at before they
        // have to make room.
        for _ in 0..MAX_CLIENTS {
            if !self.make_room() {
                return;
            }
            if is_choked() {
                self.paused_until = Some(Instant::now() + CHOKED_PAUSE);
                if !core::mem::replace(&mut self.told.accept, true) {
                    log::warn!(
                        target: "gpuipc::broker",
                        "clients send descriptors that take long to close: no new connections \
                         meanwhile (Linux 6.16 refuses such descriptors)"
                    );
                }
                return;
            }
            let line = match self.listeners[listener].accept() {
                Ok(line) => line,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(Errno::AGAIN) => return,
                Err(errno) => {
                    self.paused_until = Some(Instant::now() + TABLE_FULL_PAUSE);
                    if !core::mem::replace(&mut self.told.accept, true) {
                        log::warn!(target: "gpuipc::broker", "accept failed, pausing: {errno}");
                    }
                    return;
                }
            };
            self.told.accept = false;
            let credentials = PeerCredentials::of(&line);
            if !credentials.is_ok_and(|credentials| credentials.is_trusted(&self.trust)) {
                // Told at once, so that strangers take no places. A failure is theirs.
                let reply = Reply {
                    status: ReplyStatus::NotPermitted,
                    ..Reply::MALFORMED
                };
                let _ = send(&line, &reply.encode(), None);
                drop(line);
                log::debug!(target: "gpuipc::broker", "connection from {credentials:?} refused");
                continue;
            }
            self.clients.push(Client {
                line,
                own: credentials.is_ok_and(PeerCredentials::is_self),
                silent_since: Instant::now(),
            });
            log::debug!(target: "gpuipc::broker", "connection from {credentials:?}");
        }
    }
}

/// What `poll` reported.
#[derive(Debug, Default)]
struct Ready {
    bell: bool,
    listeners: Vec<bool>,
    clients: Vec<bool>,
}

/// Takes one request from a client and answers it.
fn serve(exports: &dyn Exports, endpoint: Endpoint, client: &mut Client) -> Fate {
    // One byte more than a request, so that a longer message shows.
    let mut buffer = [0_u8; REQUEST_BYTES + 1];
    let received = match receive_bytes(&client.line, &mut buffer) {
        Ok(received) => received,
        Err(Errno::AGAIN) => return Fate::Keep,
        Err(_) => return Fate::Close,
    };
    let has_fds = !matches!(received.fds, Fds::None);
    if received.length == 0 && !has_fds {
        return Fate::Close;
    }
    if has_unread_reply(&client.line) {
        // Each reply that lies unread may hold a descriptor in flight, of which
        // a user has a limited number: no client gets a second one.
        log::debug!(target: "gpuipc::broker", "closing a client that asks without reading");
        return Fate::Close;
    }
    let request = buffer
        .get(..received.length)
        .filter(|_| !has_fds)
        .and_then(|bytes| Request::decode(bytes).ok());
    let Some(request) = request else {
        // It goes in any case.
        let _ = send(&client.line, &Reply::MALFORMED.encode(), None);
        return Fate::Close;
    };
    let export = exports.under_token(request.allocation_id, endpoint, &request.token);
    // The export lives until its descriptor is sent.
    let (reply, fd) = answer(&request, export.as_deref(), client.own);
    let sent = match send(&client.line, &reply.encode(), fd.as_ref().map(AsFd::as_fd)) {
        // Too many descriptors in flight: the importer may try again.
        Err(errno @ (Errno::TOOMANYREFS | Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM)) => {
            let busy = Reply {
                detail: errno.raw_os_error().unsigned_abs(),
                ..request.reply(ReplyStatus::Busy)
            };
            send(&client.line, &busy.encode(), None)
        }
        sent => sent,
    };
    client.silent_since = Instant::now();
    log::debug!(
        target: "gpuipc::broker",
        "request {} for allocation {:#x}: {:?}",
        request.id,
        request.allocation_id,
        reply.status
    );
    if sent.is_ok() {
        Fate::Keep
    } else {
        Fate::Close
    }
}

/// The reply to a request about an export, and the descriptor that goes with it.
fn answer<'a>(
    request: &Request,
    export: Option<&'a dyn Export>,
    is_own: bool,
) -> (Reply, Option<Given<'a>>) {
    let Some(export) = export else {
        return (request.reply(ReplyStatus::ExportRevoked), None);
    };
    let failed = |status, error: &DriverError| Reply {
        detail: error.code().map_or(0, |code| code.0),
        ..request.reply(status)
    };
    let reply = match request.kind {
        RequestKind::FetchFd => match export.give_descriptor() {
            Ok(Some(fd)) => return (request.reply(ReplyStatus::FdAttached), Some(fd)),
            // It has ended since it was found.
            Ok(None) if export.has_descriptor() => request.reply(ReplyStatus::ExportRevoked),
            Ok(None) => request.reply(ReplyStatus::NoFd),
            Err(error) => failed(ReplyStatus::ExportFailed, &error),
        },
        RequestKind::OwnPointer if !is_own => request.reply(ReplyStatus::NotPermitted),
        RequestKind::CheckMemory | RequestKind::OwnPointer => match export.memory_unchanged() {
            Ok(true) if request.kind == RequestKind::OwnPointer => {
                let (pointer, size) = export.place();
                Reply {
                    pointer,
                    size,
                    ..request.reply(ReplyStatus::OwnPointer)
                }
            }
            Ok(true) => request.reply(ReplyStatus::MemoryUnchanged),
            Ok(false) => request.reply(ReplyStatus::MemoryChanged),
            Err(error) => failed(ReplyStatus::CheckFailed, &error),
        },
    };
    (reply, None)
}

/// Whether the other end has not yet read what was sent (SIOCOUTQ).
#[allow(unsafe_code)]
fn has_unread_reply(socket: &Line) -> bool {
    let mut unread: libc::c_int = 0;
    // SAFETY: the descriptor is open; TIOCOUTQ (which is SIOCOUTQ) stores one
    // int, and `unread` is one.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &mut unread) };
    result == 0 && unread > 0
}
