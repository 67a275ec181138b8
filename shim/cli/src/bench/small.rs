//! What is small: encoding and decoding a handle, and the memory of a window.

use super::Bench;
use super::counting;
use super::measure::micros;
use super::report::{Row, Target};
use crate::output::Failure;
use core::hint::black_box;
use gpuipc::{GpuIpcMem, GpuIpcMemHandle, HANDLE_BYTES, ImportOptions, Memory};
use std::time::Instant;

/// So many are done together: one alone is shorter than a look at the clock.
const BATCH: u32 = 1000;

/// A handle's bytes, written and read with all checks.
pub(super) fn handle(bench: &mut Bench) -> Result<(), Failure> {
    bench.other.allocate(Memory::VmmFd, 2 << 20)?;
    let (_, handles) = bench.other.export(1, 2 << 20)?;
    let none = || Failure::text("an export without a handle");
    let handle = handles.first().ok_or_else(none)?;
    let bytes = handle.encode();
    let target = Target::AtMost(250.0);
    let encode = bench.effort.alone(|| {
        let start = Instant::now();
        for _ in 0..BATCH {
            black_box(black_box(handle).encode());
        }
        Ok(nanos_each(start))
    })?;
    bench.row(Row::alone("encode a handle", "ns", &encode).target(target))?;
    let decode = bench.effort.alone(|| {
        let start = Instant::now();
        for _ in 0..BATCH {
            let bytes: &[u8; HANDLE_BYTES] = black_box(&bytes);
            let decoded = GpuIpcMemHandle::decode(bytes);
            decoded.map_err(|error| Failure::text(error.to_string()))?;
        }
        Ok(nanos_each(start))
    })?;
    bench.row(Row::alone("decode a handle, all checks", "ns", &decode).target(target))
}

fn nanos_each(start: Instant) -> f64 {
    micros(start.elapsed()) * 1000.0 / f64::from(BATCH)
}

/// A window of a mapping that is there: the object, and what it allocates.
pub(super) fn window(bench: &mut Bench) -> Result<(), Failure> {
    const WINDOWS: usize = 500;
    bench.other.allocate(Memory::VmmFd, 2 << 20)?;
    let (_, handles) = bench.other.export(WINDOWS + 1, 4096)?;
    let options = ImportOptions::default();
    let mut windows = Vec::with_capacity(WINDOWS + 1);
    let ipc = bench.session.ipc.clone();
    let import = |handle| ipc.import(core::slice::from_ref(handle), &options);
    let (first, rest) = handles.split_at(1);
    for handle in first {
        windows.push(import(handle)?);
    }
    let (imported, heap) = counting::held_by(|| {
        rest.iter().try_for_each(|handle| {
            windows.push(import(handle)?);
            Ok::<_, Failure>(())
        })
    });
    imported?;
    let each = heap as f64 / WINDOWS as f64 + size_of::<GpuIpcMem>() as f64;
    let row = Row::alone("memory of a window after the first", "B", &[each]);
    bench.row(row.target(Target::AtMost(128.0)))
}
