//! VMM allocations of this process, own and imported, by their handles.

use crate::Answer;
use crate::fabric::FabricName;
use crate::state::State;
use crate::storage::Storage;
use gpuipc::sys::CuResult;
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
        if unused
            && let Some(name) = self
                .physicals
                .remove(&handle)
                .and_then(|physical| physical.fabric)
        {
            name.remove();
        }
    }
}
