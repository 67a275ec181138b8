//! Every system call on the way, made to fail for good, as the kernel or a
//! container's filter does it.
//!
//! A filter cannot be taken away, so each cell has a process of its own that
//! has not shared anything before. Even then everything must be given back.

use crate::PROGRAM;
use crate::cells::Cells;
use crate::codes::SYSTEM_CALLS;
use crate::stage::{Kind, LARGE, LEN, OFFSET, SEED, SMALL, mapping_of, offer_of, refusal};
use gpuipc_core::GpuIpcMemHandle;
use gpuipc_tests::{Peer, Scratch, all_types, out_of_reach, to_hex};
use std::time::{Duration, Instant};

/// What an import may wait: short, since some refusals make it wait for long.
const TIMEOUT_MS: u64 = 300;

/// The longest that a step may take.
const IN_TIME: Duration = Duration::from_secs(5);

#[test]
fn exports_with_every_system_call_failing() {
    let mut cells = Cells::default();
    for kind in [Kind::CudaMalloc, Kind::VmmFd, Kind::VmmFabric] {
        let scratch = Scratch::new();
        let mut importer = Peer::start(PROGRAM, &scratch);
        for (calls, errnos) in SYSTEM_CALLS {
            for errno in *errnos {
                let name = format!("{} Export {calls}={errno}", kind.name());
                let mut exporter = Peer::start(PROGRAM, &scratch);
                let before = exporter.ok("held");
                let (buffer, _) = exporter.alloc(kind.name(), SMALL);
                exporter.ok(&format!("fill {buffer} {SEED}"));
                if exporter.ok(&format!("refuse {calls} {errno}")).is_empty() {
                    // Not on this machine.
                    continue;
                }
                cells.system(&name, || {
                    export(&mut exporter, &mut importer, buffer, &before)
                });
            }
        }
    }
    cells.end();
}

fn export(
    exporter: &mut Peer,
    importer: &mut Peer,
    buffer: u32,
    before: &str,
) -> Result<(), String> {
    let answer = in_time(exporter, &format!("export {buffer} {OFFSET} {LEN}"))?;
    if let Some((id, handle)) = offer_of(&answer) {
        look_at_import(importer, Kind::VmmFd, &handle)?;
        in_time(exporter, &format!("drop offer {id}"))?;
    } else {
        refusal(&answer).unwrap_or(Err(answer))?;
    }
    // A legacy handle's name goes with the memory.
    in_time(exporter, &format!("drop buffer {buffer}"))?;
    gives_everything_back(exporter, before)
}

#[test]
fn imports_with_every_system_call_failing() {
    let mut cells = Cells::default();
    for kind in [
        Kind::CudaMalloc,
        Kind::VmmFd,
        Kind::VmmFabric,
        Kind::AllTypes,
    ] {
        let scratch = Scratch::new();
        let mut exporter = Peer::start(PROGRAM, &scratch);
        let handle = if kind == Kind::AllTypes {
            all_types(&mut exporter, LARGE, OFFSET, LEN)
        } else {
            let (buffer, _) = exporter.alloc(kind.name(), SMALL);
            exporter.ok(&format!("fill {buffer} {SEED}"));
            exporter.export(buffer, OFFSET, LEN).1
        };
        let mut ways = vec![("Import", handle)];
        if matches!(kind, Kind::CudaMalloc | Kind::VmmFd) {
            // Around the broker.
            ways.push(("ImportByNumber", out_of_reach(&handle)));
        }
        for (way, handle) in ways {
            for (calls, errnos) in SYSTEM_CALLS {
                for errno in *errnos {
                    let name = format!("{} {way} {calls}={errno}", kind.name());
                    let mut importer = Peer::start(PROGRAM, &scratch);
                    let before = importer.ok("held");
                    if importer.ok(&format!("refuse {calls} {errno}")).is_empty() {
                        continue;
                    }
                    cells.system(&name, || {
                        look_at_import(&mut importer, kind, &handle)?;
                        gives_everything_back(&mut importer, &before)
                    });
                }
            }
        }
        // Whatever importers could not do, the exporter serves the next one.
        let mut importer = Peer::start(PROGRAM, &scratch);
        let mem = importer.import(&handle, "");
        let seed = kind.seed(&mem.used);
        importer.ok(&format!("read {} {seed} {OFFSET}", mem.id));
    }
    cells.end();
}

/// The right bytes by some type, or an error that says why not.
fn look_at_import(importer: &mut Peer, kind: Kind, handle: &GpuIpcMemHandle) -> Result<(), String> {
    let hex = to_hex(&handle.encode());
    let answer = in_time(importer, &format!("import {hex} timeout={TIMEOUT_MS}"))?;
    let Some((id, used)) = mapping_of(&answer) else {
        return refusal(&answer).unwrap_or(Err(answer)).map(drop);
    };
    let seed = kind.seed(&used);
    let read = in_time(importer, &format!("read {id} {seed} {OFFSET}"))?;
    in_time(importer, &format!("drop mapping {id}"))?;
    // Reading takes system calls itself, here.
    if read == "ok" || refusal(&read).is_some_and(|refused| refused.is_ok()) {
        Ok(())
    } else {
        Err(format!("memory by {used}: {read}"))
    }
}

fn gives_everything_back(peer: &mut Peer, before: &str) -> Result<(), String> {
    in_time(peer, "drop-ipc")?;
    let end = Instant::now() + Duration::from_secs(2);
    loop {
        let now = peer.ok("held");
        if now == before {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(format!("left behind: {now} instead of {before}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn in_time(peer: &mut Peer, line: &str) -> Result<String, String> {
    peer.ask_within(line, IN_TIME).ok_or_else(|| {
        let start: String = line.chars().take(40).collect();
        format!("no answer to {start:?} within {IN_TIME:?}")
    })
}
