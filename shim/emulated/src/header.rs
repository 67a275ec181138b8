//! What the file behind a piece of memory says of itself, before the bytes.

const MAGIC: &[u8; 8] = b"GPUIPCEM";
const VERSION: u32 = 2;

/// Layout of the header, little-endian.
mod field {
    use core::ops::Range;
    pub(super) const MAGIC: Range<usize> = 0..8;
    pub(super) const VERSION: Range<usize> = 8..12;
    pub(super) const KIND: Range<usize> = 12..16;
    pub(super) const PLACE: Range<usize> = 16..20;
    pub(super) const PLACE_ID: Range<usize> = 20..24;
    pub(super) const SIZE: Range<usize> = 24..32;
    pub(super) const BLOCK_OFFSET: Range<usize> = 32..40;
    pub(super) const ID: Range<usize> = 40..56;
    pub(super) const END: usize = 56;
}

/// Bytes of the header itself.
pub(crate) const HEADER_LEN: usize = field::END;

/// Which family of calls made the memory; it decides who may open it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// `cuMemCreate`.
    Vmm,
    /// `cuMemAlloc`.
    Alloc,
    /// `cuMemHostAlloc`.
    Host,
    /// `cuMemPoolCreate`: the whole of a pool, whose allocations lie in it.
    Pool,
    /// `cuMulticastCreate`: no memory, but what is bound to the object.
    Multicast,
}

/// Where the memory lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// A GPU, by the machine's number.
    Gpu(u32),
    /// A NUMA node of the host.
    Numa(u32),
    /// No memory at all: the switch between the GPUs.
    Switch,
}

/// What the header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    /// Who made it.
    pub(crate) kind: Kind,
    /// Where it lies.
    pub(crate) place: Place,
    /// Bytes of memory.
    pub(crate) size: u64,
    /// Where the memory begins in the driver's block of its maker.
    pub(crate) block_offset: u64,
    /// Random; the same memory in every process.
    pub(crate) id: [u8; 16],
}

impl Header {
    /// The bytes of the file's beginning.
    pub(crate) fn encode(&self) -> [u8; HEADER_LEN] {
        let kind: u32 = match self.kind {
            Kind::Vmm => 1,
            Kind::Alloc => 2,
            Kind::Host => 3,
            Kind::Pool => 4,
            Kind::Multicast => 5,
        };
        let (place, place_id): (u32, u32) = match self.place {
            Place::Gpu(device) => (1, device),
            Place::Numa(node) => (2, node),
            Place::Switch => (3, 0),
        };
        let mut bytes = [0; HEADER_LEN];
        bytes[field::MAGIC].copy_from_slice(MAGIC);
        bytes[field::VERSION].copy_from_slice(&VERSION.to_le_bytes());
        bytes[field::KIND].copy_from_slice(&kind.to_le_bytes());
        bytes[field::PLACE].copy_from_slice(&place.to_le_bytes());
        bytes[field::PLACE_ID].copy_from_slice(&place_id.to_le_bytes());
        bytes[field::SIZE].copy_from_slice(&self.size.to_le_bytes());
        bytes[field::BLOCK_OFFSET].copy_from_slice(&self.block_offset.to_le_bytes());
        bytes[field::ID].copy_from_slice(&self.id);
        bytes
    }

    /// Reads them back; nothing from a file that is no memory.
    pub(crate) fn decode(bytes: &[u8; HEADER_LEN]) -> Option<Self> {
        let small = |at: core::ops::Range<usize>| bytes[at].try_into().map(u32::from_le_bytes).ok();
        let large = |at: core::ops::Range<usize>| bytes[at].try_into().map(u64::from_le_bytes).ok();
        if &bytes[field::MAGIC] != MAGIC || small(field::VERSION)? != VERSION {
            return None;
        }
        let kind = match small(field::KIND)? {
            1 => Kind::Vmm,
            2 => Kind::Alloc,
            3 => Kind::Host,
            4 => Kind::Pool,
            5 => Kind::Multicast,
            _ => return None,
        };
        let place = match (small(field::PLACE)?, small(field::PLACE_ID)?) {
            (1, device) => Place::Gpu(device),
            (2, node) => Place::Numa(node),
            (3, 0) => Place::Switch,
            _ => return None,
        };
        let (size, block_offset) = (large(field::SIZE)?, large(field::BLOCK_OFFSET)?);
        let sane = size > 0 && block_offset < crate::blocks::BLOCK;
        let id = bytes[field::ID].try_into().ok()?;
        sane.then_some(Self {
            kind,
            place,
            size,
            block_offset,
            id,
        })
    }
}
