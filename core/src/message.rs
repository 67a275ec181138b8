//! What importer and broker say to each other: one request, one reply, 64 bytes each.
//!
//! A descriptor travels beside a reply, not in it. The two have different first letters, so that
//! neither can be taken for the other.

use crate::check::RESERVED;
use crate::error::MessageError;
use crate::layout::{REPLY_BYTES, REQUEST_BYTES, layout};
use crate::token::Token;

/// The version of both messages.
pub(crate) const MESSAGE_VERSION: u8 = 1;
const REQUEST_MAGIC: u32 = u32::from_le_bytes(*b"GIPQ");
const REPLY_MAGIC: u32 = u32::from_le_bytes(*b"GIPR");

/// An enum whose numbers are on the wire.
macro_rules! numbered {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$about:meta])+ $variant:ident = $number:literal,)+ }) => {
        $(#[$meta])*
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$about])+ $variant = $number,)+ }

        impl $name {
            const fn number(self) -> u8 {
                match self { $(Self::$variant => $number,)+ }
            }
            const fn of_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

numbered! {
    /// What an importer wants from the broker.
    pub enum RequestKind {
        /// The memory's file descriptor.
        FetchFd = 1,
        /// Whether the memory is still the one that was exported.
        CheckMemory = 2,
        /// The memory's address, for another copy of the library in the same process.
        OwnPointer = 3,
    }
}

numbered! {
    /// How the broker answers.
    pub enum ReplyStatus {
        /// The memory's descriptor comes with this reply.
        FdAttached = 1,
        /// The memory is the one that was exported.
        MemoryUnchanged = 2,
        /// The memory was freed; another may lie at its address.
        MemoryChanged = 3,
        /// No live export has this token.
        ExportRevoked = 4,
        /// The broker does not serve the sender's uid.
        NotPermitted = 5,
        /// The request did not decode; the reply's id is 0.
        Malformed = 6,
        /// The broker cannot answer now, but may later.
        Busy = 7,
        /// The export has no descriptor.
        NoFd = 8,
        /// The driver could not say whether the memory is unchanged.
        CheckFailed = 9,
        /// The memory's address and size are in this reply: the sender is this process.
        OwnPointer = 10,
        /// The driver did not export the memory as a descriptor, which is made on demand.
        ExportFailed = 11,
    }
}

layout! {
    #[places(RequestPlaces)]
    #[repr(C)]
    pub(crate) struct RequestBytes {
        #[at(0)] /// The letters `GIPQ`.
        magic: u32,
        #[at(4)] /// 1.
        version: u8,
        #[at(5)] /// What is wanted: a [`RequestKind`].
        kind: u8,
        #[at(6)] /// 0.
        reserved_short: [u8; 2],
        #[at(8)] #[plain(u64)] /// The sender's number for this request, which the reply carries again. Any number arrives; 0 in a reply says that a request was not understood, so a sender leaves it out.
        id: u64,
        #[at(16)] #[plain(u64)] /// The handle's [`allocation_id`](crate::GpuIpcMemHandle::allocation_id).
        allocation_id: u64,
        #[at(24)] #[plain(Token)] /// The ticket's secret.
        token: [u8; 16],
        #[at(40)] /// 0.
        reserved: [u8; 24],
    }

    /// A request to the broker.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Request {
        /// What is wanted.
        kind: RequestKind,
    }
}

layout! {
    #[places(ReplyPlaces)]
    #[repr(C)]
    pub(crate) struct ReplyBytes {
        #[at(0)] /// The letters `GIPR`.
        magic: u32,
        #[at(4)] /// 1.
        version: u8,
        #[at(5)] /// The answer: a [`ReplyStatus`].
        status: u8,
        #[at(6)] /// 0.
        reserved_short: [u8; 2],
        #[at(8)] #[plain(u64)] /// The request's id; 0 where it did not decode.
        id: u64,
        #[at(16)] #[plain(u64)] /// The request's allocation; 0 where it did not decode.
        allocation_id: u64,
        #[at(24)] #[plain(u32)] /// The driver's code behind `CheckFailed` and `ExportFailed`, the operating system's behind `Busy`; 0 with any other status.
        detail: u32,
        #[at(28)] /// 0.
        reserved_middle: [u8; 4],
        #[at(32)] #[plain(u64)] /// The allocation's address in this process with [`ReplyStatus::OwnPointer`]; else 0.
        pointer: u64,
        #[at(40)] #[plain(u64)] /// Its size in bytes with [`ReplyStatus::OwnPointer`]; else 0.
        size: u64,
        #[at(48)] /// 0.
        reserved: [u8; 16],
    }

    /// The broker's answer to one request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Reply {
        /// The answer.
        status: ReplyStatus,
    }
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
        let bytes = RequestBytes {
            magic: REQUEST_MAGIC,
            version: MESSAGE_VERSION,
            kind: self.kind.number(),
            ..RequestBytes::of_wire(&[0; REQUEST_BYTES])
        };
        bytes.with_plain(self).wire()
    }

    /// Turns bytes from anywhere, of any length, into a request. Never panics.
    ///
    /// # Errors
    ///
    /// The first rule that the bytes break: length, magic, version, kind, reserved bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let wire = RequestBytes::of_wire(whole(bytes)?);
        check_header(wire.magic, REQUEST_MAGIC, wire.version)?;
        let at = RequestBytes::AT;
        let words = "a request's kind is 1 to 3";
        let kind = RequestKind::of_number(wire.kind).ok_or(at.kind.broken(wire.kind, words))?;
        at.reserved_short
            .named("reserved")
            .zero(&wire.reserved_short, RESERVED)?;
        at.reserved.zero(&wire.reserved, RESERVED)?;
        Ok(wire.fields_with(kind))
    }
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
        let bytes = ReplyBytes {
            magic: REPLY_MAGIC,
            version: MESSAGE_VERSION,
            status: self.status.number(),
            ..ReplyBytes::of_wire(&[0; REPLY_BYTES])
        };
        bytes.with_plain(self).wire()
    }

    /// Turns bytes from anywhere, of any length, into a reply. Never panics.
    ///
    /// # Errors
    ///
    /// The first rule that the bytes break: length, magic, version, status, reserved bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let wire = ReplyBytes::of_wire(whole(bytes)?);
        check_header(wire.magic, REPLY_MAGIC, wire.version)?;
        let at = ReplyBytes::AT;
        let words = "a reply's status is 1 to 11";
        let status =
            ReplyStatus::of_number(wire.status).ok_or(at.status.broken(wire.status, words))?;
        at.reserved_short
            .named("reserved")
            .zero(&wire.reserved_short, RESERVED)?;
        at.reserved_middle
            .named("reserved")
            .zero(&wire.reserved_middle, RESERVED)?;
        at.reserved.zero(&wire.reserved, RESERVED)?;
        Ok(wire.fields_with(status))
    }
}

fn whole<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], MessageError> {
    let wrong = MessageError::Length { got: bytes.len() };
    bytes.try_into().map_err(|_| wrong)
}

fn check_header(got: u32, wanted: u32, version: u8) -> Result<(), MessageError> {
    if got != wanted {
        return Err(MessageError::Magic { got });
    }
    if version != MESSAGE_VERSION {
        return Err(MessageError::Version { got: version });
    }
    Ok(())
}
