//! Imported memory, and the CPU's view of it where it is host memory.
#![allow(unsafe_code)]

use crate::pattern::Source;
use gpuipc::core::Attributes;
use gpuipc::{Error, GpuIpcMem, GpuIpcMemHandle, HandleType, ImportOptions, Ipc, Used};
use std::ops::Deref;

/// Imported memory.
#[derive(Debug)]
pub(crate) struct Mapped {
    memory: GpuIpcMem,
    /// The CPU may read it.
    for_cpu: bool,
    /// A copy by the driver does no harm.
    may_copy: bool,
}

impl Mapped {
    /// Imports, on request with access for the CPU.
    pub(crate) fn import(
        ipc: &Ipc,
        handles: &[GpuIpcMemHandle],
        options: ImportOptions,
        for_cpu: bool,
    ) -> Result<Self, Error> {
        let memory = ipc.import(handles, &options.host_access(for_cpu))?;
        let has = |handle: &GpuIpcMemHandle, attribute| handle.attributes().contains(attribute);
        let is_vmm = matches!(
            memory.type_used(),
            Used::Type(HandleType::PosixFd | HandleType::Fabric)
        ) && !handles
            .iter()
            .any(|handle| has(handle, Attributes::MEM_POOL));
        // The real driver copies host memory by the CPU, and crashes where that
        // has no rights.
        let is_host = handles
            .iter()
            .any(|handle| has(handle, Attributes::HOST_NUMA));
        Ok(Self {
            memory,
            for_cpu: for_cpu && is_vmm,
            may_copy: for_cpu || !is_host,
        })
    }

    /// Whether the contents can be copied. Host memory needs access for the CPU.
    pub(crate) const fn may_copy(&self) -> bool {
        self.may_copy
    }

    /// The memory as the CPU sees it, if it was imported so.
    pub(crate) fn cpu(&self) -> Option<Cpu<'_>> {
        self.for_cpu.then_some(Cpu(&self.memory))
    }
}

impl Deref for Mapped {
    type Target = GpuIpcMem;

    fn deref(&self) -> &GpuIpcMem {
        &self.memory
    }
}

/// Reads by the CPU, at the mapping's own address.
#[derive(Debug)]
pub(crate) struct Cpu<'a>(&'a GpuIpcMem);

impl Source for Cpu<'_> {
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        let beyond = Error::Argument {
            name: "offset",
            rule: "the range goes beyond the memory",
        };
        let inside = offset
            .checked_add(to.len())
            .is_some_and(|end| end <= self.0.len());
        let Ok(first) = usize::try_from(self.0.device_ptr()) else {
            return Err(beyond);
        };
        if !inside {
            return Err(beyond);
        }
        let from: *const u8 = std::ptr::with_exposed_provenance(first);
        for (at, byte) in to.iter_mut().enumerate() {
            // SAFETY: the address must be mapped and readable. It is: only
            // `Mapped::cpu` makes a `Cpu`, of a VMM mapping that was imported with
            // `host_access(true)`, which succeeds only where `cuMemSetAccess` gave
            // the host node of the memory its rights over all that is mapped; the
            // range was checked above to be inside, and the borrow keeps the
            // mapping. A byte needs no alignment, and any value is one. No Rust
            // reference covers the memory; other processes may write it meanwhile,
            // hence volatile.
            *byte = unsafe { from.wrapping_add(offset + at).read_volatile() };
        }
        Ok(())
    }
}
