//! What goes wrong in the middle of an import of many segments, and between
//! importers in one process.

use crate::{PROGRAM, child};
use gpuipc_core::GpuIpcMemHandle;
use gpuipc_tests::{Scratch, TestChild, on_real_gpu, skip, to_hex};
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

/// The least granularity.
const PIECE: u64 = 64 << 10;
const PIECES: u64 = 48;
const LEN: u64 = PIECES * PIECE;
/// More than an import takes beside its waits.
const SLACK: Duration = Duration::from_secs(3);

fn exporter(scratch: &Scratch, options: &str) -> (TestChild, Vec<GpuIpcMemHandle>) {
    let mut exporter = TestChild::start_with(PROGRAM, scratch, |command| {
        command.env("GPUIPC_EMULATED_GRANULARITY", PIECE.to_string());
    });
    let (buffer, _) = exporter.alloc("segments", LEN);
    exporter.ok(&format!("fill {buffer} 21"));
    let (_, handles) = exporter.export_all(buffer, 0, LEN, options);
    assert_eq!(handles.len() as u64, PIECES);
    (exporter, handles)
}

fn importer(scratch: &Scratch) -> TestChild {
    TestChild::start_with(PROGRAM, scratch, |command| {
        command.env("GPUIPC_EMULATED_GRANULARITY", PIECE.to_string());
    })
}

fn words(handles: &[GpuIpcMemHandle]) -> String {
    let words: Vec<String> = handles
        .iter()
        .map(|handle| to_hex(&handle.encode()))
        .collect();
    words.join(",")
}

/// The segment at which an import failed.
fn segment_of(answer: &str) -> Option<u64> {
    let (_, rest) = answer.split_once("of segment ")?;
    rest.split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

/// A warm importer: one that has imported before, and what it holds.
fn warm(scratch: &Scratch) -> (TestChild, String) {
    let (_exporter, handles) = exporter(scratch, "");
    let mut importer = importer(scratch);
    let mem = importer.import_all(&handles, "");
    importer.ok(&format!("drop mapping {}", mem.id));
    let before = importer.state();
    (importer, before)
}

#[test]
fn an_exporter_killed_in_the_middle_of_many_segments_leaves_none_of_them() {
    if on_real_gpu() {
        return skip("needs the emulated driver's own mapping calls");
    }
    let scratch = Scratch::new();
    let (mut importer, before) = warm(&scratch);
    for options in ["", "on-demand"] {
        // Before the call that maps this segment, counted from 1.
        for at in [1, 2, 3, 17, PIECES - 2, PIECES - 1, PIECES] {
            let (mut exporter, handles) = exporter(&scratch, options);
            importer.ok(&format!("at cuMemMap {at} kill {}", exporter.pid()));
            let answer = importer.ask(&format!("import {}", words(&handles)));
            match answer.split(' ').collect::<Vec<_>>()[..] {
                // All of it, which then lives without its exporter: the last descriptor
                // was there, or the broker had sent it.
                ["ok", id, ..] if at >= PIECES - 1 => {
                    importer.ok(&format!("read {id} 21 0"));
                    importer.ok(&format!("drop mapping {id}"));
                }
                // The next one's at the latest: one descriptor may be on its way.
                ["err", "EXPORTER_GONE", ..] if at < PIECES => {
                    let failed = segment_of(&answer).unwrap_or_default();
                    assert!((at..=at + 1).contains(&failed), "killed at {at}: {answer}");
                }
                _ => panic!("killed at {at}: {answer}"),
            }
            importer.returns_to(&before);
            exporter.kill();
        }
    }
}

#[test]
fn the_deadline_holds_when_the_exporter_stops_in_the_middle_of_many_segments() {
    if on_real_gpu() {
        return skip("needs the emulated driver's own mapping calls");
    }
    let scratch = Scratch::new();
    let (mut importer, before) = warm(&scratch);
    let timeout = Duration::from_millis(1000);
    for (options, at) in [("on-demand", 1), ("on-demand", PIECES / 2), ("", 1)] {
        let (exporter, handles) = exporter(&scratch, options);
        importer.ok(&format!("at cuMemMap {at} stop {}", exporter.pid()));
        let start = Instant::now();
        let answer = importer.ask(&format!("import {} timeout=1000", words(&handles)));
        let took = start.elapsed();
        assert!(took < timeout + SLACK, "took {took:?}");
        match answer.split(' ').collect::<Vec<_>>()[..] {
            // Without its broker, by the descriptors' numbers.
            ["ok", id, ..] if options.is_empty() => {
                importer.ok(&format!("read {id} 21 0"));
                importer.ok(&format!("drop mapping {id}"));
            }
            ["err", "TIMED_OUT", "PosixFd/broker-request/TimedOut", ..] if !options.is_empty() => {
                assert!(segment_of(&answer) >= Some(at), "stopped at {at}: {answer}");
            }
            _ => panic!("stopped at {at}: {answer}"),
        }
        importer.returns_to(&before);
        let pid = i32::try_from(exporter.pid()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a pid"), Signal::CONT).expect("it runs");
        let mem = importer.import_all(&handles, "");
        importer.ok(&format!("drop mapping {}", mem.id));
        importer.returns_to(&before);
    }
}

#[test]
fn importers_of_two_pointers_of_one_pool_race_with_their_drops() {
    let scratch = Scratch::new();
    let mut exporter = child(&scratch);
    let (first, _) = exporter.alloc("pool", LEN);
    let answer = exporter.ok(&format!("alloc-beside {first} {LEN}"));
    let second = answer.split(' ').next().expect("a number");
    exporter.ok(&format!("fill {first} 22"));
    exporter.ok(&format!("fill {second} 23"));
    let second = second.parse().expect("a number");
    let handles = [first, second].map(|buffer| exporter.export(buffer, 0, LEN).1);
    let mut importer = TestChild::start_with(PROGRAM, &scratch, |command| {
        // So that others come in the middle of each end.
        command.env(
            "GPUIPC_EMULATED_DELAY",
            "cuMemPoolDestroy@*=1,cuMemFree_v2@*=1",
        );
    });
    let warm = importer.import(&handles[0], "");
    importer.ok(&format!("drop mapping {}", warm.id));
    let before = importer.state();
    let [a, b] = handles.map(|handle| words(&[handle]));
    importer.ok(&format!("threads 6 40 22/23 {a}/{b}"));
    importer.returns_to(&before);
}

#[test]
fn a_forked_child_s_drops_do_nothing_to_the_importer_s_pools_and_segments() {
    let scratch = Scratch::new();
    let (mut exporter, segments) = exporter(&scratch, "");
    let (pool, _) = exporter.alloc("pool", LEN);
    exporter.ok(&format!("fill {pool} 24"));
    let (_, pooled) = exporter.export(pool, 0, LEN);
    let mut importer = importer(&scratch);
    let one = importer.import_all(&segments, "");
    let two = importer.import(&pooled, "");
    // The importer's first: it closes its kept connection, which the exporter has, too.
    let importers = importer.state();
    let before = (exporter.state(), importers);
    for _ in 0..3 {
        assert_eq!(importer.ok("fork"), "FORKED dropped status=0");
    }
    importer.returns_to(&before.1);
    exporter.returns_to(&before.0);
    importer.ok(&format!("read {} 21 0", one.id));
    importer.ok(&format!("read {} 24 0", two.id));
    // The pool is not the child's to have ended: another import finds it.
    let again = importer.import(&pooled, "");
    assert_eq!(again.ptr, two.ptr);
    for id in [one.id, two.id, again.id] {
        importer.ok(&format!("drop mapping {id}"));
    }
}

#[test]
fn a_legacy_mapping_is_closed_though_the_driver_does_not_say_which_context_is_current() {
    let scratch = Scratch::new();
    let mut exporter = child(&scratch);
    let (buffer, _) = exporter.alloc("cuda-malloc", LEN);
    exporter.ok(&format!("fill {buffer} 25"));
    let (_, handle) = exporter.export(buffer, 0, LEN);
    let mut importer = child(&scratch);
    // Keeps the primary context in use, with which all that is left in it would go.
    importer.alloc("cuda-malloc", 1);
    let warm = importer.import(&handle, "");
    importer.ok(&format!("drop mapping {}", warm.id));
    let before = importer.state();
    let mem = importer.import(&handle, "");
    importer.ok(&format!("fail cuCtxGetCurrent 1 999 {}", u32::MAX));
    importer.ok(&format!("drop mapping {}", mem.id));
    importer.ok("no-faults");
    importer.returns_to(&before);
}
