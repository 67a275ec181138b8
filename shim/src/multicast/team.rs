//! Agreement: all members continue or none does, and all name the same member as the
//! cause.
//!
//! An agreement is two exchanges of small messages among all members. In the first,
//! each member says what it did. In the second, it says what it heard. So a failure
//! that only some members saw in the first exchange is known to all after the second.
//! Each exchange has a deadline, and a member that is silent until then counts as
//! failed.

#[cfg(test)]
mod tests;

use super::message::{Common, Finding, MESSAGE_BYTES, Message, Round};
use super::{Fault, Stage, TeamError, Unavailable};
use crate::attempt::Code;
use crate::error::Error;
use core::fmt;
use std::time::{Duration, Instant};

/// How long each of the two exchanges of an agreement may take if nobody says
/// otherwise.
pub const DEFAULT_TEAM_TIMEOUT: Duration = Duration::from_secs(30);

/// A longer timeout is this: a deadline must be a time that exists.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// What came from a member in one exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// Its message.
    Message([u8; MESSAGE_BYTES]),
    /// Its end of the transport is closed: it has left or died.
    Gone,
    /// Nothing until the deadline.
    Silent,
}

type Gather<'a> = dyn FnMut(&[u8; MESSAGE_BYTES], Instant) -> Vec<Heard> + Send + 'a;

/// The members of one object, as one of them sees the others.
pub struct Team<'a> {
    rank: u32,
    size: u32,
    timeout: Duration,
    gather: Box<Gather<'a>>,
    sequence: u64,
    /// Set once the transport cannot be relied on any more.
    broken: Option<TeamError>,
}

impl<'a> Team<'a> {
    /// Member `rank` of `size`. `gather` is an all-gather over any transport: it
    /// sends the message to every other member and returns what came from each,
    /// in the order of their ranks, with this member's own message at its rank.
    /// It must return by the deadline that it is given; a message that has not
    /// come by then is [`Heard::Silent`].
    ///
    /// # Errors
    /// [`Error::Argument`] for a rank that is not below the size.
    pub fn new(
        rank: usize,
        size: usize,
        gather: impl FnMut(&[u8; MESSAGE_BYTES], Instant) -> Vec<Heard> + Send + 'a,
    ) -> Result<Self, Error> {
        match (u32::try_from(rank), u32::try_from(size)) {
            (Ok(rank), Ok(size)) if rank < size => Ok(Self {
                rank,
                size,
                timeout: DEFAULT_TEAM_TIMEOUT,
                gather: Box::new(gather),
                sequence: 0,
                broken: None,
            }),
            _ => Err(Error::Argument {
                name: "rank",
                rule: "members are counted from 0, below the team's size",
            }),
        }
    }

    /// How long each of the two exchanges of an agreement may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.min(LONGEST_TIMEOUT);
        self
    }

    /// How many members there are.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size as usize
    }

    /// This member.
    #[must_use]
    pub const fn rank(&self) -> usize {
        self.rank as usize
    }

    /// Tells the others that this member does not go on, for what failed outside of
    /// the phases, such as its import. They hear of it in the agreement in which
    /// they are, or to which they come next, and need not wait for the deadline.
    pub fn give_up(&mut self, error: &Error) {
        // What a member that failed says of the object is not compared.
        let ballot = Ballot {
            stage: Stage::Import,
            object: ([0; 16], 0),
            offset: 0,
            length: 0,
        };
        // The error stays the caller's.
        let _ = self.agree::<()>(&ballot, Err(error.clone()));
    }

    /// Says what this member did, and whether all others did it, too. Its own
    /// failure is told to the others and returned.
    pub(super) fn agree<T>(&mut self, ballot: &Ballot, own: Result<T, Error>) -> Result<T, Error> {
        let failed = own.as_ref().err().map(|error| Finding {
            member: self.rank,
            fault: fault_of(error, ballot.stage),
        });
        let agreed = match self.broken {
            Some(error) => Err(error),
            None => self.exchange(ballot, failed),
        };
        match (own, agreed) {
            (Ok(value), Ok(())) => Ok(value),
            (Err(error), _) => Err(error),
            (Ok(_), Err(error)) => Err(error.into()),
        }
    }

    /// Tells the others that this member failed; gives its error back.
    pub(super) fn refuse(&mut self, ballot: &Ballot, error: Error) -> Error {
        match self.agree::<()>(ballot, Err(error)) {
            Err(error) => error,
            // Not reached: its own failure is what a member gets.
            Ok(()) => Unavailable::refused(ballot.stage, super::Reason::Driver).into(),
        }
    }

    fn exchange(&mut self, ballot: &Ballot, failed: Option<Finding>) -> Result<(), TeamError> {
        let common = |round| Common {
            round,
            stage: ballot.stage,
            size: self.size,
            sequence: self.sequence,
            object: ballot.object,
            offset: ballot.offset,
            length: ballot.length,
        };
        let (vote, verdict) = (common(Round::Vote), common(Round::Verdict));
        self.sequence += 1;
        let votes = self.round(vote, failed);
        // What a member says of others is for the second exchange.
        let first = worst(faults(&votes, vote));
        let verdicts = self.round(verdict, first);
        let told = verdicts
            .iter()
            .filter_map(|said| said.finding(self.size))
            .chain(first);
        let culprit = worst(told).or_else(|| worst(faults(&verdicts, verdict)));
        let Some(Finding { member, fault }) = culprit else {
            return Ok(());
        };
        let error = TeamError {
            stage: ballot.stage,
            member: member as usize,
            fault,
        };
        log::debug!(target: "gpuipc::gpu", "{error}");
        if !matches!(fault, Fault::Failed { .. }) {
            self.broken = Some(error);
        }
        Err(error)
    }

    /// One exchange: what each member said, in the order of their ranks.
    fn round(&mut self, common: Common, finding: Option<Finding>) -> Vec<Said> {
        let own = Message {
            common,
            rank: self.rank,
            finding,
        };
        let deadline = Instant::now() + self.timeout;
        let heard = (self.gather)(&own.encode(), deadline);
        let said = |rank: u32| {
            if rank == self.rank {
                return Said::Message(own);
            }
            match heard.get(rank as usize) {
                Some(Heard::Message(bytes)) => {
                    Message::decode(bytes).map_or(Said::Unreadable, Said::Message)
                }
                Some(Heard::Gone) => Said::Gone,
                Some(Heard::Silent) => Said::Silent,
                None => Said::Unreadable,
            }
        };
        (0..self.size).map(said).collect()
    }
}

impl fmt::Debug for Team<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team")
            .field("rank", &self.rank)
            .field("size", &self.size)
            .field("timeout", &self.timeout)
            .field("sequence", &self.sequence)
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

/// What is to be agreed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ballot {
    pub(super) stage: Stage,
    pub(super) object: ([u8; 16], u64),
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl Ballot {
    /// The same part of the object at another stage.
    pub(super) const fn at(self, stage: Stage) -> Self {
        Self { stage, ..self }
    }
}

/// What a member said, read.
#[derive(Clone, Copy, Debug)]
enum Said {
    Message(Message),
    Unreadable,
    Gone,
    Silent,
}

impl Said {
    /// What it says of a member that there is.
    fn finding(&self, size: u32) -> Option<Finding> {
        match self {
            Self::Message(message) => message.finding.filter(|finding| finding.member < size),
            _ => None,
        }
    }

    /// What is wrong with the member itself.
    fn fault(&self, rank: usize, same: &Common) -> Option<Finding> {
        let member = u32::try_from(rank).ok()?;
        let fault = match self {
            Self::Gone => Fault::Gone,
            Self::Silent => Fault::Silent,
            Self::Unreadable => Fault::Unreadable,
            Self::Message(message) => match message.finding {
                Some(finding) if finding.member == member => finding.fault,
                _ if message.rank == member && message.common == *same => return None,
                _ => Fault::OutOfStep,
            },
        };
        Some(Finding { member, fault })
    }
}

/// What is wrong with each member by what it said itself.
fn faults(said: &[Said], own: Common) -> impl Iterator<Item = Finding> {
    let same = reference(said, own);
    said.iter()
        .enumerate()
        .filter_map(move |(rank, said)| said.fault(rank, &same))
}

/// The one that is named, the same by all: the first member that has more than
/// been silent, for who heard of a failure earlier may have stopped talking.
fn worst(findings: impl Iterator<Item = Finding>) -> Option<Finding> {
    findings.min_by_key(|finding| (finding.fault == Fault::Silent, finding.member))
}

/// What all must say alike: what the first of them that did not fail says, so
/// that all members find the same one out of step.
fn reference(said: &[Said], own: Common) -> Common {
    let good = said.iter().find_map(|said| match said {
        Said::Message(message) if message.finding.is_none() => Some(message.common),
        _ => None,
    });
    good.unwrap_or(own)
}

/// What the others hear of an error.
fn fault_of(error: &Error, stage: Stage) -> Fault {
    match error {
        Error::MulticastUnavailable(Unavailable { stage, code, .. }) => Fault::Failed {
            stage: *stage,
            code: *code,
        },
        Error::Driver(error) => Fault::Failed {
            stage,
            code: Code::of(error),
        },
        _ => Fault::Failed {
            stage,
            code: Code::None,
        },
    }
}
