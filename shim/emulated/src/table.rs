//! The table of entries, and the lookup by name.

#![allow(unsafe_code)]

use crate::args::FromC;
use crate::attribute::{mem_get_address_range, pointer_get_attribute};
use crate::capture::{
    graph_destroy, stream_begin_capture, stream_end_capture, stream_is_capturing,
    thread_exchange_stream_capture_mode,
};
use crate::config::config;
use crate::context::{
    ctx_get_current, ctx_get_device, ctx_pop_current, ctx_push_current, ctx_set_current,
    ctx_synchronize, primary_ctx_get_state, primary_ctx_release, primary_ctx_retain,
};
use crate::copy::{memcpy, memcpy_async, memcpy_dtoh, memcpy_htod, memset_d8};
use crate::device::{
    device_can_access_peer, device_get, device_get_attribute, device_get_count, device_get_name,
    device_get_uuid, device_get_uuid_v2,
};
use crate::dma_buf::mem_get_handle_for_address_range;
use crate::errors::{get_error_name, get_error_string};
use crate::faults;
use crate::ipc::{ipc_close_mem_handle, ipc_get_mem_handle, ipc_open_mem_handle};
use crate::lifecycle::{driver_get_version, emulated_driver, init};
use crate::mapping::{
    mem_address_free, mem_address_reserve, mem_get_access, mem_map, mem_set_access, mem_unmap,
};
use crate::memory::{
    mem_alloc, mem_alloc_managed, mem_free, mem_free_host, mem_get_info, mem_host_alloc,
};
use crate::multicast::{
    multicast_add_device, multicast_bind_addr, multicast_bind_mem, multicast_create,
    multicast_get_granularity, multicast_unbind,
};
use crate::pool::{
    device_get_default_mem_pool, mem_alloc_async, mem_alloc_from_pool_async, mem_free_async,
    mem_pool_create, mem_pool_destroy, mem_pool_get_access, mem_pool_set_access,
};
use crate::pool_share::{
    mem_pool_export_pointer, mem_pool_export_to_shareable_handle,
    mem_pool_import_from_shareable_handle, mem_pool_import_pointer,
};
use crate::share::{mem_export_to_shareable_handle, mem_import_from_shareable_handle};
use crate::stream::{stream_create, stream_destroy, stream_synchronize};
use crate::vmm::{
    mem_create, mem_get_allocation_granularity, mem_get_allocation_properties, mem_release,
    mem_retain_allocation_handle,
};
use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use gpuipc_sys::{
    CALLS, CuAny, CuContext, CuDevice, CuDevicePtr, CuGraph, CuIpcMemHandle, CuMemAccessDesc,
    CuMemAllocationProp, CuMemHandle, CuMemLocation, CuMemPool, CuMemPoolProps,
    CuMemPoolPtrExportData, CuMulticastObjectProp, CuResult, CuStr, CuStream, CuUuid, DriverTable,
};
use std::sync::OnceLock;

macro_rules! make_entries {
    ($($field:ident: $symbol:literal, $version:literal, $need:ident, ($($arg:ident: $ty:ty),*);)*) => {
        /// Each call by its field, in the list's order.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Call {
            $($field,)*
        }

        /// The calls as C sees them.
        mod entry {
            use super::*;
            $(
                pub(super) unsafe extern "C" fn $field($($arg: $ty),*) -> CuResult {
                    crate::gate::pass(Call::$field, || {
                        $(
                            // SAFETY: the caller passes what `cuda.h` demands
                            // of this argument, valid until the call returns,
                            // and the typed value does not outlive it.
                            let $arg = unsafe { FromC::typed($arg) };
                        )*
                        super::$field($($arg),*)
                    })
                }
            )*
        }

        const FULL: DriverTable = {
            let mut table = DriverTable::EMPTY;
            $(table.$field = Some(entry::$field);)*
            table
        };

        fn present() -> DriverTable {
            let mut table = FULL;
            $(
                if config().missing.iter().any(|symbol| symbol == $symbol)
                    || $version > config().driver_version
                {
                    table.$field = None;
                }
            )*
            table
        }

        /// The entry of an exact symbol.
        fn address(symbol: &str) -> Option<*const c_void> {
            match symbol {
                $($symbol => table().$field.map(|entry| entry as *const c_void),)*
                _ => None,
            }
        }
    };
}

gpuipc_sys::driver_calls!(make_entries);

/// The emulated driver's table, [wrapped](crate::faults::wrap) for faults. Symbols that
/// the settings leave out, or that are newer than its driver version, are
/// `None`.
pub fn table() -> &'static DriverTable {
    static BARE: OnceLock<DriverTable> = OnceLock::new();
    static TABLE: OnceLock<&'static DriverTable> = OnceLock::new();
    TABLE.get_or_init(|| faults::wrap(BARE.get_or_init(present)))
}

/// What `cuGetProcAddress` says of a symbol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcAddress {
    /// Its entry.
    Found(*const c_void),
    /// No such symbol.
    NotFound,
    /// Only in a later CUDA version than was asked for.
    NewerVersion,
}

/// Looks a symbol up as `cuGetProcAddress` does: by the name without `_v2`, the
/// latest form that `version` (12020 for CUDA 12.2) knows; or by its full name.
#[must_use]
pub fn get_proc_address(symbol: &str, version: u32) -> ProcAddress {
    let base = |name: &'static str| name.split_once("_v").map_or(name, |(base, _)| base);
    let mut forms = CALLS
        .iter()
        .filter(|call| call.symbol == symbol || base(call.symbol) == symbol)
        .peekable();
    if forms.peek().is_none() {
        return ProcAddress::NotFound;
    }
    let best = forms
        .filter(|call| call.cuda_version <= version)
        .max_by_key(|call| call.cuda_version);
    let Some(best) = best else {
        return ProcAddress::NewerVersion;
    };
    address(best.symbol).map_or(ProcAddress::NotFound, ProcAddress::Found)
}
