//! What is exported: a range inside a larger allocation or over several, whose
//! edges nobody but its owner may touch.

use crate::output::Failure;
use crate::pattern::{self, Difference};
use crate::session::Session;
use gpuipc::sys::{self, CuMemAllocationProp, CuMemLocation};
use gpuipc::{Buffer, DriverError, ExportOptions, Exported, Memory};

/// Bytes before the range, and after it. Odd, so that nothing relies on an
/// alignment.
const EDGE: usize = 4099;
/// The seed of what the edges hold.
const EDGE_SEED: u64 = 0x6564_6765;

/// Memory with a range in it.
pub(crate) struct Source {
    buffer: Buffer,
    start: usize,
    len: usize,
}

impl Source {
    /// Allocates memory with a range of `len` bytes.
    pub(crate) fn allocate(
        session: &Session,
        memory: Memory,
        len: usize,
    ) -> Result<Self, gpuipc::Error> {
        let start = match memory {
            // Even a small range lies in more than one piece.
            Memory::Segments => granularity(session)?
                .saturating_sub(EDGE.min(len / 2))
                .max(EDGE),
            _ => EDGE,
        };
        // A length near the end of the address space is the driver's to refuse.
        let all = len.saturating_add(start).saturating_add(EDGE);
        let buffer = Buffer::new(session.opened.driver, session.device, memory, all)?;
        Ok(Self { buffer, start, len })
    }

    /// Exports the range.
    pub(crate) fn export(
        &self,
        session: &Session,
        options: &ExportOptions,
    ) -> Result<Exported, gpuipc::Error> {
        self.buffer
            .export(&session.ipc, self.start, self.len, options)
    }

    /// Writes the pattern of this seed into the range, and another one into
    /// the edges.
    pub(crate) fn fill(
        &self,
        seed: u64,
        alive: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for edge in self.edges() {
            pattern::write(&self.buffer, edge, EDGE, EDGE_SEED, alive)?;
        }
        pattern::write(&self.buffer, self.start, self.len, seed, alive)
    }

    /// Compares the range with the pattern of this seed.
    pub(crate) fn compare(
        &self,
        seed: u64,
        alive: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<Option<Difference>, Failure> {
        pattern::compare(&self.buffer, self.start, self.len, seed, alive)
    }

    /// Whether the edges are as they were filled.
    pub(crate) fn edges_are_untouched(&self) -> Result<bool, Failure> {
        for edge in self.edges() {
            let alive = &mut pattern::nobody_waits;
            if pattern::compare(&self.buffer, edge, EDGE, EDGE_SEED, alive)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Where the edges begin.
    const fn edges(&self) -> [usize; 2] {
        [self.start - EDGE, self.start + self.len]
    }
}

/// Bytes of a piece of [`Memory::Segments`].
fn granularity(session: &Session) -> Result<usize, DriverError> {
    session.opened.driver.mem_granularity(&CuMemAllocationProp {
        kind: sys::ALLOCATION_TYPE_PINNED,
        requested_handle_types: sys::handle_type::POSIX_FILE_DESCRIPTOR,
        location: CuMemLocation {
            kind: sys::location::DEVICE,
            id: session.device,
        },
        ..CuMemAllocationProp::default()
    })
}
