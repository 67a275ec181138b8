//! The importer's side: find the broker that a ticket names, check who it is,
//! ask, and read the answer before the deadline.

use super::name::{Folder, abstract_address, new_socket};
use super::peer::Peer;
use super::socket::{receive, send};
use crate::attempt::{Code, Failure, Reason, Step};
use gpuipc_core::{Endpoint, REPLY_BYTES, Reply, ReplyStatus, Request, RequestKind, Ticket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, connect};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Between two tries to connect to a broker whose backlog is full.
const RETRY_PAUSE: Duration = Duration::from_millis(2);

/// What the broker said.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The descriptor of the memory.
    Fd(OwnedFd),
    /// The memory is the one that was offered.
    MemoryUnchanged,
    /// It is not.
    MemoryChanged,
}

/// Asks the broker that `ticket` names about an allocation, before `deadline`.
///
/// The token is sent only to a process of the same user or of root.
pub(crate) fn ask(
    kind: RequestKind,
    ticket: &Ticket,
    allocation_id: u64,
    socket_dir: Option<&Path>,
    deadline: Instant,
) -> Result<Answer, Failure> {
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    let socket = reach(ticket.endpoint, socket_dir, deadline)?;
    let peer = Peer::of(&socket)
        .map_err(|errno| Failure::os(Step::BrokerConnect, Reason::System, errno))?;
    if peer.is_self() {
        return Err(Failure::refused(Step::BrokerConnect, Reason::OwnBroker));
    }
    if !peer.is_trusted() {
        log::warn!(target: "gpuipc::broker", "broker {} belongs to {peer:?}: not asked", ticket.endpoint);
        return Err(Failure::refused(
            Step::BrokerConnect,
            Reason::BrokerNotTrusted,
        ));
    }
    loop {
        let request = Request {
            kind,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            allocation_id,
            token: ticket.token,
        };
        send(&socket, &request.encode(), None).map_err(|errno| lost(Step::BrokerRequest, errno))?;
        let (reply, fd) = read_reply(&socket, &request, deadline)?;
        let refused = |reason| Err(Failure::refused(Step::BrokerRequest, reason));
        return match (reply.status, fd) {
            (ReplyStatus::FdAttached, Some(fd)) => Ok(Answer::Fd(fd)),
            (ReplyStatus::MemoryUnchanged, None) => Ok(Answer::MemoryUnchanged),
            (ReplyStatus::MemoryChanged, None) => Ok(Answer::MemoryChanged),
            (ReplyStatus::OfferWithdrawn, None) => refused(Reason::OfferWithdrawn),
            (ReplyStatus::NotPermitted, None) => refused(Reason::UserRefused),
            (ReplyStatus::NoFd, None) => refused(Reason::NoDescriptor),
            (ReplyStatus::Busy, None) => {
                if Instant::now() + RETRY_PAUSE < deadline {
                    std::thread::sleep(RETRY_PAUSE);
                    continue;
                }
                let errno = i32::try_from(reply.detail).unwrap_or(0);
                Err(Failure {
                    step: Step::BrokerRequest,
                    code: Code::Os(errno),
                    reason: Reason::BrokerBusy,
                })
            }
            (ReplyStatus::CheckFailed, None) => Err(Failure {
                step: Step::BrokerRequest,
                code: Code::Driver(crate::sys::CuResult(reply.detail)),
                reason: Reason::LivenessUnknown,
            }),
            _ => refused(Reason::BrokerBadReply),
        };
    }
}

/// Connects under one of the broker's names.
fn reach(
    endpoint: Endpoint,
    socket_dir: Option<&Path>,
    deadline: Instant,
) -> Result<OwnedFd, Failure> {
    let mut addresses = vec![abstract_address(endpoint)];
    // Without a folder given: this user's, and root's, who may be the exporter.
    let folders = match socket_dir {
        Some(path) => vec![Folder::of_this_user(Some(path))],
        None => BTreeSet::from([rustix::process::geteuid().as_raw(), 0])
            .into_iter()
            .map(Folder::of_user)
            .collect(),
    };
    for folder in folders {
        addresses.push(
            folder
                .socket_path(endpoint)
                .map_err(|_| Errno::NOENT)
                .and_then(SocketAddrUnix::new),
        );
    }
    let mut refused = Errno::NOENT;
    for address in addresses {
        match address.and_then(|address| connect_before(&address, deadline)) {
            Ok(socket) => return Ok(socket),
            Err(Errno::TIMEDOUT) => {
                return Err(Failure::os(
                    Step::BrokerConnect,
                    Reason::BrokerBusy,
                    Errno::TIMEDOUT,
                ));
            }
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)) => {
                return Err(Failure::os(Step::BrokerConnect, Reason::System, errno));
            }
            Err(Errno::NOENT) => {}
            Err(errno) => refused = errno,
        }
    }
    Err(Failure::os(
        Step::BrokerConnect,
        Reason::BrokerUnreachable,
        refused,
    ))
}

/// Connects; while the backlog is full, tries again until the deadline.
fn connect_before(address: &SocketAddrUnix, deadline: Instant) -> rustix::io::Result<OwnedFd> {
    let socket = new_socket()?;
    loop {
        match connect(&socket, address) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                if Instant::now() + RETRY_PAUSE >= deadline {
                    return Err(Errno::TIMEDOUT);
                }
                std::thread::sleep(RETRY_PAUSE);
            }
            result => return result.map(|()| socket),
        }
    }
}

/// Waits for the reply to `request`.
fn read_reply(
    socket: &OwnedFd,
    request: &Request,
    deadline: Instant,
) -> Result<(Reply, Option<OwnedFd>), Failure> {
    let bad = || Failure::refused(Step::BrokerRequest, Reason::BrokerBadReply);
    let mut buffer = [0_u8; REPLY_BYTES + 1];
    let received = loop {
        match receive(socket, &mut buffer) {
            Ok(received) => break received,
            Err(Errno::AGAIN) => wait(socket, deadline)?,
            Err(errno) => return Err(lost(Step::BrokerRequest, errno)),
        }
    };
    if received.length == 0 {
        // The broker closes without an answer only when its process ends or it stops.
        return Err(lost(Step::BrokerRequest, Errno::CONNRESET));
    }
    let reply = buffer
        .get(..received.length)
        .and_then(|bytes| Reply::decode(bytes).ok())
        .ok_or_else(bad)?;
    if received.truncated {
        // A reply of the right length was cut only if its descriptor was: this
        // process's table is full.
        return Err(Failure::os(
            Step::BrokerRequest,
            Reason::System,
            Errno::MFILE,
        ));
    }
    if reply.status == ReplyStatus::Malformed
        || reply.id != request.id
        || reply.allocation_id != request.allocation_id
    {
        return Err(bad());
    }
    let mut fds = received.fds.into_iter();
    match (fds.next(), fds.next()) {
        (fd, None) => Ok((reply, fd)),
        // Whoever sends two is no broker; all are closed.
        _ => Err(bad()),
    }
}

/// Waits until there is something to read.
fn wait(socket: &OwnedFd, deadline: Instant) -> Result<(), Failure> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::os(
                Step::BrokerRequest,
                Reason::TimedOut,
                Errno::TIMEDOUT,
            ));
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(Failure::os(Step::BrokerRequest, Reason::System, errno)),
        }
    }
}

/// A connection that broke: the exporter went away.
fn lost(step: Step, errno: Errno) -> Failure {
    match errno {
        Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN => {
            Failure::os(step, Reason::ExporterGone, errno)
        }
        errno => Failure::os(step, Reason::System, errno),
    }
}
