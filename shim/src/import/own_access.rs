//! Access for more devices to this process's own memory, at its original address.

#![allow(unsafe_code)]

use crate::driver::{Driver, Result};
use crate::import::devices::Importers;
use crate::import::window::Window;
use crate::sys::{CuDevicePtr, CuMemAccessDesc, CuMemPool, access, pointer_attribute};
use gpuipc_core::{Attributes, TypeFlags};

/// Gives the importing devices access to memory that lies at `base`, where they
/// lack it: all of it, also for an import that only reads. Nothing here keeps the
/// memory at its address: were its owner to free it now, another allocation of this
/// process, there instead, must not lose a right; and a pool has no right to read
/// alone (seen on an H200, driver 580). Legacy memory has none to give:
/// `cuCtxEnablePeerAccess` is its owner's.
pub(crate) fn give(
    driver: Driver,
    window: &Window<'_>,
    base: CuDevicePtr,
    importers: &Importers,
) -> Result<()> {
    let mut at = base;
    for segment in window.segments() {
        let here = at;
        at += segment.base_size();
        if segment.types().contains(TypeFlags::RUNTIME_IPC) {
            continue;
        }
        if segment.attributes().contains(Attributes::MEM_POOL) {
            let raw = driver.pointer_attribute(pointer_attribute::MEMPOOL_HANDLE, here)?;
            let pool = CuMemPool(usize::try_from(raw).unwrap_or_default());
            let rights: Vec<_> = importers.rights(None).into_iter().map(all_of).collect();
            // SAFETY: the driver's pool of memory that is allocated: it was found
            // on offer and unchanged just before, and a pool lives as long as its
            // memory.
            unsafe { driver.pool_set_access(pool, &rights) }?;
            continue;
        }
        for right in importers.rights(segment.numa_node()) {
            let has = driver.mem_access(here, right.location)?;
            if has & u64::from(right.flags) != u64::from(right.flags) {
                let size = usize::try_from(segment.base_size()).unwrap_or(usize::MAX);
                // SAFETY: this takes no right away: `flags` is the most there is.
                unsafe { driver.mem_set_access(here, size, &[all_of(right)]) }?;
            }
        }
    }
    Ok(())
}

const fn all_of(right: CuMemAccessDesc) -> CuMemAccessDesc {
    CuMemAccessDesc {
        flags: access::READ_WRITE,
        ..right
    }
}
