//! The calls, and what each must lead to.

use super::Op;
use crate::machine::driver;
use crate::machine::exporter::{Exporter, PIECE};
use gpuipc::{
    Buffer, Error, ExportOptions, Exported, GpuIpcMem, GpuIpcMemHandle, ImportOptions, Ipc, Memory,
    Used,
};
use gpuipc_emulated::counters::{self, Counters};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::{Rc, Weak};

/// Objects of each kind at once.
const PLACES: usize = 4;
/// What is written at once.
const BLOCK: usize = 16;

/// Memory of this process's own.
pub(super) struct Own {
    pub(super) buffer: Buffer,
    pub(super) memory: Memory,
    /// Never given twice.
    pub(super) id: usize,
    /// What was written, by blocks.
    written: BTreeMap<usize, u8>,
}

/// What is exported of one allocation, as long as any export of it is there: whether the
/// driver's reference to it was made for sure, without faults.
type Piece = Rc<bool>;

/// An exported range of it.
pub(super) struct Export {
    exported: Exported,
    /// With the numbers of its allocations.
    pieces: Vec<(usize, Piece)>,
    pub(super) of: usize,
    pub(super) is_vmm: bool,
    pub(super) start: usize,
    pub(super) len: usize,
}

pub(super) enum Import {
    /// Of a range of this process's own memory.
    Own {
        mem: GpuIpcMem,
        of: usize,
        start: usize,
        pieces: Vec<Weak<bool>>,
    },
    /// Of the other process's memory with this number.
    Other {
        mem: GpuIpcMem,
        of: usize,
        base: u64,
        handles: Vec<GpuIpcMemHandle>,
    },
}

pub(super) struct World {
    pub(super) exporter: &'static Exporter,
    ipc: Ipc,
    pub(super) own: [Option<Own>; PLACES],
    pub(super) exports: [Option<Export>; PLACES],
    pub(super) imports: [Option<Import>; PLACES],
    next_id: usize,
    pub(super) before: Counters,
    /// A driver call may fail.
    pub(super) is_faulty: bool,
    /// Exports and imports that worked, and that did not.
    pub(super) counted: (usize, usize),
}

impl World {
    pub(super) fn new(exporter: &'static Exporter) -> Self {
        Self {
            exporter,
            ipc: Ipc::new(driver()).expect("the emulated driver starts"),
            own: [const { None }; PLACES],
            exports: [const { None }; PLACES],
            imports: [const { None }; PLACES],
            next_id: 0,
            before: counters::read(),
            is_faulty: false,
            counted: (0, 0),
        }
    }

    pub(super) fn call(&mut self, op: Op) {
        let at = usize::from(op.place) % PLACES;
        match op.what % 13 {
            0 => self.allocate(at, op),
            1 => self.own[at] = None,
            2 => self.write(at, op),
            3 => self.read(at, op),
            4 => self.export(at, op),
            5 => self.exports[at] = None,
            6 => self.import_own(at, op),
            7 => self.import_other(at, op, false),
            8 => self.import_other(at, op, true),
            9 => self.imports[at] = None,
            _ => self.ask(op),
        }
    }

    fn count(&mut self, works: bool) {
        self.counted.0 += usize::from(works);
        self.counted.1 += usize::from(!works);
    }

    fn allocate(&mut self, at: usize, op: Op) {
        let memory = Memory::ALL[usize::from(op.other) % Memory::ALL.len()];
        let size = match memory {
            Memory::Segments => 2 * PIECE,
            _ => PIECE,
        };
        // The place may be needed for what comes.
        self.own[at] = None;
        match Buffer::new(driver(), i32::from(op.bits & 2 != 0), memory, size) {
            Ok(buffer) => {
                self.next_id += 1;
                self.own[at] = Some(Own {
                    buffer,
                    memory,
                    id: self.next_id,
                    written: BTreeMap::new(),
                });
            }
            Err(error) => assert!(
                self.is_faulty || memory == Memory::VmmFabric,
                "{memory}: {error}"
            ),
        }
    }

    /// Writes a block, by the owner's address or by an imported one.
    fn write(&mut self, at: usize, op: Op) {
        let value = op.other;
        let bytes = [value; BLOCK];
        let (own, offset, result) = match (op.bits & 1, &self.imports[at]) {
            (0, _) => {
                let Some(own) = &mut self.own[at] else { return };
                let offset = block(op, own.buffer.len());
                let result = own.buffer.write(offset, &bytes);
                (own, offset, result)
            }
            (
                _,
                Some(Import::Own {
                    mem,
                    of,
                    start,
                    pieces,
                }),
            ) => {
                let live = self.own.iter_mut().flatten().find(|own| own.id == *of);
                let Some(own) = live else { return };
                let offset = block(op, mem.len());
                let result = mem.write(offset, &bytes);
                if is_left_to_owner(own, pieces, &result) {
                    return;
                }
                (own, start + offset, result)
            }
            // The other process's memory stays as it is.
            _ => return,
        };
        match result {
            Ok(()) => drop(own.written.insert(offset / BLOCK, value)),
            Err(error) => assert!(self.is_faulty, "{error}"),
        }
    }

    /// Reads a block: it is what was written last, by whichever address.
    fn read(&self, at: usize, op: Op) {
        let mut bytes = [0; BLOCK];
        let (own, offset, result) = match (op.bits & 1, &self.imports[at]) {
            (0, _) => {
                let Some(own) = &self.own[at] else { return };
                let offset = block(op, own.buffer.len());
                (own, offset, own.buffer.read(offset, &mut bytes))
            }
            (
                _,
                Some(Import::Own {
                    mem,
                    of,
                    start,
                    pieces,
                }),
            ) => {
                let live = self.own.iter().flatten().find(|own| own.id == *of);
                let Some(own) = live else { return };
                let offset = block(op, mem.len());
                let result = mem.read(offset, &mut bytes);
                if is_left_to_owner(own, pieces, &result) {
                    return;
                }
                (own, start + offset, result)
            }
            (_, Some(Import::Other { mem, handles, .. })) => {
                if !self.is_faulty {
                    self.exporter.is_what_is_mapped(mem, handles.clone());
                }
                return;
            }
            _ => return,
        };
        match (result, own.written.get(&(offset / BLOCK))) {
            (Ok(()), Some(value)) => assert_eq!(bytes, [*value; BLOCK]),
            (Ok(()), None) => {}
            (Err(error), _) => assert!(self.is_faulty, "{error}"),
        }
    }

    /// A range of whole blocks.
    fn export(&mut self, at: usize, op: Op) {
        let Some(own) = &self.own[usize::from(op.other) % PLACES] else {
            return;
        };
        let blocks = own.buffer.len() / BLOCK;
        let first = (op.number & 0xffff) as usize % blocks;
        let count = 1 + ((op.number >> 16) as usize * 4) % (blocks - first);
        let (start, len) = (first * BLOCK, count * BLOCK);
        let options = ExportOptions::default();
        match own.buffer.export(&self.ipc, start, len, &options) {
            Ok(exported) => {
                let pieces = self.pieces(own, start..start + len);
                let lengths = exported.handles().iter().map(GpuIpcMemHandle::length);
                assert_eq!(lengths.sum::<u64>(), len as u64);
                self.exports[at] = Some(Export {
                    exported,
                    pieces,
                    of: own.id,
                    is_vmm: !matches!(own.memory, Memory::CudaMalloc | Memory::Pool),
                    start,
                    len,
                });
                self.count(true);
            }
            Err(error) => {
                assert!(self.is_faulty, "{error}");
                self.count(false);
            }
        }
    }

    /// What an export of this range has exported: what another one has already, if there is
    /// one.
    fn pieces(&self, own: &Own, range: Range<usize>) -> Vec<(usize, Piece)> {
        let size = match own.memory {
            Memory::Segments => PIECE,
            _ => own.buffer.len(),
        };
        let known = |number| {
            let of = self
                .exports
                .iter()
                .flatten()
                .filter(|export| export.of == own.id);
            let mut pieces = of.flat_map(|export| &export.pieces);
            pieces.find(|(known, _)| *known == number).cloned()
        };
        (range.start / size..range.end.div_ceil(size))
            .map(|number| known(number).unwrap_or_else(|| (number, Rc::new(!self.is_faulty))))
            .collect()
    }

    /// The original pointer, as long as the memory is there.
    fn import_own(&mut self, at: usize, op: Op) {
        let Some(export) = &self.exports[usize::from(op.other) % PLACES] else {
            return;
        };
        let own = self.own.iter().flatten().find(|own| own.id == export.of);
        let result = self
            .ipc
            .import(export.exported.handles(), &ImportOptions::default());
        let works = result.is_ok();
        match (result, own) {
            (Ok(mem), Some(own)) => {
                let start = export.start;
                assert_eq!(mem.device_ptr(), own.buffer.device_ptr() + start as u64);
                assert_eq!(
                    (mem.len(), mem.type_used()),
                    (export.len, Used::SameProcess)
                );
                let of = export.of;
                let pieces = export.pieces.iter().map(|(_, piece)| Rc::downgrade(piece));
                let pieces = pieces.collect();
                self.imports[at] = Some(Import::Own {
                    mem,
                    of,
                    start,
                    pieces,
                });
            }
            (Ok(mem), None) => panic!("imported memory that was freed: {mem:?}"),
            (Err(error), own) => assert!(self.is_faulty || own.is_none(), "{error}"),
        }
        self.count(works);
    }

    fn import_other(&mut self, at: usize, op: Op, is_part: bool) {
        let of = usize::from(op.other) % self.exporter.exports.len();
        let mut handles = self.exporter.exports[of].handles.clone();
        if let ([handle], true) = (&mut handles[..], is_part) {
            let mut fields = handle.fields();
            let start = u64::from(op.number) % fields.length;
            fields.offset_from_base += start;
            fields.length -= start;
            fields.range.length = fields.length;
            fields.range.id = u64::from(op.number);
            *handle = GpuIpcMemHandle::new(&fields).expect("it keeps the rules");
        }
        let result = self.ipc.import(&handles, &ImportOptions::default());
        let works = result.is_ok();
        match result {
            Ok(mem) => {
                if !self.is_faulty {
                    self.exporter.is_what_is_mapped(&mem, handles.clone());
                }
                let base = mem.device_ptr() - handles[0].offset_from_base();
                self.imports[at] = Some(Import::Other {
                    mem,
                    of,
                    base,
                    handles,
                });
            }
            Err(error) => {
                assert!(self.is_faulty, "{error}");
                assert!(
                    matches!(error, Error::Import(_) | Error::Driver(_)),
                    "{error}"
                );
            }
        }
        self.count(works);
    }

    /// Changes nothing.
    fn ask(&self, op: Op) {
        let at = usize::from(op.other);
        let others = &self.exporter.exports[at % self.exporter.exports.len()].handles;
        let handles = match &self.exports[at % PLACES] {
            Some(export) if op.bits & 1 != 0 => export.exported.handles(),
            _ => others,
        };
        let feasibility = self.ipc.can_import(handles, &ImportOptions::default());
        assert!(
            self.is_faulty || handles != others || feasibility.is_importable(),
            "{feasibility:?}"
        );
    }
}

/// The begin of a block of these bytes.
fn block(op: Op, len: usize) -> usize {
    op.number as usize % (len / BLOCK) * BLOCK
}

/// Whether a copy by an import of own memory was refused. Only memory of `cuMemCreate` can be
/// mapped twice, and only while it is exported: then it must not be refused, else it must.
fn is_left_to_owner(own: &Own, pieces: &[Weak<bool>], result: &Result<(), Error>) -> bool {
    let is_refused = matches!(result, Err(Error::Unsupported { .. }));
    let is_vmm = !matches!(own.memory, Memory::CudaMalloc | Memory::Pool);
    let exported: Option<Vec<Piece>> = pieces.iter().map(Weak::upgrade).collect();
    match exported.filter(|_| is_vmm) {
        None => assert!(is_refused, "copied what nothing keeps: {result:?}"),
        Some(pieces) if pieces.iter().all(|piece| **piece) => {
            assert!(!is_refused, "refused what is exported: {result:?}");
        }
        // Without a reference it cannot be mapped.
        Some(_) => {}
    }
    is_refused
}
