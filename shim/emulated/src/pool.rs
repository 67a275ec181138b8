//! Memory pools and stream-ordered allocation: `cuMemPool*`, `cuMemAllocAsync`.
//! Every stream's work is done when its call returns, so nothing waits here.

use crate::Answer;
use crate::border::{In, Out};
use crate::config::config;
use crate::device;
use crate::header::Place;
use crate::pools::{Pool, Role};
use crate::state::{State, device_index, machine_number, state};
use crate::storage::Storage;
use gpuipc::sys::{
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

/// `cuMemPoolCreate`. Only memory of a GPU is played.
pub(crate) fn mem_pool_create(pool: Out<CuMemPool>, props: In<CuMemPoolProps>) -> Answer {
    pool.check()?;
    let props = props.get()?;
    if props.kind != ALLOCATION_TYPE_PINNED || props.win32_security_attributes != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    if props.location.kind != location::DEVICE {
        return Err(CuResult::NOT_SUPPORTED);
    }
    let device = device_index(props.location.id)?;
    let machine = machine_number(device)?;
    let known = handle_type::POSIX_FILE_DESCRIPTOR | handle_type::FABRIC;
    if props.handle_types & !known != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    if props.handle_types & !known_types() != 0 {
        return Err(CuResult::NOT_SUPPORTED);
    }
    // As `cuMemCreate` without an IMEX service.
    if props.handle_types & handle_type::FABRIC != 0 && config().imex.is_none() {
        return Err(CuResult::NOT_PERMITTED);
    }
    let mut state = state();
    let file = if props.handle_types == 0 {
        None
    } else {
        Some(Storage::create_pool(
            &state.session()?.store,
            Place::Gpu(machine),
        )?)
    };
    let mut made = Pool::new(Role::Created, machine, Some(device), file);
    made.handle_types = props.handle_types;
    made.max_size = props.max_size as u64;
    pool.put(pool_of(state.add_pool(made)))
}

/// `cuMemPoolDestroy`: the pool lives on until its last allocation is freed.
pub(crate) fn mem_pool_destroy(pool: CuMemPool) -> Answer {
    state().destroy_pool(handle_of(pool))
}

/// `cuMemPoolSetAccess`: all or nothing. A pool's own device keeps its access.
pub(crate) fn mem_pool_set_access(
    pool: CuMemPool,
    desc: In<CuMemAccessDesc>,
    count: usize,
) -> Answer {
    let descs = desc.get_many(count)?;
    let mut state = state();
    let own = state.pool(handle_of(pool))?.machine;
    let mut reached = Vec::new();
    for desc in &descs {
        let flags = matches!(desc.flags, access::NONE | access::READ | access::READ_WRITE);
        if desc.location.kind != location::DEVICE || !flags {
            return Err(CuResult::INVALID_VALUE);
        }
        let device = device_index(desc.location.id)?;
        if machine_number(device)? == own && desc.flags != access::READ_WRITE {
            return Err(CuResult::INVALID_VALUE);
        }
        if desc.flags != access::NONE {
            reached.push((device, own));
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
        device_index(location.id)?;
    }
    flags.put(state().pool(handle_of(pool))?.access.of(location))
}

/// `cuMemAllocAsync`: from the default pool of the stream's device.
pub(crate) fn mem_alloc_async(ptr: Out<u64>, bytes: usize, stream: CuStream) -> Answer {
    ptr.check()?;
    let mut state = state();
    let device = state.enqueue(stream)?;
    let pool = state.default_pool(device)?;
    ptr.put(allocate(&mut state, pool, bytes)?)
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
    ptr.put(allocate(&mut state, handle_of(pool), bytes)?)
}

fn allocate(state: &mut State, pool: u64, bytes: usize) -> Answer<u64> {
    if bytes == 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    state.allocate_from(pool, bytes as u64)
}

/// `cuMemFreeAsync`: memory of a pool, own or imported, or of `cuMemAlloc`.
pub(crate) fn mem_free_async(ptr: u64, stream: CuStream) -> Answer {
    let mut state = state();
    state.enqueue(stream)?;
    crate::memory::free(&mut state, ptr)
}
