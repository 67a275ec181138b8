//! The rules that every handle keeps, in the order in which they are checked.
//!
//! Bytes from outside pass [`check_readable`], [`check_sum`] and [`check`]; fields from an exporter
//! pass [`check_fields`] and [`check`].

mod announced;
mod memory;

use crate::checksum_of;
use crate::error::DecodeError;
use crate::fields::HandleFields;
use crate::handle::{GpuIpcMemHandle, MAGIC, PLATFORM_CUDA};
use crate::layout::{FORMAT_VERSION, HANDLE_BYTES, handle as at};

type Checked = Result<(), DecodeError>;

/// The rule as one line: what must hold, whose field it is, its value, and the rule in words.
fn rule(holds: bool, field: &'static str, value: u64, rule: &'static str) -> Checked {
    if holds {
        Ok(())
    } else {
        Err(DecodeError::Field { field, value, rule })
    }
}

/// All bytes of `part` are zero. The error's value is the place of the first that is not, counted
/// from the start of the handle: never its content, which may be a secret.
fn zeros(part: &[u8], start: usize, field: &'static str, words: &'static str) -> Checked {
    let Some(position) = part.iter().position(|byte| *byte != 0) else {
        return Ok(());
    };
    let place = start.saturating_add(position);
    Err(DecodeError::Field {
        field,
        value: u64::try_from(place).unwrap_or(u64::MAX),
        rule: words,
    })
}

/// The bytes are a handle's, of a version that this crate can read.
pub(crate) fn check_readable(handle: &GpuIpcMemHandle) -> Checked {
    let (version, min_reader) = (handle.version, handle.min_reader);
    if handle.magic != MAGIC {
        return Err(DecodeError::Magic { got: handle.magic });
    }
    rule(
        version != 0,
        "version",
        version.into(),
        "versions start at 1",
    )?;
    rule(
        min_reader != 0,
        "min_reader",
        min_reader.into(),
        "versions start at 1",
    )?;
    rule(
        min_reader <= version,
        "min_reader",
        min_reader.into(),
        "a writer can read what it writes, so this is at most version",
    )?;
    if min_reader > FORMAT_VERSION {
        return Err(DecodeError::Newer {
            version,
            min_reader,
        });
    }
    Ok(())
}

/// The bytes are those that the writer wrote.
pub(crate) fn check_sum(handle: &GpuIpcMemHandle, bytes: &[u8; HANDLE_BYTES]) -> Checked {
    let (stored, computed) = (handle.checksum, checksum_of(bytes));
    if stored == computed {
        Ok(())
    } else {
        Err(DecodeError::Checksum { stored, computed })
    }
}

/// What fields can say and a handle cannot: -1 is "no descriptor" on the wire, and inode 0 "no
/// ledger".
pub(crate) fn check_fields(fields: &HandleFields) -> Checked {
    let Some(ticket) = fields.ticket else {
        return Ok(());
    };
    let fd = ticket.fd.unwrap_or(0);
    rule(
        fd >= 0,
        "ticket.fd",
        fd.cast_unsigned().into(),
        "a descriptor's number is at least 0 (none is None)",
    )?;
    rule(
        ticket.ledger.is_none_or(|ledger| ledger.inode != 0),
        "ticket.ledger.inode",
        0,
        "no file has inode 0 (no ledger is None)",
    )
}

/// What the handle says makes sense.
pub(crate) fn check(handle: &GpuIpcMemHandle) -> Checked {
    rule(
        handle.platform == PLATFORM_CUDA,
        "platform",
        handle.platform.into(),
        "the only platform is 1, CUDA",
    )?;
    // Bits and bytes without a meaning yet: from a writer of this version an error, which keeps
    // them free; from a newer one something to ignore.
    let newer = handle.version > FORMAT_VERSION;
    if !newer {
        check_unused(handle)?;
    }
    announced::check_types(handle)?;
    announced::check_slots(handle)?;
    announced::check_ticket(handle, newer)?;
    memory::check_kind(handle)?;
    memory::check_sizes(handle)
}

/// What version 1 does not use is zero.
fn check_unused(handle: &GpuIpcMemHandle) -> Checked {
    rule(
        handle.types().bits() == handle.type_flags,
        "type_flags",
        handle.type_flags.into(),
        "version 1 knows the bits 1, 2 and 4",
    )?;
    rule(
        handle.attributes().bits() == handle.attributes,
        "attributes",
        handle.attributes.into(),
        "version 1 knows the bits 1, 2, 4 and 8",
    )?;
    let words = "reserved bytes are zero, and this is where one is not";
    let short = handle.reserved_short.to_le_bytes();
    zeros(&short, at::RESERVED_SHORT.range().start, "reserved", words)?;
    zeros(
        &handle.reserved,
        at::RESERVED.range().start,
        "reserved",
        words,
    )
}
