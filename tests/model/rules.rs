//! The rules: who may see which bytes, and what everybody else is told.

use crate::model::{Buffer, Mapped, Model, Room, Seen, Wrong};
use crate::step::{Kind, Options};
use gpuipc_core::HandleType;

/// The library's order.
const ORDER: [HandleType; 3] = [
    HandleType::PosixFd,
    HandleType::Fabric,
    HandleType::RuntimeIpc,
];

/// What an import must come to.
#[derive(Debug)]
pub(crate) enum Expected {
    /// The process's own pointer.
    Own,
    /// What another range has mapped already.
    Found(usize),
    New(Mapped),
    /// One of these statuses.
    Refused(Vec<&'static str>),
}

const GONE: &str = "EXPORTER_GONE";
const REVOKED: &str = "EXPORT_REVOKED";
const NONE_WORKED: &str = "NO_TYPE_WORKED";

/// What one type, or one way, comes to.
type Outcome = Result<(), Vec<&'static str>>;

impl Model {
    /// What an import of an export's handles must come to in a process.
    /// `room` is where the caller wants it.
    pub(crate) fn import(
        &self,
        life: usize,
        export: usize,
        options: &Options,
        room: Option<Room>,
    ) -> Expected {
        let wanted = &self.exports[export];
        let buffer = &self.buffers[wanted.buffer];
        if buffer.life == life {
            return match self.own(export, options, room) {
                Ok(()) => Expected::Own,
                Err(told) => Expected::Refused(told),
            };
        }
        let order = match options.types.as_slice() {
            [] => &ORDER,
            chosen => chosen,
        };
        let order: Vec<HandleType> = order
            .iter()
            .filter(|wanted_type| wanted.types.contains(wanted_type))
            .copied()
            .collect();
        let found_by = match wanted.allocation_exports.as_slice() {
            [one] if buffer.is_vmm() && room.is_none() => Some(*one),
            _ => None,
        };
        if let Some(allocation_export) = found_by
            && let Some(found) = self.found(life, allocation_export, &order, options)
        {
            return Expected::Found(found);
        }
        let mut failed = Vec::new();
        let mut told = Vec::new();
        for used in order {
            match self.by(used, life, export, options, room) {
                Ok(()) => {
                    return Expected::New(Mapped {
                        life,
                        used,
                        failed,
                        read_only: options.read_only,
                        who: who(options, buffer),
                        room,
                        found_by,
                        uses: 0,
                    });
                }
                Err(status) => {
                    failed.push(used);
                    told.push(status);
                }
            }
        }
        Expected::Refused(telling(&told))
    }

    /// The mapping that another range of the same VMM allocation has made: it serves
    /// whatever became of the export.
    fn found(
        &self,
        life: usize,
        allocation_export: usize,
        order: &[HandleType],
        options: &Options,
    ) -> Option<usize> {
        self.mapped.iter().position(|mapped| {
            let mut before = order.iter().take_while(|wanted| **wanted != mapped.used);
            mapped.uses > 0
                && mapped.life == life
                && mapped.found_by == Some(allocation_export)
                && mapped.read_only == options.read_only
                && mapped.who
                    == who(
                        options,
                        &self.buffers[self.allocation_exports[allocation_export].buffer],
                    )
                && order.contains(&mapped.used)
                && before.all(|wanted| mapped.failed.contains(wanted))
        })
    }

    /// In the exporting process: what is exported, and not freed, for whom access can be
    /// given to it where it is.
    fn own(&self, export: usize, options: &Options, room: Option<Room>) -> Outcome {
        let wanted = &self.exports[export];
        let buffer = &self.buffers[wanted.buffer];
        for allocation_export in &wanted.allocation_exports {
            if self.allocation_exports[*allocation_export].uses == 0 {
                return Err(vec![REVOKED]);
            }
            if self.buffers[wanted.buffer].is_freed {
                return Err(vec![NONE_WORKED]);
            }
        }
        let is_legacy = !buffer.is_vmm() && !buffer.is_pooled();
        let is_elsewhere = options.more || options.first(buffer.device) != buffer.device;
        let is_for_cpu = options.host && buffer.kind != Kind::HostNuma;
        if room.is_some() || is_for_cpu || is_legacy && is_elsewhere {
            return Err(vec![NONE_WORKED]);
        }
        Ok(())
    }

    fn by(
        &self,
        used: HandleType,
        life: usize,
        export: usize,
        options: &Options,
        room: Option<Room>,
    ) -> Outcome {
        let buffer = &self.buffers[self.exports[export].buffer];
        if room.is_some() && !buffer.is_vmm() {
            return Err(vec![NONE_WORKED]);
        }
        let way = self.by_type(used, life, export, options);
        match room {
            // Whichever shows first.
            Some(room) if !self.is_free(room) => {
                let mut told = way.err().unwrap_or_default();
                told.push(NONE_WORKED);
                Err(told)
            }
            _ => way,
        }
    }

    /// Whether it lies in its reservation, and nothing is mapped there.
    fn is_free(&self, room: Room) -> bool {
        let end = room.offset + room.size;
        let overlaps = |other: Room| {
            other.reservation == room.reservation
                && other.offset < end
                && room.offset < other.offset + other.size
        };
        let mut others = self.mapped.iter().filter(|mapped| mapped.uses > 0);
        end <= self.reservations[room.reservation].size
            && !others.any(|mapped| mapped.room.is_some_and(overlaps))
    }

    fn by_type(&self, used: HandleType, life: usize, export: usize, options: &Options) -> Outcome {
        let wanted = &self.exports[export];
        let buffer = &self.buffers[wanted.buffer];
        match used {
            _ if options.read_only && !buffer.is_vmm() => Err(vec![NONE_WORKED]),
            _ if options.host && buffer.kind != Kind::HostNuma => Err(vec![NONE_WORKED]),
            HandleType::RuntimeIpc if options.more => Err(vec![NONE_WORKED]),
            HandleType::RuntimeIpc => self.legacy(export, buffer),
            HandleType::PosixFd if buffer.is_pooled() => self.pooled(life, export, buffer),
            // The export keeps the memory, whatever its owner frees.
            HandleType::PosixFd => self.by_fd(export),
            // The bytes lead to the memory as long as its owner has it: in a
            // buffer, or on any export of it. Nobody is asked.
            HandleType::Fabric => {
                let of_buffer = |allocation_export: &&crate::model::AllocationExport| {
                    allocation_export.uses > 0 && allocation_export.buffer == wanted.buffer
                };
                let is_kept = self
                    .allocation_exports
                    .iter()
                    .any(|allocation_export| of_buffer(&allocation_export));
                let is_there = self.lives[buffer.life].lives && (!buffer.is_freed || is_kept);
                if is_there {
                    Ok(())
                } else {
                    Err(vec![NONE_WORKED])
                }
            }
        }
    }

    /// What the exporter's broker says about the export.
    fn by_fd(&self, export: usize) -> Outcome {
        let allocation_exports = &self.exports[export].allocation_exports;
        let is_live = |at: &usize| self.allocation_exports[*at].uses > 0;
        if allocation_exports.iter().all(is_live) {
            return Ok(());
        }
        let (life, generation) = {
            let first = &self.allocation_exports[allocation_exports[0]];
            (first.life, first.generation)
        };
        let exporter = &self.lives[life];
        if self.wrong == Some(Wrong::RevokedExportsServe) && exporter.lives {
            return Ok(());
        }
        // A broker lives as long as its `Ipc` or anything that it exports.
        let its_ipc = exporter.has_ipc && exporter.generation == generation;
        let its_exports = self
            .allocation_exports
            .iter()
            .any(|other| other.uses > 0 && other.life == life && other.generation == generation);
        if exporter.lives && (its_ipc || its_exports) {
            Err(vec![REVOKED])
        } else if exporter.lives {
            // It may be in the middle of an answer, and ends after that.
            Err(vec![GONE, REVOKED])
        } else {
            Err(vec![GONE])
        }
    }

    /// The driver opens what lies there now; the exporter says whether it is what
    /// was exported.
    fn legacy(&self, export: usize, buffer: &Buffer) -> Outcome {
        let freed_serves = self.wrong == Some(Wrong::FreedMemoryServes);
        match self.by_fd(export) {
            // Dead: the driver itself says so, or the missing broker does.
            Err(told) if !self.lives[buffer.life].lives => Err(told),
            Ok(()) if !buffer.is_freed || freed_serves => Ok(()),
            Ok(()) => Err(vec![NONE_WORKED]),
            Err(told) if !buffer.is_freed => Err(told),
            // Nothing lies there, or something else does, whose handle is then asked about.
            Err(mut told) => {
                told.push(NONE_WORKED);
                Err(told)
            }
        }
    }

    /// As legacy memory. What this process still maps of freed memory at the same
    /// place of the pool is in the way, if its length is another one.
    fn pooled(&self, life: usize, export: usize, buffer: &Buffer) -> Outcome {
        let is_in_the_way = self.mappings.iter().any(|mapping| {
            let of = &self.buffers[self.exports[mapping.export].buffer];
            !mapping.is_dropped
                && mapping.life == life
                && mapping.seen != Seen::Own
                && of.is_pooled()
                && (of.pool, of.address) == (buffer.pool, buffer.address)
                && of.len != buffer.len
        });
        match self.by_fd(export) {
            Ok(()) if buffer.is_freed || is_in_the_way => Err(vec![NONE_WORKED]),
            Ok(()) => Ok(()),
            Err(mut told) => {
                if is_in_the_way {
                    told.push(NONE_WORKED);
                }
                Err(told)
            }
        }
    }

    /// Whether a mapping shows what the model says. What holds no reference shows
    /// the memory only as long as its owner has it; after that nothing is promised.
    /// The own process's registered memory is a bare pointer, by which nobody copies; what
    /// it imported of its own is copied as long as the export keeps it.
    pub(crate) fn is_promised(&self, mapping: usize) -> bool {
        let mapping = &self.mappings[mapping];
        let export = &self.exports[mapping.export];
        let buffer = &self.buffers[export.buffer];
        let is_own = mapping.seen == Seen::Own;
        let is_live = |at: &usize| self.allocation_exports[*at].uses > 0;
        if is_own {
            let is_kept = buffer.is_vmm() && export.allocation_exports.iter().all(is_live);
            return export.registered.is_none() && is_kept;
        }
        buffer.is_vmm() || !buffer.is_freed
    }

    /// Whether a mapping may be written.
    pub(crate) fn may_write(&self, mapping: usize) -> bool {
        match self.mappings[mapping].seen {
            Seen::Own => true,
            Seen::By(mapped) => !self.mapped[mapped].read_only,
        }
    }

    /// What is known about the memory at an import.
    pub(crate) fn liveness(&self, export: usize, is_own: bool) -> &'static str {
        let buffer = &self.buffers[self.exports[export].buffer];
        if buffer.is_vmm() && !is_own {
            "Referenced"
        } else {
            "MemoryUnchanged"
        }
    }
}

/// Who gets access.
fn who(options: &Options, buffer: &Buffer) -> (i32, bool, bool) {
    (options.first(buffer.device), options.more, options.host)
}

/// What the whole import may say, where each type that was tried says one of some
/// statuses: the exporter's end before its no, and that before everything else.
fn telling(told: &[Vec<&'static str>]) -> Vec<&'static str> {
    let rank = |status: &str| [GONE, REVOKED].iter().position(|told| *told == status);
    let first = |a: &'static str, b: &'static str| match (rank(a), rank(b)) {
        (Some(of_a), Some(of_b)) if of_b < of_a => b,
        (None, Some(_)) => b,
        _ => a,
    };
    let mut all = vec![NONE_WORKED];
    for one in told {
        let pairs = all.iter().flat_map(|a| one.iter().map(|b| first(a, b)));
        all = pairs.collect();
        all.sort_unstable();
        all.dedup();
    }
    all
}

/// The child's name for a kind of memory.
pub(crate) const fn memory(kind: Kind) -> &'static str {
    match kind {
        Kind::VmmFd => "vmm-fd",
        Kind::Small | Kind::Large => "cuda-malloc",
        Kind::VmmFabric => "vmm-fabric",
        Kind::HostNuma => "host-numa",
        Kind::Segments => "segments",
        Kind::Pool | Kind::Beside => "pool",
    }
}
