//! What an exporting thread does: allocates, exports, publishes; revokes and frees in any order.

use crate::actor::Actor;
use crate::board::{Count, Export, GroupId, RANGES};
use crate::worker::lock;
use gpuipc::{Buffer, ExportOptions, Exported, Memory};
use gpuipc_kit::{Kind, pattern};
use std::sync::Arc;

const MIB: usize = 1 << 20;
/// A piece of [`Memory::Segments`], on an H200 and on the emulated driver.
const PIECE: usize = 2 * MIB;

/// Kinds of memory that the driver has.
pub(crate) fn memories(kind: Kind) -> &'static [Memory] {
    match kind {
        Kind::Emulated => &Memory::ALL,
        // The death of a pool's owner can break the context of an importer that reads it, and
        // owners are killed here; few machines have memory for the fabric.
        Kind::Cuda => &[
            Memory::CudaMalloc,
            Memory::VmmFd,
            Memory::Segments,
            Memory::HostNuma,
        ],
    }
}

/// An allocation with its ranges exported.
pub(crate) struct Group {
    pub(crate) id: GroupId,
    memory: Memory,
    /// `None` once it was freed while exported.
    buffer: Option<Buffer>,
    ranges: Vec<(Export, Exported)>,
}

impl Group {
    /// Its address while it is not freed.
    pub(crate) fn device_ptr(&self) -> Option<u64> {
        self.buffer.as_ref().map(Buffer::device_ptr)
    }
}

impl Actor {
    pub(crate) fn export_some(&mut self) {
        let memories = memories(self.stage.kind);
        let memory = memories[self.dice.below(memories.len())];
        self.export_new(memory);
    }

    /// Allocates memory of this kind, and exports some ranges of it.
    pub(crate) fn export_new(&mut self, memory: Memory) {
        let ranges = 1 + self.dice.below(RANGES);
        let len = match memory {
            Memory::Segments => 3 * PIECE,
            _ => MIB * (1 + self.dice.below(4)),
        };
        let begun = self.begin(Count::Allocate);
        let buffer = Buffer::new(self.stage.driver, 0, memory, len);
        let Some(buffer) = self.judge(Count::Allocate, None, begun, buffer) else {
            return;
        };
        let stage = Arc::clone(&self.stage);
        let making = lock(&stage.making);
        // All slots are taken: the memory goes.
        let Some(id) = self.board.new_group(stage.who, stage.serial()) else {
            return;
        };
        drop(making);
        let mut group = Group {
            id,
            memory,
            buffer: Some(buffer),
            ranges: Vec::new(),
        };
        let slot = len / ranges;
        for range in 0..ranges {
            let (offset, bytes) = self.place(memory, range, slot);
            self.export_range(&mut group, range, offset, bytes);
        }
        if group.ranges.is_empty() {
            self.revoke_all(group);
        } else {
            self.groups.push(group);
        }
    }

    /// Where in the memory a range lies, and its length.
    fn place(&mut self, memory: Memory, index: usize, slot: usize) -> (usize, usize) {
        let most = if self.dice.one_in(12) { MIB } else { 96 << 10 };
        let len = 1 + self.dice.below(most.min(slot));
        let first = index * slot;
        let seam = (first + 1).next_multiple_of(PIECE);
        if memory == Memory::Segments && !self.dice.one_in(3) && seam < first + slot {
            // Over the seam, inside the slot.
            let before = (len / 2).min(seam - first);
            return (seam - before, len.min(first + slot - (seam - before)));
        }
        (first + self.dice.below(slot - len + 1), len)
    }

    /// Fills a range, exports and publishes it.
    fn export_range(&mut self, group: &mut Group, range: usize, offset: usize, len: usize) {
        let Some(buffer) = &group.buffer else { return };
        let serial = self.stage.serial();
        let begun = self.begin(Count::Export);
        let Some(ipc) = self.ipc(Count::Export) else {
            return;
        };
        if let Err(error) = buffer.write(offset, &pattern(serial, len)) {
            self.judge::<()>(Count::Export, None, begun, Err(error));
            return;
        }
        let options = ExportOptions::default().fd_on_demand(self.dice.one_in(3));
        let exported = buffer.export(&ipc, offset, len, &options);
        let Some(exported) = self.judge(Count::Export, None, begun, exported) else {
            return;
        };
        let export = Export {
            group: group.id,
            range,
            serial,
            memory: group.memory,
            len,
            handles: exported.handles().to_vec(),
        };
        self.board.publish(&export);
        group.ranges.push((export, exported));
    }

    /// Revokes one range of an allocation, or all and the memory.
    pub(crate) fn revoke_some(&mut self) {
        if self.groups.is_empty() {
            return self.export_some();
        }
        let index = self.dice.below(self.groups.len());
        let ranges = self.groups[index].ranges.len();
        if ranges > 1 && self.dice.one_in(3) {
            let range = self.dice.below(ranges);
            let (export, exported) = self.groups[index].ranges.swap_remove(range);
            // Before the export ends: whoever still sees it knows that it stood.
            self.board.revoke(&export);
            self.end_export(exported);
        } else {
            let group = self.groups.swap_remove(index);
            self.revoke_all(group);
        }
    }

    fn end_export(&self, exported: Exported) {
        self.begin(Count::Revoke);
        drop(exported);
        self.board.done(Count::Revoke);
    }

    /// Ends all ranges of an allocation and frees it, in any order: an export keeps what it can.
    pub(crate) fn revoke_all(&mut self, mut group: Group) {
        for (export, _) in &group.ranges {
            self.board.revoke(export);
        }
        if self.dice.one_in(2) {
            self.free(Count::Free, &mut group);
        }
        while !group.ranges.is_empty() {
            let index = self.dice.below(group.ranges.len());
            let (_, exported) = group.ranges.swap_remove(index);
            self.end_export(exported);
        }
        self.free(Count::Free, &mut group);
        self.board.end_group(group.id);
    }

    fn free(&self, deed: Count, group: &mut Group) {
        if let Some(buffer) = group.buffer.take() {
            self.begin(deed);
            self.board.freed(group.id);
            drop(buffer);
            self.board.done(deed);
        }
    }

    /// Frees VMM memory that stays exported, and must stay what it is for importers.
    pub(crate) fn free_while_exported(&mut self) {
        let keeps = |group: &Group| {
            group.buffer.is_some() && !matches!(group.memory, Memory::CudaMalloc | Memory::Pool)
        };
        match self.groups.iter().position(keeps) {
            Some(index) => {
                let mut group = self.groups.swap_remove(index);
                self.free(Count::FreeWhileExported, &mut group);
                self.groups.push(group);
            }
            None => self.verify_some(),
        }
    }
}
