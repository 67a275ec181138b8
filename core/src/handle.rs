//! The handle: its layout in memory, which is its wire form, and the way from and to bytes.

use crate::error::DecodeError;
use crate::layout::{HANDLE_BYTES, handle as at};
use crate::slot::Slot;
use crate::{rules, token};
use core::fmt;
use core::mem::offset_of;
use static_assertions::{assert_eq_align, assert_eq_size, assert_impl_all};

/// The first four bytes: the letters `GIPC`.
pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"GIPC");
/// The oldest version that can read what this crate writes.
pub(crate) const MIN_READER: u8 = 1;
/// The only platform so far. 2 is kept for HIP.
pub(crate) const PLATFORM_CUDA: u8 = 1;
/// `numa_node` of memory that is a GPU's.
pub(crate) const NOT_HOST_NUMA: i16 = -1;

/// One segment of shared GPU memory, with every way of sharing that it allows: 384 bytes,
/// little-endian, without padding, to be shipped by any means.
///
/// A handle that exists keeps all rules of the format. Made by [`new`](Self::new) or
/// [`decode`](Self::decode), turned to bytes by [`encode`](Self::encode). Whoever holds the bytes
/// may ask for the memory, so they are to be kept like a password; the `Debug` text shows neither
/// the token nor the driver's bytes.
///
/// | at | field | type | meaning |
/// |---|---|---|---|
/// | 0 | magic | u32 | `GIPC` |
/// | 4 | version, min_reader | u8, u8 | written by; the oldest reader that may use it |
/// | 6 | platform | u8 | 1 CUDA (2 kept for HIP) |
/// | 7 | type_flags | u8 | [`TypeFlags`](crate::TypeFlags) |
/// | 8 | attributes | u16 | [`Attributes`](crate::Attributes) |
/// | 10 | num_devices | u16 | multicast: members; else 0 |
/// | 12 | numa_node | i16 | pinned host memory: its node; else -1 |
/// | 14 | reserved | u16 | 0 |
/// | 16 | base_size | u64 | bytes of the whole allocation: what must be mapped |
/// | 24 | offset_from_base | u64 | bytes |
/// | 32 | length | u64 | bytes of this segment, > 0; offset + length <= base_size |
/// | 40 | allocation_id | u64 | the driver's BUFFER_ID |
/// | 48 | window_id | u64 | same in all segments of one exported window |
/// | 56 | window_length | u64 | bytes of the whole window |
/// | 64 | window_offset | u64 | where this segment starts in the window |
/// | 72 | segment_index, segment_count | u32, u32 | 0, 1 for a window inside one allocation |
/// | 80 | device_uuid | 16 B | the GPU that holds the memory; 0 for host memory |
/// | 96 | process_id | 16 B | random, one a process |
/// | 112 | host_id | 16 B | the kernel's boot id or what stands for it; zeros where unknown |
/// | 128 | pid, pid_namespace, net_namespace | 3 x u32 | for messages; never an identity |
/// | 140 | fabric_clique | u32 | from NVML; 0 where unknown |
/// | 144 | fabric_cluster | 16 B | zero where there is no domain |
/// | 160 | pool_id | u64 | pool memory: the exporter's number of the pool; else 0 |
/// | 168 | reserved | 20 B | 0 |
/// | 188 | checksum | u32 | CRC-32C of the other 380 bytes |
/// | 192 | slot 0 | 64 B | `CUipcMemHandle` (RuntimeIpc) or `CUmemPoolPtrExportData` (pool memory) |
/// | 256 | slot 1 | 64 B | the [`Ticket`](crate::Ticket) (attribute Ticket) |
/// | 320 | slot 2 | 64 B | `CUmemFabricHandle` (Fabric) |
///
/// A slot that is not announced is all zeros. A reader takes a handle whose `min_reader` is at most
/// its own version, and ignores (but keeps) the bits and reserved bytes that a newer writer set.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct GpuIpcMemHandle {
    pub(crate) magic: u32,
    pub(crate) version: u8,
    pub(crate) min_reader: u8,
    pub(crate) platform: u8,
    pub(crate) type_flags: u8,
    pub(crate) attributes: u16,
    pub(crate) num_devices: u16,
    pub(crate) numa_node: i16,
    pub(crate) reserved_short: u16,
    pub(crate) base_size: u64,
    pub(crate) offset_from_base: u64,
    pub(crate) length: u64,
    pub(crate) allocation_id: u64,
    pub(crate) window_id: u64,
    pub(crate) window_length: u64,
    pub(crate) window_offset: u64,
    pub(crate) segment_index: u32,
    pub(crate) segment_count: u32,
    pub(crate) device_uuid: [u8; 16],
    pub(crate) process_id: [u8; 16],
    pub(crate) host_id: [u8; 16],
    pub(crate) pid: u32,
    pub(crate) pid_namespace: u32,
    pub(crate) net_namespace: u32,
    pub(crate) fabric_clique: u32,
    pub(crate) fabric_cluster: [u8; 16],
    pub(crate) pool_id: u64,
    pub(crate) reserved: [u8; 20],
    pub(crate) checksum: u32,
    pub(crate) slot_0: Slot,
    pub(crate) slot_1: Slot,
    pub(crate) slot_2: Slot,
}

assert_eq_size!(GpuIpcMemHandle, [u8; HANDLE_BYTES]);
assert_eq_align!(GpuIpcMemHandle, u64);
assert_impl_all!(GpuIpcMemHandle: Send, Sync, Copy);

/// Ties a field of the struct to its place on the wire; its type gives the size.
macro_rules! same_place {
    ($($field:ident: $type:ty => $place:ident,)*) => {$(
        const _: () = assert!(
            at::$place.is(offset_of!(GpuIpcMemHandle, $field), size_of::<$type>()),
            concat!("in memory and on the wire ", stringify!($field), " is the same bytes")
        );
    )*};
}

same_place! {
    magic: u32 => MAGIC,
    version: u8 => VERSION,
    min_reader: u8 => MIN_READER,
    platform: u8 => PLATFORM,
    type_flags: u8 => TYPE_FLAGS,
    attributes: u16 => ATTRIBUTES,
    num_devices: u16 => NUM_DEVICES,
    numa_node: i16 => NUMA_NODE,
    reserved_short: u16 => RESERVED_SHORT,
    base_size: u64 => BASE_SIZE,
    offset_from_base: u64 => OFFSET_FROM_BASE,
    length: u64 => LENGTH,
    allocation_id: u64 => ALLOCATION_ID,
    window_id: u64 => WINDOW_ID,
    window_length: u64 => WINDOW_LENGTH,
    window_offset: u64 => WINDOW_OFFSET,
    segment_index: u32 => SEGMENT_INDEX,
    segment_count: u32 => SEGMENT_COUNT,
    device_uuid: [u8; 16] => DEVICE_UUID,
    process_id: [u8; 16] => PROCESS_ID,
    host_id: [u8; 16] => HOST_ID,
    pid: u32 => PID,
    pid_namespace: u32 => PID_NAMESPACE,
    net_namespace: u32 => NET_NAMESPACE,
    fabric_clique: u32 => FABRIC_CLIQUE,
    fabric_cluster: [u8; 16] => FABRIC_CLUSTER,
    pool_id: u64 => POOL_ID,
    reserved: [u8; 20] => RESERVED,
    checksum: u32 => CHECKSUM,
    slot_0: Slot => SLOT_0,
    slot_1: Slot => SLOT_1,
    slot_2: Slot => SLOT_2,
}

impl GpuIpcMemHandle {
    /// The handle's bytes, the same on every machine.
    pub fn encode(&self) -> [u8; HANDLE_BYTES] {
        let mut bytes = [0; HANDLE_BYTES];
        let b = &mut bytes;
        at::MAGIC.put(b, self.magic.to_le_bytes());
        at::VERSION.put(b, self.version.to_le_bytes());
        at::MIN_READER.put(b, self.min_reader.to_le_bytes());
        at::PLATFORM.put(b, self.platform.to_le_bytes());
        at::TYPE_FLAGS.put(b, self.type_flags.to_le_bytes());
        at::ATTRIBUTES.put(b, self.attributes.to_le_bytes());
        at::NUM_DEVICES.put(b, self.num_devices.to_le_bytes());
        at::NUMA_NODE.put(b, self.numa_node.to_le_bytes());
        at::RESERVED_SHORT.put(b, self.reserved_short.to_le_bytes());
        at::BASE_SIZE.put(b, self.base_size.to_le_bytes());
        at::OFFSET_FROM_BASE.put(b, self.offset_from_base.to_le_bytes());
        at::LENGTH.put(b, self.length.to_le_bytes());
        at::ALLOCATION_ID.put(b, self.allocation_id.to_le_bytes());
        at::WINDOW_ID.put(b, self.window_id.to_le_bytes());
        at::WINDOW_LENGTH.put(b, self.window_length.to_le_bytes());
        at::WINDOW_OFFSET.put(b, self.window_offset.to_le_bytes());
        at::SEGMENT_INDEX.put(b, self.segment_index.to_le_bytes());
        at::SEGMENT_COUNT.put(b, self.segment_count.to_le_bytes());
        at::DEVICE_UUID.put(b, self.device_uuid);
        at::PROCESS_ID.put(b, self.process_id);
        at::HOST_ID.put(b, self.host_id);
        at::PID.put(b, self.pid.to_le_bytes());
        at::PID_NAMESPACE.put(b, self.pid_namespace.to_le_bytes());
        at::NET_NAMESPACE.put(b, self.net_namespace.to_le_bytes());
        at::FABRIC_CLIQUE.put(b, self.fabric_clique.to_le_bytes());
        at::FABRIC_CLUSTER.put(b, self.fabric_cluster);
        at::POOL_ID.put(b, self.pool_id.to_le_bytes());
        at::RESERVED.put(b, self.reserved);
        at::CHECKSUM.put(b, self.checksum.to_le_bytes());
        at::SLOT_0.put(b, *self.slot_0.bytes());
        at::SLOT_1.put(b, *self.slot_1.bytes());
        at::SLOT_2.put(b, *self.slot_2.bytes());
        bytes
    }

    /// Turns bytes from anywhere, of any length, into a handle. Never panics.
    ///
    /// # Errors
    ///
    /// The first rule that the bytes break, in the order of [`DecodeError`]'s variants; versions
    /// that make no sense are a [`DecodeError::Field`] before the checksum is looked at.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let Ok(bytes) = bytes.try_into() else {
            return Err(DecodeError::Length { got: bytes.len() });
        };
        let handle = Self::read(bytes);
        rules::check_readable(&handle)?;
        rules::check_sum(&handle, bytes)?;
        rules::check(&handle)?;
        Ok(handle)
    }

    /// Takes the fields as they are: the rules come after.
    pub(crate) fn read(b: &[u8; HANDLE_BYTES]) -> Self {
        Self {
            magic: u32::from_le_bytes(at::MAGIC.get(b)),
            version: u8::from_le_bytes(at::VERSION.get(b)),
            min_reader: u8::from_le_bytes(at::MIN_READER.get(b)),
            platform: u8::from_le_bytes(at::PLATFORM.get(b)),
            type_flags: u8::from_le_bytes(at::TYPE_FLAGS.get(b)),
            attributes: u16::from_le_bytes(at::ATTRIBUTES.get(b)),
            num_devices: u16::from_le_bytes(at::NUM_DEVICES.get(b)),
            numa_node: i16::from_le_bytes(at::NUMA_NODE.get(b)),
            reserved_short: u16::from_le_bytes(at::RESERVED_SHORT.get(b)),
            base_size: u64::from_le_bytes(at::BASE_SIZE.get(b)),
            offset_from_base: u64::from_le_bytes(at::OFFSET_FROM_BASE.get(b)),
            length: u64::from_le_bytes(at::LENGTH.get(b)),
            allocation_id: u64::from_le_bytes(at::ALLOCATION_ID.get(b)),
            window_id: u64::from_le_bytes(at::WINDOW_ID.get(b)),
            window_length: u64::from_le_bytes(at::WINDOW_LENGTH.get(b)),
            window_offset: u64::from_le_bytes(at::WINDOW_OFFSET.get(b)),
            segment_index: u32::from_le_bytes(at::SEGMENT_INDEX.get(b)),
            segment_count: u32::from_le_bytes(at::SEGMENT_COUNT.get(b)),
            device_uuid: at::DEVICE_UUID.get(b),
            process_id: at::PROCESS_ID.get(b),
            host_id: at::HOST_ID.get(b),
            pid: u32::from_le_bytes(at::PID.get(b)),
            pid_namespace: u32::from_le_bytes(at::PID_NAMESPACE.get(b)),
            net_namespace: u32::from_le_bytes(at::NET_NAMESPACE.get(b)),
            fabric_clique: u32::from_le_bytes(at::FABRIC_CLIQUE.get(b)),
            fabric_cluster: at::FABRIC_CLUSTER.get(b),
            pool_id: u64::from_le_bytes(at::POOL_ID.get(b)),
            reserved: at::RESERVED.get(b),
            checksum: u32::from_le_bytes(at::CHECKSUM.get(b)),
            slot_0: Slot::new(at::SLOT_0.get(b)),
            slot_1: Slot::new(at::SLOT_1.get(b)),
            slot_2: Slot::new(at::SLOT_2.get(b)),
        }
    }
}

/// Byte by byte, and in constant time, since a handle holds a secret.
impl PartialEq for GpuIpcMemHandle {
    fn eq(&self, other: &Self) -> bool {
        token::same_bytes(&self.encode(), &other.encode())
    }
}

impl Eq for GpuIpcMemHandle {}

impl fmt::Debug for GpuIpcMemHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuIpcMemHandle")
            .field("version", &self.version)
            .field("min_reader", &self.min_reader)
            .field("types", &self.types())
            .field("attributes", &self.attributes())
            // Masks what is secret.
            .field("fields", &self.fields())
            .field("checksum", &format_args!("{:#010x}", self.checksum))
            .finish()
    }
}
