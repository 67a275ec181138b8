//! The keepalive descriptor, which makes exports cheap.
//!
//! An export of a descriptor costs 23 us and its close 9 us while the process has
//! another exported descriptor of VMM memory open. Without one, the first export costs
//! 580 us and the last close 545 us (H200, driver 580:
//! `tests/gpu/records/2026-11-30-h200-export-cost.txt`). So a process that exports only
//! now and then can keep one descriptor open, of the smallest allocation on a host NUMA
//! node: 2 MiB of host memory and no GPU memory.

use crate::gpu::driver::{AllocationHandle, Driver, Result};
use crate::process::private_fd::PrivateFd;
use crate::sys::{self, CuMemAllocationProp, CuMemLocation};

/// The descriptor. Nothing is ever mapped, and the allocation's own handle is
/// released: closing it frees the memory.
#[derive(Debug)]
pub(crate) struct Keepalive {
    _fd: PrivateFd,
}

impl Keepalive {
    /// `cuMemCreate` on host NUMA node 0, `cuMemExportToShareableHandle`,
    /// `cuMemRelease`. Needs no context.
    pub(crate) fn make(driver: Driver) -> Result<Self> {
        let prop = CuMemAllocationProp {
            kind: sys::ALLOCATION_TYPE_PINNED,
            requested_handle_types: sys::handle_type::POSIX_FILE_DESCRIPTOR,
            location: CuMemLocation {
                kind: sys::location::HOST_NUMA,
                id: 0,
            },
            ..CuMemAllocationProp::default()
        };
        let handle = AllocationHandle::create(driver, driver.mem_granularity(&prop)?, &prop)?;
        Ok(Self {
            _fd: PrivateFd::new(handle.export_fd()?),
        })
    }
}
