//! The rules that every handle keeps, in the order in which they are checked.
//!
//! Bytes from outside pass [`check_readable`], the checksum and [`check`]; fields from an exporter
//! pass [`check_fields`] and [`check`].

use crate::check::{Checked, RESERVED, rule, versions, zeros};
use crate::error::DecodeError;
use crate::handle::{
    GpuIpcMemHandle, HandleFields, HandlePlaces, MAGIC, NOT_HOST_NUMA, PLATFORM_CUDA,
};
use crate::layout::FORMAT_VERSION;
use crate::ticket::{NO_FD, TicketSlot};
use crate::types::{Attributes, TypeFlags};

const AT: HandlePlaces = GpuIpcMemHandle::AT;

/// The bytes are a handle's, of a version that this crate can read.
pub(crate) fn check_readable(handle: &GpuIpcMemHandle) -> Result<(), DecodeError> {
    let (version, min_reader) = (handle.version, handle.min_reader);
    if handle.magic != MAGIC {
        return Err(DecodeError::Magic { got: handle.magic });
    }
    versions(version, min_reader)?;
    if min_reader > FORMAT_VERSION {
        return Err(DecodeError::Newer {
            version,
            min_reader,
        });
    }
    Ok(())
}

/// What fields can say and a handle cannot: -1 is "no descriptor" on the wire, and inode 0 "no
/// export table".
pub(crate) fn check_fields(fields: &HandleFields) -> Checked {
    let Some(ticket) = fields.ticket else {
        return Ok(());
    };
    let fd = ticket.fd.unwrap_or(0);
    let words = "a descriptor's number is at least 0 (none is None)";
    rule(fd >= 0, "ticket.fd", fd.cast_unsigned(), words)?;
    let there = ticket.table.is_none_or(|table| table.inode != 0);
    let words = "no file has inode 0 (no export table is None)";
    rule(there, "ticket.table.inode", 0_u64, words)
}

/// What the handle says makes sense.
pub(crate) fn check(handle: &GpuIpcMemHandle) -> Checked {
    let words = "the only platform is 1, CUDA";
    AT.platform
        .must(handle.platform == PLATFORM_CUDA, handle.platform, words)?;
    let unknown_types = handle.types().bits() != handle.type_flags;
    let unknown_attributes = handle.attributes().bits() != handle.attributes;
    // Bits and bytes without a meaning yet: from a writer of this version an error, which keeps
    // them free; from a newer one something to ignore.
    let newer = handle.version > FORMAT_VERSION;
    if !newer {
        let words = "version 1 knows the bits 1, 2 and 4";
        AT.type_flags
            .must(!unknown_types, handle.type_flags, words)?;
        let words = "version 1 knows the bits 1, 2, 4 and 8";
        AT.attributes
            .must(!unknown_attributes, handle.attributes, words)?;
        AT.reserved_short
            .named("reserved")
            .zero(&handle.reserved_short.to_le_bytes(), RESERVED)?;
        AT.reserved.zero(&handle.reserved, RESERVED)?;
    }
    check_types(handle)?;
    // A bit that only a newer version knows may announce any slot.
    if !unknown_types && !unknown_attributes {
        check_slots(handle)?;
    }
    if handle.attributes().contains(Attributes::TICKET) {
        check_ticket(handle, newer)?;
    }
    check_kind(handle)?;
    check_sizes(handle)
}

/// Types and attributes go together.
fn check_types(handle: &GpuIpcMemHandle) -> Checked {
    let (types, attributes) = (handle.types(), handle.attributes());
    let type_rule = |holds, words| AT.type_flags.must(holds, handle.type_flags, words);
    let attribute_rule = |holds, words| AT.attributes.must(holds, handle.attributes, words);
    let runtime_ipc = types.contains(TypeFlags::RUNTIME_IPC);
    let ticket = attributes.contains(Attributes::TICKET);
    let pool = attributes.contains(Attributes::MEM_POOL);
    let multicast = attributes.contains(Attributes::MULTICAST);
    type_rule(
        !types.is_empty(),
        "a handle has at least one type that its reader knows",
    )?;
    attribute_rule(
        !types.contains(TypeFlags::POSIX_FD) || ticket,
        "a handle with PosixFd has a ticket",
    )?;
    type_rule(!(pool && runtime_ipc), "a pool's memory has no RuntimeIpc")?;
    type_rule(
        !(multicast && runtime_ipc),
        "a multicast object has no RuntimeIpc",
    )?;
    attribute_rule(
        !(multicast && pool),
        "a multicast object is not from a pool",
    )
}

/// A slot that is not announced is all zeros.
fn check_slots(handle: &GpuIpcMemHandle) -> Checked {
    let (types, attributes) = (handle.types(), handle.attributes());
    let words = "a slot that is not announced is zero, and this is where it is not";
    if !types.contains(TypeFlags::RUNTIME_IPC) && !attributes.contains(Attributes::MEM_POOL) {
        AT.slot_0.zero(handle.slot_0.bytes(), words)?;
    }
    if !attributes.contains(Attributes::TICKET) {
        AT.slot_1.zero(handle.slot_1.bytes(), words)?;
    }
    if !types.contains(TypeFlags::FABRIC) {
        AT.slot_2.zero(handle.slot_2.bytes(), words)?;
    }
    Ok(())
}

fn check_ticket(handle: &GpuIpcMemHandle, newer: bool) -> Checked {
    let places = TicketSlot::AT;
    let slot = TicketSlot::of_wire(handle.slot_1.bytes());
    let zero = |part: &[u8], start: usize, field, words| {
        zeros(part, AT.slot_1.start.saturating_add(start), field, words)
    };
    if !newer {
        let start = places.reserved.start;
        zero(
            &slot.reserved.to_le_bytes(),
            start,
            "ticket.reserved",
            RESERVED,
        )?;
    }
    let words = "a descriptor's number is at least 0, or -1 for none";
    rule(
        slot.fd >= NO_FD,
        "ticket.fd",
        slot.fd.cast_unsigned(),
        words,
    )?;
    if slot.table().is_some() {
        let (fd, words) = (slot.table_fd, "a descriptor's number is at least 0");
        return rule(fd >= 0, "ticket.table.fd", fd.cast_unsigned(), words);
    }
    let words = "a ticket without an export table has zeros there, and this is where it has not";
    for (bytes, start) in [
        (&slot.table_fd.to_le_bytes()[..], places.table_fd.start),
        (&slot.table_slot.to_le_bytes(), places.table_slot.start),
        (&slot.table_device.to_le_bytes(), places.table_device.start),
    ] {
        zero(bytes, start, "ticket.table", words)?;
    }
    Ok(())
}

/// Fields that only one kind of memory has are unset for the others.
fn check_kind(handle: &GpuIpcMemHandle) -> Checked {
    let attributes = handle.attributes();
    AT.pool_id.must(
        handle.pool_id == 0 || attributes.contains(Attributes::MEM_POOL),
        handle.pool_id,
        "memory that is not from a pool has 0",
    )?;
    AT.num_devices.must(
        (handle.num_devices > 0) == attributes.contains(Attributes::MULTICAST),
        handle.num_devices,
        "a multicast object has at least 1, other memory 0",
    )?;
    let node = handle.numa_node;
    let host = attributes.contains(Attributes::HOST_NUMA);
    AT.numa_node.must(
        (host && node >= 0) || (!host && node == NOT_HOST_NUMA),
        node.cast_unsigned(),
        "host memory has a node of at least 0, a GPU's memory -1",
    )?;
    if host {
        let words = "host memory has no device, and this is where a byte is not zero";
        AT.device_uuid.zero(&handle.device_uuid, words)?;
    }
    Ok(())
}

/// The segment lies in its allocation and in its range.
fn check_sizes(handle: &GpuIpcMemHandle) -> Checked {
    let length = handle.length;
    let fits = |start: u64, whole: u64| start.checked_add(length).is_some_and(|end| end <= whole);
    AT.length
        .must(length > 0, length, "a segment has at least 1 byte")?;
    AT.offset_from_base.must(
        fits(handle.offset_from_base, handle.base_size),
        handle.offset_from_base,
        "with length it stays inside base_size",
    )?;
    AT.segment_count.must(
        handle.segment_count >= 1,
        handle.segment_count,
        "a range has at least 1 segment",
    )?;
    AT.segment_index.must(
        handle.segment_index < handle.segment_count,
        handle.segment_index,
        "it counts from 0 and is below segment_count",
    )?;
    AT.range_offset.must(
        fits(handle.range_offset, handle.range_length),
        handle.range_offset,
        "with length it stays inside range_length",
    )?;
    if handle.segment_count == 1 {
        AT.range_offset.must(
            handle.range_offset == 0,
            handle.range_offset,
            "the only segment starts where its range starts",
        )?;
        AT.range_length.must(
            handle.range_length == length,
            handle.range_length,
            "the only segment is as long as its range",
        )?;
    }
    Ok(())
}
