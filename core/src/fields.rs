//! A handle's content in plain types: what an exporter fills in.

use crate::error::DecodeError;
use crate::handle::{GpuIpcMemHandle, MAGIC, MIN_READER, NOT_HOST_NUMA, PLATFORM_CUDA};
use crate::identity::{ClusterUuid, DeviceUuid, HostId, ProcessId};
use crate::layout::{FORMAT_VERSION, SLOT_BYTES};
use crate::slot::Slot;
use crate::ticket::Ticket;
use crate::types::{Attributes, TypeFlags};
use crate::{checksum_of, rules};
use core::fmt;

/// The bytes that were exported together, of which a handle describes one segment.
///
/// A window that lies inside one allocation has one segment, which is all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Window {
    /// The same in all segments of one window; never used again in the exporter.
    pub id: u64,
    /// Bytes of the whole window.
    pub length: u64,
    /// Bytes of the window before this segment.
    pub offset: u64,
    /// This segment's place, from 0.
    pub segment_index: u32,
    /// Segments of the window, at least 1.
    pub segment_count: u32,
}

/// All that a handle says. [`GpuIpcMemHandle::new`] makes a handle of it,
/// [`GpuIpcMemHandle::fields`] gives it back.
///
/// The default is no valid handle: at least a size, a length, a window and one type are missing.
/// The `Debug` text shows neither the token nor the driver's bytes, since who has them may use the
/// memory.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HandleFields {
    /// Bytes of the whole allocation: what an importer maps.
    pub base_size: u64,
    /// Bytes of the allocation before this segment.
    pub offset_from_base: u64,
    /// Bytes of this segment, at least 1.
    pub length: u64,
    /// The driver's `CU_POINTER_ATTRIBUTE_BUFFER_ID`; never used again in the exporter.
    pub allocation_id: u64,
    /// What this segment is a part of.
    pub window: Window,
    /// The GPU that holds the memory; zero for host memory.
    pub device_uuid: DeviceUuid,
    /// The exporter.
    pub process_id: ProcessId,
    /// The exporter's host.
    pub host_id: HostId,
    /// The exporter's pid in its own namespace. For messages; it identifies nobody by itself.
    pub pid: u32,
    /// The inode of the exporter's pid namespace.
    pub pid_namespace: u32,
    /// The inode of the exporter's network namespace.
    pub net_namespace: u32,
    /// NVML's fabric clique, 0 where unknown.
    pub fabric_clique: u32,
    /// NVML's fabric cluster, zero where there is none.
    pub fabric_cluster: ClusterUuid,
    /// The NUMA node, at least 0, of pinned host memory; none for a GPU's memory.
    pub numa_node: Option<i16>,
    /// Members of a multicast object; 0 for other memory.
    pub num_devices: u16,
    /// The exporter's number of the pool; 0 where there is no [`pool_pointer`](Self::pool_pointer).
    pub pool_id: u64,
    /// `CUipcMemHandle`.
    pub runtime_ipc: Option<[u8; SLOT_BYTES]>,
    /// `CUmemPoolPtrExportData`: the memory is from a pool.
    pub pool_pointer: Option<[u8; SLOT_BYTES]>,
    /// How to ask the exporter's broker.
    pub ticket: Option<Ticket>,
    /// The broker gives a descriptor for the ticket.
    pub posix_fd: bool,
    /// `CUmemFabricHandle`.
    pub fabric: Option<[u8; SLOT_BYTES]>,
    /// The memory is a multicast object.
    pub multicast: bool,
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
        f.debug_struct("HandleFields")
            .field("base_size", &self.base_size)
            .field("offset_from_base", &self.offset_from_base)
            .field("length", &self.length)
            .field("allocation_id", &self.allocation_id)
            .field("window", &self.window)
            .field("device_uuid", &self.device_uuid)
            .field("process_id", &self.process_id)
            .field("host_id", &self.host_id)
            .field("pid", &self.pid)
            .field("pid_namespace", &self.pid_namespace)
            .field("net_namespace", &self.net_namespace)
            .field("fabric_clique", &self.fabric_clique)
            .field("fabric_cluster", &self.fabric_cluster)
            .field("numa_node", &self.numa_node)
            .field("num_devices", &self.num_devices)
            .field("pool_id", &self.pool_id)
            .field("runtime_ipc", &Masked(&self.runtime_ipc))
            .field("pool_pointer", &Masked(&self.pool_pointer))
            .field("ticket", &self.ticket)
            .field("posix_fd", &self.posix_fd)
            .field("fabric", &Masked(&self.fabric))
            .field("multicast", &self.multicast)
            .finish()
    }
}

/// Shows only whether the driver's bytes are there.
struct Masked<'a>(&'a Option<[u8; SLOT_BYTES]>);

impl fmt::Debug for Masked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Some(..)" } else { "None" })
    }
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
        let mut handle = Self {
            magic: MAGIC,
            version: FORMAT_VERSION,
            min_reader: MIN_READER,
            platform: PLATFORM_CUDA,
            type_flags: fields.types().bits(),
            attributes: fields.attributes().bits(),
            num_devices: fields.num_devices,
            numa_node: fields.numa_node.unwrap_or(NOT_HOST_NUMA),
            reserved_short: 0,
            base_size: fields.base_size,
            offset_from_base: fields.offset_from_base,
            length: fields.length,
            allocation_id: fields.allocation_id,
            window_id: fields.window.id,
            window_length: fields.window.length,
            window_offset: fields.window.offset,
            segment_index: fields.window.segment_index,
            segment_count: fields.window.segment_count,
            device_uuid: fields.device_uuid.0,
            process_id: fields.process_id.0,
            host_id: fields.host_id.0,
            pid: fields.pid,
            pid_namespace: fields.pid_namespace,
            net_namespace: fields.net_namespace,
            fabric_clique: fields.fabric_clique,
            fabric_cluster: fields.fabric_cluster.0,
            pool_id: fields.pool_id,
            reserved: [0; 20],
            checksum: 0,
            slot_0: slot_0.map_or(Slot::EMPTY, Slot::new),
            slot_1: Slot::new(fields.ticket.map_or([0; SLOT_BYTES], Ticket::to_slot)),
            slot_2: fields.fabric.map_or(Slot::EMPTY, Slot::new),
        };
        rules::check(&handle)?;
        handle.checksum = checksum_of(&handle.encode());
        Ok(handle)
    }

    /// All that the handle says, in plain types. What a newer writer added is not in it.
    pub fn fields(&self) -> HandleFields {
        HandleFields {
            base_size: self.base_size(),
            offset_from_base: self.offset_from_base(),
            length: self.length(),
            allocation_id: self.allocation_id(),
            window: self.window(),
            device_uuid: self.device_uuid(),
            process_id: self.process_id(),
            host_id: self.host_id(),
            pid: self.pid(),
            pid_namespace: self.pid_namespace(),
            net_namespace: self.net_namespace(),
            fabric_clique: self.fabric_clique(),
            fabric_cluster: self.fabric_cluster(),
            numa_node: self.numa_node(),
            num_devices: self.num_devices(),
            pool_id: self.pool_id(),
            runtime_ipc: self.runtime_ipc().copied(),
            pool_pointer: self.pool_pointer().copied(),
            ticket: self.ticket(),
            posix_fd: self.types().contains(TypeFlags::POSIX_FD),
            fabric: self.fabric().copied(),
            multicast: self.attributes().contains(Attributes::MULTICAST),
        }
    }
}
