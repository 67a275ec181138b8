//! Every system call on the way, made to fail for good, as the kernel or a
//! container's filter does it.
//!
//! A filter cannot be taken away, so each cell has a process of its own that
//! has not shared anything before. Even then everything must be given back.

use crate::cells::Cells;
use crate::codes::SYSTEM_CALLS;
use crate::stage::{
    Kind, LARGE, LEN, OFFSET, SEED, export_of, mapping_of, read_line, refusal, start,
};
use gpuipc_core::GpuIpcMemHandle;
use gpuipc_tests::{Scratch, TestChild, all_types, out_of_reach, to_hex};
use std::time::{Duration, Instant};

/// What an import may wait: short, since some refusals make it wait for long.
const TIMEOUT_MS: u64 = 300;

/// The longest that a step may take.
const IN_TIME: Duration = Duration::from_secs(5);

#[test]
fn exports_with_every_system_call_failing() {
    let kinds = [
        Kind::CudaMalloc,
        Kind::VmmFd,
        Kind::VmmFabric,
        Kind::Segments,
        Kind::Pool,
        Kind::HostNuma,
    ];
    let cells = Cells::of_each(kinds, |kind, cells| {
        let scratch = Scratch::new();
        let mut importer = start(&scratch);
        for (calls, errno) in all_calls() {
            let name = format!("{} Export {calls}={errno}", kind.name());
            let mut exporter = start(&scratch);
            let before = exporter.ok("held");
            let buffer = filled(&mut exporter, kind);
            if exporter.ok(&format!("refuse {calls} {errno}")).is_empty() {
                // Not on this machine.
                continue;
            }
            cells.system(&name, || {
                export(&mut exporter, &mut importer, kind, buffer, &before)
            });
        }
    });
    cells.end();
}

/// Every system call with every answer.
fn all_calls() -> impl Iterator<Item = (&'static str, i32)> {
    let each = |(calls, errnos): &(&'static str, &'static [i32])| {
        let calls = *calls;
        errnos.iter().map(move |errno| (calls, *errno))
    };
    SYSTEM_CALLS.iter().flat_map(each)
}

/// The number of filled memory.
fn filled(exporter: &mut TestChild, kind: Kind) -> u32 {
    let (buffer, _) = exporter.alloc(kind.name(), kind.size());
    exporter.ok(&format!("fill {buffer} {SEED}"));
    buffer
}

fn export(
    exporter: &mut TestChild,
    importer: &mut TestChild,
    kind: Kind,
    buffer: u32,
    before: &str,
) -> Result<(), String> {
    let len = kind.len();
    let answer = in_time(exporter, &format!("export {buffer} {OFFSET} {len}"))?;
    if let Some((id, handles)) = export_of(&answer) {
        look_at_import(importer, kind, &handles)?;
        in_time(exporter, &format!("drop export {id}"))?;
    } else {
        refusal(&answer).unwrap_or(Err(answer))?;
    }
    // A legacy handle's name goes with the memory.
    in_time(exporter, &format!("drop buffer {buffer}"))?;
    gives_everything_back(exporter, before)
}

/// In the exporter, from the export on: in its broker's thread while an importer
/// asks.
#[test]
fn answers_with_every_system_call_failing() {
    let kinds = [
        (Kind::CudaMalloc, ""),
        (Kind::VmmFd, ""),
        (Kind::VmmFabric, "on-demand"),
        (Kind::Segments, "on-demand"),
        (Kind::Pool, ""),
    ];
    let cells = Cells::of_each(kinds, |(kind, demand), cells| {
        let scratch = Scratch::new();
        let mut importer = start(&scratch);
        for (calls, errno) in all_calls() {
            let name = format!("{} Answer {demand} {calls}={errno}", kind.name());
            let mut exporter = start(&scratch);
            let before = exporter.ok("held");
            let buffer = filled(&mut exporter, kind);
            let (export, handles) = exporter.export_all(buffer, OFFSET, kind.len(), demand);
            if exporter.ok(&format!("refuse {calls} {errno}")).is_empty() {
                continue;
            }
            cells.system(&name, || {
                look_at_import(&mut importer, kind, &handles)?;
                in_time(&mut exporter, &format!("drop export {export}"))?;
                in_time(&mut exporter, &format!("drop buffer {buffer}"))?;
                gives_everything_back(&mut exporter, &before)
            });
        }
    });
    cells.end();
}

#[test]
fn imports_with_every_system_call_failing() {
    let kinds = [
        Kind::CudaMalloc,
        Kind::VmmFd,
        Kind::VmmFabric,
        Kind::AllTypes,
        Kind::Segments,
        Kind::Pool,
        Kind::HostNuma,
    ];
    let cells = Cells::of_each(kinds, |kind, cells| {
        let scratch = Scratch::new();
        let mut exporter = start(&scratch);
        let handles = if kind == Kind::AllTypes {
            vec![all_types(&mut exporter, LARGE, OFFSET, LEN)]
        } else {
            let buffer = filled(&mut exporter, kind);
            exporter.export_all(buffer, OFFSET, kind.len(), "").1
        };
        let mut ways = vec![("Import", handles.clone())];
        if !matches!(kind, Kind::VmmFabric | Kind::AllTypes) {
            // Around the broker.
            ways.push(("ImportByNumber", handles.iter().map(out_of_reach).collect()));
        }
        for (way, handles) in ways {
            for (calls, errno) in all_calls() {
                let name = format!("{} {way} {calls}={errno}", kind.name());
                let mut importer = start(&scratch);
                let before = importer.ok("held");
                if importer.ok(&format!("refuse {calls} {errno}")).is_empty() {
                    continue;
                }
                cells.system(&name, || {
                    look_at_import(&mut importer, kind, &handles)?;
                    gives_everything_back(&mut importer, &before)
                });
            }
        }
        // Whatever importers could not do, the exporter serves the next one.
        let mut importer = start(&scratch);
        let mem = importer.import_all(&handles, "");
        importer.ok(&read_line(kind, mem.id, &mem.used));
    });
    cells.end();
}

/// The right bytes by some type, or an error that says why not.
fn look_at_import(
    importer: &mut TestChild,
    kind: Kind,
    handles: &[GpuIpcMemHandle],
) -> Result<(), String> {
    let hex: Vec<String> = handles
        .iter()
        .map(|handle| to_hex(&handle.encode()))
        .collect();
    let hex = hex.join(",");
    let answer = in_time(importer, &format!("import {hex} timeout={TIMEOUT_MS}"))?;
    let Some((id, used)) = mapping_of(&answer) else {
        return refusal(&answer).unwrap_or(Err(answer)).map(drop);
    };
    let read = in_time(importer, &read_line(kind, id, &used))?;
    in_time(importer, &format!("drop mapping {id}"))?;
    // Reading takes system calls itself, here.
    if read == "ok" || refusal(&read).is_some_and(|refused| refused.is_ok()) {
        Ok(())
    } else {
        Err(format!("memory by {used}: {read}"))
    }
}

fn gives_everything_back(child: &mut TestChild, before: &str) -> Result<(), String> {
    in_time(child, "drop-ipc")?;
    let end = Instant::now() + Duration::from_secs(2);
    loop {
        let now = child.ok("held");
        if now == before {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(format!("left behind: {now} instead of {before}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn in_time(child: &mut TestChild, line: &str) -> Result<String, String> {
    child.ask_within(line, IN_TIME).ok_or_else(|| {
        let start: String = line.chars().take(40).collect();
        format!("no answer to {start:?} within {IN_TIME:?}")
    })
}
