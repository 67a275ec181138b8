//! What more windows of one allocation cost, and more segments of one window.

use super::Bench;
use super::import::Offered;
use super::measure::{micros, timed};
use super::plot::{Curve, Panel};
use super::raw;
use super::report::{Row, Target};
use super::statistics::{Interval, Pairs};
use crate::output::Failure;
use gpuipc::{GpuIpcMem, ImportOptions, Memory};
use std::time::Instant;

const COUNTS: [usize; 4] = [1, 10, 100, 1000];
const WINDOW: usize = 4096;

/// Windows. The raw calls map the allocation once more for each.
pub(super) fn windows(bench: &mut Bench) -> Result<(), Failure> {
    let mut curves = Curves::default();
    for count in COUNTS {
        // The windows lie side by side in it.
        let bytes = (WINDOW * count).next_multiple_of(raw::granularity(&bench.session)?);
        bench.other.allocate(Memory::VmmFd, bytes)?;
        bench.other.raw_export(1, bytes)?;
        let fds = [bench.passing.get(0)?];
        let (_, handles) = bench.other.export(count, WINDOW)?;
        let options = ImportOptions::default();
        let session = &bench.session;
        let mut held: Vec<GpuIpcMem> = Vec::with_capacity(count);
        // Those after the first, unless there is no other.
        let counted = (count - 1).max(1) as f64;
        let [imports, drops] = bench.effort.rounds(|| {
            let (first, rest) = handles.split_at(usize::from(count > 1));
            for handle in first {
                held.push(
                    session
                        .ipc
                        .import(core::slice::from_ref(handle), &options)?,
                );
            }
            let start = Instant::now();
            for handle in rest {
                held.push(
                    session
                        .ipc
                        .import(core::slice::from_ref(handle), &options)?,
                );
            }
            let import = micros(start.elapsed()) / counted;
            let start = Instant::now();
            held.truncate(first.len());
            let unmap = micros(start.elapsed()) / counted;
            held.clear();
            let (mapped, raw_import) = timed(|| raw::map(session, &fds, bytes))?;
            let ((), raw_unmap) = timed(|| mapped.undo())?;
            Ok([(import, raw_import), (unmap, raw_unmap)])
        })?;
        curves.add(count, &imports);
        let (which, target) = match count {
            1 => ("the only window".to_owned(), None),
            _ => (
                format!("each window after the first of {count}"),
                (count == 1000).then_some(Target::AtMost(0.25)),
            ),
        };
        for (what, pairs) in [("import", imports), ("drop", drops)] {
            let row = Row::of(format!("{what}, {which}"), "us", &pairs);
            bench.row(target.map_or(row.clone(), |target| row.target(target)))?;
        }
    }
    bench.panels.push(curves.panel(
        "Import of a window",
        "windows of one allocation",
        "raw calls for each",
    ));
    Ok(())
}

/// Segments, all imported by one call; times are of each segment.
pub(super) fn segments(bench: &mut Bench) -> Result<(), Failure> {
    let piece = raw::granularity(&bench.session)?;
    let mut curves = Curves::default();
    for count in COUNTS {
        let names =
            ["import", "unmap"].map(|what| format!("{what} a window of {count} segments, each"));
        bench.other.free()?;
        if let Some(why) = bench.lacks_room(count * piece)? {
            for name in names {
                bench.row(Row::skipped(name, "us", &why))?;
            }
            continue;
        }
        let offered = Offered::new(bench, Memory::Segments, count, piece)?;
        let each = |pairs: Pairs| {
            let each = |values: Vec<f64>| values.into_iter().map(|all| all / count as f64);
            Pairs {
                library: each(pairs.library).collect(),
                raw: each(pairs.raw).collect(),
            }
        };
        let measured = offered.measure(bench)?.map(each);
        curves.add(count, &measured[0]);
        for (name, pairs) in names.into_iter().zip(measured) {
            bench.row(Row::of(name, "us", &pairs))?;
        }
    }
    bench.panels.push(curves.panel(
        "Import of a segment",
        "segments of one window",
        "raw calls, descriptors at hand",
    ));
    Ok(())
}

/// The library's line and that of the raw calls.
#[derive(Default)]
struct Curves {
    library: Vec<(f64, f64)>,
    raw: Vec<(f64, f64)>,
}

impl Curves {
    fn add(&mut self, count: usize, pairs: &Pairs) {
        for (curve, values) in [
            (&mut self.library, &pairs.library),
            (&mut self.raw, &pairs.raw),
        ] {
            curve.extend(Interval::of(values).map(|value| (count as f64, value.median)));
        }
    }

    fn panel(self, title: &'static str, of: &'static str, raw: &'static str) -> Panel {
        Panel {
            title,
            of,
            curves: vec![
                Curve {
                    name: "library",
                    points: self.library,
                },
                Curve {
                    name: raw,
                    points: self.raw,
                },
            ],
        }
    }
}
