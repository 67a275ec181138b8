//! Handles that no single export gives.

use crate::{TestChild, forge};
use gpuipc_core::GpuIpcMemHandle;

/// The pattern that [`PosixFd` and `Fabric`](all_types) lead to.
pub const VMM_SEED: u64 = 100;
/// The pattern that [`RuntimeIpc`](all_types) leads to.
pub const LEGACY_SEED: u64 = 200;

/// Exports memory that can be had by all three types: VMM memory with descriptor
/// and fabric handle, and legacy memory of the same length in the legacy slot.
/// The handle means `len` bytes from `offset` on of `allocation` bytes.
///
/// The legacy type leads to other bytes than the others, so that a test sees
/// which one was used.
pub fn all_types(
    exporter: &mut TestChild,
    allocation: u64,
    offset: u64,
    len: u64,
) -> GpuIpcMemHandle {
    let (vmm, _) = exporter.alloc("vmm-fabric", allocation);
    let (legacy, _) = exporter.alloc("cuda-malloc", allocation);
    exporter.ok(&format!("fill {vmm} {VMM_SEED}"));
    exporter.ok(&format!("fill {legacy} {LEGACY_SEED}"));
    let (_, by_vmm) = exporter.export(vmm, offset, len);
    let (_, by_legacy) = exporter.export(legacy, offset, len);
    forge(&by_vmm, |fields| {
        fields.runtime_ipc = by_legacy.runtime_ipc().copied();
    })
}

/// A handle whose descriptor the broker alone can give.
#[must_use]
pub fn by_broker_alone(handle: &GpuIpcMemHandle) -> GpuIpcMemHandle {
    forge(handle, |fields| {
        if let Some(ticket) = &mut fields.ticket {
            (ticket.fd, ticket.table) = (None, None);
        }
    })
}

/// The handle as it is for an importer whom no name of the broker reaches: in
/// another network namespace.
#[must_use]
pub fn out_of_reach(handle: &GpuIpcMemHandle) -> GpuIpcMemHandle {
    forge(handle, |fields| {
        fields.net_namespace ^= 1;
        if let Some(ticket) = &mut fields.ticket {
            ticket.endpoint.0[0] ^= 1;
        }
    })
}
