//! The model: what there is, and what each step does to it. Who may see what is in
//! `rules.rs`.
//!
//! Nothing is ever taken out of its list: a number means the same object for ever,
//! and what has ended says so.

use crate::step::{Kind, PROCESSES};
use gpuipc_core::{GpuIpcMemHandle, HandleType};

/// Bytes of each buffer that are looked at: those from `at` on.
pub(crate) const REGION: usize = 12 << 10;
/// Bytes of a piece of segments.
pub(crate) const PIECE: usize = 2 << 20;

/// A process from its start to its end; another one has another number.
#[derive(Debug)]
pub(crate) struct Life {
    /// Where it stands: P1 is 0.
    pub(crate) seat: usize,
    pub(crate) lives: bool,
    /// It has an `Ipc`.
    pub(crate) has_ipc: bool,
    /// Of that `Ipc`; the next one has the next number.
    pub(crate) generation: usize,
}

#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) life: usize,
    pub(crate) kind: Kind,
    /// The GPU by which it is mapped where nobody says another one.
    pub(crate) device: i32,
    /// The child's number for it.
    pub(crate) id: u32,
    pub(crate) address: u64,
    pub(crate) len: usize,
    /// Where the region begins.
    pub(crate) at: usize,
    /// Buffers of one pool have one number.
    pub(crate) pool: usize,
    pub(crate) is_freed: bool,
    /// What the region holds.
    pub(crate) bytes: Vec<u8>,
}

impl Buffer {
    /// The types that the memory is made for, in the library's order.
    pub(crate) fn made_for(&self) -> &'static [HandleType] {
        match self.kind {
            Kind::Small | Kind::Large => &[HandleType::RuntimeIpc],
            Kind::VmmFabric => &[HandleType::PosixFd, HandleType::Fabric],
            Kind::VmmFd | Kind::HostNuma | Kind::Segments | Kind::Pool | Kind::Beside => {
                &[HandleType::PosixFd]
            }
        }
    }

    pub(crate) fn is_pooled(&self) -> bool {
        matches!(self.kind, Kind::Pool | Kind::Beside)
    }

    pub(crate) fn is_vmm(&self) -> bool {
        matches!(
            self.kind,
            Kind::VmmFd | Kind::VmmFabric | Kind::HostNuma | Kind::Segments
        )
    }

    /// The allocations that a range of the region lies in.
    pub(crate) fn pieces(&self, start: usize, len: usize) -> core::ops::RangeInclusive<usize> {
        match self.kind {
            Kind::Segments => (self.at + start) / PIECE..=(self.at + start + len - 1) / PIECE,
            _ => 0..=0,
        }
    }
}

/// One exported allocation for some types: what all exports of it share.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AllocationExport {
    pub(crate) life: usize,
    pub(crate) generation: usize,
    pub(crate) buffer: usize,
    piece: usize,
    types: Vec<HandleType>,
    /// Exports that keep it.
    pub(crate) uses: usize,
}

/// The form of registered memory.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) hex: String,
    /// The transports that come with it, as the child says them.
    pub(crate) transports: &'static str,
}

/// What `export` or `register` gave.
#[derive(Debug)]
pub(crate) struct Export {
    pub(crate) id: u32,
    pub(crate) registered: Option<Form>,
    pub(crate) handles: Vec<GpuIpcMemHandle>,
    pub(crate) buffer: usize,
    /// In the region.
    pub(crate) start: usize,
    pub(crate) len: usize,
    /// The types of its handles.
    pub(crate) types: Vec<HandleType>,
    /// One a piece.
    pub(crate) allocation_exports: Vec<usize>,
    pub(crate) is_dropped: bool,
}

/// A mapping in a process, which ranges of one allocation share.
#[derive(Clone, Debug)]
pub(crate) struct Mapped {
    pub(crate) life: usize,
    pub(crate) used: HandleType,
    /// Types that had failed before.
    pub(crate) failed: Vec<HandleType>,
    pub(crate) read_only: bool,
    /// The GPU that maps, whether the other one has access, and whether the CPU has.
    pub(crate) who: (i32, bool, bool),
    /// Of VMM memory, once it is mapped.
    pub(crate) room: Option<Room>,
    /// The allocation export whose other ranges find it; nobody's of a pool, of several pieces, or
    /// in a place.
    pub(crate) found_by: Option<usize>,
    /// Ranges that use it.
    pub(crate) uses: usize,
}

/// Where in a reservation memory is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// The number of the reservation.
    pub(crate) reservation: usize,
    pub(crate) offset: usize,
    pub(crate) size: usize,
}

/// Address space of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reservation {
    pub(crate) base: u64,
    pub(crate) size: usize,
}

/// A process's own hold of a reservation.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) life: usize,
    pub(crate) id: u32,
    pub(crate) reservation: usize,
    pub(crate) is_dropped: bool,
}

/// By what a range is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// By its own process's pointer.
    Own,
    /// By the `Mapped` with this number.
    By(usize),
}

/// What `import` or `deserialize` gave.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) life: usize,
    pub(crate) id: u32,
    pub(crate) export: usize,
    pub(crate) seen: Seen,
    pub(crate) address: u64,
    /// Of its first allocation, as far as the range says.
    pub(crate) base: u64,
    pub(crate) is_dropped: bool,
}

/// A rule that is broken on purpose, to see that it is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Dropped exports are taken for good.
    RevokedExportsServe,
    /// Freed `cuMemAlloc` memory that is exported is taken for good.
    FreedMemoryServes,
    /// What is written through a mapping is seen by nobody else.
    WritesStayPrivate,
}

/// Everything.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) lives: Vec<Life>,
    /// Who sits where.
    pub(crate) seats: [usize; PROCESSES],
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) allocation_exports: Vec<AllocationExport>,
    pub(crate) exports: Vec<Export>,
    pub(crate) mapped: Vec<Mapped>,
    pub(crate) mappings: Vec<Mapping>,
    pub(crate) reservations: Vec<Reservation>,
    pub(crate) places: Vec<Place>,
    pub(crate) wrong: Option<Wrong>,
}

impl Model {
    pub(crate) fn new(wrong: Option<Wrong>) -> Self {
        let mut model = Self {
            lives: Vec::new(),
            seats: [0; PROCESSES],
            buffers: Vec::new(),
            allocation_exports: Vec::new(),
            exports: Vec::new(),
            mapped: Vec::new(),
            mappings: Vec::new(),
            reservations: Vec::new(),
            places: Vec::new(),
            wrong,
        };
        for seat in 0..PROCESSES {
            model.begin(seat);
        }
        model
    }

    /// A new process at a seat.
    fn begin(&mut self, seat: usize) {
        self.seats[seat] = self.lives.len();
        self.lives.push(Life {
            seat,
            lives: true,
            has_ipc: false,
            generation: 0,
        });
    }

    /// The process at a seat ends, with all that it has, and another one begins.
    pub(crate) fn kill(&mut self, seat: usize) {
        let life = self.seats[seat];
        self.lives[life].lives = false;
        for buffer in self.of_life(life, |_| true) {
            self.buffers[buffer].is_freed = true;
        }
        for export in 0..self.exports.len() {
            if self.life_of_export(export) == life {
                self.drop_export(export);
            }
        }
        for mapping in 0..self.mappings.len() {
            if self.mappings[mapping].life == life {
                self.drop_mapping(mapping);
            }
        }
        for place in self.places_there(|place| place.life == life) {
            self.places[place].is_dropped = true;
        }
        self.begin(seat);
    }

    /// Places that are not dropped.
    pub(crate) fn places_there(&self, wanted: impl Fn(&Place) -> bool) -> Vec<usize> {
        let is_there = |at: &usize| !self.places[*at].is_dropped && wanted(&self.places[*at]);
        (0..self.places.len()).filter(is_there).collect()
    }

    /// Bytes that a range's allocations take.
    pub(crate) fn mapped_size(&self, export: usize) -> usize {
        let Export {
            buffer, start, len, ..
        } = self.exports[export];
        self.buffers[buffer].pieces(start, len).count() * PIECE
    }

    /// A process's buffers that are not freed.
    pub(crate) fn of_life(&self, life: usize, wanted: impl Fn(&Buffer) -> bool) -> Vec<usize> {
        let has = |at: &usize| {
            let buffer = &self.buffers[*at];
            buffer.life == life && !buffer.is_freed && wanted(buffer)
        };
        (0..self.buffers.len()).filter(has).collect()
    }

    pub(crate) fn life_of_export(&self, export: usize) -> usize {
        self.buffers[self.exports[export].buffer].life
    }

    /// The types that an export with these options gives; none, and it is refused.
    pub(crate) fn types_of(&self, buffer: usize, asked: &[HandleType]) -> Vec<HandleType> {
        let made_for = self.buffers[buffer].made_for().iter().copied();
        made_for
            .filter(|made| asked.is_empty() || asked.contains(made))
            .collect()
    }

    /// The allocation exports of a range, one a piece: live ones, else new ones.
    pub(crate) fn export(
        &mut self,
        buffer: usize,
        (start, len): (usize, usize),
        asked: &[HandleType],
    ) -> Vec<usize> {
        let life = self.buffers[buffer].life;
        let mut types = asked.to_vec();
        types.sort_by_key(|handle_type| handle_type.name());
        let mut allocation_exports = Vec::new();
        for piece in self.buffers[buffer].pieces(start, len) {
            let wanted = |allocation_export: &AllocationExport| {
                allocation_export.uses > 0
                    && (
                        allocation_export.life,
                        allocation_export.buffer,
                        allocation_export.piece,
                    ) == (life, buffer, piece)
                    && allocation_export.generation == self.lives[life].generation
                    && allocation_export.types == types
            };
            let at = self
                .allocation_exports
                .iter()
                .position(wanted)
                .unwrap_or_else(|| {
                    self.allocation_exports.push(AllocationExport {
                        life,
                        generation: self.lives[life].generation,
                        buffer,
                        piece,
                        types: types.clone(),
                        uses: 0,
                    });
                    self.allocation_exports.len() - 1
                });
            self.allocation_exports[at].uses += 1;
            allocation_exports.push(at);
        }
        allocation_exports
    }

    pub(crate) fn drop_export(&mut self, export: usize) {
        if core::mem::replace(&mut self.exports[export].is_dropped, true) {
            return;
        }
        for allocation_export in self.exports[export].allocation_exports.clone() {
            self.allocation_exports[allocation_export].uses -= 1;
        }
    }

    pub(crate) fn drop_mapping(&mut self, mapping: usize) {
        if core::mem::replace(&mut self.mappings[mapping].is_dropped, true) {
            return;
        }
        if let Seen::By(mapped) = self.mappings[mapping].seen {
            self.mapped[mapped].uses -= 1;
        }
    }

    /// The `Ipc` of a process ends; the next one has a broker of its own.
    pub(crate) fn drop_ipc(&mut self, life: usize) {
        let life = &mut self.lives[life];
        if life.has_ipc {
            (life.has_ipc, life.generation) = (false, life.generation + 1);
        }
    }
}
