//! Memory pools and stream-ordered allocation: `cuMemPool*`, `cuMemAllocAsync`.
//! Every stream's work is done when its call returns, so nothing waits here.

use crate::Answer;
use crate::args::{In, Out};
use crate::device;
use crate::header::Place;
use crate::pools::{Pool, Role};
use crate::state::{device_index, machine_number, state};
use crate::storage::Storage;
use gpuipc_sys::{
    ALLOCATION_TYPE_PINNED, CuMemAccessDesc, CuMemLocation, CuMemPool, CuMemPoolProps, CuResult,
    CuStream, access, device_attribute, handle_type, location,
};

/// A pool's handle as C passes it.
pub(crate) fn handle_of(pool: CuMemPool) -> u64 {
    pool.0 as u64
}

pub(crate) fn pool_of(handle: u64) -> CuMemPool {
    CuMemPool(handle as usize)
}

/// `cuDeviceGetDefaultMemPool`.
pub(crate) fn device_get_default_mem_pool(pool: Out<CuMemPool>, device: i32) -> Answer {
    pool.check()?;
    let device = device_index(device)?;
    pool.put(pool_of(state().default_pool(device)?))
}

/// Handle types that a pool may have here.
fn known_types() -> u32 {
    let types = device::value_of(device_attribute::MEMPOOL_SUPPORTED_HANDLE_TYPES);
    types
        .and_then(|types| u32::try_from(types).ok())
        .unwrap_or(0)
}

/// `cuMemPoolCreate`. A fabric handle may be asked for where there is no fabric
/// (seen on an H200, driver 580). Of a host node's pool only its making and end
/// are played.
pub(crate) fn mem_pool_create(pool: Out<CuMemPool>, props: In<CuMemPoolProps>) -> Answer {
    pool.check()?;
    let props = props.get()?;
    if props.kind != ALLOCATION_TYPE_PINNED || props.win32_security_attributes != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    let device = match props.location.kind {
        location::DEVICE => {
            Some(device_index(props.location.id).map_err(|_| CuResult::INVALID_VALUE)?)
        }
        // The machine has one node.
        location::HOST_NUMA if props.location.id == 0 => None,
        _ => return Err(CuResult::INVALID_VALUE),
    };
    let on_host = device_attribute::HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    let place = match device {
        Some(device) => Place::Gpu(machine_number(device)?),
        None if device::has(on_host) => Place::Numa(0),
        None => return Err(CuResult::NOT_SUPPORTED),
    };
    let known = handle_type::POSIX_FILE_DESCRIPTOR | handle_type::FABRIC;
    if props.handle_types & !known != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    if props.handle_types & !known_types() != 0 {
        return Err(CuResult::NOT_SUPPORTED);
    }
    let mut state = state();
    let file = if props.handle_types == 0 || device.is_none() {
        None
    } else {
        Some(Storage::create_pool(&state.session()?.store, place)?)
    };
    let mut made = Pool::new(Role::Created, place, device, file);
    made.handle_types = props.handle_types;
    made.max_size = props.max_size as u64;
    pool.put(pool_of(state.add_pool(made)))
}

/// `cuMemPoolDestroy`: a pool that was made here lives on until its last
/// allocation is freed; one that was imported must have no pointers (seen on an
/// H200, driver 580).
pub(crate) fn mem_pool_destroy(pool: CuMemPool) -> Answer {
    state().destroy_pool(handle_of(pool))
}

/// `cuMemPoolSetAccess`: all or nothing. A pool's own device keeps its access, and
/// none is read-only (seen on an H200, driver 580).
pub(crate) fn mem_pool_set_access(
    pool: CuMemPool,
    desc: In<CuMemAccessDesc>,
    count: usize,
) -> Answer {
    let descs = desc.get_many(count)?;
    let mut state = state();
    let own = state.pool(handle_of(pool))?.place;
    let mut reached = Vec::new();
    for desc in &descs {
        let flags = matches!(desc.flags, access::NONE | access::READ | access::READ_WRITE);
        if desc.location.kind != location::DEVICE || !flags {
            return Err(CuResult::INVALID_VALUE);
        }
        let device = device_index(desc.location.id)?;
        let is_own = own == Place::Gpu(machine_number(device)?);
        match (desc.flags, own) {
            (access::READ, _) => return Err(CuResult::NOT_SUPPORTED),
            (access::NONE, _) if is_own => return Err(CuResult::INVALID_DEVICE),
            (access::READ_WRITE, Place::Gpu(machine)) => reached.push((device, machine)),
            _ => {}
        }
    }
    state.check_reach(&reached)?;
    let pool = state.pool(handle_of(pool))?;
    for desc in descs {
        pool.access.set(desc.location, desc.flags);
    }
    Ok(())
}

/// `cuMemPoolGetAccess`.
pub(crate) fn mem_pool_get_access(
    flags: Out<u32>,
    pool: CuMemPool,
    location: Out<CuMemLocation>,
) -> Answer {
    flags.check()?;
    let location = location.as_read().get()?;
    if location.kind == location::DEVICE {
        device_index(location.id).map_err(|_| CuResult::INVALID_VALUE)?;
    }
    flags.put(state().pool(handle_of(pool))?.access.of(location))
}

/// `cuMemAllocAsync`: from the default pool of the stream's device.
pub(crate) fn mem_alloc_async(ptr: Out<u64>, bytes: usize, stream: CuStream) -> Answer {
    ptr.check()?;
    let mut state = state();
    let device = state.enqueue(stream)?;
    let pool = state.default_pool(device)?;
    ptr.put(state.allocate_from(pool, bytes as u64)?)
}

/// `cuMemAllocFromPoolAsync`.
pub(crate) fn mem_alloc_from_pool_async(
    ptr: Out<u64>,
    bytes: usize,
    pool: CuMemPool,
    stream: CuStream,
) -> Answer {
    ptr.check()?;
    let mut state = state();
    state.enqueue(stream)?;
    ptr.put(state.allocate_from(handle_of(pool), bytes as u64)?)
}

/// `cuMemFreeAsync`: memory of a pool, own or imported, or of `cuMemAlloc`.
pub(crate) fn mem_free_async(ptr: u64, stream: CuStream) -> Answer {
    let mut state = state();
    state.enqueue(stream)?;
    crate::memory::free(&mut state, ptr)
}
