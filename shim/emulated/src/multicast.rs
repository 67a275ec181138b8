//! Multicast objects: the `cuMulticast*` calls, by CUDA's documentation. Nobody
//! has compared them with a real driver.
//!
//! A write through a mapped object reaches the memory that every member has
//! bound there; where one has bound nothing, or the process that bound it is
//! gone, the access is refused. Plain reads are refused: they have no meaning on
//! real hardware. [`sum_u32`] is the read that the switches do, for tests.
//!
//! Memory is found by a name that its binder gives it. A name that is gone cannot be
//! given anew: memory whose binder has released it cannot be bound by another
//! process that imported it; that is `CUDA_ERROR_OPERATING_SYSTEM`.
//!
//! As CUDA documents it, binding and mapping wait until every device was added,
//! for ever if need be; a device stays a member as long as the object lives; a
//! binding holds no reference to the memory. An object takes one of the
//! machine's slots with the first binding; without a free one that is
//! `CUDA_ERROR_OUT_OF_MEMORY`, as was reported of an H200 (nccl issue 2077).

use crate::Answer;
use crate::args::{In, Out};
use crate::config::config;
use crate::header::{Kind, Place};
use crate::multicast_reach::reach;
use crate::multicast_store::{self, MemoryName};
use crate::multicast_table::{Binding, Locked, MOST_MEMBERS, TABLE_BYTES, Table};
use crate::state::{State, device_index, machine_number, state};
use crate::storage::Storage;
use crate::{device, lifecycle};
use gpuipc_sys::{
    CuMulticastObjectProp, CuResult, device_attribute as attribute, handle_type,
    multicast_granularity as granularity,
};
use std::sync::Arc;
use std::time::Duration;

/// How often a call that waits for the other members looks.
const LOOK: Duration = Duration::from_millis(1);
const KNOWN_HANDLE_TYPES: u64 = (handle_type::POSIX_FILE_DESCRIPTOR | handle_type::FABRIC) as u64;

/// `cuMulticastGetGranularity`.
pub(crate) fn multicast_get_granularity(
    bytes: Out<usize>,
    prop: In<CuMulticastObjectProp>,
    option: u32,
) -> Answer {
    bytes.check()?;
    check_prop(&prop.get()?)?;
    let (least, recommended) = config().multicast_granularity;
    bytes.put(match option {
        granularity::MINIMUM => least as usize,
        granularity::RECOMMENDED => recommended as usize,
        _ => return Err(CuResult::INVALID_VALUE),
    })
}

fn check_prop(prop: &CuMulticastObjectProp) -> Answer {
    let most = MOST_MEMBERS as u32;
    let known = prop.handle_types & !KNOWN_HANDLE_TYPES == 0;
    if !(1..=most).contains(&prop.num_devices) || prop.flags != 0 || !known {
        return Err(CuResult::INVALID_VALUE);
    }
    Ok(())
}

/// `cuMulticastCreate`. It takes no memory of any GPU.
pub(crate) fn multicast_create(handle: Out<u64>, prop: In<CuMulticastObjectProp>) -> Answer {
    handle.check()?;
    let prop = prop.get()?;
    check_prop(&prop)?;
    let size = prop.size as u64;
    if size == 0 || !size.is_multiple_of(config().multicast_granularity.0) {
        return Err(CuResult::INVALID_VALUE);
    }
    let wants = |kind: u32| prop.handle_types & u64::from(kind) != 0;
    if wants(handle_type::POSIX_FILE_DESCRIPTOR)
        && !device::has(attribute::HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)
        || wants(handle_type::FABRIC) && !device::has(attribute::HANDLE_TYPE_FABRIC_SUPPORTED)
    {
        return Err(CuResult::NOT_SUPPORTED);
    }
    // As `cuMemCreate` answers without an IMEX service.
    if wants(handle_type::FABRIC) && config().imex.is_none() {
        return Err(CuResult::NOT_PERMITTED);
    }
    let mut state = state();
    let storage = Storage::create_object(&state.session()?.store, size, TABLE_BYTES as u64)?;
    Table::create(&storage, prop.num_devices)?;
    multicast_store::name_object(&state.session()?.store, &storage)?;
    let types = u32::try_from(prop.handle_types).map_err(|_| CuResult::INVALID_VALUE)?;
    handle.put(state.add_physical(storage, types, false))
}

/// The file of an object.
fn object(state: &mut State, handle: u64) -> Answer<Arc<Storage>> {
    let physical = state.physical(handle)?;
    if physical.is_multicast() {
        Ok(Arc::clone(&physical.storage))
    } else {
        Err(CuResult::INVALID_VALUE)
    }
}

/// `cuMulticastAddDevice`: for as long as the object lives.
pub(crate) fn multicast_add_device(handle: u64, device: i32) -> Answer {
    let machine = machine_number(device_index(device)?)?;
    let object = object(&mut state(), handle)?;
    let locked = Locked::take(&object)?;
    let members = locked.table.members();
    if members.contains(&machine) || locked.table.is_complete() {
        return Err(CuResult::INVALID_VALUE);
    }
    locked.add_member(machine)
}

/// Waits until every member of an object was added, without any lock; for ever
/// if one never is. Other handles need no waiting.
pub(crate) fn wait_for_members(handle: u64) -> Answer {
    let storage = Arc::clone(&state().physical(handle)?.storage);
    if storage.header().kind != Kind::Multicast {
        return Ok(());
    }
    while !Table::read(&storage)?.is_complete() {
        if let Some(code) = lifecycle::refusal() {
            return Err(code);
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// The part of an object that a call names, and what it needs.
#[derive(Clone, Copy)]
struct Part {
    offset: u64,
    size: u64,
}

impl Part {
    fn new(object: &Storage, offset: usize, size: usize) -> Answer<Self> {
        let (offset, size) = (offset as u64, size as u64);
        let unit = config().multicast_granularity.0;
        let whole = size > 0 && offset.is_multiple_of(unit) && size.is_multiple_of(unit);
        let fits = offset
            .checked_add(size)
            .is_some_and(|end| end <= object.header().size);
        if whole && fits {
            Ok(Self { offset, size })
        } else {
            Err(CuResult::INVALID_VALUE)
        }
    }
}

/// `cuMulticastBindMem`. Waits for the members.
pub(crate) fn multicast_bind_mem(
    handle: u64,
    offset: usize,
    memory: u64,
    memory_offset: usize,
    size: usize,
    flags: u64,
) -> Answer {
    let memory_offset = memory_offset as u64;
    check_bind(&mut state(), handle, offset, memory, memory_offset, size)?;
    if flags != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    wait_for_members(handle)?;
    let mut state = state();
    // Anew: other threads went on meanwhile.
    let (object, part, machine) =
        check_bind(&mut state, handle, offset, memory, memory_offset, size)?;
    let mut locked = Locked::take(&object)?;
    if !locked.table.members().contains(&machine) {
        return Err(CuResult::INVALID_DEVICE);
    }
    let session = state.session()?;
    // Bindings of processes that are gone make room.
    locked.unbind(|binding| binding.memory.open(&session.store).is_none())?;
    let taken = locked
        .table
        .bindings()
        .any(|binding| binding.machine == machine && binding.overlaps(part.offset, part.size));
    if taken {
        return Err(CuResult::INVALID_VALUE);
    }
    if !locked.table.has_slot() {
        multicast_store::with_slot(&session.store, || locked.set_slot())?;
    }
    let named = match &state.physical(memory)?.bound {
        Some(name) => name.id(),
        None => {
            let storage = Arc::clone(&state.physical(memory)?.storage);
            let session = state.session()?;
            let name = MemoryName::publish(&session.store, session.owner, &storage)?;
            state.physical(memory)?.bound.insert(name).id()
        }
    };
    locked.bind(&Binding {
        machine,
        offset: part.offset,
        memory_offset,
        size: part.size,
        memory: named,
    })
}

/// What a binding needs, and the machine's number of the memory's GPU.
fn check_bind(
    state: &mut State,
    handle: u64,
    offset: usize,
    memory: u64,
    memory_offset: u64,
    size: usize,
) -> Answer<(Arc<Storage>, Part, u32)> {
    let object = object(state, handle)?;
    let part = Part::new(&object, offset, size)?;
    let found = state.physical(handle)?;
    let object_is_shared = found.imported || found.handle_types != handle_type::NONE;
    let found = state.physical(memory)?;
    let memory_is_shared = found.imported || found.handle_types != handle_type::NONE;
    let inside = memory_offset.is_multiple_of(config().multicast_granularity.0)
        && memory_offset
            .checked_add(part.size)
            .is_some_and(|end| end <= found.storage.header().size);
    match found.storage.header().place {
        Place::Gpu(machine) if inside && (memory_is_shared || !object_is_shared) => {
            Ok((object, part, machine))
        }
        _ => Err(CuResult::INVALID_VALUE),
    }
}

/// `cuMulticastBindAddr`: the memory that is mapped at an address.
pub(crate) fn multicast_bind_addr(
    handle: u64,
    offset: usize,
    ptr: u64,
    size: usize,
    flags: u64,
) -> Answer {
    let (memory, memory_offset) = {
        let state = state();
        let (start, piece) = state.piece_at(ptr).ok_or(CuResult::INVALID_VALUE)?;
        let handle = piece.mapped_handle().ok_or(CuResult::INVALID_VALUE)?;
        // One mapping, whole or in part; several are not played.
        if size as u64 > piece.size - (ptr - start) {
            return Err(CuResult::INVALID_VALUE);
        }
        (handle, ptr - start)
    };
    // The mapping keeps the memory, also when the last handle was released.
    if let Some(physical) = state().physicals.get_mut(&memory) {
        physical.references += 1;
    }
    let bound = multicast_bind_mem(handle, offset, memory, memory_offset as usize, size, flags);
    let mut state = state();
    if let Some(physical) = state.physicals.get_mut(&memory) {
        physical.references -= 1;
    }
    state.drop_if_unused(memory);
    bound
}

/// `cuMulticastUnbind`: what `device` has bound at exactly this place, whichever
/// process did.
pub(crate) fn multicast_unbind(handle: u64, device: i32, offset: usize, size: usize) -> Answer {
    let machine = machine_number(device_index(device)?)?;
    let object = object(&mut state(), handle)?;
    let part = Part::new(&object, offset, size)?;
    let removed = Locked::take(&object)?.unbind(|binding| {
        (binding.machine, binding.offset, binding.size) == (machine, part.offset, part.size)
    })?;
    if removed == 0 {
        Err(CuResult::INVALID_VALUE)
    } else {
        Ok(())
    }
}

/// Bindings that this process made to the objects that it has.
pub(crate) fn bindings_of_this_process(state: &State) -> u64 {
    let Ok(session) = state.session() else {
        return 0;
    };
    let objects = state
        .physicals
        .values()
        .filter(|found| found.is_multicast());
    // An object that was imported twice is there twice.
    let mut files = std::collections::BTreeMap::new();
    for found in objects {
        files.insert(found.storage.header().id, &found.storage);
    }
    let tables = files
        .values()
        .filter_map(|storage| Table::read(storage).ok());
    let own = |table: Table| {
        table
            .bindings()
            .filter(|binding| binding.memory.owner == session.owner)
            .count() as u64
    };
    tables.map(own).sum()
}

/// What the switches answer to a `multimem.ld_reduce.add` of `count` u32 at
/// `ptr`: element by element, the sum over all members' memory. For tests; no
/// call of CUDA's does it.
///
/// # Errors
/// `INVALID_VALUE` where no multicast object is mapped for the current context's
/// device, or a member has bound nothing there; `INVALID_CONTEXT`.
pub fn sum_u32(ptr: u64, count: usize) -> Result<Vec<u32>, CuResult> {
    let bytes = count.checked_mul(4).ok_or(CuResult::INVALID_VALUE)?;
    let runs = {
        let state = state();
        let device = state.current_device()?;
        let (start, piece) = state.piece_at(ptr).ok_or(CuResult::INVALID_VALUE)?;
        let is_object = piece.storage.header().kind == Kind::Multicast;
        let inside = bytes as u64 <= piece.size - (ptr - start);
        if !is_object || !inside || !state.allows(piece, device, false) {
            return Err(CuResult::INVALID_VALUE);
        }
        reach(&state, &piece.storage, ptr - start, bytes)?
    };
    let mut sums = Vec::with_capacity(count);
    for run in runs {
        let mut part = vec![0_u32; run.len / 4];
        for (memory, offset) in &run.memories {
            let mut bytes = vec![0; run.len];
            memory.read_bytes(*offset, &mut bytes)?;
            for (sum, value) in part.iter_mut().zip(bytes.chunks_exact(4)) {
                let value = value.try_into().map(u32::from_le_bytes);
                *sum = sum.wrapping_add(value.map_err(|_| CuResult::UNKNOWN)?);
            }
        }
        sums.extend(part);
    }
    Ok(sums)
}
