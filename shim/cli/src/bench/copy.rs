//! Copies through a mapping beside copies by the original pointer.

use super::Bench;
use super::raw::Copied;
use super::report::{Row, Target};
use crate::driver::Kind;
use crate::output::Failure;
use gpuipc::{ImportOptions, Memory};

const GIB: f64 = (1_u64 << 30) as f64;

/// `cuMemcpy` from one half of an allocation to the other: the importer through
/// its mapping, the exporter by its own pointer.
pub(super) fn run(bench: &mut Bench) -> Result<(), Failure> {
    let figure = "copy through a mapping, beside the original pointer";
    bench.other.free()?;
    let (bytes, times) = match bench.session.opened.kind {
        Kind::Cuda => (1 << 30, 16),
        Kind::Emulated => (16 << 20, 2),
    };
    if let Some(why) = bench.lacks_room(bytes)? {
        return bench.row(Row::skipped(figure, "GiB/s", &why));
    }
    bench.other.allocate(Memory::VmmFd, bytes)?;
    let (_, handles) = bench.other.export(1, bytes)?;
    let memory = bench
        .session
        .ipc
        .import(&handles, &ImportOptions::default())?;
    let copied = Copied {
        driver: bench.session.opened.driver,
        ptr: memory.device_ptr(),
        len: memory.len(),
    };
    let other = &mut bench.other;
    let [pairs] = bench.effort.rounds(|| {
        let through_mapping = copied.rate(times)? / GIB;
        let original = other.number(["copy".to_owned(), times.to_string()])? / GIB;
        Ok([(through_mapping, original)])
    })?;
    bench.row(Row::of(figure, "GiB/s", &pairs).target(Target::RatioAtLeast(0.99)))
}
