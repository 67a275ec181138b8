//! What importer and broker say to each other: one request, one reply, 64 bytes each.
//!
//! A descriptor travels beside a reply, not in it. The two have different first letters, so that
//! neither can be taken for the other.

use crate::error::MessageError;
use crate::layout::{REPLY_BYTES, REQUEST_BYTES, reply, request};
use crate::token::Token;

/// The version of both messages.
pub(crate) const MESSAGE_VERSION: u8 = 1;
const REQUEST_MAGIC: u32 = u32::from_le_bytes(*b"GIPQ");
const REPLY_MAGIC: u32 = u32::from_le_bytes(*b"GIPR");

/// What an importer wants from the broker.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// The memory's file descriptor.
    FetchFd = 1,
    /// Whether the memory is still the one that was exported.
    CheckMemory = 2,
    /// The memory's address, for another copy of the library in the same process.
    OwnPointer = 3,
}

impl RequestKind {
    const ALL: [Self; 3] = [Self::FetchFd, Self::CheckMemory, Self::OwnPointer];

    #[expect(
        clippy::as_conversions,
        reason = "the number that the declaration gives"
    )]
    const fn number(self) -> u8 {
        self as u8
    }
}

/// A request to the broker.
///
/// | at | field | type | meaning |
/// |---|---|---|---|
/// | 0 | magic | u32 | `GIPQ` |
/// | 4 | version | u8 | 1 |
/// | 5 | kind | u8 | [`RequestKind`] |
/// | 6 | reserved | u16 | 0 |
/// | 8 | id | u64 | the reply carries it again |
/// | 16 | allocation_id | u64 | from the handle |
/// | 24 | token | 16 B | from the handle's ticket |
/// | 40 | reserved | 24 B | 0 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is wanted.
    pub kind: RequestKind,
    /// The sender's number for this request. Any number arrives; a wise sender leaves out 0, which
    /// in a reply says that a request was not understood.
    pub id: u64,
    /// The handle's [`allocation_id`](crate::GpuIpcMemHandle::allocation_id).
    pub allocation_id: u64,
    /// The ticket's secret.
    pub token: Token,
}

impl Request {
    /// A reply to this request, without details.
    pub const fn reply(&self, status: ReplyStatus) -> Reply {
        Reply {
            status,
            id: self.id,
            allocation_id: self.allocation_id,
            ..Reply::MALFORMED
        }
    }

    /// The request's bytes.
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        request::MAGIC.put(&mut bytes, REQUEST_MAGIC.to_le_bytes());
        request::VERSION.put(&mut bytes, [MESSAGE_VERSION]);
        request::KIND.put(&mut bytes, [self.kind.number()]);
        request::ID.put(&mut bytes, self.id.to_le_bytes());
        request::ALLOCATION_ID.put(&mut bytes, self.allocation_id.to_le_bytes());
        request::TOKEN.put(&mut bytes, *self.token.as_bytes());
        bytes
    }

    /// Turns bytes from anywhere, of any length, into a request. Never panics.
    ///
    /// # Errors
    ///
    /// The first rule that the bytes break: length, magic, version, kind, reserved bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let Ok(bytes) = bytes.try_into() else {
            return Err(MessageError::Length { got: bytes.len() });
        };
        check_header(
            request::MAGIC.get(bytes),
            REQUEST_MAGIC,
            request::VERSION.get(bytes),
        )?;
        let [number] = request::KIND.get(bytes);
        let kind = RequestKind::ALL
            .into_iter()
            .find(|kind| kind.number() == number);
        let Some(kind) = kind else {
            return Err(MessageError::Field {
                field: "kind",
                value: number.into(),
                rule: "a request's kind is 1 to 3",
            });
        };
        check_reserved(
            request::RESERVED_SHORT.slice(bytes),
            request::RESERVED_SHORT.range().start,
        )?;
        check_reserved(
            request::RESERVED.slice(bytes),
            request::RESERVED.range().start,
        )?;
        Ok(Self {
            kind,
            id: u64::from_le_bytes(request::ID.get(bytes)),
            allocation_id: u64::from_le_bytes(request::ALLOCATION_ID.get(bytes)),
            token: Token::new(request::TOKEN.get(bytes)),
        })
    }
}

/// How the broker answers.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplyStatus {
    /// The memory's descriptor comes with this reply.
    FdAttached = 1,
    /// The memory is the one that was exported.
    MemoryUnchanged = 2,
    /// The memory was freed; another may lie at its address.
    MemoryChanged = 3,
    /// No live offer has this token.
    OfferWithdrawn = 4,
    /// The broker does not serve the sender's uid.
    NotPermitted = 5,
    /// The request did not decode; the reply's id is 0.
    Malformed = 6,
    /// The broker cannot answer now, but may later.
    Busy = 7,
    /// The offer has no descriptor.
    NoFd = 8,
    /// The driver could not say whether the memory is unchanged.
    CheckFailed = 9,
    /// The memory's address and size are in this reply: the sender is this process.
    OwnPointer = 10,
    /// The driver did not export the memory as a descriptor, which is made on demand.
    ExportFailed = 11,
}

impl ReplyStatus {
    const ALL: [Self; 11] = [
        Self::FdAttached,
        Self::MemoryUnchanged,
        Self::MemoryChanged,
        Self::OfferWithdrawn,
        Self::NotPermitted,
        Self::Malformed,
        Self::Busy,
        Self::NoFd,
        Self::CheckFailed,
        Self::OwnPointer,
        Self::ExportFailed,
    ];

    #[expect(
        clippy::as_conversions,
        reason = "the number that the declaration gives"
    )]
    const fn number(self) -> u8 {
        self as u8
    }
}

/// The broker's answer to one request.
///
/// | at | field | type | meaning |
/// |---|---|---|---|
/// | 0 | magic | u32 | `GIPR` |
/// | 4 | version | u8 | 1 |
/// | 5 | status | u8 | [`ReplyStatus`] |
/// | 6 | reserved | u16 | 0 |
/// | 8 | id | u64 | the request's; 0 for one that did not decode |
/// | 16 | allocation_id | u64 | the request's; 0 for one that did not decode |
/// | 24 | detail | u32 | a code of the driver or the operating system; else 0 |
/// | 28 | reserved | u32 | 0 |
/// | 32 | pointer | u64 | the allocation's address, with OwnPointer; else 0 |
/// | 40 | size | u64 | the allocation's bytes, with OwnPointer; else 0 |
/// | 48 | reserved | 16 B | 0 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The answer.
    pub status: ReplyStatus,
    /// The request's id; 0 where it did not decode.
    pub id: u64,
    /// The request's allocation; 0 where it did not decode.
    pub allocation_id: u64,
    /// The driver's code behind [`ReplyStatus::CheckFailed`] and [`ReplyStatus::ExportFailed`],
    /// the operating system's behind [`ReplyStatus::Busy`]; 0 with any other status.
    pub detail: u32,
    /// The allocation's address in this process with [`ReplyStatus::OwnPointer`]; else 0.
    pub pointer: u64,
    /// Its size in bytes with [`ReplyStatus::OwnPointer`]; else 0.
    pub size: u64,
}

impl Reply {
    /// The reply to what is no request.
    pub const MALFORMED: Self = Self {
        status: ReplyStatus::Malformed,
        id: 0,
        allocation_id: 0,
        detail: 0,
        pointer: 0,
        size: 0,
    };

    /// The reply's bytes.
    pub fn encode(&self) -> [u8; REPLY_BYTES] {
        let mut bytes = [0; REPLY_BYTES];
        reply::MAGIC.put(&mut bytes, REPLY_MAGIC.to_le_bytes());
        reply::VERSION.put(&mut bytes, [MESSAGE_VERSION]);
        reply::STATUS.put(&mut bytes, [self.status.number()]);
        reply::ID.put(&mut bytes, self.id.to_le_bytes());
        reply::ALLOCATION_ID.put(&mut bytes, self.allocation_id.to_le_bytes());
        reply::DETAIL.put(&mut bytes, self.detail.to_le_bytes());
        reply::POINTER.put(&mut bytes, self.pointer.to_le_bytes());
        reply::SIZE.put(&mut bytes, self.size.to_le_bytes());
        bytes
    }

    /// Turns bytes from anywhere, of any length, into a reply. Never panics.
    ///
    /// # Errors
    ///
    /// The first rule that the bytes break: length, magic, version, status, reserved bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let Ok(bytes) = bytes.try_into() else {
            return Err(MessageError::Length { got: bytes.len() });
        };
        check_header(
            reply::MAGIC.get(bytes),
            REPLY_MAGIC,
            reply::VERSION.get(bytes),
        )?;
        let [number] = reply::STATUS.get(bytes);
        let status = ReplyStatus::ALL
            .into_iter()
            .find(|status| status.number() == number);
        let Some(status) = status else {
            return Err(MessageError::Field {
                field: "status",
                value: number.into(),
                rule: "a reply's status is 1 to 11",
            });
        };
        check_reserved(
            reply::RESERVED_SHORT.slice(bytes),
            reply::RESERVED_SHORT.range().start,
        )?;
        check_reserved(
            reply::RESERVED_MIDDLE.slice(bytes),
            reply::RESERVED_MIDDLE.range().start,
        )?;
        check_reserved(reply::RESERVED.slice(bytes), reply::RESERVED.range().start)?;
        Ok(Self {
            status,
            id: u64::from_le_bytes(reply::ID.get(bytes)),
            allocation_id: u64::from_le_bytes(reply::ALLOCATION_ID.get(bytes)),
            detail: u32::from_le_bytes(reply::DETAIL.get(bytes)),
            pointer: u64::from_le_bytes(reply::POINTER.get(bytes)),
            size: u64::from_le_bytes(reply::SIZE.get(bytes)),
        })
    }
}

fn check_header(magic: [u8; 4], wanted: u32, version: [u8; 1]) -> Result<(), MessageError> {
    let got = u32::from_le_bytes(magic);
    if got != wanted {
        return Err(MessageError::Magic { got });
    }
    let [got] = version;
    if got != MESSAGE_VERSION {
        return Err(MessageError::Version { got });
    }
    Ok(())
}

fn check_reserved(part: &[u8], start: usize) -> Result<(), MessageError> {
    match part.iter().position(|byte| *byte != 0) {
        None => Ok(()),
        Some(position) => Err(MessageError::Field {
            field: "reserved",
            value: u64::try_from(start.saturating_add(position)).unwrap_or(u64::MAX),
            rule: "reserved bytes are zero, and this is where one is not",
        }),
    }
}
