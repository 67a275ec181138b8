//! VMM addresses: reserve, map, give access, unmap.

use crate::Answer;
use crate::args::{In, Out};
use crate::at_once::{self, Work};
use crate::config::config;
use crate::header::{Kind, Place};
use crate::multicast::wait_for_members;
use crate::piece::{Access, Origin, Piece};
use crate::space::Region;
use crate::state::{State, device_index, state};
use crate::storage::HEADER_BYTES;
use gpuipc_sys::{CuMemAccessDesc, CuMemLocation, CuResult, access, location};
use std::sync::Arc;

/// `cuMemAddressReserve`.
pub(crate) fn mem_address_reserve(
    ptr: Out<u64>,
    size: usize,
    alignment: usize,
    address: u64,
    flags: u64,
) -> Answer {
    ptr.check()?;
    let (size, alignment) = (size as u64, alignment as u64);
    let aligned = alignment == 0 || alignment.is_power_of_two();
    let granularity = config().granularity.0;
    if size == 0 || !size.is_multiple_of(granularity) || !aligned || flags != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    let wish = Some(address).filter(|address| *address != 0);
    let region =
        Region::new(size, alignment.max(granularity), wish).ok_or(CuResult::OUT_OF_MEMORY)?;
    let base = region.base();
    state().reservations.insert(base, region);
    ptr.put(base)
}

/// `cuMemAddressFree`: a whole reservation with nothing mapped in it.
pub(crate) fn mem_address_free(ptr: u64, size: usize) -> Answer {
    let mut state = state();
    let whole = state
        .reservations
        .get(&ptr)
        .is_some_and(|region| region.size() == size as u64);
    if !whole || state.pieces.range(ptr..ptr + size as u64).next().is_some() {
        return Err(CuResult::INVALID_VALUE);
    }
    state.reservations.remove(&ptr);
    Ok(())
}

/// `cuMemMap`: a whole allocation at a free place of one reservation.
/// A multicast object waits for its members first.
pub(crate) fn mem_map(ptr: u64, size: usize, offset: usize, handle: u64, flags: u64) -> Answer {
    wait_for_members(handle)?;
    let mut state = state();
    let size = size as u64;
    let storage = Arc::clone(&state.physical(handle)?.storage);
    if flags != 0 || size == 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    // A part of an allocation, or more than it (seen on an H200, driver 580).
    if offset != 0 || size != storage.header().size {
        return Err(CuResult::NOT_SUPPORTED);
    }
    let (reservation, region) = state.reservation_at(ptr).ok_or(CuResult::INVALID_VALUE)?;
    let room = region.size() - (ptr - reservation);
    let free = state
        .pieces
        .range(ptr..ptr.saturating_add(size))
        .next()
        .is_none()
        && state.piece_at(ptr).is_none();
    // CUDA's documentation: an object's granularity is one of its mappings, too.
    let unit = match storage.header().kind {
        Kind::Multicast => config().multicast_granularity.0,
        _ => config().granularity.0,
    };
    if size > room || !ptr.is_multiple_of(unit) || !free {
        return Err(CuResult::INVALID_VALUE);
    }
    state.physical(handle)?.mappings += 1;
    let origin = Origin::Mapped {
        handle,
        reservation,
        access: Access::default(),
    };
    state.add_piece(ptr, size, storage, origin);
    Ok(())
}

/// The mappings that one reservation has in `size` bytes at `ptr`, holes or not.
/// No mapping may lie there in part only.
fn whole_mappings(state: &State, ptr: u64, size: usize) -> Answer<Vec<u64>> {
    let end = ptr
        .checked_add(size as u64)
        .filter(|end| *end > ptr)
        .ok_or(CuResult::INVALID_VALUE)?;
    let (reservation, region) = state.reservation_at(ptr).ok_or(CuResult::INVALID_VALUE)?;
    if state.piece_at(ptr).is_some_and(|(start, _)| start != ptr) {
        return Err(CuResult::INVALID_VALUE);
    }
    let mut starts = Vec::new();
    for (start, piece) in state.pieces.range(ptr..end) {
        if *start >= reservation + region.size() {
            break;
        }
        if start + piece.size > end {
            return Err(CuResult::INVALID_VALUE);
        }
        starts.push(*start);
    }
    Ok(starts)
}

/// The allocations of these mappings.
fn mapped_handles(state: &State, ptr: u64, size: usize) -> Answer<Vec<u64>> {
    let starts = whole_mappings(state, ptr, size)?;
    let pieces = starts.iter().filter_map(|start| state.pieces.get(start));
    Ok(pieces.filter_map(Piece::mapped_handle).collect())
}

/// `cuMemUnmap`: whatever is mapped there, which may be nothing; also where the
/// range goes on past the reservation (seen on an H200, driver 580).
pub(crate) fn mem_unmap(ptr: u64, size: usize) -> Answer {
    let looked = state();
    let work = Work::begin(at_once::UNMAP, mapped_handles(&looked, ptr, size)?);
    drop(looked);
    work.goes_on();
    let mut state = state();
    for start in whole_mappings(&state, ptr, size)? {
        let Some(piece) = state.pieces.remove(&start) else {
            continue;
        };
        let Origin::Mapped {
            handle,
            reservation,
            access,
        } = &piece.origin
        else {
            continue;
        };
        if access.of_node() != access::NONE
            && let Err(code) = hide(&state, *reservation, start, piece.size)
        {
            log::warn!("host memory at {start:#x} stays visible: {code}");
        }
        if let Some(physical) = state.physicals.get_mut(handle) {
            physical.mappings -= 1;
        }
        state.drop_if_unused(*handle);
    }
    Ok(())
}

/// `cuMemSetAccess`: on whole mappings, with or without holes between them (a hole
/// at the end is refused, seen on an H200, driver 580); all or nothing.
pub(crate) fn mem_set_access(
    ptr: u64,
    size: usize,
    desc: In<CuMemAccessDesc>,
    count: usize,
) -> Answer {
    if count == 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    let descs = desc.get_many(count)?;
    let mut state = state();
    let starts = whole_mappings(&state, ptr, size)?;
    let reservation_of = |address| state.reservation_at(address).map(|(start, _)| start);
    let last = ptr + (size as u64 - 1);
    let ends_with_holes = !starts.contains(&ptr) || state.piece_at(last).is_none();
    if ends_with_holes || reservation_of(ptr) != reservation_of(last) {
        return Err(CuResult::INVALID_VALUE);
    }
    let mut reached = Vec::new();
    for piece in starts.iter().filter_map(|start| state.pieces.get(start)) {
        for desc in &descs {
            reached.extend(check_access(piece, desc)?);
        }
    }
    state.check_reach(&reached)?;
    for start in starts {
        let Some(piece) = state.pieces.get_mut(&start) else {
            continue;
        };
        let Origin::Mapped {
            access,
            reservation,
            ..
        } = &mut piece.origin
        else {
            continue;
        };
        let before = access.of_node();
        for desc in &descs {
            access.set(desc.location, desc.flags);
        }
        let (after, reservation, size) = (access.of_node(), *reservation, piece.size);
        if before != after {
            show(&state, reservation, start, size, after)?;
        }
    }
    Ok(())
}

/// Whether a wish makes sense; the device and the GPU that it brings together.
fn check_access(piece: &Piece, desc: &CuMemAccessDesc) -> Answer<Option<(usize, u32)>> {
    if !matches!(desc.flags, access::NONE | access::READ | access::READ_WRITE) {
        return Err(CuResult::INVALID_VALUE);
    }
    match desc.location.kind {
        location::DEVICE => {
            let device = device_index(desc.location.id).map_err(|_| CuResult::INVALID_VALUE)?;
            match piece.storage.header().place {
                Place::Gpu(machine) if desc.flags != access::NONE => Ok(Some((device, machine))),
                _ => Ok(None),
            }
        }
        location::HOST_NUMA if desc.location.id != 0 => Err(CuResult::INVALID_VALUE),
        location::HOST_NUMA | location::HOST if piece.on_gpu() => Err(CuResult::NOT_SUPPORTED),
        location::HOST_NUMA | location::HOST => Ok(None),
        _ => Err(CuResult::INVALID_VALUE),
    }
}

/// Lets the CPU see host memory, or not.
fn show(state: &State, reservation: u64, start: u64, size: u64, flags: u32) -> Answer {
    if flags == access::NONE {
        return hide(state, reservation, start, size);
    }
    let region = state
        .reservations
        .get(&reservation)
        .ok_or(CuResult::INVALID_VALUE)?;
    let piece = state.pieces.get(&start).ok_or(CuResult::INVALID_VALUE)?;
    let writable = flags == access::READ_WRITE;
    let shown = region.show(
        start - reservation,
        size,
        piece.storage.file(),
        HEADER_BYTES,
        writable,
    );
    shown.map_err(|_| CuResult::OUT_OF_MEMORY)
}

fn hide(state: &State, reservation: u64, start: u64, size: u64) -> Answer {
    let region = state
        .reservations
        .get(&reservation)
        .ok_or(CuResult::INVALID_VALUE)?;
    region
        .hide(start - reservation, size)
        .map_err(|_| CuResult::OUT_OF_MEMORY)
}

/// `cuMemGetAccess`. Of a pool's memory it says nothing: that is the pool's (seen
/// on an H200, driver 580).
pub(crate) fn mem_get_access(flags: Out<u64>, location: In<CuMemLocation>, ptr: u64) -> Answer {
    flags.check()?;
    let location = location.get()?;
    if location.kind == location::DEVICE {
        device_index(location.id)?;
    }
    let state = state();
    let (_, piece) = state.piece_at(ptr).ok_or(CuResult::INVALID_VALUE)?;
    let found = match &piece.origin {
        Origin::Pooled { .. } => access::NONE,
        Origin::Mapped { access, .. } if location.kind == location::HOST && !piece.on_gpu() => {
            access.of_driver()
        }
        Origin::Mapped { access, .. } => access.of(location),
        _ => return Err(CuResult::INVALID_VALUE),
    };
    flags.put(u64::from(found))
}
