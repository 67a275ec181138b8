//! The handle: its layout in memory, which is its wire form, and the way from and to bytes.

use crate::error::DecodeError;
use crate::identity::{ClusterUuid, DeviceUuid, HostId, ProcessId};
use crate::layout::{FORMAT_VERSION, HANDLE_BYTES, SLOT_BYTES, layout};
use crate::slot::Slot;
use crate::ticket::Ticket;
use crate::types::{Attributes, TypeFlags};
use crate::{checksum_of, rules, token};
use core::fmt;
use static_assertions::{assert_eq_align, assert_eq_size, assert_impl_all};

/// The first four bytes: the letters `GIPC`.
pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"GIPC");
/// The oldest version that can read what this crate writes.
pub(crate) const MIN_READER: u8 = 1;
/// The only platform so far. 2 is kept for HIP.
pub(crate) const PLATFORM_CUDA: u8 = 1;
/// `numa_node` of memory that is a GPU's.
pub(crate) const NOT_HOST_NUMA: i16 = -1;

layout! {
    #[places(HandlePlaces)]
    /// One segment of shared GPU memory, with every type of sharing that it allows: 384 bytes,
    /// little-endian, without padding, to be shipped by any means.
    ///
    /// A handle that exists keeps all rules of the format. Made by [`new`](Self::new) or
    /// [`decode`](Self::decode), turned to bytes by [`encode`](Self::encode). Whoever holds the bytes
    /// may ask for the memory, so they are to be kept like a password; the `Debug` text shows neither
    /// the token nor the driver's bytes.
    ///
    /// A slot that is not announced is all zeros. A reader takes a handle whose `min_reader` is at most
    /// its own version, and ignores (but keeps) the bits and reserved bytes that a newer writer set.
    #[repr(C)]
    #[derive(Clone, Copy)]
    pub struct GpuIpcMemHandle {
        #[at(0)] /// The letters `GIPC`.
        magic: u32,
        #[at(4)] /// The version of the format that the writer has.
        version: u8,
        #[at(5)] /// The oldest version that may read the handle.
        min_reader: u8,
        #[at(6)] /// 1 is CUDA; 2 is kept for HIP.
        platform: u8,
        #[at(7)] /// The types: RuntimeIpc 1, PosixFd 2, Fabric 4.
        type_flags: u8,
        #[at(8)] /// The memory's kind and extras: ticket 1, pool 2, host memory 4, multicast 8.
        attributes: u16,
        #[at(10)] #[plain(u16)] /// Members of a multicast object; 0 for other memory.
        num_devices: u16,
        #[at(12)] /// The NUMA node of pinned host memory; else -1.
        numa_node: i16,
        #[at(14)] /// 0.
        reserved_short: u16,
        #[at(16)] #[plain(u64)] /// Bytes of the whole allocation: what an importer maps.
        base_size: u64,
        #[at(24)] #[plain(u64)] /// Bytes of the allocation before this segment.
        offset_from_base: u64,
        #[at(32)] #[plain(u64)] /// Bytes of this segment, at least 1; `offset_from_base + length` is at most `base_size`.
        length: u64,
        #[at(40)] #[plain(u64)] /// The driver's `CU_POINTER_ATTRIBUTE_BUFFER_ID`; never used again in the exporter.
        allocation_id: u64,
        #[at(48)] /// The same in all segments of one exported range.
        range_id: u64,
        #[at(56)] /// Bytes of the whole range.
        range_length: u64,
        #[at(64)] /// Bytes of the range before this segment.
        range_offset: u64,
        #[at(72)] /// This segment's place in the range, from 0.
        segment_index: u32,
        #[at(76)] /// Segments of the range: 1 for one inside one allocation.
        segment_count: u32,
        #[at(80)] #[plain(DeviceUuid)] /// The GPU that holds the memory; zero for host memory.
        device_uuid: [u8; 16],
        #[at(96)] #[plain(ProcessId)] /// The exporter.
        process_id: [u8; 16],
        #[at(112)] #[plain(HostId)] /// The exporter's host: the kernel's boot id or what stands for it; zeros where unknown.
        host_id: [u8; 16],
        #[at(128)] #[plain(u32)] /// The exporter's pid in its own namespace. For messages; it identifies nobody by itself.
        pid: u32,
        #[at(132)] #[plain(u32)] /// The inode of the exporter's pid namespace.
        pid_namespace: u32,
        #[at(136)] #[plain(u32)] /// The inode of the exporter's network namespace.
        net_namespace: u32,
        #[at(140)] #[plain(u32)] /// NVML's fabric clique, 0 where unknown.
        fabric_clique: u32,
        #[at(144)] #[plain(ClusterUuid)] /// NVML's fabric cluster, zero where there is none.
        fabric_cluster: [u8; 16],
        #[at(160)] #[plain(u64)] /// The exporter's number of the pool; 0 where the memory is from none.
        pool_id: u64,
        #[at(168)] /// 0.
        reserved: [u8; 20],
        #[at(188)] /// CRC-32C of the other 380 bytes.
        checksum: u32,
        #[at(192)] /// `CUipcMemHandle` (RuntimeIpc) or `CUmemPoolPtrExportData` (pool memory).
        slot_0: Slot,
        #[at(256)] /// The ticket.
        slot_1: Slot,
        #[at(320)] /// `CUmemFabricHandle` (Fabric).
        slot_2: Slot,
    }

    /// All that a handle says. [`GpuIpcMemHandle::new`] makes a handle of it,
    /// [`GpuIpcMemHandle::fields`] gives it back.
    ///
    /// The default is no valid handle: at least a size, a length, a range and one type are missing.
    /// The `Debug` text shows neither the token nor the driver's bytes, since who has them may use the
    /// memory.
    #[derive(Clone, Default, PartialEq, Eq)]
    pub struct HandleFields {
        /// What this segment is a part of.
        range: SharedRange,
        /// The NUMA node, at least 0, of pinned host memory; none for a GPU's memory.
        numa_node: Option<i16>,
        /// `CUipcMemHandle`.
        runtime_ipc: Option<[u8; SLOT_BYTES]>,
        /// `CUmemPoolPtrExportData`: the memory is from a pool.
        pool_pointer: Option<[u8; SLOT_BYTES]>,
        /// How to ask the exporter's broker.
        ticket: Option<Ticket>,
        /// The broker gives a descriptor for the ticket.
        posix_fd: bool,
        /// `CUmemFabricHandle`.
        fabric: Option<[u8; SLOT_BYTES]>,
        /// The memory is a multicast object.
        multicast: bool,
    }
}

assert_eq_size!(GpuIpcMemHandle, [u8; HANDLE_BYTES]);
assert_eq_align!(GpuIpcMemHandle, u64);
assert_impl_all!(GpuIpcMemHandle: Send, Sync, Copy);

/// The bytes that were exported together, of which a handle describes one segment.
///
/// A range that lies inside one allocation has one segment, which is all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SharedRange {
    /// The same in all segments of one range; never used again in the exporter.
    pub id: u64,
    /// Bytes of the whole range.
    pub length: u64,
    /// Bytes of the range before this segment.
    pub offset: u64,
    /// This segment's place, from 0.
    pub segment_index: u32,
    /// Segments of the range, at least 1.
    pub segment_count: u32,
}

impl GpuIpcMemHandle {
    /// Makes a handle of its fields, with the flags, attributes and checksum that follow from them.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Field`], by the same rules as [`decode`](Self::decode).
    pub fn new(fields: &HandleFields) -> Result<Self, DecodeError> {
        rules::check_fields(fields)?;
        // Both at once are against the rules, which see it in the flags.
        let slot_0 = fields.runtime_ipc.or(fields.pool_pointer);
        let ticket = fields.ticket.map(|ticket| ticket.to_slot());
        let mut handle = Self {
            magic: MAGIC,
            version: FORMAT_VERSION,
            min_reader: MIN_READER,
            platform: PLATFORM_CUDA,
            type_flags: fields.types().bits(),
            attributes: fields.attributes().bits(),
            numa_node: fields.numa_node.unwrap_or(NOT_HOST_NUMA),
            range_id: fields.range.id,
            range_length: fields.range.length,
            range_offset: fields.range.offset,
            segment_index: fields.range.segment_index,
            segment_count: fields.range.segment_count,
            slot_0: Slot::new(slot_0.unwrap_or([0; SLOT_BYTES])),
            slot_1: Slot::new(ticket.unwrap_or([0; SLOT_BYTES])),
            slot_2: Slot::new(fields.fabric.unwrap_or([0; SLOT_BYTES])),
            ..Self::of_wire(&[0; HANDLE_BYTES])
        }
        .with_plain(fields);
        rules::check(&handle)?;
        handle.checksum = checksum_of(&handle.encode());
        Ok(handle)
    }

    /// The handle's bytes, the same on every machine.
    pub fn encode(&self) -> [u8; HANDLE_BYTES] {
        self.wire()
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
        let handle = Self::of_wire(bytes);
        rules::check_readable(&handle)?;
        let (stored, computed) = (handle.checksum, checksum_of(bytes));
        if stored != computed {
            return Err(DecodeError::Checksum { stored, computed });
        }
        rules::check(&handle)?;
        Ok(handle)
    }

    /// All that the handle says, in plain types. What a newer writer added is not in it.
    pub fn fields(&self) -> HandleFields {
        self.fields_with(
            self.range(),
            self.numa_node(),
            self.runtime_ipc().copied(),
            self.pool_pointer().copied(),
            self.ticket(),
            self.types().contains(TypeFlags::POSIX_FD),
            self.fabric().copied(),
            self.attributes().contains(Attributes::MULTICAST),
        )
    }

    /// The version of the format that the writer has.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// The oldest version that may read the handle.
    pub fn min_reader(&self) -> u8 {
        self.min_reader
    }

    /// The types that the handle carries, without those that only a newer version knows.
    pub fn types(&self) -> TypeFlags {
        TypeFlags::from_bits_truncate(self.type_flags)
    }

    /// The memory's kind and extras, without those that only a newer version knows.
    pub fn attributes(&self) -> Attributes {
        Attributes::from_bits_truncate(self.attributes)
    }

    /// What this segment is a part of.
    pub fn range(&self) -> SharedRange {
        SharedRange {
            id: self.range_id,
            length: self.range_length,
            offset: self.range_offset,
            segment_index: self.segment_index,
            segment_count: self.segment_count,
        }
    }

    /// The NUMA node, at least 0, of pinned host memory; none for a GPU's memory.
    pub fn numa_node(&self) -> Option<i16> {
        self.when(Attributes::HOST_NUMA, self.numa_node)
    }

    /// The bytes for `cuIpcOpenMemHandle`.
    pub fn runtime_ipc(&self) -> Option<&[u8; SLOT_BYTES]> {
        let there = self.types().contains(TypeFlags::RUNTIME_IPC);
        there.then_some(self.slot_0.bytes())
    }

    /// The bytes for `cuMemPoolImportPointer`.
    pub fn pool_pointer(&self) -> Option<&[u8; SLOT_BYTES]> {
        self.when(Attributes::MEM_POOL, self.slot_0.bytes())
    }

    /// How to ask the exporter's broker.
    pub fn ticket(&self) -> Option<Ticket> {
        self.when(Attributes::TICKET, Ticket::of_slot(self.slot_1.bytes()))
    }

    /// The bytes for `cuMemImportFromShareableHandle`, or for `cuMemPoolImportFromShareableHandle`
    /// where there is a [`pool_pointer`](Self::pool_pointer).
    pub fn fabric(&self) -> Option<&[u8; SLOT_BYTES]> {
        let there = self.types().contains(TypeFlags::FABRIC);
        there.then_some(self.slot_2.bytes())
    }

    /// CRC-32C of all other bytes.
    pub fn checksum(&self) -> u32 {
        self.checksum
    }

    fn when<T>(&self, attribute: Attributes, value: T) -> Option<T> {
        self.attributes().contains(attribute).then_some(value)
    }
}

impl HandleFields {
    fn types(&self) -> TypeFlags {
        let mut types = TypeFlags::empty();
        types.set(TypeFlags::RUNTIME_IPC, self.runtime_ipc.is_some());
        types.set(TypeFlags::POSIX_FD, self.posix_fd);
        types.set(TypeFlags::FABRIC, self.fabric.is_some());
        types
    }

    fn attributes(&self) -> Attributes {
        let mut attributes = Attributes::empty();
        attributes.set(Attributes::TICKET, self.ticket.is_some());
        attributes.set(Attributes::MEM_POOL, self.pool_pointer.is_some());
        attributes.set(Attributes::HOST_NUMA, self.numa_node.is_some());
        attributes.set(Attributes::MULTICAST, self.multicast);
        attributes
    }
}

impl fmt::Debug for HandleFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("HandleFields");
        self.debug_plain(&mut debug);
        // The driver's bytes are secret: only whether they are there.
        debug
            .field("range", &self.range)
            .field("numa_node", &self.numa_node)
            .field("runtime_ipc", &self.runtime_ipc.map(|_| Masked))
            .field("pool_pointer", &self.pool_pointer.map(|_| Masked))
            .field("ticket", &self.ticket)
            .field("posix_fd", &self.posix_fd)
            .field("fabric", &self.fabric.map(|_| Masked))
            .field("multicast", &self.multicast)
            .finish()
    }
}

struct Masked;

impl fmt::Debug for Masked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
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
