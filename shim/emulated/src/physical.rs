//! VMM allocations of this process, own and imported, by their handles.

use crate::Answer;
use crate::fabric::FabricName;
use crate::header::Kind;
use crate::multicast_store::{self, MemoryName};
use crate::state::State;
use crate::storage::Storage;
use gpuipc_sys::CuResult;
use std::sync::Arc;

/// One VMM allocation, own or imported.
#[derive(Debug)]
pub(crate) struct Physical {
    /// The file.
    pub(crate) storage: Arc<Storage>,
    /// Handle types asked for; none if imported.
    pub(crate) handle_types: u32,
    /// Whether another export call made it.
    pub(crate) imported: bool,
    /// References by handle.
    pub(crate) references: u64,
    /// Places where it is mapped.
    pub(crate) mappings: u64,
    /// `MEMORY_BLOCK_ID`.
    pub(crate) block_id: u64,
    /// Its name in the fabric domain, once exported so.
    pub(crate) fabric: Option<FabricName>,
    /// Its name for those who write through a multicast object, once bound.
    pub(crate) bound: Option<MemoryName>,
}

impl Physical {
    /// Whether it is a multicast object.
    pub(crate) fn is_multicast(&self) -> bool {
        self.storage.header().kind == Kind::Multicast
    }
}

impl State {
    /// Adds a VMM allocation with one reference.
    pub(crate) fn add_physical(
        &mut self,
        storage: Storage,
        handle_types: u32,
        imported: bool,
    ) -> u64 {
        let handle = self.next_handle();
        let block_id = self.blocks.next_id();
        let storage = Arc::new(storage);
        let physical = Physical {
            storage,
            handle_types,
            imported,
            references: 1,
            mappings: 0,
            block_id,
            fabric: None,
            bound: None,
        };
        self.physicals.insert(handle, physical);
        handle
    }

    /// A VMM allocation by a handle that has a reference.
    pub(crate) fn physical(&mut self, handle: u64) -> Answer<&mut Physical> {
        let found = self
            .physicals
            .get_mut(&handle)
            .filter(|physical| physical.references > 0);
        found.ok_or(CuResult::INVALID_VALUE)
    }

    /// Forgets a VMM allocation that nothing refers to any more.
    pub(crate) fn drop_if_unused(&mut self, handle: u64) {
        let unused = self
            .physicals
            .get(&handle)
            .is_some_and(|found| found.references == 0 && found.mappings == 0);
        if !unused {
            return;
        }
        let Some(physical) = self.physicals.remove(&handle) else {
            return;
        };
        let is_multicast = physical.is_multicast();
        if let Some(name) = physical.fabric {
            name.remove();
        }
        // A binding holds no reference of its own: CUDA's documentation counts
        // mappings and handles only.
        if let Some(name) = physical.bound {
            name.remove();
        }
        drop(physical.storage);
        if is_multicast && let Some(session) = &self.session {
            multicast_store::sweep_objects(&session.store);
        }
    }
}
