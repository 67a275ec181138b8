//! GPU memory that can be shared: one allocation, made for one way of sharing.
//!
//! A runtime has its own allocators; this one shows what they must ask for,
//! and serves the program `gpuipc`, the tests and the benches.

use crate::context::DeviceContext;
use crate::driver::Driver;
use crate::error::Error;
use crate::identity;
use crate::mapping::VmmMapping;
use crate::mem::{check_range, copy_in, copy_out};
use crate::options::Access;
use crate::sys::{self, CuDevice, CuDevicePtr, CuMemAllocationProp, CuMemLocation};
use crate::undo;
use core::fmt;

/// How the memory is allocated, and so how it can be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Memory {
    /// `cuMemAlloc`: RuntimeIpc.
    CudaMalloc,
    /// `cuMemCreate` with `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`: PosixFd.
    VmmFd,
    /// `cuMemCreate` with `CU_MEM_HANDLE_TYPE_FABRIC` and the descriptor: Fabric and PosixFd.
    VmmFabric,
}

impl Memory {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::CudaMalloc, Self::VmmFd, Self::VmmFabric];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CudaMalloc => "cuda-malloc",
            Self::VmmFd => "vmm-fd",
            Self::VmmFabric => "vmm-fabric",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|memory| memory.name() == name)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One allocation, freed on drop.
#[derive(Debug)]
pub struct Buffer {
    driver: Driver,
    len: usize,
    allocation: Allocation,
}

#[derive(Debug)]
enum Allocation {
    Malloc {
        context: DeviceContext,
        ptr: CuDevicePtr,
    },
    Vmm {
        mapping: VmmMapping,
        /// For copies.
        context: DeviceContext,
    },
}

impl Buffer {
    /// Allocates `len` bytes on the GPU with this ordinal, in the current
    /// context if it is that GPU's, else in its primary one, which it keeps in
    /// use. VMM memory is rounded up to the granularity (2 MiB on an H200).
    ///
    /// # Errors
    /// [`Error::Driver`]: `OUT_OF_MEMORY` (2); for a fabric handle type where
    /// the fabric does not work, `NOT_PERMITTED` (800) and others.
    /// [`Error::Argument`] for a length that cannot be.
    pub fn new(
        driver: Driver,
        device: CuDevice,
        memory: Memory,
        len: usize,
    ) -> Result<Self, Error> {
        driver.init()?;
        if len == 0 {
            return Err(Error::Argument {
                name: "len",
                rule: "at least one byte must be allocated",
            });
        }
        let allocation = match memory {
            Memory::CudaMalloc => {
                let context = DeviceContext::for_device(driver, device)?;
                let ptr = context.with(|| driver.mem_alloc(len))?;
                Allocation::Malloc { context, ptr }
            }
            Memory::VmmFd => vmm(driver, device, sys::handle_type::POSIX_FILE_DESCRIPTOR, len)?,
            Memory::VmmFabric => vmm(
                driver,
                device,
                sys::handle_type::POSIX_FILE_DESCRIPTOR | sys::handle_type::FABRIC,
                len,
            )?,
        };
        Ok(Self {
            driver,
            len,
            allocation,
        })
    }

    /// The first byte.
    #[must_use]
    pub const fn device_ptr(&self) -> CuDevicePtr {
        match &self.allocation {
            Allocation::Malloc { ptr, .. } => *ptr,
            Allocation::Vmm { mapping, .. } => mapping.base(),
        }
    }

    /// Bytes asked for.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a buffer is never empty
    pub const fn len(&self) -> usize {
        self.len
    }

    const fn context(&self) -> &DeviceContext {
        match &self.allocation {
            Allocation::Malloc { context, .. } | Allocation::Vmm { context, .. } => context,
        }
    }

    /// Copies bytes out (`cuMemcpyDtoH`).
    ///
    /// # Errors
    /// [`Error::Argument`] for a range beyond the buffer, [`Error::Driver`].
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        check_range(offset, to.len(), self.len)?;
        copy_out(
            self.driver,
            self.context(),
            self.device_ptr() + offset as u64,
            to,
        )
    }

    /// Copies bytes in (`cuMemcpyHtoD`) and waits for that GPU's work.
    ///
    /// # Errors
    /// [`Error::Argument`] for a range beyond the buffer, [`Error::Driver`].
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), Error> {
        check_range(offset, from.len(), self.len)?;
        copy_in(
            self.driver,
            self.context(),
            self.device_ptr() + offset as u64,
            from,
        )
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Allocation::Malloc { context, ptr } = &self.allocation
            && !identity::is_forked()
        {
            undo::report("cuMemFree", context.with(|| self.driver.mem_free(*ptr)));
        }
    }
}

/// Creates VMM memory with these handle types and maps it.
fn vmm(
    driver: Driver,
    device: CuDevice,
    requested_handle_types: u32,
    len: usize,
) -> Result<Allocation, Error> {
    let context = DeviceContext::for_device(driver, device)?;
    let prop = CuMemAllocationProp {
        kind: sys::ALLOCATION_TYPE_PINNED,
        requested_handle_types,
        location: CuMemLocation {
            kind: sys::location::DEVICE,
            id: device,
        },
        ..CuMemAllocationProp::default()
    };
    let granularity = driver.mem_granularity(&prop)?;
    let size = len
        .checked_next_multiple_of(granularity)
        .ok_or(Error::Argument {
            name: "len",
            rule: "more bytes than there are addresses",
        })?;
    // The handle is released once the mapping keeps the memory.
    let handle = driver.mem_create(size, &prop)?;
    let mapping = VmmMapping::new(driver, &handle, size, device, Access::ReadWrite)
        .map_err(|(_, error)| error)?;
    Ok(Allocation::Vmm { mapping, context })
}
