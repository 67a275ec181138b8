//! The rules that every registered memory keeps, in the order in which they are checked.
//!
//! Bytes from outside pass all of them; fields from a runtime pass [`check_content`].

use crate::check::{Broken, Checked, RESERVED, number, rule, versions, zeros};
use crate::error::DecodeError;
use crate::handle::{GpuIpcMemHandle, HandlePlaces};
use crate::layout::TRANSPORT_BYTES;
use crate::registered::error::RegisteredError;
use crate::registered::fields::{Header, RegisteredFields};
use crate::registered::transport::{LENGTH_RULE, TransportInfo};
use crate::registered::{MAGIC, MAX_HANDLES, MAX_TRANSPORTS, REGISTERED_VERSION};

const HANDLE: HandlePlaces = GpuIpcMemHandle::AT;

/// The bytes are a registered memory's, of a version that this crate can read.
pub(super) fn check_readable(header: &Header) -> Result<(), RegisteredError> {
    let (version, min_reader) = (header.version, header.min_reader);
    if header.magic != MAGIC {
        return Err(RegisteredError::Magic { got: header.magic });
    }
    versions(version, min_reader)?;
    if min_reader > REGISTERED_VERSION {
        return Err(RegisteredError::Newer {
            version,
            min_reader,
        });
    }
    Ok(())
}

/// So many of both are allowed. What they need is known then.
pub(super) fn check_counts(transports: usize, handles: usize) -> Result<(), RegisteredError> {
    let words = "a registered memory has at most 16 transports";
    let holds = transports <= MAX_TRANSPORTS;
    rule(holds, "transport_count", number(transports), words)?;
    let words = "a registered memory has at most 1048576 handles";
    let holds = handles <= MAX_HANDLES;
    Ok(rule(holds, "handle_count", number(handles), words)?)
}

/// What version 1 does not use is zero. In a newer writer's bytes it is something to ignore.
pub(super) fn check_unused(
    header: &Header,
    transports: &[[u8; TRANSPORT_BYTES]],
) -> Result<(), RegisteredError> {
    if header.version > REGISTERED_VERSION {
        return Ok(());
    }
    Header::AT.reserved.zero(&header.reserved, RESERVED)?;
    let reserved = TransportInfo::AT.reserved;
    for (index, bytes) in transports.iter().enumerate() {
        let checked = reserved.zero(&reserved.get(bytes), RESERVED);
        checked.map_err(|broken| in_transport(index, broken))?;
    }
    Ok(())
}

fn in_transport(index: usize, Broken { field, value, rule }: Broken) -> RegisteredError {
    RegisteredError::Transport {
        index,
        field,
        value,
        rule,
    }
}

/// What the fields, the transports and the handles say makes sense, each and together. The handles
/// are checked ones, or why they are not.
pub(super) fn check_content(
    fields: &RegisteredFields,
    transports: impl ExactSizeIterator<Item = TransportInfo> + Clone,
    handles: impl ExactSizeIterator<Item = Result<GpuIpcMemHandle, DecodeError>>,
) -> Result<(), RegisteredError> {
    let at = Header::AT;
    at.len
        .must(fields.len > 0, fields.len, "a buffer has at least 1 byte")?;
    for (index, info) in transports.clone().enumerate() {
        check_transport(&info, transports.clone().take(index))
            .map_err(|broken| in_transport(index, broken))?;
    }
    let mut range = RangeSoFar {
        id: None,
        count: number(handles.len()),
        end: 0,
    };
    for (index, decoded) in handles.enumerate() {
        decoded
            .and_then(|handle| {
                check_owner(fields, &handle)?;
                Ok(range.check_next(fields, number(index), &handle)?)
            })
            .map_err(|error| RegisteredError::Handle { index, error })?;
    }
    Ok(())
}

fn check_transport(
    info: &TransportInfo,
    mut before: impl Iterator<Item = TransportInfo>,
) -> Checked {
    let at = TransportInfo::AT;
    let length = usize::from(info.length());
    let unused = info.data().get(length..);
    let unused = unused.ok_or(at.length.broken(info.length(), LENGTH_RULE))?;
    let words = "bytes after length are zero, and this is where one is not";
    zeros(unused, at.data.start.saturating_add(length), "data", words)?;
    let once = !before.any(|other| other.kind() == info.kind());
    let words = "a registered memory has one transport of a kind";
    at.kind.must(once, info.kind(), words)
}

/// The handle's exporter is the memory's owner.
fn check_owner(fields: &RegisteredFields, handle: &GpuIpcMemHandle) -> Checked {
    let same = |ours: [u8; 16], theirs: [u8; 16], field: &'static str, start: usize| {
        let place = ours.iter().zip(&theirs).position(|(a, b)| a != b);
        let value = number(start.saturating_add(place.unwrap_or(0)));
        let words = "it is the registered memory's, and this is where a byte is not";
        rule(place.is_none(), field, value, words)
    };
    let at = HANDLE.host_id;
    same(fields.host_id.0, handle.host_id, at.name, at.start)?;
    let at = HANDLE.process_id;
    same(fields.process_id.0, handle.process_id, at.name, at.start)
}

/// What the handles before the next one say of their range.
struct RangeSoFar {
    /// The range; none before the first handle.
    id: Option<u64>,
    /// Handles in all.
    count: u64,
    /// Bytes of the range that the segments so far hold.
    end: u64,
}

impl RangeSoFar {
    /// The handle's segment is the next one of the range that is all of the memory.
    fn check_next(
        &mut self,
        fields: &RegisteredFields,
        index: u64,
        handle: &GpuIpcMemHandle,
    ) -> Checked {
        let segment = handle.range();
        let id = *self.id.get_or_insert(segment.id);
        HANDLE.range_id.must(
            segment.id == id,
            segment.id,
            "all handles of a registered memory are of one range",
        )?;
        HANDLE.segment_count.must(
            u64::from(segment.segment_count) == self.count,
            segment.segment_count,
            "a registered memory has all handles of its range, and no others",
        )?;
        HANDLE.segment_index.must(
            u64::from(segment.segment_index) == index,
            segment.segment_index,
            "handles come in the order of their segments",
        )?;
        HANDLE.range_length.must(
            segment.length == fields.len,
            segment.length,
            "the range is as long as the registered memory",
        )?;
        HANDLE.range_offset.must(
            segment.offset == self.end,
            segment.offset,
            "a segment starts where the one before ends",
        )?;
        // A handle's rules: this does not overflow.
        self.end = segment.offset.saturating_add(handle.length());
        let last = index.saturating_add(1) == self.count;
        HANDLE.length.must(
            !last || self.end == fields.len,
            handle.length(),
            "the last segment ends where the range ends",
        )
    }
}
