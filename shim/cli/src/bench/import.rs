//! What an import costs beside the raw calls with the same descriptor: of one
//! size in its parts, of several sizes, and from the export to the last drop.

use super::Bench;
use super::measure::{time_of_drop, timed};
use super::raw;
use super::report::{Row, Target};
use super::statistics::Pairs;
use crate::output::Failure;
use crate::size;
use gpuipc::{GpuIpcMemHandle, ImportOptions, Memory};
use std::os::fd::OwnedFd;

const BYTES: usize = 64 << 20;

/// Memory of the other process, by both ways.
pub(super) struct Offered {
    pub(super) handles: Vec<GpuIpcMemHandle>,
    pub(super) fds: Vec<OwnedFd>,
    pub(super) piece: usize,
}

impl Offered {
    /// So many pieces of that many bytes, on offer as one window.
    pub(super) fn new(
        bench: &mut Bench,
        memory: Memory,
        pieces: usize,
        piece: usize,
    ) -> Result<Self, Failure> {
        let bytes = pieces * piece;
        bench.other.allocate(memory, bytes)?;
        let (_, handles) = bench.other.export(1, bytes)?;
        bench.other.raw_export(pieces, piece)?;
        let numbers = (0..pieces).map(|at| u32::try_from(at).unwrap_or(u32::MAX));
        let fds = numbers
            .map(|at| bench.passing.get(at))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            handles,
            fds,
            piece,
        })
    }

    /// Imports and drops, in turn with the raw calls.
    pub(super) fn measure(&self, bench: &Bench) -> Result<[Pairs; 2], Failure> {
        let options = ImportOptions::default();
        let ipc = &bench.session.ipc;
        bench.effort.rounds(|| {
            let (memory, import) = timed(|| ipc.import(&self.handles, &options))?;
            let unmap = time_of_drop(memory);
            let (mapped, raw_import) = timed(|| raw::map(&bench.session, &self.fds, self.piece))?;
            let ((), raw_unmap) = timed(|| mapped.undo())?;
            Ok([(import, raw_import), (unmap, raw_unmap)])
        })
    }
}

/// One size.
pub(super) fn one(bench: &mut Bench) -> Result<(), Failure> {
    let offered = Offered::new(bench, Memory::VmmFd, 1, BYTES)?;
    let [import, unmap] = offered.measure(bench)?;
    let row = Row::of("import and map 64 MiB, descriptor at hand", "us", &import);
    bench.row(row)?;
    let row = Row::of("unmap 64 MiB", "us", &unmap);
    bench.row(row.target(Target::RatioAtMost(1.05)))?;
    let share = Row::alone(
        "broker's share of an import (library less raw)",
        "us",
        &import.differences(),
    );
    bench.row(share.target(Target::AtMost(15.0)))?;
    with_way(bench, &offered)
}

/// The same with the descriptor's way in the raw calls, too: each fetches its own.
fn with_way(bench: &mut Bench, offered: &Offered) -> Result<(), Failure> {
    let figure = "import and map 64 MiB, descriptor by pidfd_getfd";
    let handle = offered.handles.first();
    let number = handle.and_then(|handle| Some((handle.pid(), handle.ticket()?.fd?)));
    let Some((pid, number)) = number else {
        return bench.row(Row::skipped(figure, "us", "the exporter keeps none open"));
    };
    if let Err(failure) = raw::fetch(pid, number) {
        return bench.row(Row::skipped(figure, "us", &failure.to_string()));
    }
    let options = ImportOptions::default();
    let session = &bench.session;
    let [pairs] = bench.effort.rounds(|| {
        let (memory, import) = timed(|| session.ipc.import(&offered.handles, &options))?;
        drop(memory);
        let (mapped, raw) = timed(|| {
            let fd = raw::fetch(pid, number)?;
            raw::map(session, &[fd], offered.piece).map_err(Failure::from)
        })?;
        mapped.undo()?;
        Ok([(import, raw)])
    })?;
    let row = Row::of(figure, "us", &pairs);
    bench.row(row.target(Target::RatioAtMost(1.05)))
}

/// Several sizes.
pub(super) fn sizes(bench: &mut Bench) -> Result<(), Failure> {
    for bytes in [2_usize << 20, 64 << 20, 1 << 30, 16 << 30] {
        let names =
            ["import and map", "unmap"].map(|what| format!("{what}, {}", size::text(bytes as u64)));
        // What the figure before held is free again.
        bench.other.free()?;
        let pairs = match bench.lacks_room(bytes)? {
            Some(why) => Err(why),
            None => match Offered::new(bench, Memory::VmmFd, 1, bytes) {
                Ok(offered) => Ok(offered.measure(bench)?),
                Err(Failure::Text(why)) if why.contains("OUT_OF_MEMORY") => Err(why),
                Err(failure) => return Err(failure),
            },
        };
        match pairs {
            Ok(pairs) => {
                for (name, pairs) in names.into_iter().zip(pairs) {
                    bench.row(Row::of(name, "us", &pairs))?;
                }
            }
            Err(why) => {
                for name in names {
                    bench.row(Row::skipped(name, "us", &why))?;
                }
            }
        }
    }
    Ok(())
}

/// Export, first import in another process, and both drops. The way of the
/// handles between the processes is no part of it.
pub(super) fn end_to_end(bench: &mut Bench) -> Result<(), Failure> {
    bench.other.allocate(Memory::VmmFd, BYTES)?;
    let (other, passing, session) = (&mut bench.other, &bench.passing, &bench.session);
    let options = ImportOptions::default();
    let [all] = bench.effort.rounds(|| {
        let (export, handles) = other.export(1, BYTES)?;
        let (memory, import) = timed(|| session.ipc.import(&handles, &options))?;
        let unmap = time_of_drop(memory);
        let end = other.number(["withdraw"])?;
        let raw_export = other.raw_export(1, BYTES)?;
        let (mapped, raw_import) = timed(|| {
            let fd = passing.get(0)?;
            raw::map(session, &[fd], BYTES).map_err(Failure::from)
        })?;
        let ((), raw_unmap) = timed(|| mapped.undo())?;
        let raw_end = other.number(["raw withdraw"])?;
        Ok([(
            export + import + unmap + end,
            raw_export + raw_import + raw_unmap + raw_end,
        )])
    })?;
    let figure = "export, first import elsewhere, both drops, 64 MiB";
    bench.row(Row::of(figure, "us", &all))
}
