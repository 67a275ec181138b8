//! The driver and its devices.

use super::Scene;
use crate::call::Ask;
use crate::rows::{code, same};
use gpuipc::sys::{CuResult, device_attribute as attribute};

pub(super) fn driver(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    rows.row("cuDriverGetVersion before cuInit", here.version());
    for (what, number) in [
        ("INVALID_VALUE", CuResult::INVALID_VALUE),
        ("UNKNOWN", CuResult::UNKNOWN),
        ("no code", CuResult(12345)),
    ] {
        let text = |is_name| here.error_text(number, is_name);
        rows.row(format!("cuGetErrorName of {what}"), text(true));
        rows.row(format!("cuGetErrorString of {what}"), text(false));
    }
    rows.row("cuInit with flags 1", here.init(1));
    rows.row("cuInit", here.init(0));
    rows.row("cuInit again", here.init(0));
    rows.row("cuDriverGetVersion", here.version());
}

const ATTRIBUTES: &[(&str, u32)] = &[
    ("COMPUTE_MODE", attribute::COMPUTE_MODE),
    ("UNIFIED_ADDRESSING", attribute::UNIFIED_ADDRESSING),
    (
        "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED",
        attribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    ),
    (
        "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED",
        attribute::HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
    ),
    ("MEMORY_POOLS_SUPPORTED", attribute::MEMORY_POOLS_SUPPORTED),
    (
        "MEMPOOL_SUPPORTED_HANDLE_TYPES",
        attribute::MEMPOOL_SUPPORTED_HANDLE_TYPES,
    ),
    ("DMA_BUF_SUPPORTED", attribute::DMA_BUF_SUPPORTED),
    ("IPC_EVENT_SUPPORTED", attribute::IPC_EVENT_SUPPORTED),
    (
        "HANDLE_TYPE_FABRIC_SUPPORTED",
        attribute::HANDLE_TYPE_FABRIC_SUPPORTED,
    ),
    ("MULTICAST_SUPPORTED", attribute::MULTICAST_SUPPORTED),
    ("HOST_NUMA_ID", attribute::HOST_NUMA_ID),
    (
        "HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED",
        attribute::HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    ),
];

pub(super) fn device(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.set_up("cuInit", here.init(0)).is_none() {
        return;
    }
    let count = here.device_count();
    rows.row("cuDeviceGetCount", count);
    rows.row("cuDeviceGet 0", here.device(0));
    rows.row("cuDeviceGet -1", here.device(-1));
    rows.row("cuDeviceGet past the last", here.device(past(count)));
    rows.row("cuDeviceGetName", here.device_name(0));
    for (name, number) in ATTRIBUTES {
        rows.row(name, here.device_attribute(*number, 0));
    }
    rows.row("an unknown attribute", here.device_attribute(99_999, 0));
    let multicast = attribute::MULTICAST_SUPPORTED;
    rows.row(
        "an attribute of device -1",
        here.device_attribute(multicast, -1),
    );
    rows.row(
        "an attribute past the last device",
        here.device_attribute(multicast, past(count)),
    );
    let uuid = here.uuid(0, 2);
    rows.row("cuDeviceGetUuid_v2", code(&uuid));
    rows.row("UUID is zero", uuid.map(|uuid| uuid == [0; 16]));
    if let Ok(uuid) = uuid {
        rows.row("UUID again", same(here.uuid(0, 2), uuid));
        rows.row("cuDeviceGetUuid", same(here.uuid(0, 1), uuid));
    }
    rows.row(
        "cuDeviceGetUuid_v2 past the last device",
        code(&here.uuid(past(count), 2)),
    );
    rows.row("cuDeviceCanAccessPeer itself", here.can_access_peer(0, 0));
    rows.row(
        "cuDeviceCanAccessPeer past the last device",
        here.can_access_peer(0, past(count)),
    );
    rows.row(
        "primary context state past the last device",
        here.primary_active(past(count)),
    );
    rows.row(
        "retain past the last device",
        code(&here.primary_retain(past(count))),
    );
}

fn past(count: crate::call::Got<u64>) -> i32 {
    count.map_or(i32::MAX, |count| i32::try_from(count).unwrap_or(i32::MAX))
}
