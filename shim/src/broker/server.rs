//! The broker's thread: accepts, checks who asks, answers one request after
//! another. Nothing that a client sends, or fails to do, stops it.

use super::peer::Peer;
use super::socket::{receive, send};
use crate::driver::Driver;
use crate::driver::DriverError;
use crate::export::descriptor::Given;
use crate::export::offer::Offer;
use crate::options::Trust;
use crate::private_fd::PrivateFd;
use crate::wait::timespec;
use gpuipc_core::{Endpoint, REQUEST_BYTES, Reply, ReplyStatus, Request, RequestKind};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
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

/// Before the next try after a `poll` that failed.
const POLL_FAILED_PAUSE: Duration = Duration::from_millis(20);

/// What the thread owns.
#[derive(Debug)]
pub(super) struct Server {
    driver: Driver,
    endpoint: Endpoint,
    trust: Trust,
    listeners: Vec<PrivateFd>,
    stop: Arc<OwnedFd>,
    clients: Vec<Client>,
    /// No accepting before this.
    paused_until: Option<Instant>,
}

/// A connection.
#[derive(Debug)]
struct Client {
    socket: PrivateFd,
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

impl Server {
    pub(super) fn new(
        driver: Driver,
        endpoint: Endpoint,
        trust: Trust,
        abstract_listener: OwnedFd,
        file_listener: Option<OwnedFd>,
        stop: Arc<OwnedFd>,
    ) -> Self {
        let listeners = [Some(abstract_listener), file_listener]
            .into_iter()
            .flatten()
            .map(PrivateFd::new)
            .collect();
        Self {
            driver,
            endpoint,
            trust,
            listeners,
            stop,
            clients: Vec::new(),
            paused_until: None,
        }
    }

    /// Serves until told to stop.
    pub(super) fn run(mut self) {
        loop {
            let now = Instant::now();
            self.clients
                .retain(|client| now < client.silent_since + PATIENCE);
            if self.paused_until.is_some_and(|until| until <= now) {
                self.paused_until = None;
            }
            let ready = self.wait(now);
            if ready.stop {
                return;
            }
            // Clients first: those that leave make room. From the back, so that
            // removing one moves none that is still to come.
            for index in (0..self.clients.len()).rev() {
                if ready.clients.get(index).copied().unwrap_or(false)
                    && serve(self.driver, self.endpoint, &mut self.clients[index]) == Fate::Close
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
        }
    }

    fn wait(&self, now: Instant) -> Ready {
        let room_from = self.room_from();
        let accepting = self.paused_until.is_none() && room_from.is_none_or(|from| from <= now);
        let listening = if accepting {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        let mut fds = Vec::with_capacity(1 + self.listeners.len() + self.clients.len());
        fds.push(PollFd::new(&self.stop, PollFlags::IN));
        fds.extend(
            self.listeners
                .iter()
                .map(|listener| PollFd::new(listener, listening)),
        );
        fds.extend(
            self.clients
                .iter()
                .map(|client| PollFd::new(&client.socket, PollFlags::IN)),
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
                // Out of kernel memory, or a filter that forbids it: the offers
                // stay, and who cannot ask may fetch by number.
                log::warn!(target: "gpuipc::broker", "poll failed: {errno}");
                std::thread::sleep(POLL_FAILED_PAUSE);
                let mut told = [0; 8];
                return Ready {
                    stop: rustix::io::read(&self.stop, &mut told).is_ok(),
                    ..Ready::default()
                };
            }
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        Ready {
            stop: ready.next().unwrap_or(false),
            listeners: ready.by_ref().take(self.listeners.len()).collect(),
            clients: ready.collect(),
        }
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
            let fate = serve(self.driver, self.endpoint, &mut self.clients[oldest]);
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
            match accept_with(
                &self.listeners[listener],
                SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            ) {
                Ok(socket) => {
                    let peer = Peer::of(&socket);
                    log::debug!(target: "gpuipc::broker", "connection from {peer:?}");
                    let trusted = peer.is_ok_and(|peer| peer.is_trusted(&self.trust));
                    let own = peer.is_ok_and(Peer::is_self);
                    if !trusted {
                        // Told at once, so that strangers take no places. A
                        // failure is theirs.
                        let reply = Reply {
                            status: ReplyStatus::NotPermitted,
                            ..Reply::MALFORMED
                        };
                        let _ = send(&socket, &reply.encode(), None);
                        continue;
                    }
                    self.clients.push(Client {
                        socket: PrivateFd::new(socket),
                        own,
                        silent_since: Instant::now(),
                    });
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                Err(errno) => {
                    log::warn!(target: "gpuipc::broker", "accept failed, pausing: {errno}");
                    self.paused_until = Some(Instant::now() + TABLE_FULL_PAUSE);
                    return;
                }
            }
        }
    }
}

/// What `poll` reported.
#[derive(Debug, Default)]
struct Ready {
    stop: bool,
    listeners: Vec<bool>,
    clients: Vec<bool>,
}

/// Takes one request from a client and answers it.
fn serve(driver: Driver, endpoint: Endpoint, client: &mut Client) -> Fate {
    // One byte more than a request, so that a longer message shows.
    let mut buffer = [0_u8; REQUEST_BYTES + 1];
    let received = match receive(&client.socket, &mut buffer) {
        Ok(received) => received,
        Err(Errno::AGAIN) => return Fate::Keep,
        Err(_) => return Fate::Close,
    };
    if received.length == 0 {
        return Fate::Close;
    }
    if has_unread_reply(&client.socket) {
        // Each reply that lies unread may hold a descriptor in flight, of which
        // a user has a limited number: no client gets a second one.
        log::debug!(target: "gpuipc::broker", "closing a client that asks without reading");
        return Fate::Close;
    }
    // Descriptors that a client sends are closed right here.
    let well_formed = !received.truncated && received.fds.is_empty();
    let request = buffer
        .get(..received.length)
        .filter(|_| well_formed)
        .and_then(|bytes| Request::decode(bytes).ok());
    drop(received);
    let Some(request) = request else {
        // It goes in any case.
        let _ = send(&client.socket, &Reply::MALFORMED.encode(), None);
        return Fate::Close;
    };
    let offer = Offer::under_token(driver, request.allocation_id, endpoint, &request.token);
    // The offer lives until its descriptor is sent.
    let (reply, fd) = answer(&request, offer.as_deref(), client.own);
    log::debug!(
        target: "gpuipc::broker",
        "request {} for allocation {:#x}: {:?}",
        request.id,
        request.allocation_id,
        reply.status
    );
    let sent = match send(
        &client.socket,
        &reply.encode(),
        fd.as_ref().map(AsFd::as_fd),
    ) {
        // Too many descriptors in flight: the importer may try again.
        Err(errno @ (Errno::TOOMANYREFS | Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM)) => {
            let busy = Reply {
                detail: errno.raw_os_error().unsigned_abs(),
                ..request.reply(ReplyStatus::Busy)
            };
            send(&client.socket, &busy.encode(), None)
        }
        sent => sent,
    };
    client.silent_since = Instant::now();
    if sent.is_ok() {
        Fate::Keep
    } else {
        Fate::Close
    }
}

/// The reply to a request about an offer, and the descriptor that goes with it.
fn answer<'a>(
    request: &Request,
    offer: Option<&'a Offer>,
    is_own: bool,
) -> (Reply, Option<Given<'a>>) {
    let Some(offer) = offer else {
        return (request.reply(ReplyStatus::OfferWithdrawn), None);
    };
    let failed = |status, error: &DriverError| Reply {
        detail: error.code().map_or(0, |code| code.0),
        ..request.reply(status)
    };
    let reply = match request.kind {
        RequestKind::FetchFd => match offer.give_descriptor() {
            Ok(Some(fd)) => return (request.reply(ReplyStatus::FdAttached), Some(fd)),
            // It has ended since it was found.
            Ok(None) if offer.descriptor.is_there() => request.reply(ReplyStatus::OfferWithdrawn),
            Ok(None) => request.reply(ReplyStatus::NoFd),
            Err(error) => failed(ReplyStatus::ExportFailed, &error),
        },
        RequestKind::OwnPointer if !is_own => request.reply(ReplyStatus::NotPermitted),
        RequestKind::CheckMemory | RequestKind::OwnPointer => match offer.memory_unchanged() {
            Ok(true) if request.kind == RequestKind::OwnPointer => Reply {
                pointer: offer.base,
                size: offer.size,
                ..request.reply(ReplyStatus::OwnPointer)
            },
            Ok(true) => request.reply(ReplyStatus::MemoryUnchanged),
            Ok(false) => request.reply(ReplyStatus::MemoryChanged),
            Err(error) => failed(ReplyStatus::CheckFailed, &error),
        },
    };
    (reply, None)
}

/// Whether the other end has not yet read what was sent (SIOCOUTQ).
#[allow(unsafe_code)]
fn has_unread_reply(socket: &PrivateFd) -> bool {
    let mut unread: libc::c_int = 0;
    // SAFETY: the descriptor is open; TIOCOUTQ (which is SIOCOUTQ) stores one
    // int, and `unread` is one.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &mut unread) };
    result == 0 && unread > 0
}
