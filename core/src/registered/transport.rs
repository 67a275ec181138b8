//! A transport of a registered memory: another way to reach it than the GPU handles.

use crate::layout::{TRANSPORT_BYTES, TRANSPORT_DATA_BYTES, transport as at};
use crate::registered::error::RegisteredError;
use crate::slot::TransportData;
use crate::token;
use core::fmt;
use core::mem::offset_of;

/// Another way to reach a registered memory, such as an InfiniBand address and its rkey. What it is
/// and what its bytes mean is the runtime's business.
///
/// | at | field | type | meaning |
/// |---|---|---|---|
/// | 0 | kind | u32 | the runtime's number; one memory has it once |
/// | 4 | length | u8 | bytes of the data in use, 0 to 64 |
/// | 5 | reserved | 3 B | 0 |
/// | 8 | data | 64 B | the runtime's; zeros after `length` |
///
/// The `Debug` text does not show the data, since who has it may use the memory. Comparing takes
/// the same time wherever two differ.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TransportInfo {
    kind: u32,
    length: u8,
    reserved: [u8; 3],
    data: TransportData,
}

const _: () = assert!(
    size_of::<TransportInfo>() == TRANSPORT_BYTES
        && at::KIND.is(offset_of!(TransportInfo, kind), size_of::<u32>())
        && at::LENGTH.is(offset_of!(TransportInfo, length), size_of::<u8>())
        && at::RESERVED.is(offset_of!(TransportInfo, reserved), size_of::<[u8; 3]>())
        && at::DATA.is(offset_of!(TransportInfo, data), size_of::<TransportData>()),
    "in memory and on the wire a transport is the same bytes"
);

impl TransportInfo {
    /// A transport of this kind with these bytes.
    ///
    /// # Errors
    ///
    /// [`RegisteredError::Transport`], with index 0, for more than 64 bytes.
    pub fn new(kind: u32, bytes: &[u8]) -> Result<Self, RegisteredError> {
        let mut data = [0; TRANSPORT_DATA_BYTES];
        let length = u8::try_from(bytes.len()).ok();
        match (length, data.get_mut(..bytes.len())) {
            (Some(length), Some(part)) => {
                part.copy_from_slice(bytes);
                Ok(Self {
                    kind,
                    length,
                    reserved: [0; 3],
                    data: TransportData::new(data),
                })
            }
            _ => Err(RegisteredError::Transport {
                index: 0,
                field: "length",
                value: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
                rule: LENGTH_RULE,
            }),
        }
    }

    /// The runtime's number of this kind of transport.
    pub fn kind(&self) -> u32 {
        self.kind
    }

    /// The runtime's bytes, 0 to 64.
    pub fn bytes(&self) -> &[u8] {
        let data = self.data.bytes();
        // Never longer than the data: `new` and the rules saw to it.
        data.get(..self.length.into()).unwrap_or(data)
    }

    /// The runtime's bytes with the zeros after them, as they lie in memory.
    pub fn data(&self) -> &[u8; TRANSPORT_DATA_BYTES] {
        self.data.bytes()
    }

    pub(super) fn length(&self) -> u8 {
        self.length
    }

    pub(super) fn encode(&self) -> [u8; TRANSPORT_BYTES] {
        let mut bytes = [0; TRANSPORT_BYTES];
        at::KIND.put(&mut bytes, self.kind.to_le_bytes());
        at::LENGTH.put(&mut bytes, self.length.to_le_bytes());
        at::RESERVED.put(&mut bytes, self.reserved);
        at::DATA.put(&mut bytes, *self.data.bytes());
        bytes
    }

    /// Takes the fields as they are, without what a newer writer added: the rules come after.
    pub(super) fn read(bytes: &[u8; TRANSPORT_BYTES]) -> Self {
        Self {
            kind: u32::from_le_bytes(at::KIND.get(bytes)),
            length: u8::from_le_bytes(at::LENGTH.get(bytes)),
            reserved: [0; 3],
            data: TransportData::new(at::DATA.get(bytes)),
        }
    }
}

pub(super) const LENGTH_RULE: &str = "a transport has at most 64 bytes of data";

impl PartialEq for TransportInfo {
    fn eq(&self, other: &Self) -> bool {
        token::same_bytes(&self.encode(), &other.encode())
    }
}

impl Eq for TransportInfo {}

impl fmt::Debug for TransportInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransportInfo")
            .field("kind", &self.kind)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}
