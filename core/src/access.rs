//! A handle's accessors. Each is total: a handle that exists keeps the rules.

use crate::fields::Window;
use crate::handle::GpuIpcMemHandle;
use crate::identity::{ClusterUuid, DeviceUuid, HostId, ProcessId};
use crate::layout::SLOT_BYTES;
use crate::ticket::Ticket;
use crate::types::{Attributes, TypeFlags};

impl GpuIpcMemHandle {
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

    /// Bytes of the whole allocation: what an importer maps.
    pub fn base_size(&self) -> u64 {
        self.base_size
    }

    /// Bytes of the allocation before this segment.
    pub fn offset_from_base(&self) -> u64 {
        self.offset_from_base
    }

    /// Bytes of this segment, at least 1; `offset_from_base + length` is at most `base_size`.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The driver's `CU_POINTER_ATTRIBUTE_BUFFER_ID` in the exporter.
    pub fn allocation_id(&self) -> u64 {
        self.allocation_id
    }

    /// What this segment is a part of.
    pub fn window(&self) -> Window {
        Window {
            id: self.window_id,
            length: self.window_length,
            offset: self.window_offset,
            segment_index: self.segment_index,
            segment_count: self.segment_count,
        }
    }

    /// The GPU that holds the memory; zero for host memory.
    pub fn device_uuid(&self) -> DeviceUuid {
        DeviceUuid(self.device_uuid)
    }

    /// The exporter.
    pub fn process_id(&self) -> ProcessId {
        ProcessId(self.process_id)
    }

    /// The exporter's host.
    pub fn host_id(&self) -> HostId {
        HostId(self.host_id)
    }

    /// The exporter's pid in its own namespace. For messages; it identifies nobody by itself.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The inode of the exporter's pid namespace.
    pub fn pid_namespace(&self) -> u32 {
        self.pid_namespace
    }

    /// The inode of the exporter's network namespace.
    pub fn net_namespace(&self) -> u32 {
        self.net_namespace
    }

    /// NVML's fabric cluster, zero where there is none.
    pub fn fabric_cluster(&self) -> ClusterUuid {
        ClusterUuid(self.fabric_cluster)
    }

    /// NVML's fabric clique, 0 where unknown.
    pub fn fabric_clique(&self) -> u32 {
        self.fabric_clique
    }

    /// The NUMA node, at least 0, of pinned host memory; none for a GPU's memory.
    pub fn numa_node(&self) -> Option<i16> {
        self.when(Attributes::HOST_NUMA, self.numa_node)
    }

    /// Members of a multicast object; 0 for other memory.
    pub fn num_devices(&self) -> u16 {
        self.num_devices
    }

    /// The exporter's number of the pool; 0 where the memory is from none.
    pub fn pool_id(&self) -> u64 {
        self.pool_id
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
        self.when(Attributes::TICKET, Ticket::from_slot(self.slot_1.bytes()))
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
