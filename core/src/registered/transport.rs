//! A transport of a registered memory: another way to reach it than the GPU handles.

use crate::check::number;
use crate::layout::{TRANSPORT_BYTES, TRANSPORT_DATA_BYTES, layout};
use crate::registered::error::RegisteredError;
use crate::token;
use core::fmt;
use static_assertions::assert_eq_size;

layout! {
    #[places(TransportPlaces)]
    /// Another way to reach a registered memory, such as an InfiniBand address and its rkey. What it is
    /// and what its bytes mean is the runtime's business.
    ///
    /// The `Debug` text does not show the data, since who has it may use the memory. Comparing takes
    /// the same time wherever two differ.
    // A runtime puts its own structs into the data, which may hold words.
    #[repr(C, align(8))]
    #[derive(Clone, Copy)]
    pub struct TransportInfo {
        #[at(0)] /// The runtime's number; one memory has it once.
        kind: u32,
        #[at(4)] /// Bytes of the data in use, 0 to 64.
        length: u8,
        #[at(5)] /// 0.
        reserved: [u8; 3],
        #[at(8)] /// The runtime's; zeros after `length`.
        data: [u8; TRANSPORT_DATA_BYTES],
    }
}

assert_eq_size!(TransportInfo, [u8; TRANSPORT_BYTES]);

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
                    data,
                })
            }
            _ => Err(RegisteredError::Transport {
                index: 0,
                field: "length",
                value: number(bytes.len()),
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
        // Never longer than the data: `new` and the rules saw to it.
        self.data.get(..self.length.into()).unwrap_or(&self.data)
    }

    /// The runtime's bytes with the zeros after them, as they lie in memory.
    pub fn data(&self) -> &[u8; TRANSPORT_DATA_BYTES] {
        &self.data
    }

    pub(super) fn length(&self) -> u8 {
        self.length
    }

    /// Takes the fields as they are, without what a newer writer added: the rules come after.
    pub(super) fn of_ours(bytes: &[u8; TRANSPORT_BYTES]) -> Self {
        let reserved = [0; 3];
        Self {
            reserved,
            ..Self::of_wire(bytes)
        }
    }
}

pub(super) const LENGTH_RULE: &str = "a transport has at most 64 bytes of data";

impl PartialEq for TransportInfo {
    fn eq(&self, other: &Self) -> bool {
        token::same_bytes(&self.wire(), &other.wire())
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
