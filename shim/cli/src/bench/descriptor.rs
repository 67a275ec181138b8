//! What a descriptor costs by each way: what an import takes by that way, less the
//! raw calls that map it. Beside it the least that passing a descriptor costs.

use super::Bench;
use super::import::Offered;
use super::measure::timed;
use super::passing::Passing;
use super::raw;
use super::report::Row;
use super::statistics::Pairs;
use crate::output::Failure;
use gpuipc::core::{Endpoint, HandleFields, Ticket};
use gpuipc::{GpuIpcMemHandle, ImportOptions, Memory};
use std::os::fd::OwnedFd;

const BYTES: usize = 2 << 20;

pub(super) fn run(bench: &mut Bench) -> Result<(), Failure> {
    let offered = Offered::new(bench, Memory::VmmFd, 1, BYTES)?;
    let asked = without_number(&offered.handles)?;
    let kept = measure(bench, &offered, &asked, false, |bench| bench.passing.get(0))?;
    bench.row(Row::of("descriptor by a kept connection", "us", &kept))?;
    let name = bench.other.passer()?;
    let anew = measure(bench, &offered, &offered.handles, true, |_| {
        Passing::connect(&name)?.get(0)
    })?;
    bench.row(Row::of("descriptor by a new connection", "us", &anew))?;
    let figures = [
        "descriptor by pidfd_getfd, exporter known",
        "descriptor by pidfd_getfd, no broker in reach",
    ];
    let (handles, pid, number) = out_of_reach(&offered.handles)?;
    if let Err(failure) = raw::fetch(pid, number) {
        let why = failure.to_string();
        let mut rows = figures.into_iter();
        return rows.try_for_each(|figure| bench.row(Row::skipped(figure, "us", &why)));
    }
    for (figure, handles) in figures.into_iter().zip([&offered.handles, &handles]) {
        let fetched = measure(bench, &offered, handles, false, |_| raw::fetch(pid, number))?;
        bench.row(Row::of(figure, "us", &fetched))?;
    }
    Ok(())
}

/// Imports, less the raw calls, beside the raw way to a descriptor.
fn measure(
    bench: &Bench,
    offered: &Offered,
    handles: &[GpuIpcMemHandle],
    anew: bool,
    pass: impl Fn(&Bench) -> Result<OwnedFd, Failure>,
) -> Result<Pairs, Failure> {
    let options = ImportOptions::default();
    let [pairs] = bench.effort.rounds(|| {
        if anew {
            bench.session.ipc.close_idle_connections();
        }
        let (memory, import) = timed(|| bench.session.ipc.import(handles, &options))?;
        drop(memory);
        let (mapped, raw) = timed(|| raw::map(&bench.session, &offered.fds, offered.piece))?;
        mapped.undo()?;
        let ((), passing) = timed(|| pass(bench).map(drop))?;
        Ok([(import - raw, passing)])
    })?;
    Ok(pairs)
}

fn none() -> Failure {
    Failure::text("the exporter keeps no descriptor open")
}

/// The fields of the only handle, changed.
fn changed(
    handles: &[GpuIpcMemHandle],
    change: impl FnOnce(&mut HandleFields, &mut Ticket),
) -> Result<Vec<GpuIpcMemHandle>, Failure> {
    let [handle] = handles else {
        return Err(none());
    };
    let mut fields = handle.fields();
    let mut ticket = fields.ticket.ok_or_else(none)?;
    change(&mut fields, &mut ticket);
    fields.ticket = Some(ticket);
    let handle = GpuIpcMemHandle::new(&fields).map_err(|error| Failure::text(error.to_string()))?;
    Ok(vec![handle])
}

/// The same handles as if the descriptor were made on demand: the broker must be asked.
fn without_number(handles: &[GpuIpcMemHandle]) -> Result<Vec<GpuIpcMemHandle>, Failure> {
    changed(handles, |_, ticket| ticket.fd = None)
}

/// The same handles with a broker that nobody can find: the importer fetches by
/// number then. With whose pid, and which number.
fn out_of_reach(handles: &[GpuIpcMemHandle]) -> Result<(Vec<GpuIpcMemHandle>, u32, i32), Failure> {
    let mut pid = 0;
    let mut number = None;
    let handles = changed(handles, |fields, ticket| {
        // In the same network namespace a name that refuses says that all is over.
        fields.net_namespace = 0;
        ticket.endpoint = Endpoint(ticket.endpoint.0.map(|byte| !byte));
        (pid, number) = (fields.pid, ticket.fd);
    })?;
    Ok((handles, pid, number.ok_or_else(none)?))
}
