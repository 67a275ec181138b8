//! `cuDevice*`: which GPUs there are and what they can do.

use crate::Answer;
use crate::border::Out;
use crate::config::{self, config};
use crate::state::{device_index, machine_number};
use core::ffi::c_char;
use gpuipc::sys::{CuResult, CuUuid, device_attribute as attribute};

const NAME: &str = "Emulated H200";
const FIRST_PCI_BUS: i32 = 0x18;

/// Attributes that the seam's list does not name.
mod more {
    pub(super) const COMPUTE_CAPABILITY_MAJOR: u32 = 75;
    pub(super) const COMPUTE_CAPABILITY_MINOR: u32 = 76;
    pub(super) const PCI_DEVICE_ID: u32 = 34;
    pub(super) const PCI_DOMAIN_ID: u32 = 50;
    pub(super) const GPU_DIRECT_RDMA_WITH_VMM_SUPPORTED: u32 = 110;
    pub(super) const GPU_DIRECT_RDMA_SUPPORTED: u32 = 116;
}

/// `cuDeviceGetCount`.
pub(crate) fn device_get_count(count: Out<i32>) -> Answer {
    count.put(i32::try_from(config().visible.len()).map_err(|_| CuResult::UNKNOWN)?)
}

/// `cuDeviceGet`.
pub(crate) fn device_get(device: Out<i32>, ordinal: i32) -> Answer {
    device.check()?;
    device_index(ordinal)?;
    device.put(ordinal)
}

/// `cuDeviceGetName`.
pub(crate) fn device_get_name(name: Out<c_char>, len: i32, device: i32) -> Answer {
    device_index(device)?;
    name.put_text(
        NAME,
        usize::try_from(len).map_err(|_| CuResult::INVALID_VALUE)?,
    )
}

/// `cuDeviceGetUuid`.
pub(crate) fn device_get_uuid(uuid: Out<CuUuid>, device: i32) -> Answer {
    uuid.check()?;
    let machine = machine_number(device_index(device)?)?;
    uuid.put(CuUuid {
        bytes: config::uuid(machine),
    })
}

/// `cuDeviceGetUuid_v2`, which differs only for parts of a GPU (MIG).
pub(crate) fn device_get_uuid_v2(uuid: Out<CuUuid>, device: i32) -> Answer {
    device_get_uuid(uuid, device)
}

/// `cuDeviceGetAttribute`, as an H200 answers (driver 580).
pub(crate) fn device_get_attribute(value: Out<i32>, attribute: u32, device: i32) -> Answer {
    value.check()?;
    let machine = machine_number(device_index(device)?)?;
    value.put(match attribute {
        attribute::UNIFIED_ADDRESSING
        | attribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | attribute::HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
        | attribute::MEMORY_POOLS_SUPPORTED
        | attribute::DMA_BUF_SUPPORTED
        | attribute::IPC_EVENT_SUPPORTED
        // Also where no fabric works: only a trial tells.
        | attribute::HANDLE_TYPE_FABRIC_SUPPORTED
        | attribute::MULTICAST_SUPPORTED
        | attribute::HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | more::GPU_DIRECT_RDMA_SUPPORTED
        | more::GPU_DIRECT_RDMA_WITH_VMM_SUPPORTED => 1,
        attribute::MEMPOOL_SUPPORTED_HANDLE_TYPES => 9,
        attribute::COMPUTE_MODE | attribute::HOST_NUMA_ID | more::PCI_DEVICE_ID | more::PCI_DOMAIN_ID => 0,
        more::COMPUTE_CAPABILITY_MAJOR => 9,
        more::COMPUTE_CAPABILITY_MINOR => 0,
        attribute::PCI_BUS_ID => FIRST_PCI_BUS + i32::try_from(machine).map_err(|_| CuResult::UNKNOWN)?,
        // What is not played is refused rather than made up.
        _ => return Err(CuResult::INVALID_VALUE),
    })
}

/// `cuDeviceCanAccessPeer`.
pub(crate) fn device_can_access_peer(can: Out<i32>, device: i32, peer: i32) -> Answer {
    can.check()?;
    let (device, peer) = (device_index(device)?, device_index(peer)?);
    can.put(i32::from(device != peer && config().peers))
}
