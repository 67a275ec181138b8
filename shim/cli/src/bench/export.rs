//! What an export costs: the first of an allocation, the same again, the end of
//! the offer. The driver takes half a millisecond for the first descriptor that a
//! process has open, and for the last: so with another one open, and without.

use super::Bench;
use super::measure::{time_of_drop, timed};
use super::raw;
use super::report::{Row, Target};
use crate::output::Failure;
use gpuipc::{Buffer, ExportOptions, Ipc, IpcOptions, Memory};

const BYTES: usize = 64 << 20;

pub(super) fn run(bench: &mut Bench) -> Result<(), Failure> {
    let driver = bench.session.opened.driver;
    let device = bench.session.device;
    let buffer = Buffer::new(driver, device, Memory::VmmFd, BYTES)?;
    let beside = Buffer::new(driver, device, Memory::VmmFd, BYTES)?;
    measure(bench, &buffer, "no other descriptor open", false)?;
    let another = raw::export(driver, beside.device_ptr())?;
    measure(bench, &buffer, "another descriptor open", false)?;
    drop(another);
    // What the option promises: the raw calls have the spare one beside them, too.
    let options = IpcOptions::default().spare_descriptor(true);
    let spared = Ipc::with_options(driver, &options)?;
    let own = core::mem::replace(&mut bench.session.ipc, spared);
    let measured = measure(bench, &buffer, "with the spare descriptor", true);
    bench.session.ipc = own;
    measured
}

/// With what the library adds, if that is wanted, too.
fn measure(bench: &mut Bench, buffer: &Buffer, beside: &str, added: bool) -> Result<(), Failure> {
    let driver = bench.session.opened.driver;
    let (ptr, len) = (buffer.device_ptr(), buffer.len());
    let ipc = bench.session.ipc.clone();
    let options = ExportOptions::default();
    let [first, again, end] = bench.effort.rounds(|| {
        let (offer, first) = timed(|| buffer.export(&ipc, 0, len, &options))?;
        let (more, again) = timed(|| buffer.export(&ipc, 0, len, &options))?;
        drop(more);
        let end = time_of_drop(offer);
        let (exported, raw_first) = timed(|| raw::export(driver, ptr))?;
        let (_, raw_again) = timed(|| raw::look_up(driver, ptr))?;
        // The descriptor is closed, then the reference released.
        let raw_end = time_of_drop(exported);
        Ok([(first, raw_first), (again, raw_again), (end, raw_end)])
    })?;
    for (what, most, pairs) in [
        ("first", Some(3.0), first),
        ("again", Some(0.5), again),
        ("drop", None, end),
    ] {
        let figure = format!("export {what}, {beside}");
        bench.row(Row::of(figure.clone(), "us", &pairs))?;
        if let Some(most) = most.filter(|_| added) {
            let figure = format!("{figure} (library less raw)");
            let row = Row::alone(figure, "us", &pairs.differences());
            bench.row(row.target(Target::AtMost(most)))?;
        }
    }
    Ok(())
}
