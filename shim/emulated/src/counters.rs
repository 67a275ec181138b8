//! What this process holds right now, so that "nothing leaked" is a number.

use crate::piece::Origin;
use crate::pools::Role;
use crate::state::state;
use crate::storage::open_files;
use core::fmt;

/// Live objects of this process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    /// `cuMemAlloc` memory.
    pub allocations: u64,
    /// `cuMemHostAlloc` memory.
    pub host_allocations: u64,
    /// VMM allocations that exist here, own and imported.
    pub physical_allocations: u64,
    /// Multicast objects that exist here, own and imported.
    pub multicast_objects: u64,
    /// Bindings to them that this process made and that are not undone.
    pub multicast_bindings: u64,
    /// References to all of these by handle: create, retain and import add one each.
    pub handle_references: u64,
    /// `cuMemMap` not yet unmapped.
    pub mappings: u64,
    /// `cuMemAddressReserve` not yet freed.
    pub reservations: u64,
    /// `cuIpcOpenMemHandle` not yet closed, each open counted.
    pub legacy_opens: u64,
    /// Pools that were created, also destroyed ones with memory left in them.
    pub pools: u64,
    /// Pools that were imported.
    pub imported_pools: u64,
    /// Memory of pools, the default ones too.
    pub pool_allocations: u64,
    /// Imported pointers of pools.
    pub pool_imports: u64,
    /// Streams that were created.
    pub streams: u64,
    /// Graphs that captures gave.
    pub graphs: u64,
    /// Retain counts of all primary contexts together.
    pub primary_contexts: u64,
    /// Names of memory (legacy, fabric and bound to multicast) in the directory.
    pub names: u64,
    /// Files of memory that the driver itself holds open.
    pub files_open: u64,
}

/// Counts. Not for a forked child, where another thread may have held the lock.
#[must_use]
pub fn read() -> Counters {
    let state = state();
    let mut counters = Counters {
        physical_allocations: state
            .physicals
            .values()
            .filter(|found| !found.is_multicast())
            .count() as u64,
        multicast_objects: state
            .physicals
            .values()
            .filter(|found| found.is_multicast())
            .count() as u64,
        multicast_bindings: crate::multicast::bindings_of_this_process(&state),
        handle_references: state
            .physicals
            .values()
            .map(|physical| physical.references)
            .sum(),
        reservations: state.reservations.len() as u64,
        primary_contexts: state.retained.iter().sum(),
        names: state.named.len() as u64
            + state
                .physicals
                .values()
                .filter(|found| found.fabric.is_some())
                .count() as u64
            + state
                .physicals
                .values()
                .filter(|found| found.bound.is_some())
                .count() as u64
            + state
                .pools
                .values()
                .filter(|pool| pool.fabric.is_some())
                .count() as u64,
        streams: state.streams.len() as u64,
        graphs: state.graphs.len() as u64,
        files_open: open_files(),
        ..Counters::default()
    };
    for piece in state.pieces.values() {
        match &piece.origin {
            Origin::Alloc { .. } => counters.allocations += 1,
            Origin::Host { .. } => counters.host_allocations += 1,
            Origin::Managed { .. } => counters.allocations += 1,
            Origin::Mapped { .. } => counters.mappings += 1,
            Origin::Opened { count, .. } => counters.legacy_opens += count,
            Origin::Pooled { imported, .. } if *imported => counters.pool_imports += 1,
            Origin::Pooled { .. } => counters.pool_allocations += 1,
        }
    }
    for pool in state.pools.values() {
        match pool.role {
            // It is there as long as the driver.
            Role::Default => {}
            Role::Created => counters.pools += 1,
            Role::Imported => counters.imported_pools += 1,
        }
    }
    counters
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "allocations {} host {} physical {} multicast {} bindings {} handles {} mappings {} reservations {} legacy opens {} \
             pools {} imported pools {} pool allocations {} pool imports {} streams {} graphs {} \
             contexts {} names {} files {}",
            self.allocations,
            self.host_allocations,
            self.physical_allocations,
            self.multicast_objects,
            self.multicast_bindings,
            self.handle_references,
            self.mappings,
            self.reservations,
            self.legacy_opens,
            self.pools,
            self.imported_pools,
            self.pool_allocations,
            self.pool_imports,
            self.streams,
            self.graphs,
            self.primary_contexts,
            self.names,
            self.files_open
        )
    }
}
