//! What one member tells the others: fixed bytes, little-endian.

use super::team::Fault;
use super::unavailable::Stage;
use crate::attempt::Code;
use crate::sys::CuResult;

/// Bytes of every message between members.
pub const MESSAGE_BYTES: usize = 88;

const MAGIC: &[u8; 4] = b"GIMC";
const VERSION: u8 = 1;

/// Layout of a message. What is not named is zero.
mod field {
    use core::ops::Range;
    pub(super) const MAGIC: Range<usize> = 0..4;
    pub(super) const VERSION: usize = 4;
    pub(super) const ROUND: usize = 5;
    pub(super) const STAGE: usize = 6;
    /// 0 is none.
    pub(super) const FAULT: usize = 7;
    pub(super) const RANK: Range<usize> = 8..12;
    pub(super) const SIZE: Range<usize> = 12..16;
    pub(super) const SEQUENCE: Range<usize> = 16..24;
    pub(super) const CREATOR: Range<usize> = 24..40;
    pub(super) const OBJECT: Range<usize> = 40..48;
    pub(super) const OFFSET: Range<usize> = 48..56;
    pub(super) const LENGTH: Range<usize> = 56..64;
    pub(super) const FAULTY: Range<usize> = 64..68;
    pub(super) const FAULT_STAGE: usize = 68;
    pub(super) const CODE_KIND: usize = 69;
    pub(super) const CODE: Range<usize> = 72..76;
}

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
        let mut bytes = [0; MESSAGE_BYTES];
        let Common {
            round,
            stage,
            size,
            sequence,
            object: (creator, object),
            offset,
            length,
        } = self.common;
        bytes[field::MAGIC].copy_from_slice(MAGIC);
        bytes[field::VERSION] = VERSION;
        bytes[field::ROUND] = round as u8;
        bytes[field::STAGE] = stage.number();
        bytes[field::RANK].copy_from_slice(&self.rank.to_le_bytes());
        bytes[field::SIZE].copy_from_slice(&size.to_le_bytes());
        bytes[field::SEQUENCE].copy_from_slice(&sequence.to_le_bytes());
        bytes[field::CREATOR].copy_from_slice(&creator);
        bytes[field::OBJECT].copy_from_slice(&object.to_le_bytes());
        bytes[field::OFFSET].copy_from_slice(&offset.to_le_bytes());
        bytes[field::LENGTH].copy_from_slice(&length.to_le_bytes());
        let Some(Finding { member, fault }) = self.finding else {
            return bytes;
        };
        bytes[field::FAULTY].copy_from_slice(&member.to_le_bytes());
        bytes[field::FAULT] = match fault {
            Fault::Gone => 1,
            Fault::Silent => 2,
            Fault::OutOfStep => 3,
            Fault::Unreadable => 4,
            Fault::Failed { stage, code } => {
                let (kind, code) = match code {
                    Code::None => (0, 0),
                    Code::Driver(code) => (1, code.0),
                    Code::MissingSymbol(version) => (2, version),
                    Code::Os(errno) => (3, errno.cast_unsigned()),
                };
                bytes[field::FAULT_STAGE] = stage.number();
                bytes[field::CODE_KIND] = kind;
                bytes[field::CODE].copy_from_slice(&code.to_le_bytes());
                5
            }
        };
        bytes
    }

    /// Any bytes give a message or `None`.
    pub(super) fn decode(bytes: &[u8; MESSAGE_BYTES]) -> Option<Self> {
        if &bytes[field::MAGIC] != MAGIC || bytes[field::VERSION] != VERSION {
            return None;
        }
        let small = |at: core::ops::Range<usize>| bytes[at].try_into().map(u32::from_le_bytes).ok();
        let large = |at: core::ops::Range<usize>| bytes[at].try_into().map(u64::from_le_bytes).ok();
        let round = match bytes[field::ROUND] {
            1 => Round::Vote,
            2 => Round::Verdict,
            _ => return None,
        };
        let fault = match bytes[field::FAULT] {
            0 => None,
            1 => Some(Fault::Gone),
            2 => Some(Fault::Silent),
            3 => Some(Fault::OutOfStep),
            4 => Some(Fault::Unreadable),
            5 => {
                let code = small(field::CODE)?;
                Some(Fault::Failed {
                    stage: Stage::from_number(bytes[field::FAULT_STAGE])?,
                    code: match bytes[field::CODE_KIND] {
                        0 => Code::None,
                        1 => Code::Driver(CuResult(code)),
                        2 => Code::MissingSymbol(code),
                        3 => Code::Os(code.cast_signed()),
                        _ => return None,
                    },
                })
            }
            _ => return None,
        };
        let (size, faulty) = (small(field::SIZE)?, small(field::FAULTY)?);
        if fault.is_some() && faulty >= size {
            return None;
        }
        Some(Self {
            common: Common {
                round,
                stage: Stage::from_number(bytes[field::STAGE])?,
                size,
                sequence: large(field::SEQUENCE)?,
                object: (
                    bytes[field::CREATOR].try_into().ok()?,
                    large(field::OBJECT)?,
                ),
                offset: large(field::OFFSET)?,
                length: large(field::LENGTH)?,
            },
            rank: small(field::RANK)?,
            finding: fault.map(|fault| Finding {
                member: faulty,
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
