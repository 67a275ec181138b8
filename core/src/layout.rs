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
/// Bytes that begin a registered memory: two lines of 64, before its transports and handles.
pub const REGISTERED_HEADER_BYTES: usize = 128;
/// Bytes of one transport of a registered memory: what it is, and its data.
pub const TRANSPORT_BYTES: usize = 72;
/// Bytes that a transport has for its data.
pub const TRANSPORT_DATA_BYTES: usize = 64;

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

/// What begins a registered memory. The table in the documentation of
/// [`RegisteredMemoryRef`](crate::RegisteredMemoryRef) says what each field means.
pub(crate) mod registered {
    use super::{Field, REGISTERED_HEADER_BYTES};

    type At<const N: usize> = Field<N, REGISTERED_HEADER_BYTES>;

    pub(crate) const MAGIC: At<4> = Field::at(0);
    pub(crate) const VERSION: At<1> = Field::at(4);
    pub(crate) const MIN_READER: At<1> = Field::at(5);
    pub(crate) const TRANSPORT_COUNT: At<2> = Field::at(6);
    pub(crate) const HANDLE_COUNT: At<4> = Field::at(8);
    pub(crate) const PID: At<4> = Field::at(12);
    pub(crate) const POINTER: At<8> = Field::at(16);
    pub(crate) const SIZE: At<8> = Field::at(24);
    pub(crate) const PROCESS_ID: At<16> = Field::at(32);
    pub(crate) const HOST_ID: At<16> = Field::at(48);
    pub(crate) const PID_NAMESPACE: At<4> = Field::at(64);
    pub(crate) const RESERVED: At<56> = Field::at(68);
    pub(crate) const CHECKSUM: At<4> = Field::at(124);

    /// What the checksum covers of the header; the transports come after.
    pub(crate) const BEFORE_CHECKSUM: At<124> = Field::at(0);
}

/// A transport of a registered memory.
pub(crate) mod transport {
    use super::{Field, TRANSPORT_BYTES, TRANSPORT_DATA_BYTES};

    type At<const N: usize> = Field<N, TRANSPORT_BYTES>;

    pub(crate) const KIND: At<4> = Field::at(0);
    pub(crate) const LENGTH: At<1> = Field::at(4);
    pub(crate) const RESERVED: At<3> = Field::at(5);
    pub(crate) const DATA: At<TRANSPORT_DATA_BYTES> = Field::at(8);
}

#[cfg(test)]
mod tests;
