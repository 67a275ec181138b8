//! Every byte of every format is one field's.
#![allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions
)]

use super::*;
use std::vec::Vec;

/// The ranges follow each other without a gap or an overlap, and fill the block.
fn fills(ranges: &[Range<usize>], block: usize) {
    let mut end = 0;
    for range in ranges {
        assert_eq!(range.start, end);
        end = range.end;
    }
    assert_eq!(end, block);
}

#[test]
fn every_byte_of_a_handle_belongs_to_exactly_one_field() {
    use handle::*;
    let ranges: Vec<Range<usize>> = std::vec![
        MAGIC.range(),
        VERSION.range(),
        MIN_READER.range(),
        PLATFORM.range(),
        TYPE_FLAGS.range(),
        ATTRIBUTES.range(),
        NUM_DEVICES.range(),
        NUMA_NODE.range(),
        RESERVED_SHORT.range(),
        BASE_SIZE.range(),
        OFFSET_FROM_BASE.range(),
        LENGTH.range(),
        ALLOCATION_ID.range(),
        WINDOW_ID.range(),
        WINDOW_LENGTH.range(),
        WINDOW_OFFSET.range(),
        SEGMENT_INDEX.range(),
        SEGMENT_COUNT.range(),
        DEVICE_UUID.range(),
        PROCESS_ID.range(),
        HOST_ID.range(),
        PID.range(),
        PID_NAMESPACE.range(),
        NET_NAMESPACE.range(),
        FABRIC_CLIQUE.range(),
        FABRIC_CLUSTER.range(),
        POOL_ID.range(),
        RESERVED.range(),
        CHECKSUM.range(),
        SLOT_0.range(),
        SLOT_1.range(),
        SLOT_2.range(),
    ];
    fills(&ranges, HANDLE_BYTES);
    fills(
        &[
            BEFORE_CHECKSUM.range(),
            CHECKSUM.range(),
            AFTER_CHECKSUM.range(),
        ],
        HANDLE_BYTES,
    );
}

#[test]
fn every_byte_of_a_ticket_and_a_message_belongs_to_exactly_one_field() {
    use ticket::*;
    let ticket = [
        ENDPOINT.range(),
        TOKEN.range(),
        FD.range(),
        LEDGER_FD.range(),
        LEDGER_SLOT.range(),
        RESERVED.range(),
        LEDGER_DEVICE.range(),
        LEDGER_INODE.range(),
    ];
    fills(&ticket, SLOT_BYTES);
    let request = [
        request::MAGIC.range(),
        request::VERSION.range(),
        request::KIND.range(),
        request::RESERVED_SHORT.range(),
        request::ID.range(),
        request::ALLOCATION_ID.range(),
        request::TOKEN.range(),
        request::RESERVED.range(),
    ];
    fills(&request, REQUEST_BYTES);
    let reply = [
        reply::MAGIC.range(),
        reply::VERSION.range(),
        reply::STATUS.range(),
        reply::RESERVED_SHORT.range(),
        reply::ID.range(),
        reply::ALLOCATION_ID.range(),
        reply::DETAIL.range(),
        reply::RESERVED_MIDDLE.range(),
        reply::POINTER.range(),
        reply::SIZE.range(),
        reply::RESERVED.range(),
    ];
    fills(&reply, REPLY_BYTES);
}

#[test]
fn every_byte_of_a_registered_memory_belongs_to_exactly_one_field() {
    use registered::*;
    let header = [
        MAGIC.range(),
        VERSION.range(),
        MIN_READER.range(),
        TRANSPORT_COUNT.range(),
        HANDLE_COUNT.range(),
        PID.range(),
        POINTER.range(),
        SIZE.range(),
        PROCESS_ID.range(),
        HOST_ID.range(),
        PID_NAMESPACE.range(),
        RESERVED.range(),
        CHECKSUM.range(),
    ];
    fills(&header, REGISTERED_HEADER_BYTES);
    let summed = [BEFORE_CHECKSUM.range(), CHECKSUM.range()];
    fills(&summed, REGISTERED_HEADER_BYTES);
    let transport = [
        transport::KIND.range(),
        transport::LENGTH.range(),
        transport::RESERVED.range(),
        transport::DATA.range(),
    ];
    fills(&transport, TRANSPORT_BYTES);
}
