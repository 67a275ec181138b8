//! The other processes, as the measuring one sees them.

use super::message::Message;
use crate::child::Importer;
use crate::driver::Kind;
use crate::importer::this_program;
use crate::output::Failure;
use gpuipc::{GpuIpcMemHandle, Memory};
use std::time::Duration;

/// How long one may say nothing.
const SILENCE: Duration = Duration::from_secs(120);

/// One of them.
pub(super) struct Other(Importer);

impl Other {
    pub(super) fn start(driver: Kind, device: i32) -> Result<Self, Failure> {
        let mut command = this_program()?;
        command.args([
            "bench-other".to_owned(),
            format!("--driver={}", driver.name()),
            format!("--device={device}"),
            // It waits while others are measured.
            format!("--silence-ms={}", 10 * SILENCE.as_millis()),
        ]);
        Ok(Self(Importer::start(&mut command, SILENCE)?))
    }

    /// Tells it to do something.
    pub(super) fn tell(&mut self, order: &Message) -> Result<(), Failure> {
        self.0.send(&order.encode())
    }

    /// What came of it.
    pub(super) fn hear(&mut self) -> Result<Message, Failure> {
        let answer = Message::decode(&self.0.receive()?)?;
        match answer.word(0)? {
            "failed" => Err(Failure::text(format!(
                "in the other process: {}",
                answer.word(1)?
            ))),
            _ => Ok(answer),
        }
    }

    /// Has something done.
    pub(super) fn ask<W: ToString>(
        &mut self,
        words: impl IntoIterator<Item = W>,
    ) -> Result<Message, Failure> {
        self.tell(&Message::new(words))?;
        self.hear()
    }

    /// Has something done that is answered by a number.
    pub(super) fn number<W: ToString>(
        &mut self,
        words: impl IntoIterator<Item = W>,
    ) -> Result<f64, Failure> {
        self.ask(words)?.number(1)
    }

    /// Frees what it holds, and allocates.
    pub(super) fn allocate(&mut self, memory: Memory, bytes: usize) -> Result<(), Failure> {
        self.free()?;
        self.ask(["allocate", memory.name(), &bytes.to_string()])?;
        Ok(())
    }

    pub(super) fn free(&mut self) -> Result<(), Failure> {
        self.ask(["free"]).map(drop)
    }

    /// Exports windows of its memory: the microseconds, and their handles.
    pub(super) fn export(
        &mut self,
        windows: usize,
        len: usize,
    ) -> Result<(f64, Vec<GpuIpcMemHandle>), Failure> {
        let answer = self.ask(["export", &windows.to_string(), &len.to_string()])?;
        Ok((answer.number(1)?, answer.handles))
    }

    /// Exports pieces of its memory by hand: the microseconds.
    pub(super) fn raw_export(&mut self, pieces: usize, piece: usize) -> Result<f64, Failure> {
        self.number(["raw export", &pieces.to_string(), &piece.to_string()])
    }

    /// Where it passes descriptors.
    pub(super) fn passer(&mut self) -> Result<String, Failure> {
        Ok(self.ask(["passer"])?.word(2)?.to_owned())
    }

    pub(super) fn end(self) -> Result<(), Failure> {
        self.0.end()
    }
}

/// Has all of them do the same at the same time: the sum of their numbers.
pub(super) fn together(others: &mut [Other], order: &Message) -> Result<f64, Failure> {
    for other in &mut *others {
        other.tell(order)?;
    }
    // All are heard, so that a failure leaves no answer behind.
    let numbers: Vec<_> = others
        .iter_mut()
        .map(|other| other.hear()?.number::<f64>(1))
        .collect();
    numbers.into_iter().sum()
}
