//! What the driver must hold, by what there is.

use super::Op;
use super::model::{Import, World};
use crate::machine::exporter::PIECE;
use gpuipc::Memory;
use gpuipc_emulated::counters::{self, Counters};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

impl World {
    /// Waits until the driver holds what the model says, if it does not: who answers just then
    /// holds an export a moment longer.
    pub(super) fn is_what_the_driver_holds(&self, op: &Op) {
        let expected = self.expected();
        let start = Instant::now();
        loop {
            let now = Counters {
                // How often contexts are held, names and files are not modelled; nothing is left
                // of them at the end.
                primary_contexts: expected.primary_contexts,
                names: expected.names,
                files_open: expected.files_open,
                ..counters::read()
            };
            if now == expected {
                return;
            }
            assert!(
                start.elapsed() < Duration::from_secs(5),
                "after {op:?} the driver holds {now}\nexpected: {expected}"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn expected(&self) -> Counters {
        let mut all = self.before.clone();
        // By memory and piece: exported VMM memory stays allocated.
        let mut physical = BTreeSet::new();
        for export in self.exports.iter().flatten().filter(|export| export.is_vmm) {
            let pieces = export.start / PIECE..=(export.start + export.len - 1) / PIECE;
            physical.extend(pieces.map(|piece| (export.of, piece)));
        }
        all.handle_references += physical.len() as u64;
        for own in self.own.iter().flatten() {
            match own.memory {
                Memory::CudaMalloc => all.allocations += 1,
                Memory::Pool => {
                    all.pools += 1;
                    all.pool_allocations += 1;
                }
                _ => {
                    let pieces = own.buffer.len() / PIECE;
                    physical.extend((0..pieces).map(|piece| (own.id, piece)));
                    all.mappings += pieces as u64;
                    all.reservations += 1;
                }
            }
        }
        all.physical_allocations += physical.len() as u64;
        // All ranges of one allocation share its mapping, which has one address.
        let mappings = self
            .imports
            .iter()
            .flatten()
            .filter_map(|import| match import {
                Import::Other { of, base, .. } => Some((*of, *base)),
                Import::Own { .. } => None,
            });
        for (of, _) in mappings.collect::<BTreeSet<_>>() {
            match Memory::ALL[of] {
                Memory::CudaMalloc => all.legacy_opens += 1,
                Memory::Pool => {
                    all.imported_pools += 1;
                    all.pool_imports += 1;
                }
                _ => {
                    let pieces = self.exporter.exports[of].handles.len() as u64;
                    all.physical_allocations += pieces;
                    all.mappings += pieces;
                    all.reservations += 1;
                }
            }
        }
        all
    }
}
