//! The one list of driver calls.
//!
//! [`driver_calls!`] hands the list to a macro of the caller's choice. From it
//! come the [`DriverTable`], the loader's names, and, in the emulated driver,
//! its table, its `cuGetProcAddress` and its exported symbols. A new call is
//! one line here and one function there; forgetting either does not compile.

#![allow(unsafe_code)]

use super::types::*;
use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

/// Calls `$then! { .. }` with the list of driver calls, one line each:
///
/// `field: "symbol", version, required|optional, (argument: type, ..);`
///
/// *version* is the CUDA version that brought the symbol, in CUDA's own form
/// (major times 1000 plus minor times 10). *required* symbols are those without
/// which nothing of this crate works; an optional one that is missing makes
/// the calls that need it fail with a clear error. Every call returns
/// [`CuResult`]. One line is no call of CUDA's: `gpuipcEmulatedDriver`, which only
/// the emulated driver has, so that it can be told from a real one. The types are those of [`gpuipc_sys`](crate) and
/// `core::ffi`; the user of the list imports both.
#[macro_export]
macro_rules! driver_calls {
    ($then:ident) => {
        $then! {
            init: "cuInit", 2000, required, (flags: c_uint);
            driver_get_version: "cuDriverGetVersion", 2020, required, (version: *mut c_int);
            get_error_name: "cuGetErrorName", 6000, optional, (error: CuResult, text: *mut CuStr);
            get_error_string: "cuGetErrorString", 6000, optional, (error: CuResult, text: *mut CuStr);

            device_get_count: "cuDeviceGetCount", 2000, required, (count: *mut c_int);
            device_get: "cuDeviceGet", 2000, required, (device: *mut CuDevice, ordinal: c_int);
            device_get_name: "cuDeviceGetName", 2000, optional, (name: *mut c_char, len: c_int, device: CuDevice);
            device_get_uuid: "cuDeviceGetUuid", 9020, optional, (uuid: *mut CuUuid, device: CuDevice);
            device_get_uuid_v2: "cuDeviceGetUuid_v2", 11040, optional, (uuid: *mut CuUuid, device: CuDevice);
            device_get_attribute: "cuDeviceGetAttribute", 2000, required, (value: *mut c_int, attribute: c_uint, device: CuDevice);
            device_can_access_peer: "cuDeviceCanAccessPeer", 4000, required, (can: *mut c_int, device: CuDevice, peer: CuDevice);

            primary_ctx_retain: "cuDevicePrimaryCtxRetain", 7000, required, (context: *mut CuContext, device: CuDevice);
            primary_ctx_release: "cuDevicePrimaryCtxRelease_v2", 11000, required, (device: CuDevice);
            primary_ctx_get_state: "cuDevicePrimaryCtxGetState", 7000, required, (device: CuDevice, flags: *mut c_uint, active: *mut c_int);
            ctx_get_current: "cuCtxGetCurrent", 4000, required, (context: *mut CuContext);
            ctx_set_current: "cuCtxSetCurrent", 4000, required, (context: CuContext);
            ctx_push_current: "cuCtxPushCurrent_v2", 4000, required, (context: CuContext);
            ctx_pop_current: "cuCtxPopCurrent_v2", 4000, required, (context: *mut CuContext);
            ctx_get_device: "cuCtxGetDevice", 2000, required, (device: *mut CuDevice);
            ctx_synchronize: "cuCtxSynchronize", 2000, optional, ();

            stream_create: "cuStreamCreate", 2000, optional, (stream: *mut CuStream, flags: c_uint);
            stream_destroy: "cuStreamDestroy_v2", 4000, optional, (stream: CuStream);
            stream_synchronize: "cuStreamSynchronize", 2000, optional, (stream: CuStream);
            stream_begin_capture: "cuStreamBeginCapture_v2", 10010, optional, (stream: CuStream, mode: c_uint);
            stream_end_capture: "cuStreamEndCapture", 10000, optional, (stream: CuStream, graph: *mut CuGraph);
            stream_is_capturing: "cuStreamIsCapturing", 10000, optional, (stream: CuStream, status: *mut c_uint);
            thread_exchange_stream_capture_mode: "cuThreadExchangeStreamCaptureMode", 10010, optional, (mode: *mut c_uint);
            graph_destroy: "cuGraphDestroy", 10000, optional, (graph: CuGraph);

            mem_get_info: "cuMemGetInfo_v2", 3020, optional, (free: *mut usize, total: *mut usize);
            mem_alloc: "cuMemAlloc_v2", 3020, optional, (ptr: *mut CuDevicePtr, bytes: usize);
            mem_free: "cuMemFree_v2", 3020, required, (ptr: CuDevicePtr);
            mem_alloc_managed: "cuMemAllocManaged", 6000, optional, (ptr: *mut CuDevicePtr, bytes: usize, flags: c_uint);
            mem_host_alloc: "cuMemHostAlloc", 2020, optional, (ptr: *mut *mut c_void, bytes: usize, flags: c_uint);
            mem_free_host: "cuMemFreeHost", 2000, optional, (ptr: *mut c_void);
            memcpy_htod: "cuMemcpyHtoD_v2", 3020, required, (to: CuDevicePtr, from: *const c_void, bytes: usize);
            memcpy_dtoh: "cuMemcpyDtoH_v2", 3020, required, (to: *mut c_void, from: CuDevicePtr, bytes: usize);
            memcpy: "cuMemcpy", 4000, optional, (to: CuDevicePtr, from: CuDevicePtr, bytes: usize);
            memcpy_async: "cuMemcpyAsync", 4000, optional, (to: CuDevicePtr, from: CuDevicePtr, bytes: usize, stream: CuStream);
            memset_d8: "cuMemsetD8_v2", 3020, optional, (to: CuDevicePtr, value: u8, count: usize);
            pointer_get_attribute: "cuPointerGetAttribute", 4000, required, (data: CuAny, attribute: c_uint, ptr: CuDevicePtr);
            mem_get_address_range: "cuMemGetAddressRange_v2", 3020, required, (base: *mut CuDevicePtr, size: *mut usize, ptr: CuDevicePtr);

            ipc_get_mem_handle: "cuIpcGetMemHandle", 4010, optional, (handle: *mut CuIpcMemHandle, ptr: CuDevicePtr);
            ipc_open_mem_handle: "cuIpcOpenMemHandle_v2", 11000, optional, (ptr: *mut CuDevicePtr, handle: CuIpcMemHandle, flags: c_uint);
            ipc_close_mem_handle: "cuIpcCloseMemHandle", 4010, optional, (ptr: CuDevicePtr);

            mem_get_allocation_granularity: "cuMemGetAllocationGranularity", 10020, optional, (bytes: *mut usize, prop: *const CuMemAllocationProp, option: c_uint);
            mem_create: "cuMemCreate", 10020, optional, (handle: *mut CuMemHandle, size: usize, prop: *const CuMemAllocationProp, flags: c_ulonglong);
            mem_release: "cuMemRelease", 10020, optional, (handle: CuMemHandle);
            mem_retain_allocation_handle: "cuMemRetainAllocationHandle", 11000, optional, (handle: *mut CuMemHandle, ptr: *mut c_void);
            mem_get_allocation_properties: "cuMemGetAllocationPropertiesFromHandle", 10020, optional, (prop: *mut CuMemAllocationProp, handle: CuMemHandle);
            mem_export_to_shareable_handle: "cuMemExportToShareableHandle", 10020, optional, (shareable: CuAny, handle: CuMemHandle, kind: c_uint, flags: c_ulonglong);
            mem_import_from_shareable_handle: "cuMemImportFromShareableHandle", 10020, optional, (handle: *mut CuMemHandle, shareable: CuAny, kind: c_uint);
            mem_address_reserve: "cuMemAddressReserve", 10020, optional, (ptr: *mut CuDevicePtr, size: usize, alignment: usize, address: CuDevicePtr, flags: c_ulonglong);
            mem_address_free: "cuMemAddressFree", 10020, optional, (ptr: CuDevicePtr, size: usize);
            mem_map: "cuMemMap", 10020, optional, (ptr: CuDevicePtr, size: usize, offset: usize, handle: CuMemHandle, flags: c_ulonglong);
            mem_unmap: "cuMemUnmap", 10020, optional, (ptr: CuDevicePtr, size: usize);
            mem_set_access: "cuMemSetAccess", 10020, optional, (ptr: CuDevicePtr, size: usize, desc: *const CuMemAccessDesc, count: usize);
            mem_get_access: "cuMemGetAccess", 10020, optional, (flags: *mut c_ulonglong, location: *const CuMemLocation, ptr: CuDevicePtr);
            mem_get_handle_for_address_range: "cuMemGetHandleForAddressRange", 11070, optional, (handle: CuAny, ptr: CuDevicePtr, size: usize, kind: c_uint, flags: c_ulonglong);

            multicast_create: "cuMulticastCreate", 12010, optional, (handle: *mut CuMemHandle, prop: *const CuMulticastObjectProp);
            multicast_add_device: "cuMulticastAddDevice", 12010, optional, (object: CuMemHandle, device: CuDevice);
            multicast_bind_mem: "cuMulticastBindMem", 12010, optional, (object: CuMemHandle, offset: usize, memory: CuMemHandle, memory_offset: usize, size: usize, flags: c_ulonglong);
            multicast_bind_addr: "cuMulticastBindAddr", 12010, optional, (object: CuMemHandle, offset: usize, ptr: CuDevicePtr, size: usize, flags: c_ulonglong);
            multicast_unbind: "cuMulticastUnbind", 12010, optional, (object: CuMemHandle, device: CuDevice, offset: usize, size: usize);
            multicast_get_granularity: "cuMulticastGetGranularity", 12010, optional, (bytes: *mut usize, prop: *const CuMulticastObjectProp, option: c_uint);

            emulated_driver: "gpuipcEmulatedDriver", 2000, optional, (version: *mut c_int);

            device_get_default_mem_pool: "cuDeviceGetDefaultMemPool", 11020, optional, (pool: *mut CuMemPool, device: CuDevice);
            mem_pool_create: "cuMemPoolCreate", 11020, optional, (pool: *mut CuMemPool, props: *const CuMemPoolProps);
            mem_pool_destroy: "cuMemPoolDestroy", 11020, optional, (pool: CuMemPool);
            mem_pool_set_access: "cuMemPoolSetAccess", 11020, optional, (pool: CuMemPool, desc: *const CuMemAccessDesc, count: usize);
            mem_pool_get_access: "cuMemPoolGetAccess", 11020, optional, (flags: *mut c_uint, pool: CuMemPool, location: *mut CuMemLocation);
            mem_alloc_async: "cuMemAllocAsync", 11020, optional, (ptr: *mut CuDevicePtr, bytes: usize, stream: CuStream);
            mem_alloc_from_pool_async: "cuMemAllocFromPoolAsync", 11020, optional, (ptr: *mut CuDevicePtr, bytes: usize, pool: CuMemPool, stream: CuStream);
            mem_free_async: "cuMemFreeAsync", 11020, optional, (ptr: CuDevicePtr, stream: CuStream);
            mem_pool_export_to_shareable_handle: "cuMemPoolExportToShareableHandle", 11020, optional, (shareable: CuAny, pool: CuMemPool, kind: c_uint, flags: c_ulonglong);
            mem_pool_import_from_shareable_handle: "cuMemPoolImportFromShareableHandle", 11020, optional, (pool: *mut CuMemPool, shareable: CuAny, kind: c_uint, flags: c_ulonglong);
            mem_pool_export_pointer: "cuMemPoolExportPointer", 11020, optional, (data: *mut CuMemPoolPtrExportData, ptr: CuDevicePtr);
            mem_pool_import_pointer: "cuMemPoolImportPointer", 11020, optional, (ptr: *mut CuDevicePtr, pool: CuMemPool, data: *mut CuMemPoolPtrExportData);
        }
    };
}

/// What is known of a driver call before a library is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallInfo {
    /// The symbol in libcuda.
    pub symbol: &'static str,
    /// The CUDA version that brought it, e.g. 10020 for 10.2.
    pub cuda_version: u32,
    /// Whether loading fails without it.
    pub required: bool,
}

macro_rules! make_table {
    (@need required) => { true };
    (@need optional) => { false };
    ($($field:ident: $symbol:literal, $version:literal, $need:ident, ($($arg:ident: $ty:ty),*);)*) => {
        /// Function pointers of a driver, real or emulated; `None` where the
        /// library lacks the symbol.
        /// Newer versions have more calls: start from [`DriverTable::EMPTY`].
        #[derive(Clone, Copy, Debug)]
        #[non_exhaustive]
        #[allow(clippy::type_complexity)]
        pub struct DriverTable {
            $(
                #[doc = concat!("`", $symbol, "`, since CUDA ", stringify!($version), ", ", stringify!($need), ".")]
                pub $field: Option<unsafe extern "C" fn($($arg: $ty),*) -> CuResult>,
            )*
        }

        /// Every call of the table, in its order.
        pub const CALLS: &[CallInfo] = &[
            $(CallInfo { symbol: $symbol, cuda_version: $version, required: make_table!(@need $need) },)*
        ];

        impl DriverTable {
            /// A driver that lacks every call.
            pub const EMPTY: Self = Self { $($field: None,)* };

            /// Fills a table by asking `find` for each symbol.
            ///
            /// # Safety
            /// For every symbol, `find` returns `None` or the address of a
            /// function with the C signature that `cuda.h` gives that symbol,
            /// valid for the rest of the process.
            pub(crate) unsafe fn from_symbols<E>(
                mut find: impl FnMut(&CallInfo) -> Result<Option<*const c_void>, E>,
            ) -> Result<Self, E> {
                let mut calls = CALLS.iter();
                $(
                    let $field = match calls.next() {
                        Some(info) => find(info)?,
                        None => None,
                    };
                )*
                Ok(Self {
                    $(
                        // SAFETY: both are pointer-sized, a null address cannot
                        // be here (`find` says None for it), and the caller
                        // promises the signature of this very symbol.
                        $field: $field.map(|address| unsafe {
                            core::mem::transmute::<*const c_void, unsafe extern "C" fn($($ty),*) -> CuResult>(address)
                        }),
                    )*
                })
            }
        }

        /// Symbol and CUDA version by field, for error messages.
        #[allow(dead_code)]
        pub(crate) mod info {
            use super::CallInfo;
            $(
                #[allow(non_upper_case_globals)]
                pub(crate) const $field: CallInfo = CallInfo { symbol: $symbol, cuda_version: $version, required: make_table!(@need $need) };
            )*
        }
    };
}

driver_calls!(make_table);
