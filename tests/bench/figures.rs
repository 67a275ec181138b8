//! What is measured, by families.

use crate::measure::{Pairs, Row, Target, micros, time_of_drop, timed};
use crate::other::{Other, to_hex, together};
use crate::raw::{self, Copied};
use crate::socket::{Client, Server};
use crate::{Bench, Result};
use core::hint::black_box;
use core::slice::from_ref;
use gpuipc::core::Endpoint;
use gpuipc::{
    Buffer, ExportOptions, GpuIpcMem, GpuIpcMemHandle, HANDLE_BYTES, ImportOptions, Ipc,
    IpcOptions, Memory,
};
use gpuipc_kit::Kind;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// A family of figures.
type Family = (&'static str, fn(&mut Bench) -> Result<()>);

pub(crate) const FAMILIES: [Family; 11] = [
    ("export", export),
    ("import", import),
    ("end-to-end", end_to_end),
    ("ranges", ranges),
    ("segments", segments),
    ("sizes", sizes),
    ("processes", processes),
    ("copy", copy),
    ("descriptors", descriptors),
    ("handle", handle),
    ("memory", memory),
];

const MIB: usize = 1 << 20;
const COUNTS: [usize; 4] = [1, 10, 100, 1000];
const RANGE: usize = 4096;

/// The first export of an allocation, the same again, the end of the export. The driver takes half
/// a millisecond for the first descriptor that a process opens, and for the last one that it
/// closes: so with another one open, and without.
fn export(bench: &mut Bench) -> Result<()> {
    let (driver, device) = (bench.session.driver, bench.session.device);
    let buffer = Buffer::new(driver, device, Memory::VmmFd, 64 * MIB)?;
    let beside = Buffer::new(driver, device, Memory::VmmFd, 64 * MIB)?;
    let ipc = bench.session.ipc.clone();
    export_beside(bench, &ipc, &buffer, "no other descriptor open", false)?;
    let another = raw::export(driver, beside.device_ptr())?;
    export_beside(bench, &ipc, &buffer, "another descriptor open", false)?;
    drop(another);
    // The raw calls have the keepalive descriptor beside them, too.
    let kept_alive = Ipc::with_options(driver, &IpcOptions::default().keepalive_descriptor(true))?;
    export_beside(
        bench,
        &kept_alive,
        &buffer,
        "with the keepalive descriptor",
        true,
    )
}

fn export_beside(
    bench: &Bench,
    ipc: &Ipc,
    buffer: &Buffer,
    beside: &str,
    has_target: bool,
) -> Result<()> {
    let (driver, ptr, len) = (bench.session.driver, buffer.device_ptr(), buffer.len());
    let options = ExportOptions::default();
    let [first, again, end] = bench.effort.rounds(|| {
        let (exported, first) = timed(|| buffer.export(ipc, 0, len, &options))?;
        let (more, again) = timed(|| buffer.export(ipc, 0, len, &options))?;
        drop(more);
        let end = time_of_drop(exported);
        let (exported, raw_first) = timed(|| raw::export(driver, ptr))?;
        let (_, raw_again) = timed(|| raw::look_up(driver, ptr))?;
        let raw_end = time_of_drop(exported);
        Ok([(first, raw_first), (again, raw_again), (end, raw_end)])
    })?;
    for (what, most, pairs) in [
        ("first", 3.0, first),
        ("again", 0.5, again),
        ("drop", 0.0, end),
    ] {
        let figure = format!("export {what}, {beside}");
        let added = pairs.differences();
        bench.row(&Row::new(figure.clone(), "us", pairs));
        if has_target && most > 0.0 {
            let row = Row::new(format!("{figure} (library less raw)"), "us", added);
            bench.row(&row.target(Target::AtMost(most)));
        }
    }
    Ok(())
}

/// Memory of the other process, exported by both.
struct Exported {
    handles: Vec<GpuIpcMemHandle>,
    fds: Vec<OwnedFd>,
    piece: usize,
}

impl Exported {
    /// So many pieces of that many bytes, exported as one range.
    fn new(bench: &mut Bench, memory: Memory, pieces: usize, piece: usize) -> Result<Self> {
        bench.other.allocate(memory, pieces * piece)?;
        let (_, handles) = bench.other.export(1, pieces * piece)?;
        bench.other.raw_export(pieces, piece)?;
        let numbers = 0..u32::try_from(pieces)?;
        let fds = numbers
            .map(|at| bench.client.get(at))
            .collect::<Result<_>>()?;
        Ok(Self {
            handles,
            fds,
            piece,
        })
    }

    /// Import and unmap.
    fn measure(&self, bench: &Bench) -> Result<[Pairs; 2]> {
        let (options, session) = (ImportOptions::default(), &bench.session);
        bench.effort.rounds(|| {
            let (memory, import) = timed(|| session.ipc.import(&self.handles, &options))?;
            let unmap = time_of_drop(memory);
            let (mapped, raw_import) = timed(|| raw::map(session, &self.fds, self.piece))?;
            let ((), raw_unmap) = timed(|| mapped.undo())?;
            Ok([(import, raw_import), (unmap, raw_unmap)])
        })
    }

    /// With whose pid and by which number its descriptor can be fetched.
    fn number(&self) -> Option<(u32, i32)> {
        let handle = self.handles.first()?;
        Some((handle.pid(), handle.ticket()?.fd?))
    }
}

/// An import in its parts.
fn import(bench: &mut Bench) -> Result<()> {
    let exported = Exported::new(bench, Memory::VmmFd, 1, 64 * MIB)?;
    let [import, unmap] = exported.measure(bench)?;
    let added = import.differences();
    bench.row(&Row::new(
        "import and map 64 MiB, descriptor at hand",
        "us",
        import,
    ));
    bench.row(&Row::new("unmap 64 MiB", "us", unmap).target(Target::RatioAtMost(1.05)));
    let row = Row::new(
        "broker's share of an import (library less raw)",
        "us",
        added,
    );
    bench.row(&row.target(Target::AtMost(15.0)));
    // The same with the descriptor's way in the raw calls, too: each fetches its own.
    let figure = "import and map 64 MiB, descriptor by pidfd_getfd";
    let Some((pid, number)) = exported.number() else {
        bench.row(&Row::none(
            figure,
            "skipped",
            "the exporter keeps none open",
        ));
        return Ok(());
    };
    if let Err(error) = raw::fetch(pid, number) {
        bench.row(&Row::none(figure, "skipped", &error.to_string()));
        return Ok(());
    }
    let (options, session) = (ImportOptions::default(), &bench.session);
    let [pairs] = bench.effort.rounds(|| {
        let (memory, import) = timed(|| session.ipc.import(&exported.handles, &options))?;
        drop(memory);
        let fetch_and_map = || -> Result<_> {
            Ok(raw::map(
                session,
                &[raw::fetch(pid, number)?],
                exported.piece,
            )?)
        };
        let (mapped, raw) = timed(fetch_and_map)?;
        mapped.undo()?;
        Ok([(import, raw)])
    })?;
    bench.row(&Row::new(figure, "us", pairs).target(Target::RatioAtMost(1.05)));
    Ok(())
}

/// Export, first import in another process, and both drops. The way of the handles between the
/// processes is no part of it.
fn end_to_end(bench: &mut Bench) -> Result<()> {
    const BYTES: usize = 64 * MIB;
    bench.other.allocate(Memory::VmmFd, BYTES)?;
    let (other, client, session) = (&mut bench.other, &bench.client, &bench.session);
    let options = ImportOptions::default();
    let [all] = bench.effort.rounds(|| {
        let (export, handles) = other.export(1, BYTES)?;
        let (memory, import) = timed(|| session.ipc.import(&handles, &options))?;
        let unmap = time_of_drop(memory);
        let end = other.number("revoke")?;
        let raw_export = other.raw_export(1, BYTES)?;
        let get_and_map = || -> Result<_> { Ok(raw::map(session, &[client.get(0)?], BYTES)?) };
        let (mapped, raw_import) = timed(get_and_map)?;
        let ((), raw_unmap) = timed(|| mapped.undo())?;
        let raw_end = other.number("raw-revoke")?;
        let raw = raw_export + raw_import + raw_unmap + raw_end;
        Ok([(export + import + unmap + end, raw)])
    })?;
    bench.row(&Row::new(
        "export, first import elsewhere, both drops, 64 MiB",
        "us",
        all,
    ));
    Ok(())
}

/// More ranges of one allocation. The raw calls map the allocation once more for each.
fn ranges(bench: &mut Bench) -> Result<()> {
    for count in COUNTS {
        let bytes = (RANGE * count).next_multiple_of(raw::granularity(&bench.session)?);
        bench.other.allocate(Memory::VmmFd, bytes)?;
        bench.other.raw_export(1, bytes)?;
        let fds = [bench.client.get(0)?];
        let (_, handles) = bench.other.export(count, RANGE)?;
        let (options, session) = (ImportOptions::default(), &bench.session);
        let mut held: Vec<GpuIpcMem> = Vec::with_capacity(count);
        // Those after the first, unless there is no other.
        let (first, rest) = handles.split_at(usize::from(count > 1));
        let [imports, drops] = bench.effort.rounds(|| {
            for handle in first {
                held.push(session.ipc.import(from_ref(handle), &options)?);
            }
            let start = Instant::now();
            for handle in rest {
                held.push(session.ipc.import(from_ref(handle), &options)?);
            }
            let import = micros(start.elapsed()) / rest.len() as f64;
            let start = Instant::now();
            held.truncate(first.len());
            let unmap = micros(start.elapsed()) / rest.len() as f64;
            held.clear();
            let (mapped, raw_import) = timed(|| raw::map(session, &fds, bytes))?;
            let ((), raw_unmap) = timed(|| mapped.undo())?;
            Ok([(import, raw_import), (unmap, raw_unmap)])
        })?;
        for (what, pairs) in [("import", imports), ("drop", drops)] {
            let row = match count {
                1 => Row::new(format!("{what}, the only range"), "us", pairs),
                _ => Row::new(
                    format!("{what}, each range after the first of {count}"),
                    "us",
                    pairs,
                ),
            };
            bench.row(&if count == 1000 {
                row.target(Target::AtMost(0.25))
            } else {
                row
            });
        }
    }
    Ok(())
}

/// More segments of one range, all imported by one call; times are of each segment.
fn segments(bench: &mut Bench) -> Result<()> {
    let piece = raw::granularity(&bench.session)?;
    for count in COUNTS {
        let names =
            ["import", "unmap"].map(|what| format!("{what} a range of {count} segments, each"));
        let exported = |bench: &mut Bench| Exported::new(bench, Memory::Segments, count, piece);
        measure_if_room(bench, count * piece, &names, count, exported)?;
    }
    Ok(())
}

/// Several sizes.
fn sizes(bench: &mut Bench) -> Result<()> {
    for (bytes, name) in [
        (2, "2 MiB"),
        (64, "64 MiB"),
        (1 << 10, "1 GiB"),
        (16 << 10, "16 GiB"),
    ] {
        let names = ["import and map", "unmap"].map(|what| format!("{what}, {name}"));
        let exported = |bench: &mut Bench| Exported::new(bench, Memory::VmmFd, 1, bytes * MIB);
        measure_if_room(bench, bytes * MIB, &names, 1, exported)?;
    }
    Ok(())
}

fn measure_if_room(
    bench: &mut Bench,
    bytes: usize,
    names: &[String; 2],
    count: usize,
    exported: impl FnOnce(&mut Bench) -> Result<Exported>,
) -> Result<()> {
    bench.other.free()?;
    if let Some(why) = bench.lacks_room(bytes)? {
        names
            .iter()
            .for_each(|name| bench.row(&Row::none(name, "skipped", &why)));
        return Ok(());
    }
    let measured = exported(bench)?.measure(bench)?;
    for (name, pairs) in names.iter().zip(measured) {
        bench.row(&Row::new(name.clone(), "us", pairs.divided_by(count)));
    }
    Ok(())
}

/// Several importing processes at once: imports a second, and descriptors a second when they do
/// nothing else.
fn processes(bench: &mut Bench) -> Result<()> {
    const BYTES: usize = 2 * MIB;
    const MOST: usize = 8;
    let session = &bench.session;
    let buffer = Buffer::new(session.driver, session.device, Memory::VmmFd, BYTES)?;
    let exported = buffer.export(&session.ipc, 0, BYTES, &ExportOptions::default())?;
    let (fd, _reference) = raw::export(session.driver, buffer.device_ptr())?;
    let server = Server::start()?;
    drop(server.replace(vec![fd]));
    let start = || Other::start(session.kind, session.device);
    let mut others: Vec<Other> = (0..MOST).map(|_| start()).collect::<Result<_>>()?;
    let (time, handles) = (bench.effort.slice().as_millis(), to_hex(exported.handles()));
    let mut measure = |count: usize, what: &str| -> Result<Pairs> {
        let by_library = format!("{what} {time} {handles}");
        let by_hand = format!("raw-{what} {time} {} {BYTES}", server.name);
        let others = &mut others[..count];
        let [pairs] = bench.effort.rounds(|| {
            let library = together(others, &by_library)?;
            Ok([(library, together(others, &by_hand)?)])
        })?;
        Ok(pairs)
    };
    for count in [1, 2, 4, MOST] {
        let pairs = measure(count, "import-for")?;
        let figure = format!("imports by {count} processes at once, 2 MiB");
        bench.row(&Row::new(figure, "/s", pairs));
    }
    let pairs = measure(MOST, "fetch-for")?;
    let row = Row::new("descriptors from a broker to 8 processes", "/s", pairs);
    bench.row(&row.target(Target::AtLeast(150_000.0)));
    Ok(())
}

/// From one half of an allocation to the other: the importer through its mapping, the exporter by
/// its own pointer.
fn copy(bench: &mut Bench) -> Result<()> {
    const GIB: f64 = (1_u64 << 30) as f64;
    let figure = "copy through a mapping, beside the original pointer";
    let (bytes, times) = match bench.session.kind {
        Kind::Cuda => (1 << 30, 16),
        Kind::Emulated => (16 * MIB, 2),
    };
    if let Some(why) = bench.lacks_room(bytes)? {
        bench.row(&Row::none(figure, "skipped", &why));
        return Ok(());
    }
    bench.other.allocate(Memory::VmmFd, bytes)?;
    let (_, handles) = bench.other.export(1, bytes)?;
    let session = &bench.session;
    let memory = session.ipc.import(&handles, &ImportOptions::default())?;
    let (driver, ptr, len) = (session.driver, memory.device_ptr(), memory.len());
    let (copied, other) = (Copied { driver, ptr, len }, &mut bench.other);
    let [pairs] = bench.effort.rounds(|| {
        let through_mapping = copied.rate(times)? / GIB;
        Ok([(
            through_mapping,
            other.number(&format!("copy {times}"))? / GIB,
        )])
    })?;
    bench.row(&Row::new(figure, "GiB/s", pairs).target(Target::RatioAtLeast(0.99)));
    Ok(())
}

/// A descriptor by each way: what an import takes by that way, less the raw calls that map it,
/// beside the least that passing a descriptor costs.
fn descriptors(bench: &mut Bench) -> Result<()> {
    let exported = Exported::new(bench, Memory::VmmFd, 1, 2 * MIB)?;
    let name = bench.other.server()?;
    let session = &bench.session;
    let measure = |handles: &[GpuIpcMemHandle], anew: bool, pass: &dyn Fn() -> Result<OwnedFd>| {
        let options = ImportOptions::default();
        let [pairs] = bench.effort.rounds(|| {
            if anew {
                session.ipc.close_idle_connections();
            }
            let (memory, import) = timed(|| session.ipc.import(handles, &options))?;
            drop(memory);
            let (mapped, raw) = timed(|| raw::map(session, &exported.fds, exported.piece))?;
            mapped.undo()?;
            let (_, passing) = timed(|| pass().map(drop))?;
            Ok([(import - raw, passing)])
        })?;
        Ok::<_, Box<dyn std::error::Error>>(pairs)
    };
    // As if the descriptor were made on demand: the broker must be asked.
    let handle = exported.handles.first().ok_or("no handle")?;
    let mut asking = handle.fields();
    asking.ticket.as_mut().ok_or("no broker")?.fd = None;
    let kept = measure(&[GpuIpcMemHandle::new(&asking)?], false, &|| {
        bench.client.get(0)
    })?;
    bench.row(&Row::new("descriptor by a kept connection", "us", kept));
    let anew = measure(&exported.handles, true, &|| Client::connect(&name)?.get(0))?;
    bench.row(&Row::new("descriptor by a new connection", "us", anew));
    // A broker that nobody can find: in the same network namespace a name that refuses says that
    // all is over.
    let mut lost = handle.fields();
    lost.net_namespace = 0;
    let ticket = lost.ticket.as_mut().ok_or("no broker")?;
    ticket.endpoint = Endpoint(ticket.endpoint.0.map(|byte| !byte));
    let (pid, number) = exported
        .number()
        .ok_or("the exporter keeps no descriptor open")?;
    for (figure, handles) in [
        (
            "descriptor by pidfd_getfd, exporter known",
            exported.handles.clone(),
        ),
        (
            "descriptor by pidfd_getfd, no broker in reach",
            vec![GpuIpcMemHandle::new(&lost)?],
        ),
    ] {
        bench.row(&match raw::fetch(pid, number) {
            Ok(_) => Row::new(
                figure,
                "us",
                measure(&handles, false, &|| raw::fetch(pid, number))?,
            ),
            Err(error) => Row::none(figure, "skipped", &error.to_string()),
        });
    }
    Ok(())
}

/// A handle's bytes, written and read with all checks.
fn handle(bench: &mut Bench) -> Result<()> {
    /// One alone is shorter than a look at the clock.
    const BATCH: u32 = 1000;
    bench.other.allocate(Memory::VmmFd, 2 * MIB)?;
    let (_, handles) = bench.other.export(1, 2 * MIB)?;
    let handle = handles.first().ok_or("no handle")?;
    let bytes = handle.encode();
    let nanos_each = |start: Instant| start.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH);
    let encode = bench.effort.alone(|| {
        let start = Instant::now();
        for _ in 0..BATCH {
            black_box(black_box(handle).encode());
        }
        Ok(nanos_each(start))
    })?;
    bench.row(&Row::new("encode a handle", "ns", encode).target(Target::AtMost(250.0)));
    let decode = bench.effort.alone(|| {
        let start = Instant::now();
        for _ in 0..BATCH {
            let bytes: &[u8; HANDLE_BYTES] = black_box(&bytes);
            black_box(GpuIpcMemHandle::decode(bytes)?);
        }
        Ok(nanos_each(start))
    })?;
    bench.row(&Row::new("decode a handle, all checks", "ns", decode).target(Target::AtMost(250.0)));
    Ok(())
}

/// The object of a range whose allocation is mapped, and what it holds of the heap.
fn memory(bench: &mut Bench) -> Result<()> {
    const RANGES: usize = 500;
    bench.other.allocate(Memory::VmmFd, 2 * MIB)?;
    let (_, handles) = bench.other.export(RANGES + 1, RANGE)?;
    let (options, ipc) = (ImportOptions::default(), &bench.session.ipc);
    let mut ranges = Vec::with_capacity(RANGES + 1);
    let mut before = 0;
    for (at, handle) in handles.iter().enumerate() {
        ranges.push(ipc.import(from_ref(handle), &options)?);
        if at == 0 {
            before = raw::heap();
        }
    }
    let heap = raw::heap().saturating_sub(before) as f64 / RANGES as f64;
    let each = Pairs::alone(vec![heap + size_of::<GpuIpcMem>() as f64]);
    let row = Row::new("memory of a range after the first", "B", each);
    bench.row(&row.target(Target::AtMost(128.0)));
    Ok(())
}
