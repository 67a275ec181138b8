//! Where every field of every format lies. Each place is written here once; encoding, decoding,
//! the C layout's assertions and the tests all use these constants.
//!
//! A [`Field`] knows its size and the size of the block that it lies in, and a field that would
//! stick out of its block does not compile. So reading and writing a field cannot fail.

use core::ops::Range;

/// Bytes of a handle: six lines of 64, three of header and three slots.
pub const HANDLE_BYTES: usize = 384;
/// Bytes of one slot of a handle.
pub const SLOT_BYTES: usize = 64;
/// Bytes of a message to the broker.
pub const REQUEST_BYTES: usize = 64;
/// Bytes of the broker's answer.
pub const REPLY_BYTES: usize = 64;
/// The version of the handle's format that this crate writes, and the newest that it knows fully.
pub const FORMAT_VERSION: u8 = 1;

/// `N` bytes inside a block of `BLOCK` bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<const N: usize, const BLOCK: usize> {
    start: usize,
    end: usize,
}

impl<const N: usize, const BLOCK: usize> Field<N, BLOCK> {
    /// Used in constants only, where the panic is a compile error.
    const fn at(start: usize) -> Self {
        match start.checked_add(N) {
            Some(end) if end <= BLOCK => Self { start, end },
            _ => panic!("the field sticks out of its block"),
        }
    }

    pub(crate) const fn range(self) -> Range<usize> {
        self.start..self.end
    }

    /// True where the field is exactly `bytes` long and starts at `offset`: for the assertions
    /// that tie a C struct to this table.
    pub(crate) const fn is(self, offset: usize, bytes: usize) -> bool {
        self.start == offset && N == bytes
    }

    pub(crate) fn slice(self, block: &[u8; BLOCK]) -> &[u8; N] {
        // `at` saw that the range lies in the block and is N long: the zeros are never given.
        match block.get(self.range()).and_then(|part| part.first_chunk()) {
            Some(part) => part,
            None => const { &[0; N] },
        }
    }

    pub(crate) fn get(self, block: &[u8; BLOCK]) -> [u8; N] {
        *self.slice(block)
    }

    pub(crate) fn put(self, block: &mut [u8; BLOCK], value: [u8; N]) {
        let part = block.get_mut(self.range());
        // Always there, for the reason that `slice` gives.
        if let Some(part) = part.and_then(|part| part.first_chunk_mut()) {
            *part = value;
        }
    }
}

/// The handle. The table in the documentation of [`GpuIpcMemHandle`](crate::GpuIpcMemHandle) says
/// what each field means.
pub(crate) mod handle {
    use super::{Field, HANDLE_BYTES, SLOT_BYTES};

    type At<const N: usize> = Field<N, HANDLE_BYTES>;

    pub(crate) const MAGIC: At<4> = Field::at(0);
    pub(crate) const VERSION: At<1> = Field::at(4);
    pub(crate) const MIN_READER: At<1> = Field::at(5);
    pub(crate) const PLATFORM: At<1> = Field::at(6);
    pub(crate) const TYPE_FLAGS: At<1> = Field::at(7);
    pub(crate) const ATTRIBUTES: At<2> = Field::at(8);
    pub(crate) const NUM_DEVICES: At<2> = Field::at(10);
    pub(crate) const NUMA_NODE: At<2> = Field::at(12);
    pub(crate) const RESERVED_SHORT: At<2> = Field::at(14);
    pub(crate) const BASE_SIZE: At<8> = Field::at(16);
    pub(crate) const OFFSET_FROM_BASE: At<8> = Field::at(24);
    pub(crate) const LENGTH: At<8> = Field::at(32);
    pub(crate) const ALLOCATION_ID: At<8> = Field::at(40);
    pub(crate) const WINDOW_ID: At<8> = Field::at(48);
    pub(crate) const WINDOW_LENGTH: At<8> = Field::at(56);
    pub(crate) const WINDOW_OFFSET: At<8> = Field::at(64);
    pub(crate) const SEGMENT_INDEX: At<4> = Field::at(72);
    pub(crate) const SEGMENT_COUNT: At<4> = Field::at(76);
    pub(crate) const DEVICE_UUID: At<16> = Field::at(80);
    pub(crate) const PROCESS_ID: At<16> = Field::at(96);
    pub(crate) const HOST_ID: At<16> = Field::at(112);
    pub(crate) const PID: At<4> = Field::at(128);
    pub(crate) const PID_NAMESPACE: At<4> = Field::at(132);
    pub(crate) const NET_NAMESPACE: At<4> = Field::at(136);
    pub(crate) const FABRIC_CLIQUE: At<4> = Field::at(140);
    pub(crate) const FABRIC_CLUSTER: At<16> = Field::at(144);
    pub(crate) const POOL_ID: At<8> = Field::at(160);
    pub(crate) const RESERVED: At<20> = Field::at(168);
    pub(crate) const CHECKSUM: At<4> = Field::at(188);
    pub(crate) const SLOT_0: At<SLOT_BYTES> = Field::at(192);
    pub(crate) const SLOT_1: At<SLOT_BYTES> = Field::at(256);
    pub(crate) const SLOT_2: At<SLOT_BYTES> = Field::at(320);

    /// What the checksum covers: all that lies before it and all that lies after it.
    pub(crate) const BEFORE_CHECKSUM: At<188> = Field::at(0);
    pub(crate) const AFTER_CHECKSUM: At<192> = Field::at(192);
}

/// The ticket, in slot 1 of a handle.
pub(crate) mod ticket {
    use super::{Field, SLOT_BYTES};

    type At<const N: usize> = Field<N, SLOT_BYTES>;

    pub(crate) const ENDPOINT: At<16> = Field::at(0);
    pub(crate) const TOKEN: At<16> = Field::at(16);
    pub(crate) const FD: At<4> = Field::at(32);
    pub(crate) const LEDGER_FD: At<4> = Field::at(36);
    pub(crate) const LEDGER_SLOT: At<4> = Field::at(40);
    pub(crate) const RESERVED: At<4> = Field::at(44);
    pub(crate) const LEDGER_DEVICE: At<8> = Field::at(48);
    pub(crate) const LEDGER_INODE: At<8> = Field::at(56);

    /// Two fields of the ledger that lie side by side.
    pub(crate) const LEDGER_FD_AND_SLOT: At<8> = Field::at(36);
}

/// What an importer sends to the broker.
pub(crate) mod request {
    use super::{Field, REQUEST_BYTES};

    type At<const N: usize> = Field<N, REQUEST_BYTES>;

    pub(crate) const MAGIC: At<4> = Field::at(0);
    pub(crate) const VERSION: At<1> = Field::at(4);
    pub(crate) const KIND: At<1> = Field::at(5);
    pub(crate) const RESERVED_SHORT: At<2> = Field::at(6);
    pub(crate) const ID: At<8> = Field::at(8);
    pub(crate) const ALLOCATION_ID: At<8> = Field::at(16);
    pub(crate) const TOKEN: At<16> = Field::at(24);
    pub(crate) const RESERVED: At<24> = Field::at(40);
}

/// What the broker answers.
pub(crate) mod reply {
    use super::{Field, REPLY_BYTES};

    type At<const N: usize> = Field<N, REPLY_BYTES>;

    pub(crate) const MAGIC: At<4> = Field::at(0);
    pub(crate) const VERSION: At<1> = Field::at(4);
    pub(crate) const STATUS: At<1> = Field::at(5);
    pub(crate) const RESERVED_SHORT: At<2> = Field::at(6);
    pub(crate) const ID: At<8> = Field::at(8);
    pub(crate) const ALLOCATION_ID: At<8> = Field::at(16);
    pub(crate) const DETAIL: At<4> = Field::at(24);
    pub(crate) const RESERVED_MIDDLE: At<4> = Field::at(28);
    pub(crate) const POINTER: At<8> = Field::at(32);
    pub(crate) const SIZE: At<8> = Field::at(40);
    pub(crate) const RESERVED: At<16> = Field::at(48);
}

#[cfg(test)]
#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions
)]
mod tests {
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
}
