//! Where an access through a multicast object ends: at every member's memory.

use crate::Answer;
use crate::multicast_table::{Binding, Table};
use crate::state::State;
use crate::storage::Storage;
use gpuipc_sys::CuResult;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A run of an object's bytes, and where each member has them.
#[derive(Debug)]
pub(crate) struct Reached {
    /// Bytes.
    pub(crate) len: usize,
    /// One a member: the memory, and where the run begins in it.
    pub(crate) memories: Vec<(Arc<Storage>, u64)>,
}

/// The runs of `len` bytes at `offset` of an object. Bytes that a member has not
/// bound, or whose binder is gone, are nowhere.
pub(crate) fn reach(
    state: &State,
    object: &Storage,
    offset: u64,
    len: usize,
) -> Answer<Vec<Reached>> {
    let table = Table::read(object)?;
    let members = table.members();
    if !table.is_complete() {
        return Err(CuResult::INVALID_VALUE);
    }
    let store = &state.session()?.store;
    let mut opened = BTreeMap::new();
    let bindings: Vec<(Binding, Arc<Storage>)> = table
        .bindings()
        .filter(|binding| binding.overlaps(offset, len as u64))
        .filter_map(|binding| {
            let id = binding.memory;
            let memory = opened
                .entry((id.owner.0, id.id))
                .or_insert_with(|| id.open(store).map(Arc::new));
            memory.clone().map(|memory| (binding, memory))
        })
        .collect();
    let end = offset
        .checked_add(len as u64)
        .ok_or(CuResult::INVALID_VALUE)?;
    let mut runs = Vec::new();
    let mut here = offset;
    while here < end {
        let mut next = end;
        let mut memories = Vec::new();
        for machine in &members {
            let found = bindings
                .iter()
                .find(|(binding, _)| binding.machine == *machine && binding.overlaps(here, 1));
            let (binding, memory) = found.ok_or(CuResult::INVALID_VALUE)?;
            next = next.min(binding.offset + binding.size);
            let inside = binding.memory_offset + (here - binding.offset);
            memories.push((Arc::clone(memory), inside));
        }
        let len = usize::try_from(next - here).map_err(|_| CuResult::INVALID_VALUE)?;
        runs.push(Reached { len, memories });
        here = next;
    }
    Ok(runs)
}
