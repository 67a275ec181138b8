//! `kill -9` at any moment, of either side.

use crate::{Pair, child};
use std::time::Duration;

const LEN: u64 = 2 << 20;

/// How often; a thousand times when `GPUIPC_TEST_LONG` is set.
fn rounds() -> u64 {
    if std::env::var_os("GPUIPC_TEST_LONG").is_some() {
        1000
    } else {
        60
    }
}

/// Microseconds that look random, spread over what an import takes.
fn moment(round: u64) -> Duration {
    let mixed = round.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    Duration::from_micros(mixed % 1500)
}

#[test]
fn an_exporter_killed_at_any_moment_leaves_the_importer_a_typed_answer() {
    let mut pair = Pair::new();
    let memories = gpuipc_tests::memories();
    let mut before = None;
    let (mut mapped, mut gone) = (0, 0);
    for round in 0..rounds() {
        let memory = memories[round as usize % memories.len()];
        let mut exporter = child(&pair.scratch);
        let (buffer, _) = exporter.alloc(memory, LEN);
        exporter.ok(&format!("fill {buffer} {round}"));
        let (_, handle) = exporter.export(buffer, 0, LEN);
        let bytes = gpuipc_tests::to_hex(&handle.encode());
        let answer = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(moment(round));
                exporter.kill();
            });
            pair.importer.ask(&format!("import {bytes} timeout=3000"))
        });
        let words: Vec<&str> = answer.splitn(4, ' ').collect();
        match words.as_slice() {
            ["ok", id, ..] => {
                mapped += 1;
                // A legacy mapping holds no reference; the others read on.
                if memory != "cuda-malloc" {
                    pair.importer.ok(&format!("read {id} {round} 0"));
                }
                pair.importer.ok(&format!("drop mapping {id}"));
            }
            ["err", "EXPORTER_GONE", ..] => gone += 1,
            _ => panic!("{memory}, killed after {:?}: {answer}", moment(round)),
        }
        match &before {
            // What stays of the first imports is there now.
            None if round >= 6 => before = Some(pair.importer.state()),
            None => {}
            Some(before) => pair.importer.returns_to(before),
        }
    }
    assert!(
        mapped > 0 && gone > 0,
        "the moments are not spread: {mapped} and {gone}"
    );
}

#[test]
fn an_importer_killed_at_any_moment_harms_no_exporter() {
    let mut pair = Pair::new();
    let mut handles = Vec::new();
    for memory in gpuipc_tests::memories() {
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        pair.exporter.ok(&format!("fill {buffer} 81"));
        handles.push(pair.exporter.export(buffer, 0, LEN).1);
    }
    let warm = pair.importer.import(&handles[0], "");
    pair.importer.ok(&format!("drop mapping {}", warm.id));
    let before = pair.exporter.state();
    for round in 0..rounds() {
        let handle = &handles[round as usize % handles.len()];
        let mut importer = child(&pair.scratch);
        importer.send(&format!(
            "import {}",
            gpuipc_tests::to_hex(&handle.encode())
        ));
        std::thread::sleep(moment(round));
        importer.kill();
    }
    pair.exporter.returns_to(&before);
    for handle in &handles {
        let mem = pair.importer.import(handle, "");
        pair.importer.ok(&format!("read {} 81 0", mem.id));
    }
}

#[test]
fn what_the_killed_leave_behind_is_cleaned_by_the_next_start() {
    let pair = Pair::new();
    let sockets = pair.scratch.path().join("sockets");
    let start = || {
        gpuipc_tests::TestChild::start_with(crate::PROGRAM, &pair.scratch, |command| {
            command.env("GPUIPC_SOCKET_DIR", &sockets);
        })
    };
    for round in 0..20 {
        let mut exporter = start();
        for memory in gpuipc_tests::memories() {
            let (buffer, _) = exporter.alloc(memory, LEN);
            exporter.export(buffer, 0, LEN);
        }
        std::thread::sleep(moment(round));
        exporter.kill();
    }
    drop(pair.exporter);
    drop(pair.importer);
    let mut last = start();
    let (buffer, _) = last.alloc("cuda-malloc", LEN);
    last.export(buffer, 0, LEN);
    let names = |folder: &std::path::Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("the folder").flatten();
        entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    };
    assert_eq!(names(&sockets).len(), 1, "{:?}", names(&sockets));
    // The last one's lock and its one legacy name, folders, no more.
    let left = names(pair.scratch.path());
    assert!(left.len() <= 6, "{left:?}");
}
