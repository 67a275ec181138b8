//! The allocation at a pointer, and the types by which it can be shared, from the
//! driver's attributes.

#![allow(unsafe_code)]

use crate::error::{Error, MemoryKind, NotExportable};
use crate::gpu::context::DeviceContext;
use crate::gpu::driver::{AllocationHandle, Driver};
use crate::sys::{
    CuContext, CuDevice, CuDevicePtr, CuMemPool, CuResult, handle_type, location, memory_type,
    pointer_attribute,
};
use gpuipc_core::TypeFlags;

/// The allocation around a pointer.
#[derive(Debug)]
pub(crate) struct Allocation {
    /// The driver's BUFFER_ID.
    pub(crate) id: u64,
    pub(crate) base: CuDevicePtr,
    pub(crate) size: u64,
    pub(crate) location: Location,
    pub(crate) kind: AllocationKind,
}

/// Where memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// In a GPU, by this process's ordinal.
    Gpu(CuDevice),
    /// On a host NUMA node.
    HostNode(i16),
}

/// How memory was allocated, and so how it can be shared.
#[derive(Debug)]
pub(crate) enum AllocationKind {
    /// `cuMemAlloc`: a legacy handle, made in the context that allocated.
    Legacy { context: CuContext },
    /// `cuMemCreate`: exports of the allocation, by a sum of `handle_type`s.
    Vmm {
        handle: AllocationHandle,
        allowed: u64,
    },
    /// A pool: exports of the pool, by a sum of `handle_type`s, and of the pointer.
    Pool { pool: CuMemPool, allowed: u64 },
}

impl AllocationKind {
    /// The types that the memory was made for.
    pub(crate) fn types(&self) -> TypeFlags {
        let allowed = match self {
            Self::Legacy { .. } => return TypeFlags::RUNTIME_IPC,
            Self::Vmm { allowed, .. } | Self::Pool { allowed, .. } => *allowed,
        };
        let has = |kind: u32| allowed & u64::from(kind) != 0;
        let mut types = TypeFlags::empty();
        types.set(TypeFlags::POSIX_FD, has(handle_type::POSIX_FILE_DESCRIPTOR));
        types.set(TypeFlags::FABRIC, has(handle_type::FABRIC));
        types
    }

    /// The kind, for messages.
    pub(crate) const fn memory_kind(&self) -> MemoryKind {
        match self {
            Self::Legacy { .. } => MemoryKind::CudaMalloc,
            Self::Vmm { .. } => MemoryKind::Vmm,
            Self::Pool { .. } => MemoryKind::Pool,
        }
    }
}

/// The driver's BUFFER_ID of the allocation around `ptr`; `None` for a pointer
/// that the driver does not know. Never reused, and another one for each mapping
/// of VMM memory.
pub(crate) fn id_at(driver: Driver, ptr: CuDevicePtr) -> crate::gpu::driver::Result<Option<u64>> {
    match driver.pointer_attribute(pointer_attribute::BUFFER_ID, ptr) {
        Ok(id) => Ok(Some(id)),
        Err(error) if error.code() == Some(CuResult::INVALID_VALUE) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Bytes from `ptr` to the end of an allocation, if that lies in it.
pub(crate) fn behind(base: CuDevicePtr, size: u64, ptr: CuDevicePtr) -> Option<u64> {
    size.checked_sub(ptr.checked_sub(base)?)
        .filter(|left| *left > 0)
}

/// The refusal to share memory of a kind.
pub(crate) const fn not_exportable(kind: MemoryKind) -> Error {
    Error::NotExportable(NotExportable {
        kind,
        attempts: Vec::new(),
    })
}

/// Questions about one pointer. None needs a current context.
struct Pointer {
    driver: Driver,
    ptr: CuDevicePtr,
}

impl Pointer {
    fn attribute(&self, attribute: u32) -> crate::gpu::driver::Result<u64> {
        self.driver.pointer_attribute(attribute, self.ptr)
    }

    /// An attribute that an older driver does not know counts as zero.
    fn or_zero(&self, attribute: u32) -> crate::gpu::driver::Result<u64> {
        match self.attribute(attribute) {
            Err(error) if error.code() == Some(CuResult::INVALID_VALUE) => Ok(0),
            answer => answer,
        }
    }

    /// What `cuMemAlloc` or the pool returned; the mapping around it may be
    /// larger and hold other allocations.
    fn range(&self) -> crate::gpu::driver::Result<(CuDevicePtr, u64)> {
        Ok((
            self.attribute(pointer_attribute::RANGE_START_ADDR)?,
            self.attribute(pointer_attribute::RANGE_SIZE)?,
        ))
    }

    /// Of VMM memory the range is the whole reservation, the mapping the piece.
    /// Drivers before CUDA 11.7 know the piece by another call only.
    fn mapping(&self, device: CuDevice) -> crate::gpu::driver::Result<(CuDevicePtr, u64)> {
        let piece = self
            .attribute(pointer_attribute::MAPPING_BASE_ADDR)
            .and_then(|base| Ok((base, self.attribute(pointer_attribute::MAPPING_SIZE)?)));
        match piece {
            Err(error) if error.code() == Some(CuResult::INVALID_VALUE) => {
                let context = DeviceContext::for_device(self.driver, device)?;
                let (base, size) = context.with(|| self.driver.address_range(self.ptr))?;
                Ok((base, size as u64))
            }
            piece => piece,
        }
    }
}

impl Allocation {
    /// Asks the driver what is at `ptr`, whose BUFFER_ID is `id`.
    ///
    /// # Errors
    /// [`Error::NotExportable`] for memory that cannot be shared.
    ///
    /// # Safety
    /// The memory stays mapped during the call.
    pub(crate) unsafe fn around(driver: Driver, ptr: CuDevicePtr, id: u64) -> Result<Self, Error> {
        // SAFETY: as the caller says.
        let found = unsafe { Self::find(Pointer { driver, ptr }, id) }?;
        match found.behind(ptr) {
            Some(_) => Ok(found),
            // Freed between two questions; or host VMM memory, of which one call
            // says that it begins at the null pointer (seen on an H200, driver 580).
            None => Err(not_exportable(MemoryKind::NotCuda)),
        }
    }

    /// Bytes from `ptr` on, if that lies in it.
    pub(crate) fn behind(&self, ptr: CuDevicePtr) -> Option<u64> {
        behind(self.base, self.size, ptr)
    }

    /// # Safety
    /// As for [`Allocation::around`].
    unsafe fn find(pointer: Pointer, id: u64) -> Result<Self, Error> {
        let Pointer { driver, ptr } = pointer;
        let memory = match pointer.attribute(pointer_attribute::MEMORY_TYPE) {
            Err(error) if error.code() == Some(CuResult::INVALID_VALUE) => {
                return Err(not_exportable(MemoryKind::NotCuda));
            }
            answer => answer?,
        };
        // 64 bits: the driver writes eight bytes.
        let allowed = pointer.or_zero(pointer_attribute::ALLOWED_HANDLE_TYPES)?;
        let pool = pointer.or_zero(pointer_attribute::MEMPOOL_HANDLE)?;
        if pool != 0 {
            return Self::in_pool(&pointer, id, pool, allowed);
        }
        let is_host = memory == u64::from(memory_type::HOST);
        // Memory with a handle type is neither of these (seen on an H200, driver 580).
        if allowed == 0 && pointer.or_zero(pointer_attribute::IS_MANAGED)? != 0 {
            return Err(not_exportable(MemoryKind::Managed));
        }
        if allowed == 0
            && !is_host
            && pointer.or_zero(pointer_attribute::IS_LEGACY_CUDA_IPC_CAPABLE)? != 0
        {
            let (base, size) = pointer.range()?;
            let context = context_number(pointer.attribute(pointer_attribute::CONTEXT)?);
            return Ok(Self {
                id,
                base,
                size,
                location: Location::Gpu(device_of(&pointer)?),
                kind: AllocationKind::Legacy { context },
            });
        }
        // SAFETY: as the caller says.
        let handle = match unsafe { AllocationHandle::retain(driver, ptr) } {
            Ok(handle) => handle,
            Err(error) if error.code() == Some(CuResult::INVALID_VALUE) => {
                return Err(not_exportable(if is_host {
                    MemoryKind::PinnedHost
                } else {
                    MemoryKind::Imported
                }));
            }
            Err(error) => return Err(error.into()),
        };
        if allowed == 0 {
            return Err(not_exportable(MemoryKind::VmmWithoutHandleType));
        }
        let device = device_of(&pointer)?;
        let location = if is_host {
            let place = handle.properties()?.location;
            let node = i16::try_from(place.id).ok().filter(|node| *node >= 0);
            match node.filter(|_| place.kind == location::HOST_NUMA) {
                Some(node) => Location::HostNode(node),
                None => return Err(not_exportable(MemoryKind::Host)),
            }
        } else {
            Location::Gpu(device)
        };
        let (base, size) = pointer.mapping(device)?;
        Ok(Self {
            id,
            base,
            size,
            location,
            kind: AllocationKind::Vmm { handle, allowed },
        })
    }

    fn in_pool(pointer: &Pointer, id: u64, pool: u64, allowed: u64) -> Result<Self, Error> {
        if allowed == 0 {
            return Err(not_exportable(MemoryKind::PoolWithoutHandleType));
        }
        let (base, size) = pointer.range()?;
        Ok(Self {
            id,
            base,
            size,
            location: Location::Gpu(device_of(pointer)?),
            kind: AllocationKind::Pool {
                pool: usize::try_from(pool).map_or(CuMemPool::NULL, CuMemPool),
                allowed,
            },
        })
    }
}

fn device_of(pointer: &Pointer) -> crate::gpu::driver::Result<CuDevice> {
    let ordinal = pointer.attribute(pointer_attribute::DEVICE_ORDINAL)?;
    Ok(i32::try_from(ordinal).unwrap_or(-1))
}

/// A context as the attribute CONTEXT gives it.
fn context_number(value: u64) -> CuContext {
    usize::try_from(value).map_or(CuContext::NULL, CuContext)
}
