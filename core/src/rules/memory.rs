//! What a handle says of the memory: its kind, and where the segment lies.

use super::{Checked, rule, zeros};
use crate::handle::{GpuIpcMemHandle, NOT_HOST_NUMA};
use crate::layout::handle as at;
use crate::types::Attributes;

/// `start + length` is at most `whole`, and does not overflow.
fn fits(start: u64, length: u64, whole: u64) -> bool {
    start.checked_add(length).is_some_and(|end| end <= whole)
}

/// Fields that only one kind of memory has are unset for the others.
pub(super) fn check_kind(handle: &GpuIpcMemHandle) -> Checked {
    let attributes = handle.attributes();
    rule(
        handle.pool_id == 0 || attributes.contains(Attributes::MEM_POOL),
        "pool_id",
        handle.pool_id,
        "memory that is not from a pool has 0",
    )?;
    rule(
        (handle.num_devices > 0) == attributes.contains(Attributes::MULTICAST),
        "num_devices",
        handle.num_devices.into(),
        "a multicast object has at least 1, other memory 0",
    )?;
    let node = handle.numa_node;
    let host = attributes.contains(Attributes::HOST_NUMA);
    rule(
        if host {
            node >= 0
        } else {
            node == NOT_HOST_NUMA
        },
        "numa_node",
        node.cast_unsigned().into(),
        "host memory has a node of at least 0, a GPU's memory -1",
    )?;
    if host {
        zeros(
            &handle.device_uuid,
            at::DEVICE_UUID.range().start,
            "device_uuid",
            "host memory has no device, and this is where a byte is not zero",
        )?;
    }
    Ok(())
}

/// The segment lies in its allocation and in its window.
pub(super) fn check_sizes(handle: &GpuIpcMemHandle) -> Checked {
    rule(
        handle.length > 0,
        "length",
        handle.length,
        "a segment has at least 1 byte",
    )?;
    rule(
        fits(handle.offset_from_base, handle.length, handle.base_size),
        "offset_from_base",
        handle.offset_from_base,
        "with length it stays inside base_size",
    )?;
    rule(
        handle.segment_count >= 1,
        "segment_count",
        handle.segment_count.into(),
        "a window has at least 1 segment",
    )?;
    rule(
        handle.segment_index < handle.segment_count,
        "segment_index",
        handle.segment_index.into(),
        "it counts from 0 and is below segment_count",
    )?;
    rule(
        fits(handle.window_offset, handle.length, handle.window_length),
        "window_offset",
        handle.window_offset,
        "with length it stays inside window_length",
    )?;
    if handle.segment_count == 1 {
        rule(
            handle.window_offset == 0,
            "window_offset",
            handle.window_offset,
            "the only segment starts where its window starts",
        )?;
        rule(
            handle.window_length == handle.length,
            "window_length",
            handle.window_length,
            "the only segment is as long as its window",
        )?;
    }
    Ok(())
}
