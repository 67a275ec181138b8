//! `cuDevice*`: which GPUs there are and what they can do.

use crate::Answer;
use crate::args::Out;
use crate::config::config;
use crate::state::{device_index, machine_number};
use core::ffi::c_char;
use gpuipc_sys::{CuResult, CuUuid, device_attribute as attribute};

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
        bytes: *config()
            .uuids
            .get(machine as usize)
            .ok_or(CuResult::INVALID_DEVICE)?,
    })
}

/// `cuDeviceGetUuid_v2`, which differs only for parts of a GPU (MIG).
pub(crate) fn device_get_uuid_v2(uuid: Out<CuUuid>, device: i32) -> Answer {
    device_get_uuid(uuid, device)
}

/// `cuDeviceGetAttribute`.
pub(crate) fn device_get_attribute(value: Out<i32>, attribute: u32, device: i32) -> Answer {
    value.check()?;
    let machine = machine_number(device_index(device)?)?;
    let answer = match attribute {
        attribute::PCI_BUS_ID => i32::try_from(machine).ok().map(|bus| FIRST_PCI_BUS + bus),
        attribute => value_of(attribute),
    };
    // What is not played is refused rather than made up.
    value.put(answer.ok_or(CuResult::INVALID_VALUE)?)
}

/// Whether the devices have what an attribute stands for.
pub(crate) fn has(attribute: u32) -> bool {
    value_of(attribute).is_some_and(|value| value != 0)
}

/// An attribute's value, as an H200 answers (driver 580), unless the settings
/// say otherwise; nothing for one that is newer than the driver.
pub(crate) fn value_of(attribute: u32) -> Option<i32> {
    if let Some(value) = config().attributes.get(&attribute) {
        return *value;
    }
    let (since, value) = match attribute {
        attribute::COMPUTE_MODE | more::PCI_DEVICE_ID | more::PCI_DOMAIN_ID => (2000, 0),
        attribute::UNIFIED_ADDRESSING => (4000, 1),
        more::COMPUTE_CAPABILITY_MAJOR => (5000, 9),
        more::COMPUTE_CAPABILITY_MINOR => (5000, 0),
        attribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | attribute::HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED => (10020, 1),
        more::GPU_DIRECT_RDMA_WITH_VMM_SUPPORTED => (11000, 1),
        attribute::MEMORY_POOLS_SUPPORTED => (11020, 1),
        more::GPU_DIRECT_RDMA_SUPPORTED => (11030, 1),
        // POSIX descriptors and fabric handles.
        attribute::MEMPOOL_SUPPORTED_HANDLE_TYPES => (11030, 9),
        attribute::DMA_BUF_SUPPORTED => (11070, 1),
        attribute::IPC_EVENT_SUPPORTED => (12000, 1),
        attribute::MULTICAST_SUPPORTED => (12010, 1),
        attribute::HOST_NUMA_ID => (12020, 0),
        // Also where no fabric works: only a trial tells.
        attribute::HANDLE_TYPE_FABRIC_SUPPORTED => (12030, 1),
        attribute::HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED => (12060, 1),
        _ => return None,
    };
    (config().driver_version >= since).then_some(value)
}

/// `cuDeviceCanAccessPeer`.
pub(crate) fn device_can_access_peer(can: Out<i32>, device: i32, peer: i32) -> Answer {
    can.check()?;
    let (device, peer) = (device_index(device)?, device_index(peer)?);
    let reaches = config().reaches(machine_number(device)?, machine_number(peer)?);
    can.put(i32::from(device != peer && reaches))
}
