//! Memory of kinds that the library does not allocate: kept until the process ends.
#![allow(unsafe_code)]

use crate::{NotOk, table};
use gpuipc::sys::{
    ALLOCATION_TYPE_PINNED, CuMemAccessDesc, CuMemAllocationProp, CuMemLocation, CuMemPool,
    CuResult, CuStream, MEM_ATTACH_GLOBAL, MEMHOSTALLOC_PORTABLE, access, handle_type, location,
};
use gpuipc::{Driver, Error, Reservation};

/// Bytes of each.
pub(crate) const LEN: usize = 2 << 20;
/// Bytes of it that a test fills.
pub(crate) const FILLED: usize = 16 << 10;

/// Allocates on device 0, whose context is current; gives the address.
pub(crate) fn allocate(driver: Driver, kind: &str) -> Result<u64, NotOk> {
    let made = match kind {
        "pool-default" => driver.default_pool(0).and_then(|pool| from(driver, pool)),
        "pool-plain" => created(driver, handle_type::NONE),
        "pool-fabric" => created(
            driver,
            handle_type::POSIX_FILE_DESCRIPTOR | handle_type::FABRIC,
        ),
        "vmm-typeless" => return typeless(driver),
        "managed" => return managed(),
        "pinned" => return pinned(),
        _ => return Err("no such memory".into()),
    };
    made.map_err(|error| Error::from(error).into())
}

/// Writes the first bytes; device 0's context is current.
pub(crate) fn fill(driver: Driver, ptr: u64, bytes: &[u8]) -> Result<(), NotOk> {
    debug_assert!(bytes.len() <= LEN);
    // SAFETY: `allocate` gave the address of LEN bytes, which stay allocated, and
    // nobody else uses them yet.
    unsafe { driver.memcpy_htod(ptr, bytes) }.map_err(Error::from)?;
    // SAFETY: the default stream is always there.
    unsafe { driver.stream_synchronize(CuStream::DEFAULT) }
        .map_err(|error| Error::from(error).into())
}

fn created(driver: Driver, types: u32) -> Result<u64, gpuipc::DriverError> {
    from(driver, driver.pool_create(0, types)?)
}

fn from(driver: Driver, pool: CuMemPool) -> Result<u64, gpuipc::DriverError> {
    // SAFETY: the driver gave the pool, which is never destroyed.
    let ptr = unsafe { driver.pool_alloc(pool, LEN, CuStream::DEFAULT) }?;
    // SAFETY: the default stream is always there.
    unsafe { driver.stream_synchronize(CuStream::DEFAULT) }?;
    Ok(ptr)
}

/// `cuMemAllocManaged`.
fn managed() -> Result<u64, NotOk> {
    let call = table().mem_alloc_managed.ok_or("no such call")?;
    let mut ptr = 0;
    // SAFETY: the entry is cuMemAllocManaged, and the pointer a local's.
    match unsafe { call(&mut ptr, LEN, MEM_ATTACH_GLOBAL) } {
        CuResult::SUCCESS => Ok(ptr),
        _ => Err("cuMemAllocManaged failed".into()),
    }
}

/// `cuMemHostAlloc`.
fn pinned() -> Result<u64, NotOk> {
    let call = table().mem_host_alloc.ok_or("no such call")?;
    let mut ptr = core::ptr::null_mut();
    // SAFETY: the entry is cuMemHostAlloc, and the pointer a local's.
    match unsafe { call(&mut ptr, LEN, MEMHOSTALLOC_PORTABLE) } {
        CuResult::SUCCESS => Ok(ptr.addr() as u64),
        _ => Err("cuMemHostAlloc failed".into()),
    }
}

/// VMM memory without a handle type.
fn typeless(driver: Driver) -> Result<u64, NotOk> {
    let place = CuMemLocation {
        kind: location::DEVICE,
        id: 0,
    };
    let prop = CuMemAllocationProp {
        kind: ALLOCATION_TYPE_PINNED,
        location: place,
        ..CuMemAllocationProp::default()
    };
    let handle = driver.mem_create(LEN, &prop).map_err(Error::from)?;
    let room = Reservation::new(driver, LEN)?;
    let base = room.base();
    // SAFETY: made just now: the handle, and a reservation of this length.
    unsafe { driver.mem_map(base, LEN, handle) }.map_err(Error::from)?;
    let rights = CuMemAccessDesc {
        location: place,
        flags: access::READ_WRITE,
    };
    // SAFETY: nobody has rights yet.
    unsafe { driver.mem_set_access(base, LEN, &[rights]) }.map_err(Error::from)?;
    // SAFETY: the reference of `mem_create`; nobody unmaps meanwhile.
    unsafe { driver.mem_release(handle) }.map_err(Error::from)?;
    core::mem::forget(room);
    Ok(base)
}
