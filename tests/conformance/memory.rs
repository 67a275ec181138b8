//! Memory of each kind, made the way that CUDA's users make it.

use crate::call::{Ask, Exported, Got, property};
use crate::rows::{Rows, code};
use gpuipc::sys::{CuMemAllocationProp, access, granularity, handle_type, location};

/// One mebibyte.
pub(crate) const MIB: u64 = 1 << 20;
/// What an importer reads when it reads the right memory.
pub(crate) const MARK: u64 = 0x6b72_616d_2061_2020;
/// Where the mark of interior addresses lies.
pub(crate) const INSIDE: u64 = 512;

/// How memory is allocated.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// `cuMemAlloc`.
    Malloc,
    /// `cuMemCreate` on the GPU with this ordinal, with these handle types.
    Vmm(i32, u32),
    /// `cuMemCreate` on host node 0, as a descriptor; mapped for GPU 0.
    HostNuma,
    /// `cuMemHostAlloc`.
    HostPinned,
    /// `cuMemAllocManaged`.
    Managed,
}

impl Kind {
    /// VMM memory of GPU 0 that travels as a descriptor.
    pub(crate) const VMM_FD: Self = Self::Vmm(0, handle_type::POSIX_FILE_DESCRIPTOR);

    /// What `cuMemCreate` is asked for; `None` for memory that is no VMM memory.
    pub(crate) fn property(self) -> Option<CuMemAllocationProp> {
        match self {
            Self::Malloc | Self::HostPinned | Self::Managed => None,
            Self::Vmm(device, types) => Some(property(location::DEVICE, device, types)),
            Self::HostNuma => Some(property(
                location::HOST_NUMA,
                0,
                handle_type::POSIX_FILE_DESCRIPTOR,
            )),
        }
    }

    /// The GPU that gets access.
    const fn device(self) -> i32 {
        match self {
            Self::Vmm(device, _) => device,
            _ => 0,
        }
    }
}

/// Memory that was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    /// Its first byte.
    pub(crate) base: u64,
    /// Its length.
    pub(crate) size: u64,
    /// The handle of VMM memory, else 0.
    pub(crate) handle: u64,
}

/// Makes memory, with a row a step if there are rows, and marks it at its base
/// and at [`INSIDE`].
pub(crate) fn make(who: &dyn Ask, kind: Kind, bytes: u64, rows: Option<&Rows>) -> Got<Made> {
    fn told<T>(rows: Option<&Rows>, question: &str, answer: Got<T>) -> Got<T> {
        if let Some(rows) = rows {
            rows.row(question, code(&answer));
        }
        answer
    }
    let made = match kind.property() {
        None => {
            let base = match kind {
                Kind::HostPinned => told(rows, "cuMemHostAlloc", who.host_alloc(bytes))?,
                Kind::Managed => told(rows, "cuMemAllocManaged", who.managed_alloc(bytes))?,
                _ => told(rows, "cuMemAlloc", who.alloc(bytes))?,
            };
            Made {
                base,
                size: bytes,
                handle: 0,
            }
        }
        Some(prop) => {
            let least = who.granularity(&prop, granularity::MINIMUM)?;
            let size = bytes.next_multiple_of(least.max(1));
            let handle = told(rows, "cuMemCreate", who.create(size, &prop))?;
            let base = told(rows, "cuMemAddressReserve", who.reserve(size, 0))?;
            told(rows, "cuMemMap", who.map(base, size, 0, handle))?;
            let given = who.set_access(base, size, kind.device(), access::READ_WRITE);
            told(rows, "cuMemSetAccess", given)?;
            Made { base, size, handle }
        }
    };
    told(rows, "cuMemcpyHtoD", who.put(made.base, MARK))?;
    who.put(made.base + INSIDE, MARK + INSIDE)?;
    Ok(made)
}

/// Maps a handle into a reservation of its own and gives a GPU rights.
pub(crate) fn map(who: &dyn Ask, handle: u64, size: u64, device: i32, flags: u32) -> Got<u64> {
    let base = who.reserve(size, 0)?;
    who.map(base, size, 0, handle)?;
    who.set_access(base, size, device, flags)?;
    Ok(base)
}

/// VMM memory and a descriptor of it.
pub(crate) fn make_fd(who: &dyn Ask, kind: Kind, bytes: u64) -> Got<(Made, Exported)> {
    let made = make(who, kind, bytes, None)?;
    let exported = who.export_fd(made.handle)?;
    Ok((made, exported))
}

/// `cuMemAlloc` memory and a legacy handle of it.
pub(crate) fn make_legacy(who: &dyn Ask, bytes: u64) -> Got<(Made, [u8; 64])> {
    let made = make(who, Kind::Malloc, bytes, None)?;
    let handle = who.legacy_handle(made.base)?;
    Ok((made, handle))
}

/// Initializes the driver and makes a GPU's primary context current.
pub(crate) fn ready(who: &dyn Ask, device: i32) -> Got<u64> {
    who.init(0)?;
    let context = who.primary_retain(device)?;
    who.set_current(context)?;
    Ok(context)
}
