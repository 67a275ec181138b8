//! The importer's side of the broker: connects to the broker that a ticket names,
//! checks its user, sends a request, and reads the reply before the deadline.

use super::credentials::{PeerCredentials, peer_process};
use super::discard::Foreign;
use super::idle::IdleConnections;
use super::name::{Folder, abstract_address};
use super::socket::{Fds, Line, receive_with_fd, send};
use crate::attempt::{Code, Failure, Reason, Step};
use crate::options::Trust;
use crate::process::private_fd::PrivateFd;
use crate::process::wait::{Ended, Wait};
use crate::sys::{CuDevicePtr, CuResult};
use gpuipc_core::{
    Endpoint, HostId, REPLY_BYTES, Reply, ReplyStatus, Request, RequestKind, Ticket,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::connect;
use rustix::process::{Pid, test_kill_process};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Between two tries with a broker that is busy.
const RETRY_PAUSE: Duration = Duration::from_millis(2);

/// Names that are tried whatever time is left: the abstract one, and those in the own
/// folder and root's.
const ALWAYS_TRIED: usize = 3;

/// What the broker said.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The descriptor of the memory.
    Fd(Foreign),
    /// The memory is the one that was exported.
    MemoryUnchanged,
    /// It is not.
    MemoryChanged,
    /// The broker is another copy of the library in this process, and this is
    /// its memory.
    Own { base: CuDevicePtr, size: u64 },
}

/// How brokers are looked for, and whom to believe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach<'a> {
    /// The broker's, by the handle.
    pub(crate) host: HostId,
    /// `GPUIPC_SOCKET_DIR`.
    pub(crate) socket_dir: Option<&'a Path>,
    pub(crate) trust: &'a Trust,
    pub(crate) kept: &'a IdleConnections,
    /// Its process, where that is known by its pid.
    pub(crate) process: Option<Pid>,
}

impl Reach<'_> {
    fn is_gone(&self) -> bool {
        self.process
            .is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
    }
}

/// Asks the broker that `ticket` names about an allocation.
///
/// The token is sent only to a process of a trusted user.
pub(crate) fn ask(
    kind: RequestKind,
    ticket: &Ticket,
    allocation_id: u64,
    reach: Reach<'_>,
    wait: &Wait,
) -> Result<Answer, Failure> {
    let mut hung_up = 0;
    let mut busy = None;
    loop {
        let ask = |broker: &Connection| broker.ask(kind, ticket, allocation_id, wait);
        if let Some(broker) = reach.kept.take(ticket.endpoint) {
            match ask(&broker) {
                // Perhaps it only hung up on a silent client.
                Err(failure) if is_lost(&failure) => {}
                answer => {
                    keep(reach.kept, ticket.endpoint, broker, &answer);
                    return answer;
                }
            }
        }
        let answer = Connection::open(ticket.endpoint, reach, wait).and_then(|broker| {
            let answer = ask(&broker);
            keep(reach.kept, ticket.endpoint, broker, &answer);
            answer
        });
        let failure = match answer {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        let again = match failure.reason {
            Reason::BrokerBusy if failure.step == Step::BrokerRequest => {
                busy = Some(failure);
                true
            }
            // What the time went by with.
            Reason::TimedOut => return Err(busy.unwrap_or(failure)),
            // A broker whose places are all taken hangs up on who is silent;
            // a request may have been on its way.
            Reason::BrokerHungUp => {
                hung_up += 1;
                hung_up < 3
            }
            _ => false,
        };
        if !again {
            return Err(failure);
        }
        match wait.pause(RETRY_PAUSE) {
            Ok(()) => {}
            Err(Ended::TimedOut) => return Err(failure),
            Err(ended) => return Err(unfinished(Step::BrokerRequest, ended)),
        }
    }
}

/// Keeps a connection that can answer again.
fn keep(
    kept: &IdleConnections,
    endpoint: Endpoint,
    broker: Connection,
    answer: &Result<Answer, Failure>,
) {
    if answer.is_ok() && !broker.own {
        kept.put(endpoint, broker);
    }
}

/// Whether the connection broke.
pub(crate) fn is_lost(failure: &Failure) -> bool {
    failure.step == Step::BrokerRequest
        && matches!(failure.reason, Reason::ExporterGone | Reason::BrokerHungUp)
}

/// A descriptor of the process behind the broker's name (SO_PEERPIDFD), in
/// whatever pid namespace it is; `None` where it cannot be had.
pub(crate) fn process(ticket: &Ticket, reach: Reach<'_>, wait: &Wait) -> Option<OwnedFd> {
    let (line, _) = connect_to(ticket.endpoint, reach, wait).ok()?;
    peer_process(&line).ok().flatten()
}

/// A connection to a broker of a trusted user.
#[derive(Debug)]
pub(crate) struct Connection {
    line: Line,
    /// Tells when the broker's process ends, which the socket does not as long
    /// as a forked child holds a copy of it. `None` before Linux 6.5.
    process: Option<PrivateFd>,
    /// Whether the broker is in this very process.
    own: bool,
    /// The kernel has refused to give descriptors of that process by their number.
    refuses_numbers: bool,
}

impl Connection {
    pub(crate) fn open(endpoint: Endpoint, reach: Reach<'_>, wait: &Wait) -> Result<Self, Failure> {
        let refused = |reason| Err(Failure::refused(Step::BrokerConnect, reason));
        let (mut line, credentials) = connect_to(endpoint, reach, wait)?;
        // Now that it is known.
        line.take_descriptors()
            .map_err(|errno| Failure::os(Step::BrokerConnect, Reason::System, errno))?;
        match peer_process(&line) {
            Ok(process) => Ok(Self {
                line,
                process: process.map(PrivateFd::new),
                own: credentials.is_self(),
                refuses_numbers: false,
            }),
            Err(Errno::SRCH) => refused(Reason::ExporterGone),
            Err(errno) => Err(Failure::os(Step::BrokerConnect, Reason::System, errno)),
        }
    }

    /// The broker's process, if it is known and may give descriptors by their number.
    pub(crate) fn process(&self) -> Option<BorrowedFd<'_>> {
        let process = self.process.as_ref().filter(|_| !self.refuses_numbers);
        process.map(PrivateFd::as_fd)
    }

    /// From now on [`Connection::process`] gives nothing.
    pub(crate) const fn refuse_numbers(&mut self) {
        self.refuses_numbers = true;
    }

    /// Sends one request and reads its answer.
    fn ask(
        &self,
        kind: RequestKind,
        ticket: &Ticket,
        allocation_id: u64,
        wait: &Wait,
    ) -> Result<Answer, Failure> {
        let request = self.send(kind, ticket, allocation_id)?;
        self.answer(&request, wait)
    }

    /// Sends one request. Its answer must be read before the next one is sent.
    pub(crate) fn send(
        &self,
        kind: RequestKind,
        ticket: &Ticket,
        allocation_id: u64,
    ) -> Result<Request, Failure> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        if self.own && kind != RequestKind::OwnPointer {
            return Err(Failure::refused(Step::BrokerConnect, Reason::OwnBroker));
        }
        let request = Request {
            kind,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            allocation_id,
            token: ticket.token,
        };
        match send(&self.line, &request.encode(), None) {
            // A broker that does not serve this user has said so, and hung up.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(request),
            Err(errno) => Err(lost(errno)),
        }
    }

    /// Reads the answer to `request`.
    pub(crate) fn answer(&self, request: &Request, wait: &Wait) -> Result<Answer, Failure> {
        let (reply, fd) = self.read_reply(request, wait)?;
        let failed = |code, reason| {
            Err(Failure {
                code,
                ..Failure::refused(Step::BrokerRequest, reason)
            })
        };
        match (reply.status, fd) {
            (ReplyStatus::FdAttached, Some(fd)) => Ok(Answer::Fd(fd)),
            (ReplyStatus::MemoryUnchanged, None) => Ok(Answer::MemoryUnchanged),
            (ReplyStatus::MemoryChanged, None) => Ok(Answer::MemoryChanged),
            (ReplyStatus::OwnPointer, None) if self.own => Ok(Answer::Own {
                base: reply.pointer,
                size: reply.size,
            }),
            (ReplyStatus::ExportRevoked, None) => failed(Code::None, Reason::ExportRevoked),
            (ReplyStatus::NotPermitted, None) => failed(Code::None, Reason::UserRefused),
            (ReplyStatus::NoFd, None) => failed(Code::None, Reason::NoDescriptor),
            (ReplyStatus::Busy, None) => {
                let errno = i32::try_from(reply.detail).ok();
                let code = errno
                    .filter(|errno| *errno > 0)
                    .map_or(Code::None, Code::Os);
                failed(code, Reason::BrokerBusy)
            }
            (ReplyStatus::ExportFailed, None) => {
                failed(Code::Driver(CuResult(reply.detail)), Reason::ExportFailed)
            }
            (ReplyStatus::CheckFailed, None) => failed(
                Code::Driver(CuResult(reply.detail)),
                Reason::LivenessUnknown,
            ),
            _ => failed(Code::None, Reason::BrokerBadReply),
        }
    }

    /// Waits for the reply to `request`.
    fn read_reply(
        &self,
        request: &Request,
        wait: &Wait,
    ) -> Result<(Reply, Option<Foreign>), Failure> {
        let bad = || Failure::refused(Step::BrokerRequest, Reason::BrokerBadReply);
        let mut buffer = [0_u8; REPLY_BYTES + 1];
        let mut process_ended = false;
        let mut reset = false;
        let received = loop {
            match receive_with_fd(&self.line, &mut buffer) {
                Ok(received) => break received,
                // What it had sent before it ended would have been there.
                Err(Errno::AGAIN) if process_ended => return Err(lost(Errno::CONNRESET)),
                Err(Errno::AGAIN) => process_ended = self.poll(wait)?,
                // Told once, ahead of what had been sent before.
                Err(Errno::CONNRESET) if !reset => reset = true,
                Err(errno) => return Err(self.hung_up(errno)),
            }
        };
        if received.length == 0 && matches!(received.fds, Fds::None) {
            return Err(self.hung_up(Errno::CONNRESET));
        }
        let reply = buffer
            .get(..received.length)
            .and_then(|bytes| Reply::decode(bytes).ok())
            .ok_or_else(bad)?;
        let fd = match received.fds {
            Fds::None => None,
            Fds::One(fd) => Some(fd),
            // Whoever sends several is no broker.
            Fds::Several => return Err(bad()),
            Fds::Lost(errno) => {
                return Err(Failure::os(Step::BrokerRequest, Reason::System, errno));
            }
        };
        if reply.status == ReplyStatus::NotPermitted && reply.id == 0 {
            // Said before anything was asked.
            return Ok((reply, None));
        }
        if reply.status == ReplyStatus::Malformed
            || reply.id != request.id
            || reply.allocation_id != request.allocation_id
        {
            return Err(bad());
        }
        Ok((reply, fd))
    }

    /// The end of the connection without an answer: of the process, if that is
    /// known to have ended or nothing is known of it; else of a broker whose
    /// places were all taken.
    fn hung_up(&self, errno: Errno) -> Failure {
        let lives = self.process.as_ref().is_some_and(|process| {
            let now = Timespec::default();
            poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)) == Ok(0)
        });
        if lives {
            Failure::os(Step::BrokerRequest, Reason::BrokerHungUp, errno)
        } else {
            lost(errno)
        }
    }

    /// Waits until there may be something to read; whether the process has ended.
    fn poll(&self, wait: &Wait) -> Result<bool, Failure> {
        let mut fds = vec![PollFd::new(&self.line, PollFlags::IN)];
        fds.extend(
            self.process
                .as_ref()
                .map(|process| PollFd::new(process, PollFlags::IN)),
        );
        wait.poll(&mut fds)
            .map_err(|ended| unfinished(Step::BrokerRequest, ended))?;
        Ok(fds
            .get(1)
            .is_some_and(|process| !process.revents().is_empty()))
    }
}

/// Connects under the first of the broker's names behind which a trusted user's process
/// is. Those whose backlog is full are tried again until the wait ends, when all others
/// have been tried.
fn connect_to(
    endpoint: Endpoint,
    reach: Reach<'_>,
    wait: &Wait,
) -> Result<(Line, PeerCredentials), Failure> {
    let by_folder = Folder::where_to_look(reach.socket_dir, reach.trust).map(Some);
    let mut names: Box<dyn Iterator<Item = Option<Folder>>> =
        Box::new(core::iter::once(None).chain(by_folder));
    // The first name that was refused says most: the abstract one, if it is there.
    let mut refused = None;
    let mut stranger = None;
    loop {
        let mut busy = Vec::new();
        for (tried, name) in names.enumerate() {
            match wait.left() {
                // So few that they take no time: with none left a broker is reached all the
                // same, and asked where its process is.
                _ if tried < ALWAYS_TRIED => {}
                Ok(_) => {}
                Err(Ended::TimedOut) if !busy.is_empty() => return Err(full_backlog()),
                Err(ended) => return Err(unfinished(Step::BrokerConnect, ended)),
            }
            let line = match connect_under(name.as_ref(), endpoint, reach) {
                Ok(line) => line,
                Err(Errno::AGAIN) => {
                    busy.push(name);
                    continue;
                }
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)) => {
                    return Err(Failure::os(Step::BrokerConnect, Reason::System, errno));
                }
                Err(errno) => {
                    refused.get_or_insert(errno);
                    continue;
                }
            };
            let credentials = PeerCredentials::of(&line)
                .map_err(|errno| Failure::os(Step::BrokerConnect, Reason::System, errno))?;
            if credentials.is_trusted(reach.trust) {
                return Ok((line, credentials));
            }
            log::warn!(target: "gpuipc::broker", "broker {endpoint} belongs to {credentials:?}: not asked");
            stranger = Some(Failure::refused(Step::BrokerConnect, Reason::NotTrusted));
        }
        if busy.is_empty() {
            let refused = refused.unwrap_or(Errno::NOENT);
            let unreachable = Failure::os(Step::BrokerConnect, Reason::BrokerUnreachable, refused);
            return Err(stranger.unwrap_or(unreachable));
        }
        // Whoever has its name now is not the exporter, and need not ever accept.
        if reach.is_gone() {
            return Err(Failure::os(
                Step::BrokerConnect,
                Reason::ExporterGone,
                Errno::SRCH,
            ));
        }
        match wait.pause(RETRY_PAUSE) {
            Ok(()) => {}
            Err(Ended::TimedOut) => return Err(full_backlog()),
            Err(ended) => return Err(unfinished(Step::BrokerConnect, ended)),
        }
        names = Box::new(busy.into_iter());
    }
}

/// Connects under the name in a folder, or under the abstract one.
fn connect_under(
    folder: Option<&Folder>,
    endpoint: Endpoint,
    reach: Reach<'_>,
) -> Result<Line, Errno> {
    let line = Line::new()?;
    loop {
        let connected = match folder {
            None => connect(&line, &abstract_address(endpoint)?),
            Some(folder) => folder.connect(&line, endpoint, reach.host, reach.trust),
        };
        match connected {
            Err(Errno::INTR) => {}
            connected => return connected.map(|()| line),
        }
    }
}

/// Only a full backlog makes a connect wait.
fn full_backlog() -> Failure {
    Failure::os(Step::BrokerConnect, Reason::BrokerBusy, Errno::TIMEDOUT)
}

/// A wait that ended without what was waited for.
fn unfinished(step: Step, ended: Ended) -> Failure {
    match ended {
        Ended::TimedOut => Failure::os(step, ended.reason(), Errno::TIMEDOUT),
        Ended::Cancelled => Failure::refused(step, ended.reason()),
        Ended::System(errno) => Failure::os(step, ended.reason(), errno),
    }
}

/// A connection that broke: the exporter went away.
fn lost(errno: Errno) -> Failure {
    let reason = match errno {
        Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN => Reason::ExporterGone,
        _ => Reason::System,
    };
    Failure::os(Step::BrokerRequest, reason, errno)
}
