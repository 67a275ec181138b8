//! VMM allocations and their handles: `cuMemCreate`, `cuMemRelease`,
//! `cuMemRetainAllocationHandle`.

use crate::Answer;
use crate::args::{In, Out};
use crate::at_once::{self, Work};
use crate::config::config;
use crate::device;
use crate::header::{Kind, Place};
use crate::state::{device_index, machine_number, state, visible_number};
use crate::storage::Storage;
use core::ffi::c_void;
use gpuipc_sys::{
    ALLOCATION_TYPE_PINNED, CuMemAllocationProp, CuMemLocation, CuResult,
    device_attribute as attribute, granularity, handle_type, location,
};

/// A location that this process does not see.
const HIDDEN: i32 = -2;
/// `CU_MEM_HANDLE_TYPE_WIN32` and `CU_MEM_HANDLE_TYPE_WIN32_KMT`. Bits that mean
/// nothing are let pass (seen on an H200, driver 580).
const WINDOWS_HANDLE_TYPES: u32 = 2 | 4;

/// Where an allocation is to lie, by its properties.
fn wanted_place(prop: &CuMemAllocationProp) -> Answer<Place> {
    if prop.kind != ALLOCATION_TYPE_PINNED
        || prop.requested_handle_types & WINDOWS_HANDLE_TYPES != 0
    {
        return Err(CuResult::INVALID_VALUE);
    }
    let needed = [
        (
            handle_type::POSIX_FILE_DESCRIPTOR,
            attribute::HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
        ),
        (handle_type::FABRIC, attribute::HANDLE_TYPE_FABRIC_SUPPORTED),
    ];
    for (kind, attribute) in needed {
        if prop.requested_handle_types & kind != 0 && !device::has(attribute) {
            return Err(CuResult::NOT_SUPPORTED);
        }
    }
    match prop.location.kind {
        location::HOST_NUMA
            if !device::has(attribute::HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) =>
        {
            Err(CuResult::NOT_SUPPORTED)
        }
        location::DEVICE => Ok(Place::Gpu(machine_number(device_index(prop.location.id)?)?)),
        // The machine has one node.
        location::HOST_NUMA if prop.location.id == 0 => Ok(Place::Numa(0)),
        _ => Err(CuResult::INVALID_VALUE),
    }
}

/// `cuMemGetAllocationGranularity`: the same for whatever is asked about, also
/// for what `cuMemCreate` refuses (seen on an H200, driver 580).
pub(crate) fn mem_get_allocation_granularity(
    bytes: Out<usize>,
    prop: In<CuMemAllocationProp>,
    option: u32,
) -> Answer {
    bytes.check()?;
    prop.get()?;
    let (least, recommended) = config().granularity;
    bytes.put(match option {
        granularity::MINIMUM => least as usize,
        granularity::RECOMMENDED => recommended as usize,
        _ => return Err(CuResult::INVALID_VALUE),
    })
}

/// `cuMemCreate`. It needs no context.
pub(crate) fn mem_create(
    handle: Out<u64>,
    size: usize,
    prop: In<CuMemAllocationProp>,
    flags: u64,
) -> Answer {
    handle.check()?;
    let prop = prop.get()?;
    let place = wanted_place(&prop)?;
    let size = size as u64;
    if flags != 0 || size == 0 || !size.is_multiple_of(config().granularity.0) {
        return Err(CuResult::INVALID_VALUE);
    }
    // Without an IMEX service (seen on an H200, driver 580), also when another
    // type is asked for along with it.
    if prop.requested_handle_types & handle_type::FABRIC != 0 && config().imex.is_none() {
        return Err(CuResult::NOT_PERMITTED);
    }
    let mut state = state();
    if let Place::Gpu(machine) = place {
        state.check_room(machine, size)?;
    }
    let storage = Storage::create(&state.session()?.store, Kind::Vmm, place, size, 0)?;
    handle.put(state.add_physical(storage, prop.requested_handle_types, false))
}

/// `cuMemRelease`. A handle that was never given out crashes the real driver;
/// here it is `INVALID_VALUE`.
pub(crate) fn mem_release(handle: u64) -> Answer {
    let work = Work::begin(at_once::RELEASE, vec![handle]);
    work.goes_on();
    let mut state = state();
    state.physical(handle)?.references -= 1;
    state.drop_if_unused(handle);
    Ok(())
}

/// `cuMemRetainAllocationHandle`: the handle of what is mapped there.
pub(crate) fn mem_retain_allocation_handle(handle: Out<u64>, ptr: Out<c_void>) -> Answer {
    handle.check()?;
    let looked = state();
    let found = looked
        .piece_at(ptr.address())
        .and_then(|(_, piece)| piece.mapped_handle())
        .ok_or(CuResult::INVALID_VALUE)?;
    let work = Work::begin(at_once::RETAIN, vec![found]);
    drop(looked);
    work.goes_on();
    let mut state = state();
    // A mapping keeps its allocation, even when the last handle was released.
    state
        .physicals
        .get_mut(&found)
        .ok_or(CuResult::INVALID_VALUE)?
        .references += 1;
    handle.put(found)
}

/// `cuMemGetAllocationPropertiesFromHandle`.
pub(crate) fn mem_get_allocation_properties(prop: Out<CuMemAllocationProp>, handle: u64) -> Answer {
    prop.check()?;
    let mut state = state();
    let physical = state.physical(handle)?;
    if physical.is_multicast() {
        return Err(CuResult::INVALID_VALUE);
    }
    prop.put(CuMemAllocationProp {
        kind: ALLOCATION_TYPE_PINNED,
        requested_handle_types: physical.handle_types,
        location: location_of(physical.storage.header().place),
        ..CuMemAllocationProp::default()
    })
}

/// A place as this process sees it.
fn location_of(place: Place) -> CuMemLocation {
    match place {
        Place::Gpu(machine) => {
            let id = visible_number(machine)
                .and_then(|device| i32::try_from(device).ok())
                .unwrap_or(HIDDEN);
            CuMemLocation {
                kind: location::DEVICE,
                id,
            }
        }
        Place::Numa(node) => CuMemLocation {
            kind: location::HOST_NUMA,
            id: i32::try_from(node).unwrap_or(HIDDEN),
        },
        Place::Switch => CuMemLocation {
            kind: location::DEVICE,
            id: HIDDEN,
        },
    }
}
