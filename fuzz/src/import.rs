//! Handles of another process, changed with the right checksum and imported over the emulated
//! driver: no crash, nothing left, and what is mapped is as long as the handles say, inside memory
//! exported, with the bytes that lie there.
//!
//! The input is steps of 12 bytes each: see [`Step`].

use crate::checker::{HANDLE as BYTES, seal};
use crate::machine::exporter::{Export, Exporter, exporter};
use crate::machine::{Held, alone, driver};
use gpuipc::{
    Access, Buffer, ExportOptions, GpuIpcMem, GpuIpcMemHandle, ImportOptions, Ipc, Memory,
};
use gpuipc_core::HandleType;
use std::sync::Once;
use std::time::{Duration, Instant};

/// Bytes of one step.
pub const STEP: usize = 12;
/// Steps of one input; later ones are not looked at.
pub const MOST: usize = 32;
/// What an import of changed handles may take, and what it may take longer on a busy machine.
const TIMEOUT: Duration = Duration::from_millis(30);
const SLACK: Duration = Duration::from_secs(5);

/// One step.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// 0 takes another memory's handles, 1 puts a number into one, 2 copies a part of another
    /// memory's handle, 3 removes, 4 doubles, 5 swaps handles, 6 imports, 7 lets go of a mapping,
    /// 8 asks whether an import would work, 9 gives a handle the ticket of another memory (a pool's
    /// handles with tokens that are not the pool's), 10 imports and lets go in two threads while a
    /// third one exports.
    pub what: u8,
    /// Lower half: which handle; upper half: how many bytes, less one (2: 16 times as many).
    pub which: u8,
    /// Where in the handle; another handle; bits of the options: 1 the other device, 2 reading
    /// only, 4 only if the memory is known to be unchanged, 8 one type only, by the two bits above.
    pub at: u16,
    /// A number, or which memory.
    pub number: u64,
}

impl Step {
    /// The step in these bytes.
    pub fn of(bytes: &[u8; STEP]) -> Self {
        let [what, which, a, b, number @ ..] = *bytes;
        Self {
            what,
            which,
            at: u16::from_le_bytes([a, b]),
            number: u64::from_le_bytes(number),
        }
    }

    /// The bytes of the step.
    pub fn bytes(self) -> [u8; STEP] {
        let mut bytes = [0; STEP];
        bytes[..2].copy_from_slice(&[self.what, self.which]);
        bytes[2..4].copy_from_slice(&self.at.to_le_bytes());
        bytes[4..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    fn handle(self) -> usize {
        usize::from(self.which & 15)
    }

    fn has(self, bit: u16) -> bool {
        self.at & bit != 0
    }
}

/// What happened in one input.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Imports of changed handles that mapped.
    pub mapped: usize,
    /// Those that did not.
    pub refused: usize,
}

/// Does the steps.
///
/// # Panics
///
/// If a promise of the importer does not hold.
pub fn run(data: &[u8]) {
    look(data);
}

/// As [`run`]; tells what happened.
///
/// # Panics
///
/// As [`run`].
pub fn look(data: &[u8]) -> Seen {
    let _alone = alone();
    let (steps, _) = data.as_chunks::<STEP>();
    let steps: Vec<Step> = steps.iter().take(MOST).map(Step::of).collect();
    let exporter = exporter();
    static WARM: Once = Once::new();
    // What the first use makes for good is there before anything is counted.
    WARM.call_once(|| drop(Importer::new(exporter)));
    let held = Held::now();
    let mut importer = Importer::new(exporter);
    for step in &steps {
        importer.take(*step);
    }
    let seen = importer.seen;
    drop(importer);
    held.is_all(&steps);
    seen
}

struct Importer {
    exporter: &'static Exporter,
    ipc: Ipc,
    handles: Vec<[u8; BYTES]>,
    is_changed: bool,
    mems: Vec<GpuIpcMem>,
    seen: Seen,
}

impl Importer {
    fn new(exporter: &'static Exporter) -> Self {
        let ipc = Ipc::new(driver()).expect("the emulated driver starts");
        let mut new = Self {
            exporter,
            ipc,
            handles: Vec::new(),
            is_changed: false,
            mems: Vec::new(),
            seen: Seen::default(),
        };
        new.choose(1);
        new
    }

    fn export(&self, number: u64) -> &'static Export {
        let count = self.exporter.exports.len() as u64;
        &self.exporter.exports[(number % count) as usize]
    }

    fn choose(&mut self, number: u64) {
        let handles = self.export(number).handles.iter();
        self.handles = handles.map(GpuIpcMemHandle::encode).collect();
        self.is_changed = false;
    }

    fn take(&mut self, step: Step) {
        let (count, other) = (self.handles.len(), usize::from(step.at));
        let at = step.handle() % count.max(1);
        match step.what % 11 {
            0 => return self.choose(step.number),
            6 => return self.import(step),
            7 if self.mems.is_empty() => return,
            7 => return drop(self.mems.swap_remove(step.handle() % self.mems.len())),
            8 => return self.ask(step),
            10 => return self.at_once(step),
            _ if count == 0 => return,
            1 => put(
                &mut self.handles[at],
                step.at,
                step.which >> 4 & 7,
                step.number,
            ),
            2 => {
                let from = self.export(step.number).handles[0].encode();
                let start = other % BYTES;
                let end = (start + 16 * (1 + usize::from(step.which >> 4))).min(BYTES);
                self.handles[at][start..end].copy_from_slice(&from[start..end]);
            }
            9 => {
                let from = self.export(step.number).handles[0].encode();
                self.handles[at][TICKET].copy_from_slice(&from[TICKET]);
                let bit = u16::from_le_bytes([from[8], from[9]]) & 1;
                self.handles[at][8] |= bit as u8;
            }
            3 => drop(self.handles.remove(at)),
            4 if count < 8 => self.handles.push(self.handles[at]),
            // In any order the handles are the same range.
            5 => return self.handles.swap(at, other % count),
            _ => return,
        }
        self.is_changed = true;
    }

    /// The handles with the right checksum; `None` if one is none by the rules. Of processes that
    /// are no part of this no descriptor is fetched.
    fn decoded(&self) -> Option<Vec<GpuIpcMemHandle>> {
        let decode = |bytes: &[u8; BYTES]| {
            let mut bytes = *bytes;
            let pid = u32::from_le_bytes([bytes[128], bytes[129], bytes[130], bytes[131]]);
            if pid != std::process::id() && pid != 0 {
                bytes[128..132].copy_from_slice(&self.exporter.pid().to_le_bytes());
            }
            seal(&mut bytes);
            GpuIpcMemHandle::decode(&bytes).ok()
        };
        self.handles.iter().map(decode).collect()
    }

    fn options(&self, step: Step) -> ImportOptions {
        let types = [
            HandleType::RuntimeIpc,
            HandleType::PosixFd,
            HandleType::Fabric,
        ];
        let mut options = ImportOptions::default().require_live(step.has(4));
        if self.is_changed {
            options = options.timeout(TIMEOUT);
        }
        if step.has(1) {
            options = options.device(1);
        }
        if step.has(2) {
            options = options.access(Access::ReadOnly);
        }
        if step.has(8) {
            options = options.types(&[types[usize::from(step.at >> 4) % 3]]);
        }
        options
    }

    fn import(&mut self, step: Step) {
        let Some(handles) = self.decoded() else {
            self.seen.refused += 1;
            return;
        };
        let start = Instant::now();
        let result = self.ipc.import(&handles, &self.options(step));
        assert!(!self.is_changed || start.elapsed() < TIMEOUT + SLACK);
        match result {
            Ok(mem) => {
                self.exporter.is_what_is_mapped(&mem, handles);
                self.seen.mapped += usize::from(self.is_changed);
                self.mems.push(mem);
            }
            Err(error) => {
                let plain = !self.is_changed && step.at & 15 == 0 && !self.handles.is_empty();
                assert!(!plain, "handles as they were made: {error}");
                assert_ne!(error.status().name(), "UNKNOWN");
                self.seen.refused += 1;
            }
        }
    }

    /// Imports of what another process exports, and of what a third thread has just exported here.
    fn at_once(&self, step: Step) {
        let exported = &self.export(step.number).handles;
        let options = &ImportOptions::default();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..4 {
                        let mem = self.ipc.import(exported, options).expect("it is exported");
                        self.exporter.is_what_is_mapped(&mem, exported.clone());
                    }
                });
            }
            scope.spawn(|| {
                for memory in [Memory::VmmFd, Memory::CudaMalloc] {
                    let buffer = Buffer::new(driver(), 0, memory, 2 << 20).expect("memory");
                    let ptr = buffer.device_ptr();
                    let options_of_export = ExportOptions::default();
                    let exported = buffer.export(&self.ipc, 0, buffer.len(), &options_of_export);
                    let exported = exported.expect("it can be exported");
                    let mem = self
                        .ipc
                        .import(exported.handles(), options)
                        .expect("own memory");
                    assert_eq!(
                        mem.device_ptr(),
                        ptr,
                        "in its own process memory has one address"
                    );
                }
            });
        });
    }

    /// Maps nothing: the counters at the end say so.
    fn ask(&self, step: Step) {
        if let Some(handles) = self.decoded() {
            let feasibility = self.ipc.can_import(&handles, &self.options(step));
            let plain = !self.is_changed && step.at & 15 == 0 && !handles.is_empty();
            assert!(!plain || feasibility.is_importable(), "{feasibility:?}");
        }
    }
}

/// Where a handle's ticket lies.
const TICKET: std::ops::Range<usize> = 256..320;

/// Puts the lower bytes of a number into a handle.
fn put(bytes: &mut [u8; BYTES], at: u16, more: u8, number: u64) {
    let at = usize::from(at) % BYTES;
    let end = (at + usize::from(more) + 1).min(BYTES);
    bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
}
