//! What is exported: a window inside a larger allocation, whose edges nobody
//! but its owner may touch.

use crate::output::Failure;
use crate::pattern::{self, Difference};
use crate::session::Session;
use gpuipc::{Buffer, ExportOptions, Exported, Memory};

/// Bytes of the allocation before the window, and after it.
const EDGE: usize = 4096;
/// The seed of what the edges hold.
const EDGE_SEED: u64 = 0x6564_6765;

/// One allocation with a window in it.
pub(crate) struct Window {
    buffer: Buffer,
    len: usize,
}

impl Window {
    /// Allocates memory with a window of `len` bytes.
    pub(crate) fn allocate(
        session: &Session,
        memory: Memory,
        len: usize,
    ) -> Result<Self, gpuipc::Error> {
        // A length near the end of the address space is the driver's to refuse.
        let all = len.saturating_add(2 * EDGE);
        let buffer = Buffer::new(session.opened.driver, session.device, memory, all)?;
        Ok(Self { buffer, len })
    }

    /// Offers the window.
    pub(crate) fn export(
        &self,
        session: &Session,
        options: &ExportOptions,
    ) -> Result<Exported, gpuipc::Error> {
        let start = self.buffer.device_ptr() + EDGE as u64;
        session.ipc.export(start, self.len, options)
    }

    /// Writes the pattern of this seed into the window, and another one into
    /// the edges.
    pub(crate) fn fill(
        &self,
        seed: u64,
        alive: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for edge in [0, EDGE + self.len] {
            pattern::write(&self.buffer, edge, EDGE, EDGE_SEED, alive)?;
        }
        pattern::write(&self.buffer, EDGE, self.len, seed, alive)
    }

    /// Compares the window with the pattern of this seed.
    pub(crate) fn compare(
        &self,
        seed: u64,
        alive: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<Option<Difference>, Failure> {
        pattern::compare(&self.buffer, EDGE, self.len, seed, alive)
    }

    /// Whether the edges are as they were filled.
    pub(crate) fn edges_are_untouched(&self) -> Result<bool, Failure> {
        for edge in [0, EDGE + self.len] {
            let alive = &mut pattern::nobody_waits;
            if pattern::compare(&self.buffer, edge, EDGE, EDGE_SEED, alive)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
