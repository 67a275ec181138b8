//! CUDA's plain types, as its header `cuda.h` lays them out, and the values
//! that sharing memory needs.
//!
//! Codes and enumerations are newtypes or integers with constants, never Rust
//! enums: a newer driver may answer with a value that this list lacks, and an
//! enum holding it would be undefined behaviour. Sizes, offsets and values are
//! those that the header of CUDA 13.0 prints; the asserts below hold them.

use core::ffi::{c_char, c_int, c_uint, c_ulonglong, c_ushort, c_void};
use core::fmt;
use core::mem::{align_of, offset_of, size_of};

/// A device ordinal, `CUdevice`: a number in this process's own order of
/// visible devices, meaningless in any other process.
pub type CuDevice = c_int;
/// A device address, `CUdeviceptr`.
pub type CuDevicePtr = u64;
/// A reference to a physical allocation, `CUmemGenericAllocationHandle`:
/// process-local.
pub type CuMemHandle = c_ulonglong;
/// A C string that the driver owns, as `cuGetErrorName` returns it.
pub type CuStr = *const c_char;
/// A pointer argument whose target depends on another argument.
pub type CuAny = *mut c_void;

/// A context, `CUcontext`. The driver's opaque pointer as a number: nothing in
/// this crate looks behind it, and any thread may name it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(transparent)]
pub struct CuContext(pub usize);

impl CuContext {
    /// No context.
    pub const NULL: Self = Self(0);
}

/// A stream, `CUstream`: the driver's opaque pointer as a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(transparent)]
pub struct CuStream(pub usize);

impl CuStream {
    /// The current context's default stream.
    pub const DEFAULT: Self = Self(0);
    /// `CU_STREAM_LEGACY`: the same, by another name.
    pub const LEGACY: Self = Self(1);
    /// `CU_STREAM_PER_THREAD`: the calling thread's default stream.
    pub const PER_THREAD: Self = Self(2);
}

/// A captured graph, `CUgraph`: the driver's opaque pointer as a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(transparent)]
pub struct CuGraph(pub usize);

/// A memory pool, `CUmemoryPool`: the driver's opaque pointer as a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(transparent)]
pub struct CuMemPool(pub usize);

impl CuMemPool {
    /// No pool.
    pub const NULL: Self = Self(0);
}

/// A result code, `CUresult`. Zero is success.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct CuResult(pub u32);

macro_rules! results {
    ($($name:ident = $value:literal, $symbol:literal;)*) => {
        impl CuResult {
            $(#[doc = concat!("`", $symbol, "`")] pub const $name: Self = Self($value);)*

            /// CUDA's own name of the code, or `None` if this list lacks it
            /// (the driver's `cuGetErrorName` may still know it).
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($symbol),)*
                    _ => None,
                }
            }
        }
    };
}

results! {
    SUCCESS = 0, "CUDA_SUCCESS";
    INVALID_VALUE = 1, "CUDA_ERROR_INVALID_VALUE";
    OUT_OF_MEMORY = 2, "CUDA_ERROR_OUT_OF_MEMORY";
    NOT_INITIALIZED = 3, "CUDA_ERROR_NOT_INITIALIZED";
    DEINITIALIZED = 4, "CUDA_ERROR_DEINITIALIZED";
    STUB_LIBRARY = 34, "CUDA_ERROR_STUB_LIBRARY";
    DEVICE_UNAVAILABLE = 46, "CUDA_ERROR_DEVICE_UNAVAILABLE";
    NO_DEVICE = 100, "CUDA_ERROR_NO_DEVICE";
    INVALID_DEVICE = 101, "CUDA_ERROR_INVALID_DEVICE";
    INVALID_CONTEXT = 201, "CUDA_ERROR_INVALID_CONTEXT";
    MAP_FAILED = 205, "CUDA_ERROR_MAP_FAILED";
    ALREADY_MAPPED = 208, "CUDA_ERROR_ALREADY_MAPPED";
    PEER_ACCESS_UNSUPPORTED = 217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED";
    OPERATING_SYSTEM = 304, "CUDA_ERROR_OPERATING_SYSTEM";
    INVALID_HANDLE = 400, "CUDA_ERROR_INVALID_HANDLE";
    ILLEGAL_STATE = 401, "CUDA_ERROR_ILLEGAL_STATE";
    NOT_FOUND = 500, "CUDA_ERROR_NOT_FOUND";
    NOT_READY = 600, "CUDA_ERROR_NOT_READY";
    ILLEGAL_ADDRESS = 700, "CUDA_ERROR_ILLEGAL_ADDRESS";
    CONTEXT_IS_DESTROYED = 709, "CUDA_ERROR_CONTEXT_IS_DESTROYED";
    TOO_MANY_PEERS = 711, "CUDA_ERROR_TOO_MANY_PEERS";
    LAUNCH_FAILED = 719, "CUDA_ERROR_LAUNCH_FAILED";
    NOT_PERMITTED = 800, "CUDA_ERROR_NOT_PERMITTED";
    NOT_SUPPORTED = 801, "CUDA_ERROR_NOT_SUPPORTED";
    SYSTEM_NOT_READY = 802, "CUDA_ERROR_SYSTEM_NOT_READY";
    SYSTEM_DRIVER_MISMATCH = 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
    COMPAT_NOT_SUPPORTED_ON_DEVICE = 804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE";
    STREAM_CAPTURE_UNSUPPORTED = 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
    STREAM_CAPTURE_INVALIDATED = 901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED";
    STREAM_CAPTURE_IMPLICIT = 906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT";
    STREAM_CAPTURE_WRONG_THREAD = 908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD";
    UNKNOWN = 999, "CUDA_ERROR_UNKNOWN";
}

impl fmt::Display for CuResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "CUresult {}", self.0),
        }
    }
}

impl fmt::Debug for CuResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A device's UUID, `CUuuid`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct CuUuid {
    /// The sixteen bytes.
    pub bytes: [u8; 16],
}

/// A legacy IPC handle, `CUipcMemHandle`: 64 opaque bytes, passed by value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct CuIpcMemHandle {
    /// The bytes; only the driver knows what they mean.
    pub reserved: [u8; 64],
}

/// A fabric handle, `CUmemFabricHandle`: 64 opaque bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct CuMemFabricHandle {
    /// The bytes; only the driver knows what they mean.
    pub data: [u8; 64],
}

/// A place for memory, `CUmemLocation`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct CuMemLocation {
    /// One of [`location`].
    pub kind: c_uint,
    /// Device ordinal or NUMA node. The driver answers -2 for a device that
    /// this process cannot see.
    pub id: c_int,
}

/// The flags inside [`CuMemAllocationProp`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct CuMemAllocFlags {
    /// `CUmemAllocationCompType`.
    pub compression_type: u8,
    /// 1 asks for memory that GPUDirect RDMA can reach.
    pub gpu_direct_rdma_capable: u8,
    /// Usage bits.
    pub usage: c_ushort,
    /// Reserved, zero.
    pub reserved: [u8; 4],
}

/// What an allocation is to be, `CUmemAllocationProp`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct CuMemAllocationProp {
    /// `CUmemAllocationType`; 1 is pinned.
    pub kind: c_uint,
    /// A sum of [`handle_type`] values.
    pub requested_handle_types: c_uint,
    /// Where the memory lies.
    pub location: CuMemLocation,
    /// Windows only; null.
    pub win32_handle_meta_data: usize,
    /// Further wishes.
    pub alloc_flags: CuMemAllocFlags,
}

/// Who may do what with a mapping, `CUmemAccessDesc`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct CuMemAccessDesc {
    /// The device (or host node) that gets access.
    pub location: CuMemLocation,
    /// One of [`access`].
    pub flags: c_uint,
}

/// What a memory pool is to be, `CUmemPoolProps`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct CuMemPoolProps {
    /// `CUmemAllocationType`; 1 is pinned.
    pub kind: c_uint,
    /// A sum of [`handle_type`] values; memory of a pool without any is never
    /// shared.
    pub handle_types: c_uint,
    /// Where the memory lies.
    pub location: CuMemLocation,
    /// Windows only; null.
    pub win32_security_attributes: usize,
    /// Most bytes; 0 leaves it to the driver.
    pub max_size: usize,
    /// Usage bits.
    pub usage: c_ushort,
    /// Reserved, zero.
    pub reserved: [u8; 54],
}

impl Default for CuMemPoolProps {
    fn default() -> Self {
        Self {
            kind: 0,
            handle_types: 0,
            location: CuMemLocation::default(),
            win32_security_attributes: 0,
            max_size: 0,
            usage: 0,
            reserved: [0; 54],
        }
    }
}

/// What a multicast object is to be, `CUmulticastObjectProp`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct CuMulticastObjectProp {
    /// How many devices will be added.
    pub num_devices: c_uint,
    /// Most bytes that each device can bind.
    pub size: usize,
    /// A sum of [`handle_type`] values (64 bits here).
    pub handle_types: c_ulonglong,
    /// Reserved, zero.
    pub flags: c_ulonglong,
}

/// What names one allocation of a shared pool, `CUmemPoolPtrExportData`: 64
/// opaque bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct CuMemPoolPtrExportData {
    /// The bytes; only the driver knows what they mean.
    pub reserved: [u8; 64],
}

/// `CUmemLocationType`.
pub mod location {
    /// Memory of a GPU.
    pub const DEVICE: u32 = 1;
    /// Host memory near no particular node.
    pub const HOST: u32 = 2;
    /// Host memory of one NUMA node.
    pub const HOST_NUMA: u32 = 3;
}

/// `CUmemAllocationHandleType`, bits.
pub mod handle_type {
    /// Not shareable.
    pub const NONE: u32 = 0;
    /// A POSIX file descriptor.
    pub const POSIX_FILE_DESCRIPTOR: u32 = 1;
    /// A fabric handle (IMEX).
    pub const FABRIC: u32 = 8;
}

/// `CUmemAllocationType`.
pub const ALLOCATION_TYPE_PINNED: u32 = 1;

/// `CUmemAccess_flags`.
pub mod access {
    /// No access.
    pub const NONE: u32 = 0;
    /// Read only.
    pub const READ: u32 = 1;
    /// Read and write.
    pub const READ_WRITE: u32 = 3;
}

/// `CUmemAllocationGranularity_flags`.
pub mod granularity {
    /// The least that works.
    pub const MINIMUM: u32 = 0;
    /// What performs best.
    pub const RECOMMENDED: u32 = 1;
}

/// `CUmulticastGranularity_flags`.
pub mod multicast_granularity {
    /// The least that works.
    pub const MINIMUM: u32 = 0;
    /// What performs best.
    pub const RECOMMENDED: u32 = 1;
}

/// What `gpuipcEmulatedDriver` answers.
pub const EMULATED_DRIVER_VERSION: c_int = 1;

/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`.
pub const RANGE_HANDLE_TYPE_DMA_BUF_FD: u32 = 1;

/// `CU_STREAM_NON_BLOCKING`.
pub const STREAM_NON_BLOCKING: u32 = 1;

/// `CUstreamCaptureMode`, of a capture and of a thread.
pub mod capture_mode {
    /// Calls that a capture cannot see are refused in every thread.
    pub const GLOBAL: u32 = 0;
    /// They are refused in the capturing thread.
    pub const THREAD_LOCAL: u32 = 1;
    /// They are allowed.
    pub const RELAXED: u32 = 2;
}

/// `CUstreamCaptureStatus`.
pub mod capture_status {
    /// No capture.
    pub const NONE: u32 = 0;
    /// A capture is running.
    pub const ACTIVE: u32 = 1;
    /// It was broken, but not yet ended.
    pub const INVALIDATED: u32 = 2;
}

/// `CUmemorytype`, the answer to [`pointer_attribute::MEMORY_TYPE`].
pub mod memory_type {
    /// Host memory.
    pub const HOST: u32 = 1;
    /// Device memory.
    pub const DEVICE: u32 = 2;
}

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`: opening may enable peer access between
/// the memory's device and the current one. An open without it is refused
/// across devices (seen on driver 580).
pub const IPC_MEM_LAZY_ENABLE_PEER_ACCESS: u32 = 1;

/// `CU_MEM_ATTACH_GLOBAL`, for `cuMemAllocManaged`.
pub const MEM_ATTACH_GLOBAL: u32 = 1;

/// `CU_MEMHOSTALLOC_PORTABLE`.
pub const MEMHOSTALLOC_PORTABLE: u32 = 1;

/// `CUpointer_attribute`: number and what the answer's bytes are.
pub mod pointer_attribute {
    /// `CUcontext` (8 bytes): the one that allocated; null for VMM memory.
    pub const CONTEXT: u32 = 1;
    /// u32, one of [`super::memory_type`].
    pub const MEMORY_TYPE: u32 = 2;
    /// u64, never reused within a process.
    pub const BUFFER_ID: u32 = 7;
    /// u32 0 or 1 (the driver writes one to four bytes).
    pub const IS_MANAGED: u32 = 8;
    /// i32.
    pub const DEVICE_ORDINAL: u32 = 9;
    /// u32 0 or 1.
    pub const IS_LEGACY_CUDA_IPC_CAPABLE: u32 = 10;
    /// u64: first byte of what `cuMemAlloc` returned, or of a whole VMM reservation.
    pub const RANGE_START_ADDR: u32 = 11;
    /// u64: its length in bytes.
    pub const RANGE_SIZE: u32 = 12;
    /// u32 0 or 1.
    pub const MAPPED: u32 = 13;
    /// u64 (not 32 bits!), a sum of [`super::handle_type`] values.
    pub const ALLOWED_HANDLE_TYPES: u32 = 14;
    /// 8 bytes: the pool, or null.
    pub const MEMPOOL_HANDLE: u32 = 17;
    /// u64: length of the physical piece mapped there.
    pub const MAPPING_SIZE: u32 = 18;
    /// u64: its first byte.
    pub const MAPPING_BASE_ADDR: u32 = 19;
    /// u64.
    pub const MEMORY_BLOCK_ID: u32 = 20;
}

/// `CUdevice_attribute`.
pub mod device_attribute {
    /// Compute mode.
    pub const COMPUTE_MODE: u32 = 20;
    /// PCI bus number.
    pub const PCI_BUS_ID: u32 = 33;
    /// One address space for host and device.
    pub const UNIFIED_ADDRESSING: u32 = 41;
    /// `cuMemCreate` and its family.
    pub const VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: u32 = 102;
    /// Export as a file descriptor.
    pub const HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: u32 = 103;
    /// Memory pools.
    pub const MEMORY_POOLS_SUPPORTED: u32 = 115;
    /// Handle types that a pool may have.
    pub const MEMPOOL_SUPPORTED_HANDLE_TYPES: u32 = 119;
    /// dma-buf export.
    pub const DMA_BUF_SUPPORTED: u32 = 124;
    /// Legacy IPC of events.
    pub const IPC_EVENT_SUPPORTED: u32 = 125;
    /// Export as a fabric handle. 1 even where the fabric is not there: only a
    /// trial tells.
    pub const HANDLE_TYPE_FABRIC_SUPPORTED: u32 = 128;
    /// Multicast objects.
    pub const MULTICAST_SUPPORTED: u32 = 132;
    /// The nearest NUMA node.
    pub const HOST_NUMA_ID: u32 = 134;
    /// `cuMemCreate` on a host node.
    pub const HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: u32 = 141;
}

const _: () = {
    assert!(size_of::<CuContext>() == 8 && align_of::<CuContext>() == 8);
    assert!(size_of::<CuStream>() == 8 && align_of::<CuStream>() == 8);
    assert!(size_of::<CuGraph>() == 8 && align_of::<CuGraph>() == 8);
    assert!(size_of::<CuMemPool>() == 8 && align_of::<CuMemPool>() == 8);
    assert!(size_of::<CuResult>() == 4 && align_of::<CuResult>() == 4);
    assert!(size_of::<CuUuid>() == 16 && align_of::<CuUuid>() == 1);
    assert!(size_of::<CuIpcMemHandle>() == 64 && align_of::<CuIpcMemHandle>() == 1);
    assert!(size_of::<CuMemFabricHandle>() == 64 && align_of::<CuMemFabricHandle>() == 1);
    assert!(size_of::<CuMemLocation>() == 8 && align_of::<CuMemLocation>() == 4);
    assert!(offset_of!(CuMemLocation, id) == 4);
    assert!(size_of::<CuMemAllocationProp>() == 32 && align_of::<CuMemAllocationProp>() == 8);
    assert!(offset_of!(CuMemAllocationProp, requested_handle_types) == 4);
    assert!(offset_of!(CuMemAllocationProp, location) == 8);
    assert!(offset_of!(CuMemAllocationProp, win32_handle_meta_data) == 16);
    assert!(offset_of!(CuMemAllocationProp, alloc_flags) == 24);
    assert!(offset_of!(CuMemAllocFlags, gpu_direct_rdma_capable) == 1);
    assert!(offset_of!(CuMemAllocFlags, usage) == 2);
    assert!(size_of::<CuMemAccessDesc>() == 12 && align_of::<CuMemAccessDesc>() == 4);
    assert!(offset_of!(CuMemAccessDesc, flags) == 8);
    assert!(size_of::<CuMemPoolProps>() == 88 && align_of::<CuMemPoolProps>() == 8);
    assert!(offset_of!(CuMemPoolProps, handle_types) == 4);
    assert!(offset_of!(CuMemPoolProps, location) == 8);
    assert!(offset_of!(CuMemPoolProps, win32_security_attributes) == 16);
    assert!(offset_of!(CuMemPoolProps, max_size) == 24);
    assert!(offset_of!(CuMemPoolProps, usage) == 32);
    assert!(offset_of!(CuMemPoolProps, reserved) == 34);
    assert!(size_of::<CuMulticastObjectProp>() == 32 && align_of::<CuMulticastObjectProp>() == 8);
    assert!(offset_of!(CuMulticastObjectProp, num_devices) == 0);
    assert!(offset_of!(CuMulticastObjectProp, size) == 8);
    assert!(offset_of!(CuMulticastObjectProp, handle_types) == 16);
    assert!(offset_of!(CuMulticastObjectProp, flags) == 24);
    assert!(size_of::<CuMemPoolPtrExportData>() == 64 && align_of::<CuMemPoolPtrExportData>() == 1);
};
