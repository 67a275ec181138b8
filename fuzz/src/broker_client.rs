//! The importer against a broker that lies: under the name in the handle, something answers any
//! bytes, with any descriptors, closes, or is silent. Every import ends by its deadline, with an
//! error unless the lie was the truth, and leaves no descriptor.
//!
//! The input is a byte for the handle, a byte for the options, and steps: see
//! [`Step`], of which `what` means here: 0 answers the request with the
//! status `at`, 1 with bytes put over an honest answer from `at` on, 2 with the bytes alone, 3 hangs
//! up, 4 says nothing, 5 pauses. The upper half of `which` is how many descriptors, its lowest two
//! bits which; with bit 4 it does not wait for a request.

use crate::broker_server::{Step, steps};
use crate::machine::exporter::{Exporter, exporter};
use crate::machine::{Held, alone, driver, socket};
use gpuipc::{Error, GpuIpcMemHandle, ImportOptions, Ipc};
use gpuipc_core::{HandleType, Reply, ReplyStatus, Request, RequestKind};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::{SocketFlags, accept_with, connect};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Once, OnceLock};
use std::time::{Duration, Instant};

/// An import's deadline.
pub const TIMEOUT: Duration = Duration::from_millis(20);
/// What an import may take longer on a busy machine.
const SLACK: Duration = Duration::from_secs(5);

/// Imports twice from the liar.
///
/// # Panics
///
/// If a promise of the importer does not hold.
pub fn run(data: &[u8]) {
    look(data, TIMEOUT);
}

/// As [`run`] with another deadline; tells how many imports mapped.
///
/// # Panics
///
/// As [`run`].
pub fn look(data: &[u8], timeout: Duration) -> usize {
    let [which, options, script @ ..] = data else {
        return 0;
    };
    let _alone = alone();
    let exporter = exporter();
    static WARM: Once = Once::new();
    // What the first use makes for good is there before anything is counted.
    WARM.call_once(|| {
        memories();
        drop(Ipc::new(driver()));
    });
    let held = Held::now();
    let case = Case::of(exporter, *which, *options, timeout);
    let mut liar = Liar::new(steps(script), options & 8 != 0, timeout);
    let done = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
    let mapped = std::thread::scope(|scope| {
        let served = scope.spawn(|| liar.serve(&exporter.listener, &done));
        let results = [case.import(exporter), case.import(exporter)];
        rustix::io::write(&done, &1_u64.to_ne_bytes()).expect("it has room");
        let liar = served.join().expect("the liar's thread");
        let look = |result| case.look_at(result, liar.truth);
        results
            .map(look)
            .into_iter()
            .filter(|mapped| *mapped)
            .count()
    });
    drop((liar, done, case));
    held.is_all(&(which, options, steps(script)));
    mapped
}

/// What is imported, and how.
struct Case {
    ipc: Ipc,
    handles: Vec<GpuIpcMemHandle>,
    options: ImportOptions,
    timeout: Duration,
    is_legacy: bool,
    require_live: bool,
    /// The true exporter's descriptor may be fetched by its number.
    has_way_around: bool,
}

impl Case {
    /// Options: 1 a way around the broker, 2 only memory known to be unchanged.
    fn of(exporter: &Exporter, which: u8, bits: u8, timeout: Duration) -> Self {
        let export = &exporter.exports[usize::from(which) % exporter.exports.len()];
        let has_way_around = bits & 1 != 0;
        let require_live = bits & 2 != 0;
        let lying = |handle: &GpuIpcMemHandle| {
            let mut fields = handle.fields();
            if let Some(ticket) = &mut fields.ticket {
                ticket.endpoint = exporter.endpoint;
                if !has_way_around {
                    ticket.fd = None;
                    ticket.table = None;
                }
            }
            GpuIpcMemHandle::new(&fields).expect("it keeps the rules")
        };
        let is_legacy = export.handles[0].runtime_ipc().is_some();
        let by = match is_legacy {
            true => HandleType::RuntimeIpc,
            false => HandleType::PosixFd,
        };
        Self {
            ipc: Ipc::new(driver()).expect("the emulated driver starts"),
            handles: export.handles.iter().map(lying).collect(),
            options: ImportOptions::default()
                .types(&[by])
                .timeout(timeout)
                .require_live(require_live),
            timeout,
            is_legacy,
            require_live,
            has_way_around,
        }
    }

    /// Imports, and lets go.
    fn import(&self, exporter: &Exporter) -> Result<(), Error> {
        let start = Instant::now();
        let result = self.ipc.import(&self.handles, &self.options);
        let took = start.elapsed();
        assert!(took < self.timeout + SLACK, "an import took {took:?}");
        result.map(|mem| exporter.is_what_is_mapped(&mem, self.handles.clone()))
    }

    /// Whether it was mapped.
    fn look_at(&self, result: Result<(), Error>, truth: Truth) -> bool {
        if let Err(error) = result {
            assert!(matches!(error, Error::Import(_)), "{error}");
            return false;
        }
        let may = match (self.is_legacy, self.require_live) {
            // Its liveness is unknown then, and the caller is told so.
            (true, false) => true,
            (true, true) => truth.unchanged,
            (false, _) => truth.memory || self.has_way_around,
        };
        assert!(may, "imported from a liar");
        true
    }
}

/// What of all that the liar said was true enough to import by.
#[derive(Clone, Copy, Debug, Default)]
struct Truth {
    /// A descriptor of memory.
    memory: bool,
    /// That the memory is unchanged.
    unchanged: bool,
}

struct Liar {
    steps: std::vec::IntoIter<Step>,
    /// Whether it hangs up once it has no more to say; else it is silent.
    hangs_up: bool,
    /// A 500th of the import's deadline.
    pause: Duration,
    clients: Vec<OwnedFd>,
    truth: Truth,
}

impl Liar {
    fn new(steps: Vec<Step>, hangs_up: bool, timeout: Duration) -> Self {
        Self {
            steps: steps.into_iter(),
            hangs_up,
            pause: timeout / 500,
            clients: Vec::new(),
            truth: Truth::default(),
        }
    }

    /// Answers who connects, until the imports are done, which makes `done` ready.
    fn serve(&mut self, listener: &OwnedFd, done: &OwnedFd) -> &Self {
        loop {
            let sockets = [done, listener].into_iter().chain(&self.clients);
            let mut fds: Vec<_> = sockets.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            // A failure, as by libFuzzer's timer, looks as if nothing were ready.
            let _ = poll(&mut fds, None);
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            for at in (2..ready.len()).rev().filter(|at| ready[*at]) {
                if !self.hear(at - 2) {
                    self.clients.swap_remove(at - 2);
                }
            }
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            while let Ok(client) = accept_with(listener, flags) {
                self.clients.push(client);
            }
            // Who had connected by then has been accepted.
            if ready[0] {
                self.clients.clear();
                return self;
            }
        }
    }

    /// Whether the connection goes on.
    fn hear(&mut self, at: usize) -> bool {
        let heard = socket::receive(&self.clients[at], Duration::ZERO);
        let Some(request) = heard.and_then(|(bytes, _)| Request::decode(&bytes).ok()) else {
            return false;
        };
        loop {
            let Some(step) = self.steps.next() else {
                return !self.hangs_up;
            };
            if !self.say(&step, &request, at) {
                return false;
            }
            let goes_on = |next: &Step| next.which & 4 != 0;
            if !self.steps.as_slice().first().is_some_and(goes_on) {
                return true;
            }
        }
    }

    fn say(&mut self, step: &Step, request: &Request, at: usize) -> bool {
        let honest = match request.kind {
            RequestKind::FetchFd => ReplyStatus::FdAttached,
            _ => ReplyStatus::MemoryUnchanged,
        };
        let mut bytes = request.reply(honest).encode().to_vec();
        match step.what % 6 {
            0 => bytes[5] = step.at % 13,
            1 => {
                let place = usize::from(step.at) % bytes.len();
                bytes.resize(bytes.len().max(place + step.bytes.len()), 0);
                bytes[place..place + step.bytes.len()].copy_from_slice(&step.bytes);
            }
            2 => bytes.clone_from(&step.bytes),
            3 => return false,
            4 => return true,
            _ => {
                std::thread::sleep(self.pause * step.at.into());
                return true;
            }
        }
        let null = File::open("/dev/null").expect("/dev/null");
        let kind = usize::from(step.which & 3);
        let given = match kind.checked_sub(1) {
            None => null.as_fd(),
            Some(at) => memories()[at].as_fd(),
        };
        let count = usize::from(step.which >> 4 & 3);
        let answers =
            |reply: &Reply| (reply.id, reply.allocation_id) == (request.id, request.allocation_id);
        let reply = Reply::decode(&bytes).ok().filter(answers);
        let said = reply.map(|reply| reply.status);
        self.truth.memory |= said == Some(ReplyStatus::FdAttached) && count == 1 && kind > 0;
        self.truth.unchanged |= said == Some(ReplyStatus::MemoryUnchanged);
        // The importer may have left.
        let _ = socket::send(&self.clients[at], &bytes, &vec![given; count]);
        true
    }
}

/// Descriptors of the exporter's memory: of one allocation, of the first segment, of the pool.
fn memories() -> &'static [OwnedFd; 3] {
    static MEMORIES: OnceLock<[OwnedFd; 3]> = OnceLock::new();
    MEMORIES.get_or_init(|| {
        [1, 3, 4].map(|at| {
            let handle = &exporter().exports[at].handles[0];
            let ticket = handle.ticket().expect("a ticket");
            let request = Request {
                kind: RequestKind::FetchFd,
                id: 1,
                allocation_id: handle.allocation_id(),
                token: ticket.token,
            };
            let broker = socket::new();
            connect(&broker, &socket::address(ticket.endpoint)).expect("it listens");
            socket::send(&broker, &request.encode(), &[]).expect("it is read");
            let answer = socket::receive(&broker, SLACK).expect("it answers");
            answer.1.into_iter().next().expect("a descriptor")
        })
    })
}
