//! What an importing thread does: imports, compares every byte, unmaps; and asks for what is over.

use crate::actor::Actor;
use crate::board::{Count, Export, GROUPS, MOST_WORKERS, RANGES};
use crate::judge;
use crate::worker::lock;
use gpuipc::{
    Access, GpuIpcMem, GpuIpcMemHandle, HandleType, ImportOptions, Liveness, Memory, Used,
};
use gpuipc_kit::{Kind, pattern};
use std::time::{Duration, Instant};

/// An import may take this much longer than its deadline: driver calls do not count, and the
/// machine may have better to do.
const SLACK: Duration = Duration::from_secs(10);
/// Exports that a thread remembers.
const MOST_SEEN: usize = 24;

/// Imported memory.
pub(crate) struct Mapping {
    export: Export,
    memory: GpuIpcMem,
    /// This process had mapped the same allocation before.
    is_second: bool,
}

impl Mapping {
    /// Whether it holds a reference, so that its bytes stay whatever their owner does.
    fn is_referenced(&self) -> bool {
        let by_reference = [HandleType::PosixFd, HandleType::Fabric].map(Used::Type);
        by_reference.contains(&self.memory.type_used()) && self.export.memory != Memory::Pool
    }
}

impl Actor {
    /// Imports something exported, and compares its bytes.
    pub(crate) fn import_some(&mut self) {
        let Some(export) = self.some_export() else {
            return;
        };
        if self.seen.len() == MOST_SEEN {
            let index = self.dice.below(self.seen.len());
            self.seen.swap_remove(index);
        }
        self.seen.push(export.clone());
        let deed = match export.group.who == self.stage.who {
            true => Count::ImportInOwner,
            false => Count::Import,
        };
        if let Some(mapping) = self.import(deed, export) {
            self.verify(&mapping);
            self.mappings.push(mapping);
        }
    }

    /// Imports what its owner has let go of: that must fail, or lead to what it was where a
    /// reference or a neighbour still exported keeps it.
    pub(crate) fn import_stale(&mut self) {
        // As in `some_export`.
        let may =
            |export: &Export| self.stage.kind != Kind::Cuda || export.group.who != self.stage.who;
        let over = |export: &Export| may(export) && self.board.is_over(export);
        let Some(index) = self.seen.iter().position(over) else {
            return self.import_some();
        };
        let export = self.seen.swap_remove(index);
        let begun = self.begin(Count::ImportStale);
        let Some(mapping) = self.import(Count::ImportStale, export) else {
            return;
        };
        if mapping.is_referenced() {
            self.verify(&mapping);
            self.mappings.push(mapping);
            return;
        }
        // Without a reference it may be mapped only by a process that has it mapped already, or
        // that could ask nobody, and does not say that it is unchanged.
        let liveness = mapping.memory.liveness();
        let could_ask = self.disturbances(Some(&mapping.export), begun)
            & (judge::STOPPED | judge::OWN_FILES | judge::EXPORTER_FILES)
            == 0
            && !self.board.is_killed(mapping.export.group.who);
        if !mapping.is_second && (could_ask || liveness == Liveness::MemoryUnchanged) {
            let (memory, used) = (mapping.export.memory, mapping.memory.type_used());
            self.fail(&format!(
                "freed {memory} was mapped by {used} ({liveness:?})"
            ));
        }
        self.let_go(mapping);
    }

    fn import(&mut self, deed: Count, export: Export) -> Option<Mapping> {
        let ipc = self.ipc(deed)?;
        let options = self.options(&export);
        let timeout = Duration::from_millis(self.dice.between(1500, 4000));
        let options = options.timeout(timeout);
        let is_second = {
            let mut mapped = lock(&self.stage.mapped);
            let count = mapped.entry(export.group.serial).or_default();
            *count += 1;
            *count > 1
        };
        let (begun, start) = (self.begin(deed), Instant::now());
        let memory = ipc.import(&export.handles, &options);
        let took = start.elapsed();
        if took > timeout + SLACK && self.disturbances(None, begun) & judge::STOPPED == 0 {
            self.fail(&format!("an import with {timeout:?} took {took:?}"));
        }
        let Some(memory) = self.judge(deed, Some(&export), begun, memory) else {
            self.forget(&export);
            return None;
        };
        Some(Mapping {
            export,
            memory,
            is_second,
        })
    }

    fn options(&mut self, export: &Export) -> ImportOptions {
        let mut options = ImportOptions::default()
            .host_access(export.memory == Memory::HostNuma)
            .require_live(self.dice.one_in(8));
        let types = export.handles.first().map(GpuIpcMemHandle::types);
        let types = types.map_or_else(Vec::new, |types| types.types().into_iter().collect());
        if self.dice.one_in(2) && export.handles.len() == 1 && !types.is_empty() {
            options = options.types(&[types[self.dice.below(types.len())]]);
        }
        let may_be_read_only = !matches!(export.memory, Memory::CudaMalloc | Memory::Pool);
        if may_be_read_only && self.dice.one_in(5) {
            options = options.access(Access::ReadOnly);
        }
        options
    }

    /// Looks around the board from a random place on.
    fn some_export(&mut self) -> Option<Export> {
        let wants_own = self.dice.one_in(6);
        let all = MOST_WORKERS * GROUPS * RANGES;
        let start = self.dice.below(all);
        let own = self.stage.who.worker;
        let mut places = (start..all).chain(0..start).map(|place| {
            let (worker, rest) = (place / (GROUPS * RANGES), place % (GROUPS * RANGES));
            (worker, rest / RANGES, rest % RANGES)
        });
        places.find_map(|(worker, slot, range)| {
            if (worker == own) != wants_own {
                return None;
            }
            let export = self.board.read(worker, slot, range)?;
            // A real driver crashes when one thread asks for access to memory that another one
            // unmaps (SIGSEGV in cuMemSetAccess, driver 580).
            let is_mine = |export: &Export| {
                let mut groups = self.groups.iter();
                groups.any(|group| group.id == export.group && group.device_ptr().is_some())
            };
            (worker != own || self.stage.kind != Kind::Cuda || is_mine(&export)).then_some(export)
        })
    }

    /// Compares the bytes of some mapping.
    pub(crate) fn verify_some(&mut self) {
        if !self.mappings.is_empty() {
            let index = self.dice.below(self.mappings.len());
            self.verify(&self.mappings[index]);
        }
    }

    /// What holds a reference must have its bytes, whatever became of the export; other mappings
    /// only as long as their owner keeps the memory.
    fn verify(&self, mapping: &Mapping) {
        let (export, memory) = (&mapping.export, &mapping.memory);
        let used = memory.type_used();
        let begun = self.begin(Count::Verify);
        let mut bytes = vec![0; memory.len()];
        let read = memory.read(0, &mut bytes);
        let expected = pattern(export.serial, export.len);
        if read.is_ok() && bytes == expected {
            self.board.done(Count::Verify);
            self.board.add(Count::BytesVerified, export.len as u64);
            return;
        }
        // The library copies a process's own memory only where its owner cannot free it
        // meanwhile.
        if used == Used::SameProcess && matches!(read, Err(gpuipc::Error::Unsupported { .. })) {
            self.board.refused(Count::Verify);
            return;
        }
        let has_owner =
            self.board.is_allocated(export.group) && !self.board.is_killed(export.group.who);
        if !mapping.is_referenced() && !has_owner {
            self.board.refused(Count::Verify);
        } else if read.is_err() {
            self.judge(Count::Verify, None, begun, read);
        } else {
            self.board.done(Count::WrongBytes);
            let at = bytes
                .iter()
                .zip(&expected)
                .position(|(is, must)| is != must);
            self.fail(&format!(
                "wrong bytes in {} by {used}: {} bytes instead of {}, different at {at:?}",
                export.memory,
                bytes.len(),
                export.len,
            ));
        }
    }

    /// Lets go of some mapping.
    pub(crate) fn unmap(&mut self) {
        if !self.mappings.is_empty() {
            let index = self.dice.below(self.mappings.len());
            let mapping = self.mappings.swap_remove(index);
            self.let_go(mapping);
        }
    }

    /// By drop or by `unmap`.
    fn let_go(&mut self, mapping: Mapping) {
        self.begin(Count::Unmap);
        match self.dice.one_in(2) {
            true => drop(mapping.memory.unmap()),
            false => drop(mapping.memory),
        }
        self.forget(&mapping.export);
        self.board.done(Count::Unmap);
    }

    /// One range less of this allocation is mapped.
    fn forget(&self, export: &Export) {
        let mut mapped = lock(&self.stage.mapped);
        if let Some(count) = mapped.get_mut(&export.group.serial) {
            *count -= 1;
            if *count == 0 {
                mapped.remove(&export.group.serial);
            }
        }
    }
}
