//! The rules that every registered memory keeps, in the order in which they are checked.
//!
//! Bytes from outside pass all of them; fields from a runtime pass [`check_content`].

use crate::error::DecodeError;
use crate::handle::GpuIpcMemHandle;
use crate::layout::{TRANSPORT_BYTES, handle, registered, transport};
use crate::registered::error::RegisteredError;
use crate::registered::fields::RegisteredFields;
use crate::registered::header::Header;
use crate::registered::transport::{LENGTH_RULE, TransportInfo};
use crate::registered::{MAGIC, MAX_HANDLES, MAX_TRANSPORTS, REGISTERED_VERSION};

type Checked = Result<(), RegisteredError>;

/// The rule as one line: what must hold, whose field it is, its value, and the rule in words.
fn rule(holds: bool, field: &'static str, value: u64, rule: &'static str) -> Checked {
    if holds {
        Ok(())
    } else {
        Err(RegisteredError::Field { field, value, rule })
    }
}

fn number(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

/// The place of the first byte that is not zero, where `part` starts at `start`.
fn first_not_zero(part: &[u8], start: usize) -> Option<u64> {
    let position = part.iter().position(|byte| *byte != 0)?;
    Some(number(start.saturating_add(position)))
}

/// The bytes are a registered memory's, of a version that this crate can read.
pub(super) fn check_readable(header: &Header) -> Checked {
    let (version, min_reader) = (header.version, header.min_reader);
    if header.magic != MAGIC {
        return Err(RegisteredError::Magic { got: header.magic });
    }
    let words = "versions start at 1";
    rule(version != 0, "version", version.into(), words)?;
    rule(min_reader != 0, "min_reader", min_reader.into(), words)?;
    rule(
        min_reader <= version,
        "min_reader",
        min_reader.into(),
        "a writer can read what it writes, so this is at most version",
    )?;
    if min_reader > REGISTERED_VERSION {
        return Err(RegisteredError::Newer {
            version,
            min_reader,
        });
    }
    Ok(())
}

/// So many of both are allowed. What they need is known then.
pub(super) fn check_counts(transports: usize, handles: usize) -> Checked {
    rule(
        transports <= MAX_TRANSPORTS,
        "transport_count",
        number(transports),
        "a registered memory has at most 16 transports",
    )?;
    rule(
        handles <= MAX_HANDLES,
        "handle_count",
        number(handles),
        "a registered memory has at most 1048576 handles",
    )
}

/// What version 1 does not use is zero. In a newer writer's bytes it is something to ignore.
pub(super) fn check_unused(header: &Header, transports: &[[u8; TRANSPORT_BYTES]]) -> Checked {
    if header.version > REGISTERED_VERSION {
        return Ok(());
    }
    let words = "reserved bytes are zero, and this is where one is not";
    let place = first_not_zero(&header.reserved, registered::RESERVED.range().start);
    rule(place.is_none(), "reserved", place.unwrap_or(0), words)?;
    for (index, bytes) in transports.iter().enumerate() {
        let reserved = transport::RESERVED.slice(bytes);
        if let Some(value) = first_not_zero(reserved, transport::RESERVED.range().start) {
            return Err(RegisteredError::Transport {
                index,
                field: "reserved",
                value,
                rule: words,
            });
        }
    }
    Ok(())
}

/// What the fields, the transports and the handles say makes sense, each and together. The handles
/// are checked ones, or why they are not.
pub(super) fn check_content(
    fields: &RegisteredFields,
    transports: impl ExactSizeIterator<Item = TransportInfo> + Clone,
    handles: impl ExactSizeIterator<Item = Result<GpuIpcMemHandle, DecodeError>>,
) -> Checked {
    rule(
        fields.size > 0,
        "size",
        fields.size,
        "a buffer has at least 1 byte",
    )?;
    for (index, info) in transports.clone().enumerate() {
        check_transport(&info, transports.clone().take(index)).map_err(
            |(field, value, rule)| RegisteredError::Transport {
                index,
                field,
                value,
                rule,
            },
        )?;
    }
    let mut window = WindowSoFar {
        id: None,
        count: number(handles.len()),
        end: 0,
    };
    for (index, decoded) in handles.enumerate() {
        decoded
            .and_then(|handle| {
                check_owner(fields, &handle)?;
                window.check_next(fields, number(index), &handle)
            })
            .map_err(|error| RegisteredError::Handle { index, error })?;
    }
    Ok(())
}

/// A field of a transport, its value, and the rule that it breaks.
type Broken = (&'static str, u64, &'static str);

fn check_transport(
    info: &TransportInfo,
    mut before: impl Iterator<Item = TransportInfo>,
) -> Result<(), Broken> {
    let length = usize::from(info.length());
    let Some(padding) = info.data().get(length..) else {
        return Err(("length", number(length), LENGTH_RULE));
    };
    let start = transport::DATA.range().start.saturating_add(length);
    if let Some(value) = first_not_zero(padding, start) {
        let words = "bytes after length are zero, and this is where one is not";
        return Err(("data", value, words));
    }
    if before.any(|other| other.kind() == info.kind()) {
        let words = "a registered memory has one transport of a kind";
        return Err(("kind", info.kind().into(), words));
    }
    Ok(())
}

/// The rule as one line, for a handle's field.
fn handle_rule(
    holds: bool,
    field: &'static str,
    value: u64,
    rule: &'static str,
) -> Result<(), DecodeError> {
    if holds {
        Ok(())
    } else {
        Err(DecodeError::Field { field, value, rule })
    }
}

/// The handle's exporter is the memory's owner.
fn check_owner(fields: &RegisteredFields, handle: &GpuIpcMemHandle) -> Result<(), DecodeError> {
    let same = |field, ours: &[u8; 16], theirs: &[u8; 16], start: usize| {
        let differing = ours.iter().zip(theirs).position(|(a, b)| a != b);
        let place = differing.map(|position| number(start.saturating_add(position)));
        let words = "it is the registered memory's, and this is where a byte is not";
        handle_rule(place.is_none(), field, place.unwrap_or(0), words)
    };
    same(
        "host_id",
        &fields.host_id.0,
        &handle.host_id().0,
        handle::HOST_ID.range().start,
    )?;
    same(
        "process_id",
        &fields.process_id.0,
        &handle.process_id().0,
        handle::PROCESS_ID.range().start,
    )
}

/// What the handles before the next one say of their window.
struct WindowSoFar {
    /// The window; none before the first handle.
    id: Option<u64>,
    /// Handles in all.
    count: u64,
    /// Bytes of the window that the segments so far hold.
    end: u64,
}

impl WindowSoFar {
    /// The handle's segment is the next one of the window that is all of the memory.
    fn check_next(
        &mut self,
        fields: &RegisteredFields,
        index: u64,
        handle: &GpuIpcMemHandle,
    ) -> Result<(), DecodeError> {
        let segment = handle.window();
        let id = *self.id.get_or_insert(segment.id);
        handle_rule(
            segment.id == id,
            "window_id",
            segment.id,
            "all handles of a registered memory are of one window",
        )?;
        handle_rule(
            u64::from(segment.segment_count) == self.count,
            "segment_count",
            segment.segment_count.into(),
            "a registered memory has all handles of its window, and no others",
        )?;
        handle_rule(
            u64::from(segment.segment_index) == index,
            "segment_index",
            segment.segment_index.into(),
            "handles come in the order of their segments",
        )?;
        handle_rule(
            segment.length == fields.size,
            "window_length",
            segment.length,
            "the window is as long as the registered memory",
        )?;
        handle_rule(
            segment.offset == self.end,
            "window_offset",
            segment.offset,
            "a segment starts where the one before ends",
        )?;
        // A handle's rules: this does not overflow.
        self.end = segment.offset.saturating_add(handle.length());
        let last = index.saturating_add(1) == self.count;
        handle_rule(
            !last || self.end == fields.size,
            "length",
            handle.length(),
            "the last segment ends where the window ends",
        )
    }
}
