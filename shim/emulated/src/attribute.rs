//! `cuPointerGetAttribute` and `cuMemGetAddressRange`, as an H200 answers
//! (driver 580).

#![allow(unsafe_code)]

use crate::Answer;
use crate::args::Out;
use crate::config::config;
use crate::header::Place;
use crate::piece::{Origin, Piece};
use crate::state::{State, context_of, state, visible_number};
use core::ffi::c_void;
use gpuipc_sys::{CuContext, CuResult, memory_type, pointer_attribute as attribute};

/// An answer with its width: the driver writes as many bytes as the
/// attribute's type has.
enum Value {
    Word(u32),
    Long(u64),
}

/// `cuPointerGetAttribute`. It needs no context.
pub(crate) fn pointer_get_attribute(data: Out<c_void>, attribute: u32, ptr: u64) -> Answer {
    data.check()?;
    let state = state();
    let (start, piece) = state.piece_at(ptr).ok_or(CuResult::INVALID_VALUE)?;
    match value(&state, start, piece, attribute)? {
        Value::Word(word) => {
            // SAFETY: for an attribute of 32 bits the caller gives a place of
            // at least 32 bits.
            unsafe { data.holds::<u32>() }.put(word)
        }
        Value::Long(long) => {
            // SAFETY: for an attribute of 64 bits the caller gives a place of
            // 64 bits.
            unsafe { data.holds::<u64>() }.put(long)
        }
    }
}

fn value(state: &State, start: u64, piece: &Piece, attribute: u32) -> Answer<Value> {
    use Value::{Long, Word};
    let handle = piece.mapped_handle();
    let physical = handle.and_then(|handle| state.physicals.get(&handle));
    let since = match attribute {
        attribute::MAPPING_SIZE | attribute::MAPPING_BASE_ADDR | attribute::MEMORY_BLOCK_ID => {
            11070
        }
        attribute::MEMPOOL_HANDLE => 11030,
        _ => 0,
    };
    if config().driver_version < since {
        return Err(CuResult::INVALID_VALUE);
    }
    let pool = match &piece.origin {
        Origin::Pooled { pool, .. } => Some(*pool),
        _ => None,
    };
    let types = match pool {
        Some(pool) => state.pools.get(&pool).map(|pool| pool.handle_types),
        None => physical.map(|physical| physical.handle_types),
    };
    Ok(match attribute {
        attribute::CONTEXT => {
            let context = piece.context_device().map_or(CuContext::NULL, context_of);
            Long(context.0 as u64)
        }
        attribute::MEMORY_TYPE => Word(if piece.on_gpu() {
            memory_type::DEVICE
        } else {
            memory_type::HOST
        }),
        attribute::BUFFER_ID => Long(piece.buffer_id),
        attribute::IS_MANAGED => Word(u32::from(matches!(piece.origin, Origin::Managed { .. }))),
        attribute::DEVICE_ORDINAL => {
            Word(u32::try_from(ordinal(piece)).map_err(|_| CuResult::UNKNOWN)?)
        }
        attribute::IS_LEGACY_CUDA_IPC_CAPABLE => {
            Word(u32::from(matches!(piece.origin, Origin::Alloc { .. })))
        }
        attribute::RANGE_START_ADDR => Long(range(state, start, piece).0),
        attribute::RANGE_SIZE => Long(range(state, start, piece).1),
        attribute::MAPPED => Word(1),
        attribute::ALLOWED_HANDLE_TYPES => Long(types.map_or(0, u64::from)),
        attribute::MEMPOOL_HANDLE => Long(pool.unwrap_or(0)),
        attribute::MAPPING_SIZE => Long(piece.spot().map_or(piece.size, |spot| spot.block_size)),
        attribute::MAPPING_BASE_ADDR => Long(piece.spot().map_or(start, |spot| spot.block)),
        attribute::MEMORY_BLOCK_ID => Long(
            piece
                .spot()
                .map(|spot| spot.block_id)
                .or(physical.map(|found| found.block_id))
                .unwrap_or(0),
        ),
        _ => return Err(CuResult::INVALID_VALUE),
    })
}

/// The device that the driver reports: the opener's for legacy memory, the
/// memory's own otherwise, 0 where this process does not see it.
fn ordinal(piece: &Piece) -> usize {
    match (&piece.origin, piece.storage.header().place) {
        (Origin::Opened { device, .. } | Origin::Host { device, .. }, _) => *device,
        (_, Place::Gpu(machine)) => visible_number(machine).unwrap_or(0),
        (_, Place::Numa(_) | Place::Switch) => 0,
    }
}

/// What `cuMemAlloc` returned, or the whole VMM reservation.
fn range(state: &State, start: u64, piece: &Piece) -> (u64, u64) {
    match &piece.origin {
        Origin::Mapped { reservation, .. } => (
            *reservation,
            state
                .reservations
                .get(reservation)
                .map_or(piece.size, crate::space::Region::size),
        ),
        _ => (start, piece.size),
    }
}

/// `cuMemGetAddressRange_v2`. It needs a context of the memory's own device, or
/// of one that has rights to it (seen on two H200, driver 580).
pub(crate) fn mem_get_address_range(base: Out<u64>, size: Out<usize>, ptr: u64) -> Answer {
    let state = state();
    let device = state.current_device()?;
    let (start, piece) = state.piece_at(ptr).ok_or(CuResult::NOT_FOUND)?;
    let has_rights = match &piece.origin {
        Origin::Mapped { access, .. } => access.allows(device, false),
        Origin::Pooled { .. } => state.allows(piece, device, false),
        _ => false,
    };
    if piece.on_gpu() && ordinal(piece) != device && !has_rights {
        return Err(CuResult::NOT_FOUND);
    }
    // The base of host VMM memory is 0 (seen on an H200, driver 580).
    let is_host_vmm = matches!(piece.origin, Origin::Mapped { .. }) && !piece.on_gpu();
    base.put_if_wanted(if is_host_vmm { 0 } else { start });
    size.put_if_wanted(usize::try_from(piece.size).map_err(|_| CuResult::UNKNOWN)?);
    Ok(())
}
