//! What a handle announces: its types, its attributes, and the slots that they fill.

use super::{Checked, rule, zeros};
use crate::handle::GpuIpcMemHandle;
use crate::layout::{handle as at, ticket};
use crate::ticket::{NO_FD, wire_fd, wire_ledger};
use crate::types::{Attributes, TypeFlags};

/// Types and attributes go together.
pub(super) fn check_types(handle: &GpuIpcMemHandle) -> Checked {
    let (types, attributes) = (handle.types(), handle.attributes());
    rule(
        !types.is_empty(),
        "type_flags",
        handle.type_flags.into(),
        "a handle has at least one type that its reader knows",
    )?;
    rule(
        !types.contains(TypeFlags::POSIX_FD) || attributes.contains(Attributes::TICKET),
        "attributes",
        handle.attributes.into(),
        "a handle with PosixFd has a ticket",
    )?;
    let pool = attributes.contains(Attributes::MEM_POOL);
    let runtime_ipc = types.contains(TypeFlags::RUNTIME_IPC);
    rule(
        !(pool && runtime_ipc),
        "type_flags",
        handle.type_flags.into(),
        "a pool's memory has no RuntimeIpc",
    )?;
    let multicast = attributes.contains(Attributes::MULTICAST);
    rule(
        !(multicast && runtime_ipc),
        "type_flags",
        handle.type_flags.into(),
        "a multicast object has no RuntimeIpc",
    )?;
    rule(
        !(multicast && pool),
        "attributes",
        handle.attributes.into(),
        "a multicast object is not from a pool",
    )
}

/// A slot that is not announced is all zeros. A bit that only a newer version knows may announce
/// any of them.
pub(super) fn check_slots(handle: &GpuIpcMemHandle) -> Checked {
    if has_unknown_bits(handle) {
        return Ok(());
    }
    let (types, attributes) = (handle.types(), handle.attributes());
    let words = "a slot that is not announced is zero, and this is where it is not";
    if !types.contains(TypeFlags::RUNTIME_IPC) && !attributes.contains(Attributes::MEM_POOL) {
        zeros(
            handle.slot_0.bytes(),
            at::SLOT_0.range().start,
            "slot_0",
            words,
        )?;
    }
    if !attributes.contains(Attributes::TICKET) {
        zeros(
            handle.slot_1.bytes(),
            at::SLOT_1.range().start,
            "slot_1",
            words,
        )?;
    }
    if !types.contains(TypeFlags::FABRIC) {
        zeros(
            handle.slot_2.bytes(),
            at::SLOT_2.range().start,
            "slot_2",
            words,
        )?;
    }
    Ok(())
}

pub(super) fn check_ticket(handle: &GpuIpcMemHandle, newer: bool) -> Checked {
    if !handle.attributes().contains(Attributes::TICKET) {
        return Ok(());
    }
    let slot = handle.slot_1.bytes();
    if !newer {
        let start = at::SLOT_1.range().start;
        zeros(
            ticket::RESERVED.slice(slot),
            start.saturating_add(ticket::RESERVED.range().start),
            "ticket.reserved",
            "reserved bytes are zero, and this is where one is not",
        )?;
    }
    let fd = wire_fd(slot);
    rule(
        fd >= NO_FD,
        "ticket.fd",
        fd.cast_unsigned().into(),
        "a descriptor's number is at least 0, or -1 for none",
    )?;
    let Some(ledger) = wire_ledger(slot) else {
        let start = at::SLOT_1.range().start;
        let words = "a ticket without a ledger has zeros there, and this is where it has not";
        let zero = |part, at: core::ops::Range<usize>| {
            zeros(part, start.saturating_add(at.start), "ticket.ledger", words)
        };
        zero(
            ticket::LEDGER_FD_AND_SLOT.slice(slot),
            ticket::LEDGER_FD_AND_SLOT.range(),
        )?;
        return zero(
            ticket::LEDGER_DEVICE.slice(slot),
            ticket::LEDGER_DEVICE.range(),
        );
    };
    rule(
        ledger.fd >= 0,
        "ticket.ledger.fd",
        ledger.fd.cast_unsigned().into(),
        "a descriptor's number is at least 0",
    )
}

fn has_unknown_bits(handle: &GpuIpcMemHandle) -> bool {
    handle.types().bits() != handle.type_flags || handle.attributes().bits() != handle.attributes
}
