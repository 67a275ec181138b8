//! `cuMemAlloc`, `cuMemHostAlloc` and what is free.

use crate::Answer;
use crate::args::Out;
use crate::config::config;
use crate::header::{Kind, Place};
use crate::piece::Origin;
use crate::state::{State, machine_number, state};
use crate::storage::Storage;
use core::ffi::c_void;
use core::ptr;
use gpuipc_sys::CuResult;
use std::sync::Arc;

/// The flags that `cuMemHostAlloc` knows: portable, mapped, write-combined.
const HOST_FLAGS: u32 = 7;

/// `cuMemGetInfo_v2`: counts this process's memory only.
pub(crate) fn mem_get_info(free: Out<usize>, total: Out<usize>) -> Answer {
    free.check()?;
    total.check()?;
    let state = state();
    let machine = machine_number(state.current_device()?)?;
    let all = config().memory;
    free.put(all.saturating_sub(state.used(machine)) as usize)?;
    total.put(all as usize)
}

/// `cuMemAlloc_v2`.
pub(crate) fn mem_alloc(ptr: Out<u64>, bytes: usize) -> Answer {
    ptr.check()?;
    let mut state = state();
    let device = state.current_device()?;
    let size = bytes as u64;
    if size == 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    let machine = machine_number(device)?;
    state.check_room(machine, size)?;
    let spot = state
        .blocks
        .take(device, size)
        .ok_or(CuResult::OUT_OF_MEMORY)?;
    let offset = spot.address - spot.block;
    let made = Storage::create(
        &state.session()?.store,
        Kind::Alloc,
        Place::Gpu(machine),
        size,
        offset,
    );
    let storage = match made {
        Ok(storage) => Arc::new(storage),
        Err(code) => {
            state.blocks.give(&spot);
            return Err(code);
        }
    };
    let origin = Origin::Alloc { device, spot };
    state.add_piece(spot.address, size, storage, origin);
    // An old handle of this address finds the new memory (seen on an H200,
    // driver 580).
    if state.exported.contains(&spot.address)
        && let Err(code) = state.name_memory(spot.address)
    {
        state.remove_piece(spot.address);
        return Err(code);
    }
    ptr.put(spot.address)
}

/// `cuMemFree_v2`: also memory of a pool, own or imported. It needs no context,
/// but none that is gone.
pub(crate) fn mem_free(ptr: u64) -> Answer {
    let mut state = state();
    state.check_context()?;
    if ptr == 0 {
        return Ok(());
    }
    free(&mut state, ptr)
}

/// Frees what `cuMemAlloc` or a pool gave.
pub(crate) fn free(state: &mut State, ptr: u64) -> Answer {
    if matches!(state.pieces.get(&ptr), Some(piece) if matches!(piece.origin, Origin::Pooled { .. }))
    {
        return state.free_pooled(ptr);
    }
    remove(state, ptr, |origin| {
        matches!(origin, Origin::Alloc { .. } | Origin::Managed { .. })
    })
}

/// `cuMemAllocManaged`: memory of the GPU here, which the CPU does not see.
pub(crate) fn mem_alloc_managed(ptr: Out<u64>, bytes: usize, flags: u32) -> Answer {
    ptr.check()?;
    let mut state = state();
    let device = state.current_device()?;
    let size = bytes as u64;
    if size == 0 || !matches!(flags, 1 | 2) {
        return Err(CuResult::INVALID_VALUE);
    }
    let machine = machine_number(device)?;
    let spot = state
        .blocks
        .take_whole(size)
        .ok_or(CuResult::OUT_OF_MEMORY)?;
    let place = Place::Gpu(machine);
    let made = Storage::create(&state.session()?.store, Kind::Host, place, size, 0);
    let storage = match made {
        Ok(storage) => Arc::new(storage),
        Err(code) => {
            state.blocks.give(&spot);
            return Err(code);
        }
    };
    let origin = Origin::Managed { device, spot };
    state.add_piece(spot.address, size, storage, origin);
    ptr.put(spot.address)
}

/// `cuMemHostAlloc`: no bytes are no memory, which is no failure.
pub(crate) fn mem_host_alloc(to: Out<*mut c_void>, bytes: usize, flags: u32) -> Answer {
    to.check()?;
    let mut state = state();
    let device = state.current_device()?;
    let size = bytes as u64;
    if flags & !HOST_FLAGS != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    if size == 0 {
        return to.put(ptr::null_mut());
    }
    let spot = state
        .blocks
        .take_whole(size)
        .ok_or(CuResult::OUT_OF_MEMORY)?;
    let made = Storage::create(&state.session()?.store, Kind::Host, Place::Numa(0), size, 0)
        .and_then(|storage| {
            let region = state.blocks.region(&spot).ok_or(CuResult::OUT_OF_MEMORY)?;
            let shown = region.show(0, size, storage.file(), crate::storage::HEADER_BYTES, true);
            shown.map_err(|_| CuResult::OUT_OF_MEMORY)?;
            Ok(storage)
        });
    let storage = match made {
        Ok(storage) => Arc::new(storage),
        Err(code) => {
            state.blocks.give(&spot);
            return Err(code);
        }
    };
    let origin = Origin::Host { device, spot };
    state.add_piece(spot.address, size, storage, origin);
    to.put(ptr::with_exposed_provenance_mut(spot.address as usize))
}

/// `cuMemFreeHost`: as `cuMemFree`.
pub(crate) fn mem_free_host(ptr: Out<c_void>) -> Answer {
    let mut state = state();
    state.check_context()?;
    if ptr.address() == 0 {
        return Ok(());
    }
    remove(&mut state, ptr.address(), |origin| {
        matches!(origin, Origin::Host { .. })
    })
}

fn remove(state: &mut State, start: u64, is_right: impl FnOnce(&Origin) -> bool) -> Answer {
    match state.pieces.get(&start) {
        Some(piece) if is_right(&piece.origin) => {
            state.remove_piece(start);
            Ok(())
        }
        _ => Err(CuResult::INVALID_VALUE),
    }
}
