//! The numbers of kinds of memory. Fixed forever. A test compares them with the
//! library's lists.

use gpuipc::{Memory, MemoryKind};

/// No memory was refused, or a kind that has no number in this header.
pub const GPUIPC_KIND_OTHER: u32 = 0;
/// CUDA does not know the pointer.
pub const GPUIPC_KIND_NOT_CUDA: u32 = 1;
/// `cuMemAllocManaged`.
pub const GPUIPC_KIND_MANAGED: u32 = 2;
/// `cuMemHostAlloc` or registered host memory.
pub const GPUIPC_KIND_PINNED_HOST: u32 = 3;
// 4 was GPUIPC_KIND_HOST_NUMA: memory of a host NUMA node is shared now.
/// A device's default memory pool, or a pool without a handle type.
pub const GPUIPC_KIND_POOL_WITHOUT_HANDLE_TYPE: u32 = 5;
/// A memory pool with a handle type.
pub const GPUIPC_KIND_POOL: u32 = 6;
/// VMM memory that was created without a handle type.
pub const GPUIPC_KIND_VMM_WITHOUT_HANDLE_TYPE: u32 = 7;
/// VMM memory with a handle type, all of whose exports failed.
pub const GPUIPC_KIND_VMM: u32 = 8;
/// `cuMemAlloc` memory.
pub const GPUIPC_KIND_CUDA_MALLOC: u32 = 9;
/// Memory that this process imported itself.
pub const GPUIPC_KIND_IMPORTED: u32 = 10;
/// More bytes than the allocation has behind the pointer.
pub const GPUIPC_KIND_BEYOND_ALLOCATION: u32 = 11;
/// VMM memory on the host, but on no certain NUMA node.
pub const GPUIPC_KIND_HOST: u32 = 12;

/// For `gpuipc_buffer_new`: `cuMemAlloc`, shared by legacy IPC.
pub const GPUIPC_MEMORY_CUDA_MALLOC: u32 = 1;
/// For `gpuipc_buffer_new`: `cuMemCreate`, shared by file descriptor.
pub const GPUIPC_MEMORY_VMM_FD: u32 = 2;
/// For `gpuipc_buffer_new`: `cuMemCreate`, shared by fabric handle and by file
/// descriptor.
pub const GPUIPC_MEMORY_VMM_FABRIC: u32 = 3;
/// For `gpuipc_buffer_new`: many pieces of `cuMemCreate` side by side, as PyTorch's
/// expandable segments, shared by file descriptor.
pub const GPUIPC_MEMORY_SEGMENTS: u32 = 4;
/// For `gpuipc_buffer_new`: from a pool, shared by file descriptor.
pub const GPUIPC_MEMORY_POOL: u32 = 5;
/// For `gpuipc_buffer_new`: `cuMemCreate` on host NUMA node 0, shared by file
/// descriptor.
pub const GPUIPC_MEMORY_HOST_NUMA: u32 = 6;

/// The number of a kind of memory that cannot be shared.
pub(crate) const fn kind(kind: MemoryKind) -> u32 {
    match kind {
        MemoryKind::NotCuda => GPUIPC_KIND_NOT_CUDA,
        MemoryKind::Managed => GPUIPC_KIND_MANAGED,
        MemoryKind::PinnedHost => GPUIPC_KIND_PINNED_HOST,
        MemoryKind::Host => GPUIPC_KIND_HOST,
        MemoryKind::PoolWithoutHandleType => GPUIPC_KIND_POOL_WITHOUT_HANDLE_TYPE,
        MemoryKind::Pool => GPUIPC_KIND_POOL,
        MemoryKind::VmmWithoutHandleType => GPUIPC_KIND_VMM_WITHOUT_HANDLE_TYPE,
        MemoryKind::Vmm => GPUIPC_KIND_VMM,
        MemoryKind::CudaMalloc => GPUIPC_KIND_CUDA_MALLOC,
        MemoryKind::Imported => GPUIPC_KIND_IMPORTED,
        MemoryKind::BeyondAllocation => GPUIPC_KIND_BEYOND_ALLOCATION,
        _ => GPUIPC_KIND_OTHER,
    }
}

/// The memory with this number.
pub(crate) const fn memory(number: u32) -> Option<Memory> {
    match number {
        GPUIPC_MEMORY_CUDA_MALLOC => Some(Memory::CudaMalloc),
        GPUIPC_MEMORY_VMM_FD => Some(Memory::VmmFd),
        GPUIPC_MEMORY_VMM_FABRIC => Some(Memory::VmmFabric),
        GPUIPC_MEMORY_SEGMENTS => Some(Memory::Segments),
        GPUIPC_MEMORY_POOL => Some(Memory::Pool),
        GPUIPC_MEMORY_HOST_NUMA => Some(Memory::HostNuma),
        _ => None,
    }
}
