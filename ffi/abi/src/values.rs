//! Numbers of the header other than statuses. Fixed forever, like those.

use gpuipc::core::{Attributes, HANDLE_BYTES, SLOT_BYTES, TypeFlags};
use gpuipc::{Access, HandleType, Liveness, Used};

/// Bytes of a handle, which describes one segment of shared memory.
pub const GPUIPC_HANDLE_BYTES: usize = 384;
/// Bytes of one slot of a handle.
pub const GPUIPC_SLOT_BYTES: usize = 64;

/// The memory is this process's own: the original pointer, nothing was mapped.
/// As an answer of `gpuipc_mem_type_used` only.
pub const GPUIPC_TYPE_SAME_PROCESS: u32 = 0;
/// Legacy IPC (`cuIpcOpenMemHandle`). One host only. Holds no reference: the
/// exporter must keep the memory allocated.
pub const GPUIPC_TYPE_RUNTIME_IPC: u32 = 1;
/// A file descriptor, fetched from the exporter. One host only.
pub const GPUIPC_TYPE_POSIX_FD: u32 = 2;
/// A fabric handle (IMEX). Also between the hosts of one NVLink domain.
pub const GPUIPC_TYPE_FABRIC: u32 = 4;

/// The mapping may be read and written.
pub const GPUIPC_ACCESS_READ_WRITE: u32 = 0;
/// The mapping may be read only. A legacy mapping cannot be made so.
pub const GPUIPC_ACCESS_READ_ONLY: u32 = 1;

/// Nobody could be asked. A legacy handle of freed memory opens whatever lies
/// at its address by then.
pub const GPUIPC_LIVENESS_UNKNOWN: u32 = 0;
/// The exporter said that it is still the memory that was exported. It must stay
/// allocated: the mapping holds no reference.
pub const GPUIPC_LIVENESS_MEMORY_UNCHANGED: u32 = 1;
/// The mapping holds a reference: it is the memory that was exported, and stays
/// so, whatever its owner does.
pub const GPUIPC_LIVENESS_REFERENCED: u32 = 2;
/// The exporter lives and still exports the memory, but could not be asked
/// whether its owner has freed it meanwhile.
pub const GPUIPC_LIVENESS_EXPORT_LIVES: u32 = 3;

/// As the length of an export: from the pointer to the end of the allocation around it.
pub const GPUIPC_WHOLE_ALLOCATION: usize = 0xffff_ffff_ffff_ffff;

/// Whose processes are trusted: as `GPUIPC_TRUST` says, else the own user and root.
pub const GPUIPC_TRUST_DEFAULT: u32 = 0;
/// The own user, and root.
pub const GPUIPC_TRUST_SAME_USER: u32 = 1;
/// Also the users in `trusted_uids`.
pub const GPUIPC_TRUST_USERS: u32 = 2;
/// Everyone who holds the handle. For containers whose user namespaces have no
/// common users.
pub const GPUIPC_TRUST_TOKEN_ALONE: u32 = 3;

/// No log lines.
pub const GPUIPC_LOG_OFF: u32 = 0;
/// What went wrong and cannot be told by a status.
pub const GPUIPC_LOG_ERROR: u32 = 1;
/// What failed to be undone.
pub const GPUIPC_LOG_WARN: u32 = 2;
/// Fallbacks that were taken.
pub const GPUIPC_LOG_INFO: u32 = 3;
/// Each step, and failures that were handled.
pub const GPUIPC_LOG_DEBUG: u32 = 4;
/// Each driver call with its time.
pub const GPUIPC_LOG_TRACE: u32 = 5;

/// In `attributes` of a handle: `slot_1` is a ticket.
pub const GPUIPC_ATTRIBUTE_TICKET: u32 = 1;
/// In `attributes` of a handle: the memory is from a pool, `slot_0` is its pointer.
pub const GPUIPC_ATTRIBUTE_MEM_POOL: u32 = 2;
/// In `attributes` of a handle: pinned host memory on one NUMA node.
pub const GPUIPC_ATTRIBUTE_HOST_NUMA: u32 = 4;
/// In `attributes` of a handle: a multicast object.
pub const GPUIPC_ATTRIBUTE_MULTICAST: u32 = 8;

const _: () = assert!(GPUIPC_WHOLE_ALLOCATION == gpuipc::WHOLE_ALLOCATION);
const _: () = assert!(
    GPUIPC_HANDLE_BYTES == HANDLE_BYTES && GPUIPC_SLOT_BYTES == SLOT_BYTES,
    "the header's sizes are the format's"
);
const _: () = assert!(
    GPUIPC_TYPE_RUNTIME_IPC == TypeFlags::RUNTIME_IPC.bits() as u32
        && GPUIPC_TYPE_POSIX_FD == TypeFlags::POSIX_FD.bits() as u32
        && GPUIPC_TYPE_FABRIC == TypeFlags::FABRIC.bits() as u32,
    "a type's number is its bit in the handle"
);
const _: () = assert!(
    GPUIPC_ATTRIBUTE_TICKET == Attributes::TICKET.bits() as u32
        && GPUIPC_ATTRIBUTE_MEM_POOL == Attributes::MEM_POOL.bits() as u32
        && GPUIPC_ATTRIBUTE_HOST_NUMA == Attributes::HOST_NUMA.bits() as u32
        && GPUIPC_ATTRIBUTE_MULTICAST == Attributes::MULTICAST.bits() as u32,
    "the header's attributes are the format's"
);

/// The type with this number.
pub(crate) fn handle_type(number: u8) -> Option<HandleType> {
    HandleType::ALL
        .into_iter()
        .find(|handle_type| handle_type.flag().bits() == number)
}

/// The access with this number.
pub(crate) const fn access(number: u32) -> Option<Access> {
    match number {
        GPUIPC_ACCESS_READ_WRITE => Some(Access::ReadWrite),
        GPUIPC_ACCESS_READ_ONLY => Some(Access::ReadOnly),
        _ => None,
    }
}

/// The number of a way in which memory was reached.
pub(crate) fn type_used(used: Used) -> u32 {
    match used {
        Used::SameProcess => GPUIPC_TYPE_SAME_PROCESS,
        Used::Type(handle_type) => handle_type.flag().bits().into(),
    }
}

/// The number of what is known about a mapping's memory.
pub(crate) const fn liveness(liveness: Liveness) -> u32 {
    match liveness {
        Liveness::Unknown => GPUIPC_LIVENESS_UNKNOWN,
        Liveness::MemoryUnchanged => GPUIPC_LIVENESS_MEMORY_UNCHANGED,
        Liveness::Referenced => GPUIPC_LIVENESS_REFERENCED,
        Liveness::ExportLives => GPUIPC_LIVENESS_EXPORT_LIVES,
    }
}
