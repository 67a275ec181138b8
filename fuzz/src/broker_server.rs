//! Any messages, with descriptors beside them, cut connections and pauses, against a running
//! broker: an honest client beside them is always served, who has no token gets no descriptor,
//! nothing is left.
//!
//! The input is steps: see [`Step`].

use crate::machine::{Held, alone, driver, socket};
use gpuipc::{Buffer, ExportOptions, Exported, GpuIpcMemHandle, Ipc, Memory};
use gpuipc_core::{Reply, ReplyStatus, Request, RequestKind, Ticket};
use rustix::net::{Shutdown, connect, shutdown};
use std::fs::File;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Once;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Steps of one input; later ones are not looked at.
const MOST: usize = 48;
/// Connections at once.
const CONNECTIONS: usize = 4;
/// How long an honest client would wait. The broker never works for long.
const PATIENCE: Duration = Duration::from_secs(5);

/// One step: 4 bytes, and those that it sends.
#[derive(Clone, Debug)]
pub struct Step {
    /// 0 connects, 1 sends the bytes, 2 sends an honest request with these bytes put over it from
    /// `at` on, 3 reads, 4 hangs up, 5 hangs up one way, 6 pauses, 7 is honest on a connection of
    /// its own, 8 revokes the export and exports anew.
    pub what: u8,
    /// Lower bits: which connection; two bits of the upper half: how many descriptors; the
    /// third one: of a socket whose last close sleeps.
    pub which: u8,
    /// A place, or a kind of request.
    pub at: u8,
    /// What it sends.
    pub bytes: Vec<u8>,
}

/// The steps in these bytes.
pub fn steps(mut data: &[u8]) -> Vec<Step> {
    let mut steps = Vec::new();
    while let [what, which, at, len, rest @ ..] = data {
        let (bytes, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        steps.push(Step {
            what: *what,
            which: *which,
            at: *at,
            bytes: bytes.to_vec(),
        });
        data = rest;
    }
    steps.truncate(MOST);
    steps
}

/// The bytes of steps with at most 255 bytes each.
pub fn bytes_of(steps: &[Step]) -> Vec<u8> {
    let bytes = steps.iter().flat_map(|step| {
        let len = u8::try_from(step.bytes.len()).unwrap_or(u8::MAX);
        let head = [step.what, step.which, step.at, len];
        head.into_iter().chain(step.bytes[..len.into()].to_vec())
    });
    bytes.collect()
}

/// Does the steps.
///
/// # Panics
///
/// If a promise of the broker does not hold.
pub fn run(data: &[u8]) {
    let _alone = alone();
    static WARM: Once = Once::new();
    // What the first use makes for good is there before anything is counted.
    WARM.call_once(|| drop(Broker::new()));
    let steps = steps(data);
    let held = Held::now();
    let mut broker = Broker::new();
    for step in &steps {
        broker.take(step);
    }
    let request = broker.request(RequestKind::FetchFd);
    let old = broker.old.take().expect("it is taken here only");
    assert_ne!(broker.answer(&old, &request), REVOKED);
    let lingering = core::mem::take(&mut broker.lingering);
    drop((old, broker));
    for (closing, other) in lingering {
        drop(other);
        closing.join().expect("it only closes");
    }
    held.is_all(&steps);
}

/// A client that does as the steps say.
struct Client {
    socket: OwnedFd,
    /// The ids of requests for a descriptor with the right token.
    right: Vec<u64>,
}

struct Broker {
    ipc: Ipc,
    buffer: Buffer,
    /// There but for a moment in a step.
    export: Option<Exported>,
    clients: [Option<Client>; CONNECTIONS],
    /// Of the first moment.
    old: Option<OwnedFd>,
    next_id: u64,
    start: Instant,
    /// Sockets whose close sleeps, each with its other end, which ends that.
    lingering: Vec<(JoinHandle<()>, TcpStream)>,
}

impl Broker {
    fn new() -> Self {
        let mut new = Self {
            ipc: Ipc::new(driver()).expect("the emulated driver starts"),
            buffer: Buffer::new(driver(), 0, Memory::VmmFd, 2 << 20).expect("memory"),
            export: None,
            clients: [const { None }; CONNECTIONS],
            old: None,
            next_id: 0x1000,
            start: Instant::now(),
            lingering: Vec::new(),
        };
        new.export();
        new.old = Some(new.connected());
        new
    }

    fn export(&mut self) {
        let options = ExportOptions::default();
        let export = self
            .buffer
            .export(&self.ipc, 0, self.buffer.len(), &options);
        self.export = Some(export.expect("it can be exported"));
    }

    fn handle(&self) -> &GpuIpcMemHandle {
        &self.export.as_ref().expect("it is exported").handles()[0]
    }

    fn ticket(&self) -> Ticket {
        self.handle().ticket().expect("a ticket")
    }

    fn connected(&self) -> OwnedFd {
        let socket = socket::new();
        let address = socket::address(self.ticket().endpoint);
        connect(&socket, &address).expect("the broker listens, and has room");
        socket
    }

    /// What an importer would send now.
    fn request(&mut self, kind: RequestKind) -> Request {
        self.next_id += 1;
        Request {
            kind,
            id: self.next_id,
            allocation_id: self.handle().allocation_id(),
            token: self.ticket().token,
        }
    }

    fn take(&mut self, step: &Step) {
        let at = usize::from(step.which) % CONNECTIONS;
        let kinds = [RequestKind::FetchFd, RequestKind::CheckMemory];
        let kind = kinds[usize::from(step.at) % 2];
        match step.what % 9 {
            0 => {
                let (socket, right) = (self.connected(), Vec::new());
                self.clients[at] = Some(Client { socket, right });
            }
            1 => self.send(at, step, &step.bytes),
            2 => {
                let mut bytes = self.request(kind).encode().to_vec();
                let place = usize::from(step.at) % bytes.len();
                bytes.resize(bytes.len().max(place + step.bytes.len()), 0);
                bytes[place..place + step.bytes.len()].copy_from_slice(&step.bytes);
                self.send(at, step, &bytes);
            }
            3 => self.read(at),
            4 => self.clients[at] = None,
            5 => {
                if let Some(client) = &self.clients[at] {
                    let how = [Shutdown::Read, Shutdown::Write][usize::from(step.at) % 2];
                    // It may be hung up already.
                    let _ = shutdown(&client.socket, how);
                }
            }
            6 => std::thread::sleep(Duration::from_micros(u64::from(step.at) * 8)),
            7 => {
                let request = self.request(kind);
                assert_ne!(self.answer(&self.connected(), &request), REVOKED);
            }
            _ => self.revoke(),
        }
    }

    /// Revokes the export, and makes another one.
    fn revoke(&mut self) {
        let request = self.request(RequestKind::FetchFd);
        let connection = self.connected();
        self.export = None;
        // An answer that is on its way to somebody holds it for a moment.
        let start = Instant::now();
        while self.answer(&connection, &request) != REVOKED {
            assert!(start.elapsed() < PATIENCE, "the export does not end");
        }
        self.export();
        assert_eq!(self.answer(&connection, &request), REVOKED, "another token");
    }

    fn send(&mut self, at: usize, step: &Step, bytes: &[u8]) {
        let (id, token) = (self.handle().allocation_id(), self.ticket().token);
        let Some(client) = &mut self.clients[at] else {
            return;
        };
        let count = usize::from(step.which >> 4 & 3);
        let lingers = count > 0 && step.which & 0x40 != 0;
        let mut other = None;
        let file: OwnedFd = if lingers {
            let (socket, end) = socket::lingering();
            other = Some(end);
            socket.into()
        } else {
            File::open("/dev/null").expect("/dev/null").into()
        };
        let fds = vec![file.as_fd(); count];
        let sent = socket::send(&client.socket, bytes, &fds).is_ok();
        let is_right = |request: &Request| {
            request.kind == RequestKind::FetchFd
                && (request.allocation_id, request.token) == (id, token)
        };
        let request = Request::decode(bytes).ok().filter(is_right);
        // What comes with descriptors is refused, whatever it says.
        client.right.extend(
            request
                .filter(|_| sent && fds.is_empty())
                .map(|request| request.id),
        );
        if let Some(other) = other {
            // Perhaps the last one, which sleeps.
            let closing = std::thread::spawn(move || drop(file));
            self.lingering.push((closing, other));
        }
    }

    /// A descriptor comes only to a request with the right token, and never two.
    fn read(&mut self, at: usize) {
        let Some(client) = &mut self.clients[at] else {
            return;
        };
        let Some((bytes, fds)) = socket::receive(&client.socket, Duration::from_millis(2)) else {
            return;
        };
        if bytes.is_empty() {
            assert!(fds.is_empty());
            self.clients[at] = None;
            return;
        }
        let reply = Reply::decode(&bytes).expect("the broker sends replies");
        assert_eq!(
            fds.len(),
            usize::from(reply.status == ReplyStatus::FdAttached)
        );
        assert!(fds.is_empty() || client.right.contains(&reply.id));
        assert!(reply.status != ReplyStatus::Malformed || reply.id == 0);
    }

    /// What an honest client is told: always something, and what it asked for unless the export has
    /// ended.
    fn answer(&self, socket: &OwnedFd, request: &Request) -> ReplyStatus {
        if let Err(errno) = socket::send(socket, &request.encode(), &[]) {
            // A broker hangs up on who is silent for ten seconds, and nobody is here.
            let time = self.start.elapsed();
            panic!("nobody reads the request {time:?} after the start: {errno}");
        }
        let (bytes, fds) = socket::receive(socket, PATIENCE).expect("an answer in time");
        let reply = Reply::decode(&bytes).expect("a reply");
        assert_eq!(reply.id, request.id);
        assert_eq!(reply.allocation_id, request.allocation_id);
        let (expected, count) = match request.kind {
            _ if reply.status == REVOKED => (REVOKED, 0),
            RequestKind::FetchFd => (ReplyStatus::FdAttached, 1),
            _ => (ReplyStatus::MemoryUnchanged, 0),
        };
        assert_eq!((reply.status, fds.len()), (expected, count));
        reply.status
    }
}

const REVOKED: ReplyStatus = ReplyStatus::ExportRevoked;
