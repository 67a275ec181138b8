//! What an importer needs from the exporter, and the ways to get it.
//!
//! The first request goes to the broker, which decides whether this user gets the
//! memory. After the broker has answered, descriptors that the exporter keeps open are
//! fetched by number, if the kernel allows it. If that fails in any way, the broker is
//! asked again. If the broker cannot be reached, or does not answer soon, the descriptor is
//! fetched by number; if that fails, too, a slow broker is asked again until the deadline.

use crate::attempt::{Code, Failure, Reason, Step};
use crate::fd::broker::{self, Answer, Connection, Foreign, Reach};
use crate::fd::pidfd::{self, ExportClaim, Process};
use crate::import::mem::Liveness;
use crate::import::range::RangeHandles;
use crate::process::identity::{Host, Identity};
use crate::process::wait::Wait;
use crate::session::Ipc;
use crate::sys::CuDevicePtr;
use gpuipc_core::{Endpoint, GpuIpcMemHandle, Request, RequestKind, Ticket};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long a broker is waited for, at most, where the number may lead to the descriptor.
const SOON: Duration = Duration::from_millis(500);

/// The process that exported a handle.
pub(crate) struct Exporter<'a> {
    handle: &'a GpuIpcMemHandle,
    ticket: Ticket,
    own: &'a Identity,
    reach: Reach<'a>,
    wait: &'a Wait,
}

impl<'a> Exporter<'a> {
    /// The exporter of `handle`, which must have a ticket.
    pub(crate) fn of(
        handle: &'a GpuIpcMemHandle,
        ipc: &'a Ipc,
        wait: &'a Wait,
    ) -> Result<Self, Failure> {
        let ticket = handle
            .ticket()
            .ok_or(Failure::refused(Step::Select, Reason::NoDescriptor))?;
        let settings = ipc.settings();
        let reach = Reach {
            host: handle.host_id(),
            socket_dir: settings.socket_dir.as_deref(),
            trust: &settings.trust,
            kept: ipc.kept_connections(),
            process: None,
        };
        let mut exporter = Self {
            handle,
            ticket,
            own: ipc.identity(),
            reach,
            wait,
        };
        exporter.reach.process = exporter.process_here();
        Ok(exporter)
    }

    /// The memory's descriptor. A way that failed before another one worked, or
    /// failed, too, is told through `note`.
    pub(crate) fn descriptor(&self, note: &mut dyn FnMut(Failure)) -> Result<Foreign, Failure> {
        let failure = match self.fd_from_broker(&self.first_wait()) {
            Err(failure) if may_go_around(failure.reason) && self.ticket.fd.is_some() => failure,
            answer => return answer,
        };
        let refused = match self.by_number() {
            Some(Ok(fd)) => {
                note(failure);
                return Ok(fd);
            }
            refused => refused.and_then(Result::err),
        };
        let may_come = matches!(failure.reason, Reason::TimedOut | Reason::BrokerBusy)
            && refused.is_none_or(|refused| refused.reason != Reason::ExporterGone);
        let failure = if may_come {
            match self.fd_from_broker(self.wait) {
                Err(failure) if may_go_around(failure.reason) => failure,
                answer => return answer,
            }
        } else {
            failure
        };
        let Some(refused) = refused else {
            return Err(failure);
        };
        note(failure);
        Err(refused)
    }

    fn fd_from_broker(&self, wait: &Wait) -> Result<Foreign, Failure> {
        match self.ask(RequestKind::FetchFd, wait)? {
            Answer::Fd(fd) => Ok(fd),
            _ => Err(Failure::refused(
                Step::BrokerRequest,
                Reason::BrokerBadReply,
            )),
        }
    }

    /// How long the broker is waited for before the number is tried.
    fn first_wait(&self) -> Wait {
        match self.ticket.fd {
            Some(_) => self.wait.short(SOON),
            None => self.wait.clone(),
        }
    }

    /// The descriptor without the broker, by its number; `None` where there is no
    /// way to the process.
    fn by_number(&self) -> Option<Result<Foreign, Failure>> {
        let process = self.process()?;
        let fetch = |process| pidfd::fetch(&process, &self.claim());
        Some(process.and_then(fetch).map(Foreign::new))
    }

    /// The descriptor by its number from the process of a broker that has answered
    /// this one before, so that neither side's trust is in question; `None` where
    /// the broker must be asked.
    fn fetch_from(&self, broker: &mut Connection) -> Option<Foreign> {
        // An import that is over is refused as ever.
        if !self.has_number_at(broker) || self.wait.left().is_err() {
            return None;
        }
        let process = Process::behind_socket(broker.process()?);
        match pidfd::fetch(&process, &self.claim()) {
            Ok(fd) => Some(Foreign::new(fd)),
            Err(failure) => {
                if matches!(failure.reason, Reason::PtraceRefused | Reason::NoPidfd) {
                    broker.refuse_numbers();
                }
                None
            }
        }
    }

    /// Whether the descriptor is kept open under a number, in a process that is
    /// known and has not refused one yet.
    fn has_number_at(&self, broker: &Connection) -> bool {
        self.ticket.fd.is_some() && broker.process().is_some()
    }

    /// Whether legacy memory that was just opened is still what was exported.
    pub(crate) fn liveness(&self, require_live: bool) -> Result<Liveness, Failure> {
        let at_liveness = |failure| Failure {
            step: Step::Liveness,
            ..failure
        };
        let failure = match self.ask(RequestKind::CheckMemory, self.wait) {
            Ok(Answer::MemoryUnchanged) => return Ok(Liveness::MemoryUnchanged),
            Ok(Answer::MemoryChanged) => {
                return Err(Failure::refused(Step::Liveness, Reason::StaleMemory));
            }
            Ok(Answer::Fd(_) | Answer::Own { .. }) => {
                return Err(Failure::refused(Step::Liveness, Reason::BrokerBadReply));
            }
            Err(failure) => failure,
        };
        // An export keeps its broker: without one there is no export.
        if matches!(
            failure.reason,
            Reason::ExportRevoked | Reason::ExporterGone | Reason::Cancelled
        ) {
            return Err(at_liveness(failure));
        }
        log::debug!(
            target: "gpuipc::gpu",
            "the exporter does not say whether the memory is unchanged: {}",
            failure.reason.why()
        );
        if may_go_around(failure.reason)
            && let Some(Ok(process)) = self.process()
        {
            match pidfd::export_lives(&process, &self.claim()) {
                Ok(true) if !require_live => return Ok(Liveness::ExportLives),
                Ok(false) => {
                    return Err(Failure::refused(Step::Liveness, Reason::ExportRevoked));
                }
                // That the export lives says nothing about the memory.
                Ok(true) | Err(_) => {}
            }
        }
        if require_live {
            return Err(Failure {
                reason: Reason::LivenessUnknown,
                ..at_liveness(failure)
            });
        }
        Ok(Liveness::Unknown)
    }

    /// Whether the handle says that this very process made it, by another copy
    /// of the library: its process id is another, its pid the same.
    pub(crate) fn is_this_process(&self) -> bool {
        self.shares_pids() && self.own.pid == self.handle.pid()
    }

    /// The original address of the allocation, from another copy of the library
    /// in this process.
    pub(crate) fn own_pointer(&self) -> Result<CuDevicePtr, Failure> {
        let refused = |reason| Err(Failure::refused(Step::BrokerRequest, reason));
        match self.ask(RequestKind::OwnPointer, self.wait)? {
            Answer::Own { base, size } if size == self.handle.base_size() => Ok(base),
            Answer::Own { .. } => refused(Reason::SizeMismatch),
            Answer::MemoryChanged => refused(Reason::StaleMemory),
            Answer::Fd(_) | Answer::MemoryUnchanged => refused(Reason::BrokerBadReply),
        }
    }

    /// What the exporter's table is to say.
    fn claim(&self) -> ExportClaim<'_> {
        ExportClaim {
            ticket: &self.ticket,
            allocation_id: self.handle.allocation_id(),
            trust: self.reach.trust,
        }
    }

    const fn endpoint(&self) -> Endpoint {
        self.ticket.endpoint
    }

    /// Asks for the descriptor, by a kept connection or by a new one, on which
    /// more can be asked.
    fn begin(&self) -> (Option<Connection>, Result<Answer, Failure>) {
        let wait = self.first_wait();
        let ask = |connection: &Connection| {
            let request = self.send(connection)?;
            connection.answer(&request, &wait)
        };
        if let Some(kept) = self.reach.kept.take(self.endpoint()) {
            match ask(&kept) {
                // Perhaps it only hung up on a silent client.
                Err(failure) if broker::is_lost(&failure) => {}
                answer => return (Some(kept), answer),
            }
        }
        match Connection::open(self.endpoint(), self.reach, &wait) {
            Ok(connection) => {
                let answer = ask(&connection);
                (Some(connection), answer)
            }
            Err(_) => {
                let unreachable = Failure::refused(Step::BrokerConnect, Reason::BrokerUnreachable);
                (None, Err(unreachable))
            }
        }
    }

    /// Asks for the descriptor, without waiting for the answer.
    fn send(&self, connection: &Connection) -> Result<Request, Failure> {
        let id = self.handle.allocation_id();
        connection.send(RequestKind::FetchFd, &self.ticket, id)
    }

    fn ask(&self, kind: RequestKind, wait: &Wait) -> Result<Answer, Failure> {
        let id = self.handle.allocation_id();
        broker::ask(kind, &self.ticket, id, self.reach, wait).map_err(|failure| {
            if failure.reason == Reason::BrokerUnreachable && self.is_gone(failure.code) {
                Failure {
                    reason: Reason::ExporterGone,
                    ..failure
                }
            } else {
                failure
            }
        })
    }

    /// A descriptor of the exporter's process: by its pid, which means the same
    /// process only in the same pid namespace; else by the broker's socket, if
    /// that can be reached. `None` where neither is.
    fn process(&self) -> Option<Result<Process<OwnedFd>, Failure>> {
        if self.shares_pids() {
            return Some(pidfd::open(self.handle.pid()));
        }
        broker::process(&self.ticket, self.reach, self.wait)
            .map(|fd| Ok(Process::behind_socket(fd)))
    }

    /// Namespaces have numbers that mean something on one host only.
    fn is_this_host(&self) -> bool {
        self.own.host_of(self.handle) == Host::This
    }

    fn shares_pids(&self) -> bool {
        self.is_this_host()
            && self.own.pid_namespace != 0
            && self.own.pid_namespace == self.handle.pid_namespace()
    }

    /// Whether an unreachable broker means that the exporter has ended it: in a
    /// shared network namespace its abstract name would not refuse, and in a
    /// shared pid namespace its pid would be there. Elsewhere, and where the
    /// kernel does not let this process connect, nothing can be said.
    fn is_gone(&self, code: Code) -> bool {
        let network = self.own.net_namespace;
        if self.is_this_host() && network != 0 && network == self.handle.net_namespace() {
            return code == Code::Os(Errno::CONNREFUSED.raw_os_error());
        }
        self.process_here()
            .is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
    }

    /// The exporter's pid, where it means that process here.
    fn process_here(&self) -> Option<Pid> {
        let pid = i32::try_from(self.handle.pid()).ok();
        pid.and_then(Pid::from_raw).filter(|_| self.shares_pids())
    }
}

/// The descriptors of a range's segments, one after the other.
///
/// What a known exporter keeps open is fetched by its number. Of several segments
/// whose descriptors come from the broker, the next one's is asked for while the
/// caller works on the last one's: the broker sends it meanwhile, and one that is
/// made on demand is made meanwhile. Never more than one reply lies unread, and no
/// descriptor is held longer than the caller holds it.
pub(crate) struct Descriptors<'a> {
    /// One a segment.
    exporters: Vec<Exporter<'a>>,
    /// To the broker, which all segments share: a kept one if there is one, and
    /// kept again at the end.
    connection: Option<(Endpoint, Connection)>,
    /// The segment that was asked for.
    asked: Option<(usize, Request)>,
    /// The broker did not answer, and the number led to the descriptor: so it does
    /// for the other segments, without asking again.
    goes_around: bool,
}

impl<'a> Descriptors<'a> {
    pub(crate) fn of(
        range: &RangeHandles<'a>,
        ipc: &'a Ipc,
        wait: &'a Wait,
    ) -> Result<Self, Failure> {
        let of = |handle: &&'a GpuIpcMemHandle| Exporter::of(handle, ipc, wait);
        Ok(Self {
            exporters: range.segments().iter().map(of).collect::<Result<_, _>>()?,
            connection: None,
            asked: None,
            goes_around: false,
        })
    }

    /// The descriptor of segment `at`. A way that failed before another one
    /// worked is told through `note`.
    pub(crate) fn get(
        &mut self,
        at: usize,
        note: &mut dyn FnMut(Failure),
    ) -> Result<Foreign, Failure> {
        let exporter = self
            .exporters
            .get(at)
            .ok_or(Failure::refused(Step::Select, Reason::NoDescriptor))?;
        // An answer that is on its way is read first.
        if self.asked.is_none() {
            let endpoint = exporter.endpoint();
            let kept = || Some((endpoint, exporter.reach.kept.take(endpoint)?));
            let known = self.connection.take().or_else(kept);
            if let Some((endpoint, mut broker)) = known {
                if let Some(fd) = exporter.fetch_from(&mut broker) {
                    self.connection = Some((endpoint, broker));
                    return Ok(fd);
                }
                exporter.reach.kept.put(endpoint, broker);
            }
        }
        if self.exporters.len() == 1 {
            return exporter.descriptor(note);
        }
        if self.goes_around
            && let Some(Ok(fd)) = exporter.by_number()
        {
            return Ok(fd);
        }
        let asked = self.asked.take().filter(|(segment, _)| *segment == at);
        let answer = match (&self.connection, asked) {
            (Some((_, connection)), Some((_, request))) => {
                connection.answer(&request, exporter.wait)
            }
            _ => {
                let (connection, answer) = exporter.begin();
                self.connection = connection.map(|connection| (exporter.endpoint(), connection));
                answer
            }
        };
        let fd = match answer {
            Ok(Answer::Fd(fd)) => fd,
            // The broker's no is an answer.
            Err(failure) if !may_go_around(failure.reason) => {
                self.connection = None;
                return Err(failure);
            }
            _ => {
                // Once more by itself, with every way around that there is.
                self.connection = None;
                let mut goes_around = false;
                let fd = exporter.descriptor(&mut |failure| {
                    goes_around = true;
                    note(failure);
                })?;
                self.goes_around = goes_around;
                return Ok(fd);
            }
        };
        let next = self.exporters.get(at + 1).zip(self.connection.as_ref());
        self.asked = next
            .filter(|(next, (_, broker))| !next.has_number_at(broker))
            .and_then(|(next, (_, broker))| next.send(broker).ok())
            .map(|request| (at + 1, request));
        Ok(fd)
    }
}

impl Drop for Descriptors<'_> {
    /// Keeps the connection, if no answer is still to come on it.
    fn drop(&mut self) {
        if self.asked.is_none()
            && let (Some((endpoint, connection)), Some(exporter)) =
                (self.connection.take(), self.exporters.first())
        {
            exporter.reach.kept.put(endpoint, connection);
        }
    }
}

/// Whether another way may give what the broker did not. Not where it said no,
/// and not where its process has ended.
const fn may_go_around(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::BrokerUnreachable
            | Reason::BrokerBusy
            | Reason::BrokerHungUp
            | Reason::BrokerBadReply
            | Reason::TimedOut
    )
}
