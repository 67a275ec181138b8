//! The message of one member to the others.

use super::{Fault, Stage};
use crate::attempt::Code;
use crate::sys::CuResult;
use gpuipc_core::MulticastMessage;

/// Bytes of every message between members.
pub const MESSAGE_BYTES: usize = gpuipc_core::MULTICAST_MESSAGE_BYTES;

/// The first exchange of an agreement, or the second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Round {
    /// What each member did.
    Vote = 1,
    /// What each member heard.
    Verdict = 2,
}

/// Something is wrong with a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Finding {
    pub(super) member: u32,
    pub(super) fault: Fault,
}

/// What all members must say alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Common {
    pub(super) round: Round,
    pub(super) stage: Stage,
    pub(super) size: u32,
    /// Agreements of this team before this one.
    pub(super) sequence: u64,
    /// The object's creator, and its number there.
    pub(super) object: ([u8; 16], u64),
    /// The part of the object that is meant.
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// One member's message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Message {
    pub(super) common: Common,
    pub(super) rank: u32,
    pub(super) finding: Option<Finding>,
}

impl Message {
    pub(super) fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let common = self.common;
        let mut numbers = MulticastMessage {
            round: common.round as u8,
            stage: common.stage.number(),
            rank: self.rank,
            size: common.size,
            sequence: common.sequence,
            creator: common.object.0,
            object: common.object.1,
            offset: common.offset,
            length: common.length,
            ..MulticastMessage::default()
        };
        if let Some(Finding { member, fault }) = self.finding {
            numbers.faulty = member;
            numbers.fault = match fault {
                Fault::Gone => 1,
                Fault::Silent => 2,
                Fault::OutOfStep => 3,
                Fault::Unreadable => 4,
                Fault::Failed { stage, code } => {
                    numbers.fault_stage = stage.number();
                    (numbers.code_kind, numbers.code) = match code {
                        Code::None => (0, 0),
                        Code::Driver(code) => (1, code.0),
                        Code::MissingSymbol(version) => (2, version),
                        Code::Os(errno) => (3, errno.cast_unsigned()),
                    };
                    5
                }
            };
        }
        numbers.encode()
    }

    /// Any bytes give a message or `None`.
    pub(super) fn decode(bytes: &[u8; MESSAGE_BYTES]) -> Option<Self> {
        let numbers = MulticastMessage::decode(bytes)?;
        let fault = match numbers.fault {
            0 => None,
            1 => Some(Fault::Gone),
            2 => Some(Fault::Silent),
            3 => Some(Fault::OutOfStep),
            4 => Some(Fault::Unreadable),
            5 => Some(Fault::Failed {
                stage: Stage::from_number(numbers.fault_stage)?,
                code: match (numbers.code_kind, numbers.code) {
                    (0, _) => Code::None,
                    (1, code) => Code::Driver(CuResult(code)),
                    (2, code) => Code::MissingSymbol(code),
                    (3, code) => Code::Os(code.cast_signed()),
                    _ => return None,
                },
            }),
            _ => return None,
        };
        if fault.is_some() && numbers.faulty >= numbers.size {
            return None;
        }
        Some(Self {
            common: Common {
                round: match numbers.round {
                    1 => Round::Vote,
                    2 => Round::Verdict,
                    _ => return None,
                },
                stage: Stage::from_number(numbers.stage)?,
                size: numbers.size,
                sequence: numbers.sequence,
                object: (numbers.creator, numbers.object),
                offset: numbers.offset,
                length: numbers.length,
            },
            rank: numbers.rank,
            finding: fault.map(|fault| Finding {
                member: numbers.faulty,
                fault,
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(finding: Option<Finding>) -> Message {
        Message {
            common: Common {
                round: Round::Verdict,
                stage: Stage::Layout,
                size: 8,
                sequence: 1 << 40,
                object: ([7; 16], 1 << 63),
                offset: 2 << 20,
                length: 4 << 20,
            },
            rank: 3,
            finding,
        }
    }

    #[test]
    fn every_message_comes_back_as_it_was() {
        let failed = |code| Fault::Failed {
            stage: Stage::Bind,
            code,
        };
        for fault in [
            Fault::Gone,
            Fault::Silent,
            Fault::OutOfStep,
            Fault::Unreadable,
            failed(Code::None),
            failed(Code::Driver(CuResult(802))),
            failed(Code::MissingSymbol(12010)),
            failed(Code::Os(104)),
        ] {
            let sent = message(Some(Finding { member: 7, fault }));
            assert_eq!(Message::decode(&sent.encode()), Some(sent));
        }
        let sent = message(None);
        assert_eq!(Message::decode(&sent.encode()), Some(sent));
    }

    #[test]
    fn other_bytes_are_no_message() {
        let finding = Finding {
            member: 7,
            fault: Fault::Failed {
                stage: Stage::Bind,
                code: Code::None,
            },
        };
        let good = message(Some(finding)).encode();
        assert_eq!(Message::decode(&[0; MESSAGE_BYTES]), None);
        // Magic, version, round, stage, fault, faulty member, its stage, its code.
        for (at, value) in [
            (0, 0),
            (4, 2),
            (5, 0),
            (6, 0),
            (7, 6),
            (64, 8),
            (68, 99),
            (69, 4),
        ] {
            let mut bytes = good;
            bytes[at] = value;
            assert_eq!(Message::decode(&bytes), None, "byte {at}");
        }
    }
}
