//! Gives other devices access to this process's own memory, at its original address.

#![allow(unsafe_code)]

use crate::attempt::{Failure, Reason, Step};
use crate::gpu::driver::{self, Driver};
use crate::import::devices::AccessDevices;
use crate::import::range::RangeHandles;
use crate::options::ImportOptions;
use crate::sys::{CuDevice, CuDevicePtr, CuMemAccessDesc, CuMemPool, access, pointer_attribute};
use gpuipc_core::{Attributes, GpuIpcMemHandle, TypeFlags};

/// Refuses what cannot be done for memory that stays where it is. `owner` is its GPU.
pub(crate) fn check(
    range: &RangeHandles<'_>,
    options: &ImportOptions,
    access: &AccessDevices,
    owner: Option<CuDevice>,
) -> Result<(), Failure> {
    let refused = |step, reason| Err(Failure::refused(step, reason));
    let has = |wanted: fn(&GpuIpcMemHandle) -> bool| {
        let mut segments = range.segments().iter();
        segments.any(|segment| wanted(segment))
    };
    let is_asked = options.device.is_some() || !options.access_devices.is_empty();
    let is_elsewhere = access.devices().any(|device| Some(device) != owner);
    if options.place.is_some() {
        refused(Step::Select, Reason::CannotBePlaced)
    } else if access.host && has(|segment| segment.numa_node().is_none()) {
        refused(Step::Select, Reason::NotHostMemory)
    } else if is_asked
        && is_elsewhere
        && has(|segment| segment.types().contains(TypeFlags::RUNTIME_IPC))
    {
        refused(Step::SetAccess, Reason::OneDeviceOnly)
    } else {
        Ok(())
    }
}

/// Gives the importing devices access to memory that lies at `base`, where they
/// lack it: all of it, also for an import that only reads. Nothing here keeps the
/// memory at its address: were its owner to free it now, another allocation of this
/// process, there instead, must not lose a right; and a pool has no right to read
/// alone (seen on an H200, driver 580). Legacy memory has none to give:
/// `cuCtxEnablePeerAccess` is its owner's. A device that was asked for was refused by
/// [`check`]; the current context's may have its access by that call.
pub(crate) fn give(
    driver: Driver,
    range: &RangeHandles<'_>,
    base: CuDevicePtr,
    access: &AccessDevices,
) -> driver::Result<()> {
    let mut at = base;
    for segment in range.segments() {
        let here = at;
        at += segment.base_size();
        if segment.types().contains(TypeFlags::RUNTIME_IPC) {
            continue;
        }
        if segment.attributes().contains(Attributes::MEM_POOL) {
            let _stays = Driver::pools_stay();
            let raw = driver.pointer_attribute(pointer_attribute::MEMPOOL_HANDLE, here)?;
            let pool = CuMemPool(usize::try_from(raw).unwrap_or_default());
            let rights: Vec<_> = access.rights(None).into_iter().map(all_of).collect();
            // SAFETY: the driver has just said that it is the pool of the memory that
            // is allocated there, and no pool is destroyed as long as `_stays` lives.
            unsafe { driver.pool_set_access(pool, &rights) }?;
            continue;
        }
        for right in access.rights(segment.numa_node()) {
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
