//! GPU memory that is allocated so that it can be shared by a certain type.
//!
//! It shows what an allocator must ask the driver for. The program `gpuipc`, the tests
//! and the benchmark use it.

#![allow(unsafe_code)]

use crate::error::Error;
use crate::export::Exported;
use crate::gpu::context::DeviceContext;
use crate::gpu::device_memory::DeviceMemory;
use crate::gpu::driver::{AllocationHandle, Driver};
use crate::gpu::mapping::VmmMapping;
use crate::gpu::undo;
use crate::import::mem::{check_inside, copy_in, copy_out};
use crate::options::ExportOptions;
use crate::process::identity;
use crate::session::Ipc;
use crate::sys::{
    self, CuDevice, CuDevicePtr, CuMemAccessDesc, CuMemAllocationProp, CuMemLocation, CuMemPool,
    CuStream,
};
use core::fmt;
use std::sync::Arc;

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
    /// Many pieces as of [`Memory::VmmFd`], each as small as the granularity
    /// allows, side by side in one reservation, as PyTorch's expandable segments: PosixFd.
    Segments,
    /// `cuMemAllocFromPoolAsync` from a pool of its own with
    /// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`: PosixFd.
    Pool,
    /// `cuMemCreate` on host NUMA node 0 with
    /// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`: PosixFd. The device has access.
    HostNuma,
}

impl Memory {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::CudaMalloc,
        Self::VmmFd,
        Self::VmmFabric,
        Self::Segments,
        Self::Pool,
        Self::HostNuma,
    ];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CudaMalloc => "cuda-malloc",
            Self::VmmFd => "vmm-fd",
            Self::VmmFabric => "vmm-fabric",
            Self::Segments => "segments",
            Self::Pool => "pool",
            Self::HostNuma => "host-numa",
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

/// Memory at one address, freed on drop.
#[derive(Debug)]
pub struct Buffer {
    driver: Driver,
    len: usize,
    allocation: Allocation,
    /// For copies.
    context: DeviceContext,
}

#[derive(Debug)]
enum Allocation {
    /// `cuMemFree` frees it.
    Malloc(CuDevicePtr),
    /// Freed before its pool goes.
    Pooled(CuDevicePtr, Arc<OwnPool>),
    Vmm(VmmMapping),
}

impl Buffer {
    /// Allocates `len` bytes on the GPU with this ordinal (host-NUMA memory: for
    /// it), in the current context if it is that GPU's, else in its primary one,
    /// which it keeps in use. VMM memory is rounded up to the granularity (2 MiB
    /// on an H200).
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
        identity::process_id()?;
        driver.init()?;
        if len == 0 {
            return Err(Error::Argument {
                name: "len",
                rule: "at least one byte must be allocated",
            });
        }
        let context = DeviceContext::for_device(driver, device)?;
        let fd = sys::handle_type::POSIX_FILE_DESCRIPTOR;
        let on_device = (sys::location::DEVICE, device);
        let allocation = match memory {
            Memory::CudaMalloc => Allocation::Malloc(context.with(|| driver.mem_alloc(len))?),
            Memory::Pool => {
                let pool = OwnPool::create(driver, device)?;
                context.with(|| OwnPool::allocate(&pool, len))?
            }
            Memory::VmmFd => vmm(driver, device, on_device, fd, len, Pieces::One)?,
            Memory::Segments => vmm(driver, device, on_device, fd, len, Pieces::Many)?,
            Memory::VmmFabric => {
                let types = fd | sys::handle_type::FABRIC;
                vmm(driver, device, on_device, types, len, Pieces::One)?
            }
            Memory::HostNuma => {
                let on_host = (sys::location::HOST_NUMA, 0);
                vmm(driver, device, on_host, fd, len, Pieces::One)?
            }
        };
        Ok(Self {
            driver,
            len,
            allocation,
            context,
        })
    }

    /// Another allocation of `len` bytes from the same pool.
    ///
    /// # Errors
    /// [`Error::Argument`] if this memory is not of [`Memory::Pool`],
    /// [`Error::Driver`]: `OUT_OF_MEMORY` (2).
    pub fn beside(&self, len: usize) -> Result<Self, Error> {
        identity::process_id()?;
        let Allocation::Pooled(_, pool) = &self.allocation else {
            return Err(Error::Argument {
                name: "self",
                rule: "only memory of a pool has other memory beside it",
            });
        };
        Ok(Self {
            driver: self.driver,
            len,
            allocation: self.context.with(|| OwnPool::allocate(pool, len))?,
            context: self.context.clone(),
        })
    }

    /// The first byte.
    #[must_use]
    pub const fn device_ptr(&self) -> CuDevicePtr {
        match &self.allocation {
            Allocation::Malloc(ptr) | Allocation::Pooled(ptr, _) => *ptr,
            Allocation::Vmm(mapping) => mapping.base(),
        }
    }

    /// Bytes asked for.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // a buffer is never empty
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Exports `len` bytes of it from `offset` on.
    ///
    /// # Errors
    /// As [`Ipc::export`], [`Error::Argument`] for a range beyond the buffer.
    pub fn export(
        &self,
        ipc: &Ipc,
        offset: usize,
        len: usize,
        options: &ExportOptions,
    ) -> Result<Exported, Error> {
        check_inside(offset, len, self.len)?;
        // SAFETY: allocated and mapped while the buffer is borrowed. Its unmap and the
        // release of references are calls of this crate, which never meet.
        unsafe { ipc.export(self.device_ptr() + offset as u64, len, options) }
    }

    /// Copies bytes out (`cuMemcpyDtoH`).
    ///
    /// # Errors
    /// [`Error::Argument`] for a range beyond the buffer, [`Error::Driver`],
    /// [`Error::Forked`].
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        identity::process_id()?;
        check_inside(offset, to.len(), self.len)?;
        copy_out(
            self.driver,
            &self.context,
            self.device_ptr() + offset as u64,
            to,
        )
    }

    /// Copies bytes in (`cuMemcpyHtoD`) and waits for that GPU's work.
    ///
    /// # Errors
    /// [`Error::Argument`] for a range beyond the buffer, [`Error::Driver`],
    /// [`Error::Forked`].
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), Error> {
        identity::process_id()?;
        check_inside(offset, from.len(), self.len)?;
        copy_in(
            self.driver,
            &self.context,
            self.device_ptr() + offset as u64,
            from,
        )
    }
}

// SAFETY: allocated with the buffer, freed by its drop only.
unsafe impl DeviceMemory for Buffer {
    fn device_ptr(&self) -> CuDevicePtr {
        Self::device_ptr(self)
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if identity::is_forked() {
            return;
        }
        let free = |ptr| {
            undo::report(
                "cuMemFree",
                self.context.give_back(|| {
                    // SAFETY: allocated by this object, whose users are gone.
                    unsafe { self.driver.mem_free(ptr) }
                }),
            )
        };
        match self.allocation {
            Allocation::Malloc(ptr) | Allocation::Pooled(ptr, _) => free(ptr),
            Allocation::Vmm(_) => {}
        }
    }
}

/// A pool whose memory can be shared; destroyed with the last allocation in it.
#[derive(Debug)]
struct OwnPool {
    driver: Driver,
    raw: CuMemPool,
}

impl OwnPool {
    fn create(driver: Driver, device: CuDevice) -> Result<Arc<Self>, Error> {
        let raw = driver.pool_create(device, sys::handle_type::POSIX_FILE_DESCRIPTOR)?;
        Ok(Arc::new(Self { driver, raw }))
    }

    /// In the current context.
    fn allocate(pool: &Arc<Self>, len: usize) -> Result<Allocation, Error> {
        // SAFETY: the driver gave the pool, and only the drop destroys it.
        let ptr = unsafe { pool.driver.pool_alloc(pool.raw, len, CuStream::DEFAULT) }?;
        // SAFETY: the default stream is always there.
        if let Err(error) = unsafe { pool.driver.stream_synchronize(CuStream::DEFAULT) } {
            // SAFETY: allocated just now, and nobody knows it.
            undo::report("cuMemFree", unsafe { pool.driver.mem_free(ptr) });
            return Err(error.into());
        }
        Ok(Allocation::Pooled(ptr, Arc::clone(pool)))
    }
}

impl Drop for OwnPool {
    fn drop(&mut self) {
        if !identity::is_forked() {
            // SAFETY: the driver gave the pool, and nobody uses it after its drop.
            undo::report("cuMemPoolDestroy", unsafe {
                self.driver.pool_destroy(self.raw)
            });
        }
    }
}

/// In how many allocations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pieces {
    One,
    /// Each as small as can be.
    Many,
}

/// Creates VMM memory with these handle types, and maps it for the device.
fn vmm(
    driver: Driver,
    device: CuDevice,
    (kind, id): (u32, i32),
    requested_handle_types: u32,
    len: usize,
    pieces: Pieces,
) -> Result<Allocation, Error> {
    let prop = CuMemAllocationProp {
        kind: sys::ALLOCATION_TYPE_PINNED,
        requested_handle_types,
        location: CuMemLocation { kind, id },
        ..CuMemAllocationProp::default()
    };
    let granularity = driver.mem_granularity(&prop)?;
    let size = len
        .checked_next_multiple_of(granularity)
        .ok_or(Error::Argument {
            name: "len",
            rule: "more bytes than there are addresses",
        })?;
    let piece = match pieces {
        Pieces::One => size,
        Pieces::Many => granularity,
    };
    let mut mapping = VmmMapping::reserve(driver, size)?;
    for _ in 0..size / piece {
        // The handle is released once the mapping keeps the memory.
        let handle = AllocationHandle::create(driver, piece, &prop)?;
        mapping.append(&handle, piece)?;
    }
    mapping.give_access(&[CuMemAccessDesc {
        location: CuMemLocation {
            kind: sys::location::DEVICE,
            id: device,
        },
        flags: sys::access::READ_WRITE,
    }])?;
    Ok(Allocation::Vmm(mapping))
}
