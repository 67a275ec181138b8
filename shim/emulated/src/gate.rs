//! What every call passes before its own work.

use crate::state::state;
use crate::table::Call;
use crate::{Answer, device, lifecycle};
use gpuipc_sys::{CuResult, device_attribute as attribute};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a call: refuses it in a forked child, before `cuInit`, and where the
/// device lacks what it is for; and lets no panic reach C.
pub(crate) fn pass(call: Call, work: impl FnOnce() -> Answer) -> CuResult {
    // The child's calls take no lock, which a thread of the parent may have
    // held when it forked.
    if lifecycle::is_forked() && !works_always(call) {
        return CuResult::NOT_INITIALIZED;
    }
    // After a panic the state may lack a part of one call's work but is whole
    // enough for the next: its maps are never half-written.
    let done = catch_unwind(AssertUnwindSafe(|| {
        if call == Call::init || works_always(call) {
            return work();
        }
        if let Some(code) = lifecycle::refusal().or_else(|| unsupported(call)) {
            return Err(code);
        }
        if is_unseen_by_captures(call) {
            state().unseen_by_captures()?;
        }
        work()
    }));
    match done {
        Ok(Ok(())) => CuResult::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => CuResult::UNKNOWN,
    }
}

/// Calls that need no driver.
fn works_always(call: Call) -> bool {
    matches!(
        call,
        Call::driver_get_version
            | Call::get_error_name
            | Call::get_error_string
            | Call::emulated_driver
    )
}

/// Calls that no capture can see, and that one refuses for it (seen on an H200, driver
/// 580, but for managed memory and `cuMemFreeHost`). No other call of the table
/// disturbs a capture, but for [`crate::context::ctx_synchronize`] and what works on
/// streams.
fn is_unseen_by_captures(call: Call) -> bool {
    matches!(
        call,
        Call::mem_alloc
            | Call::mem_free
            | Call::mem_alloc_managed
            | Call::mem_host_alloc
            | Call::mem_free_host
            | Call::mem_alloc_from_pool_async
            | Call::mem_pool_create
            | Call::mem_pool_export_to_shareable_handle
            | Call::mem_pool_export_pointer
            | Call::mem_pool_import_from_shareable_handle
            | Call::mem_pool_import_pointer
            | Call::mem_pool_set_access
            | Call::mem_pool_destroy
    )
}

/// Families of calls that a device may lack, by its attributes.
fn unsupported(call: Call) -> Option<CuResult> {
    let needs = match call {
        Call::mem_get_allocation_granularity
        | Call::mem_create
        | Call::mem_release
        | Call::mem_retain_allocation_handle
        | Call::mem_get_allocation_properties
        | Call::mem_export_to_shareable_handle
        | Call::mem_import_from_shareable_handle
        | Call::mem_address_reserve
        | Call::mem_address_free
        | Call::mem_map
        | Call::mem_unmap
        | Call::mem_set_access
        | Call::mem_get_access => attribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        Call::device_get_default_mem_pool
        | Call::mem_pool_create
        | Call::mem_pool_destroy
        | Call::mem_pool_set_access
        | Call::mem_pool_get_access
        | Call::mem_alloc_async
        | Call::mem_alloc_from_pool_async
        | Call::mem_pool_export_to_shareable_handle
        | Call::mem_pool_import_from_shareable_handle
        | Call::mem_pool_export_pointer
        | Call::mem_pool_import_pointer => attribute::MEMORY_POOLS_SUPPORTED,
        Call::multicast_create
        | Call::multicast_add_device
        | Call::multicast_bind_mem
        | Call::multicast_bind_addr
        | Call::multicast_unbind
        | Call::multicast_get_granularity => attribute::MULTICAST_SUPPORTED,
        Call::mem_get_handle_for_address_range => attribute::DMA_BUF_SUPPORTED,
        _ => return None,
    };
    (!device::has(needs)).then_some(CuResult::NOT_SUPPORTED)
}
