//! The broker's messages.
//!
//! | at | request | reply |
//! |---|---|---|
//! | 0 | magic `GIPQ` | magic `GIPR` |
//! | 4 | version 1, 1 byte | the same |
//! | 5 | kind, 1 to 3, 1 byte | status, 1 to 11, 1 byte |
//! | 6 | reserved, 2 bytes | the same |
//! | 8 | id, 8 bytes | the same |
//! | 16 | allocation_id, 8 bytes | the same |
//! | 24 | token, 16 bytes | detail, 4 bytes |
//! | 28 | | reserved, 4 bytes |
//! | 32 | | pointer, 8 bytes |
//! | 40 | reserved to the end, 24 bytes | size, 8 bytes |
//! | 48 | | reserved to the end, 16 bytes |

use super::{AllBroken, name, number};
use gpuipc_core::{Reply, ReplyStatus, Request, RequestKind, Token};

/// Bytes of either message.
pub const BYTES: usize = 64;

/// Why bytes are refused. The causes in the order in which a reader meets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Not 64 bytes.
    Length,
    /// Another message, or none.
    Magic,
    /// Another version.
    Version,
    /// Fields that make no sense.
    Fields(AllBroken),
}

fn check_head(bytes: &[u8], magic: &[u8; 4]) -> Result<(), Refused> {
    if bytes.len() != BYTES {
        return Err(Refused::Length);
    }
    if &bytes[..4] != magic {
        return Err(Refused::Magic);
    }
    if bytes[4] != 1 {
        return Err(Refused::Version);
    }
    Ok(())
}

/// Reads a request.
///
/// # Errors
///
/// Why the bytes are none, with all rules that the fields break.
pub fn read_request(bytes: &[u8]) -> Result<Request, Refused> {
    check_head(bytes, b"GIPQ")?;
    let kind = match bytes[5] {
        1 => Some(RequestKind::FetchFd),
        2 => Some(RequestKind::CheckMemory),
        3 => Some(RequestKind::OwnPointer),
        _ => None,
    };
    let mut broken = AllBroken::default();
    broken.unless(kind.is_some(), "kind", bytes[5].into());
    broken.unless_zero(bytes, 6, 8, "reserved");
    broken.unless_zero(bytes, 40, 64, "reserved");
    match kind {
        Some(kind) if broken == AllBroken::default() => Ok(Request {
            kind,
            id: number(bytes, 8, 8),
            allocation_id: number(bytes, 16, 8),
            token: Token::new(name(bytes, 24)),
        }),
        _ => Err(Refused::Fields(broken)),
    }
}

/// Reads a reply.
///
/// # Errors
///
/// Why the bytes are none, with all rules that the fields break.
pub fn read_reply(bytes: &[u8]) -> Result<Reply, Refused> {
    check_head(bytes, b"GIPR")?;
    let status = match bytes[5] {
        1 => Some(ReplyStatus::FdAttached),
        2 => Some(ReplyStatus::MemoryUnchanged),
        3 => Some(ReplyStatus::MemoryChanged),
        4 => Some(ReplyStatus::OfferWithdrawn),
        5 => Some(ReplyStatus::NotPermitted),
        6 => Some(ReplyStatus::Malformed),
        7 => Some(ReplyStatus::Busy),
        8 => Some(ReplyStatus::NoFd),
        9 => Some(ReplyStatus::CheckFailed),
        10 => Some(ReplyStatus::OwnPointer),
        11 => Some(ReplyStatus::ExportFailed),
        _ => None,
    };
    let mut broken = AllBroken::default();
    broken.unless(status.is_some(), "status", bytes[5].into());
    broken.unless_zero(bytes, 6, 8, "reserved");
    broken.unless_zero(bytes, 28, 32, "reserved");
    broken.unless_zero(bytes, 48, 64, "reserved");
    match status {
        Some(status) if broken == AllBroken::default() => Ok(Reply {
            status,
            id: number(bytes, 8, 8),
            allocation_id: number(bytes, 16, 8),
            detail: u32::from_le_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]),
            pointer: number(bytes, 32, 8),
            size: number(bytes, 40, 8),
        }),
        _ => Err(Refused::Fields(broken)),
    }
}
