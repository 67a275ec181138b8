//! Who may go first, and what is left then.

use crate::{PROGRAM, Pair, child, end_race};
use gpuipc_tests::{Scratch, TestChild, on_real_gpu, skip, to_hex};
use std::time::{Duration, Instant};

const LEN: u64 = 2 << 20;

#[test]
fn a_live_export_keeps_vmm_memory_whatever_its_owner_frees() {
    for types in ["types=PosixFd", "types=Fabric"] {
        let mut pair = Pair::new();
        let (buffer, _) = pair.exporter.alloc("vmm-fabric", LEN);
        pair.exporter.ok(&format!("fill {buffer} 11"));
        let (_, handle) = pair.exporter.export(buffer, 0, LEN);
        pair.exporter.ok(&format!("free {buffer}"));
        let mem = pair.importer.import(&handle, types);
        pair.importer.ok(&format!("read {} 11 0", mem.id));
    }
}

#[test]
fn an_export_that_was_left_lives_until_its_memory_is_gone() {
    for memory in ["vmm-fd", "cuda-malloc", "pool"] {
        let mut pair = Pair::new();
        let (kept, _) = pair.exporter.alloc(memory, LEN);
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        pair.exporter.ok(&format!("fill {buffer} 21"));
        let (exported, handle) = pair.exporter.export(buffer, 0, LEN);
        let (again, _) = pair.exporter.export(buffer, 0, LEN);
        for id in [exported, again] {
            pair.exporter.ok(&format!("leave {id}"));
        }
        let mem = pair.importer.import(&handle, "");
        pair.importer.ok(&format!("read {} 21 0", mem.id));
        pair.importer.ok(&format!("drop mapping {}", mem.id));
        pair.exporter.ok(&format!("drop buffer {buffer}"));
        // The next export looks.
        pair.exporter.export(kept, 0, LEN);
        pair.importer.import_refused(&handle, "");
    }
}

#[test]
fn a_vmm_mapping_outlives_the_exporter() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    pair.exporter.ok(&format!("fill {buffer} 12"));
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let mem = pair.importer.import(&handle, "");
    pair.exporter.kill();
    pair.importer.ok(&format!("read {} 12 0", mem.id));
}

#[test]
fn an_importer_that_is_killed_harms_nobody() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    pair.exporter.ok(&format!("fill {buffer} 13"));
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    pair.importer.import(&handle, "");
    pair.importer.kill();
    let mut another = child(&pair.scratch);
    let mem = another.import(&handle, "");
    another.ok(&format!("read {} 13 0", mem.id));
}

#[test]
fn a_mapping_may_be_dropped_by_another_thread() {
    for memory in ["cuda-malloc", "vmm-fd"] {
        let mut pair = Pair::new();
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        let (_, handle) = pair.exporter.export(buffer, 0, LEN);
        let warm = pair.importer.import(&handle, "");
        pair.importer.ok(&format!("drop-on-thread {}", warm.id));
        let before = pair.importer.state();
        let mem = pair.importer.import(&handle, "");
        pair.importer.ok(&format!("drop-on-thread {}", mem.id));
        pair.importer.returns_to(&before);
    }
}

#[test]
fn an_export_outlives_the_ipc_that_made_it() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (export, handle) = pair.exporter.export(buffer, 0, LEN);
    pair.exporter.ok("drop-ipc");
    let mem = pair.importer.import(&handle, "");
    assert_eq!(mem.used, "PosixFd");
    pair.importer.ok(&format!("drop mapping {}", mem.id));
    pair.exporter.ok(&format!("drop export {export}"));
    assert_eq!(
        pair.importer.import_refused(&handle, "").status,
        "EXPORTER_GONE"
    );
}

/// [`Pair`], but that a call of the exporter's driver takes longer.
fn pair_with_slow(delay: &str) -> Pair {
    let scratch = Scratch::new();
    Pair {
        exporter: TestChild::start_with(PROGRAM, &scratch, |command| {
            command.env("GPUIPC_EMULATED_DELAY", delay);
        }),
        importer: child(&scratch),
        scratch,
    }
}

#[test]
fn an_export_has_ended_when_its_drop_returns_whatever_the_broker_is_doing() {
    if on_real_gpu() {
        return skip("needs a slow driver");
    }
    let Pair {
        scratch: _scratch,
        mut exporter,
        mut importer,
    } = pair_with_slow("cuPointerGetAttribute@*=200");
    let (buffer, _) = exporter.alloc("cuda-malloc", LEN);
    let (export, handle) = exporter.export(buffer, 0, LEN);
    // The broker is asked whether the memory is unchanged, and asks the driver.
    importer.send(&format!("import {}", to_hex(&handle.encode())));
    std::thread::sleep(Duration::from_millis(100));
    exporter.ok(&format!("drop export {export}"));
    let refused = exporter.import_refused(&handle, "");
    assert_eq!(refused.status, "EXPORT_REVOKED", "{}", refused.text);
    // Who asked before the drop is answered as of then.
    let answer = importer.answer("the import");
    assert!(
        answer.starts_with("ok ") || answer.contains(" EXPORT_REVOKED "),
        "{answer}"
    );
}

/// Asks for an import, and returns when the exporter's broker is making the descriptor.
fn send_import(importer: &mut TestChild, exporter: &mut TestChild, import: &str) {
    const MADE: &str = "calls cuMemExportToShareableHandle";
    let made = exporter.ok(MADE);
    importer.send(import);
    let start = Instant::now();
    while exporter.ok(MADE) == made {
        assert!(start.elapsed() < Duration::from_secs(60), "{import}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The driver's references to allocations, in a child.
fn references(child: &mut TestChild) -> String {
    let state = child.state();
    let (_, behind) = state.split_once(" handles ").expect("a count");
    behind.split(' ').next().expect("a number").to_owned()
}

#[test]
fn an_export_s_drop_does_not_wait_for_ever_for_a_driver_that_hangs() {
    if on_real_gpu() {
        return skip("needs a slow driver");
    }
    let Pair {
        scratch: _scratch,
        mut exporter,
        mut importer,
    } = pair_with_slow("cuMemExportToShareableHandle@*=10000");
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    let (export, handles) = exporter.export_all(buffer, 0, LEN, "on-demand");
    let exported = references(&mut exporter);
    let import = format!("import {} timeout=30000", to_hex(&handles[0].encode()));
    send_import(&mut importer, &mut exporter, &import);
    exporter.ok(&format!("drop export {export}"));
    // The broker is still in the call, and has the reference, which nobody releases then.
    assert_eq!(references(&mut exporter), exported);
    let refused = exporter.import_refused(&handles[0], "");
    assert_eq!(refused.status, "EXPORT_REVOKED", "{}", refused.text);
    let answer = importer.answer(&import);
    assert!(answer.starts_with("ok "), "{answer}");
    exporter.ok(&format!("drop buffer {buffer}"));
    assert_eq!(references(&mut exporter), exported);
}

#[test]
fn an_export_s_drop_releases_the_driver_s_reference_though_the_broker_uses_it() {
    if on_real_gpu() {
        return skip("needs a slow driver");
    }
    let Pair {
        scratch: _scratch,
        mut exporter,
        mut importer,
    } = pair_with_slow("cuMemExportToShareableHandle@*=300");
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    let before = references(&mut exporter);
    let (export, handles) = exporter.export_all(buffer, 0, LEN, "on-demand");
    assert_ne!(references(&mut exporter), before, "no reference is kept");
    let import = format!("import {}", to_hex(&handles[0].encode()));
    send_import(&mut importer, &mut exporter, &import);
    exporter.ok(&format!("drop export {export}"));
    assert_eq!(references(&mut exporter), before);
    let answer = importer.answer(&import);
    assert!(answer.starts_with("ok "), "{answer}");
}

#[test]
fn memory_may_be_unmapped_as_soon_as_its_export_has_ended_whoever_is_asking() {
    let scratch = Scratch::new();
    let mut exporter = child(&scratch);
    let file = scratch.path().join("handle");
    let file = file.to_str().expect("a plain path");
    // CUDA takes seconds to start in each process.
    let milliseconds = if on_real_gpu() { 20_000 } else { 3000 };
    let fleeting = format!("fleeting {file} 96");
    let chase = format!("chase {file} 96 {milliseconds} 1");
    let mut importers = [(); 2].map(|()| child(&scratch));
    // For its own copies.
    exporter.ok("context 0");
    exporter.send(&fleeting);
    for importer in &mut importers {
        importer.send(&chase);
    }
    let mut right = 0;
    for importer in &mut importers {
        let answer = importer.answer(&chase);
        println!("right and refused: {answer}");
        let mut counts = answer.split(' ').skip(1).map(str::parse::<u64>);
        right += counts.next().expect("a count").expect("a number");
    }
    assert!(right > 0, "no race");
    end_race(file);
    let answer = exporter.answer(&fleeting);
    println!("rounds: {answer}");
    assert!(answer.starts_with("ok "), "{answer}");
}

#[test]
fn the_last_export_and_ipc_end_the_broker_and_its_names() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let before = pair.exporter.state();
    for _ in 0..20 {
        let (export, _) = pair.exporter.export(buffer, 0, LEN);
        pair.exporter.ok("drop-ipc");
        pair.exporter.ok(&format!("drop export {export}"));
        pair.exporter.returns_to(&before);
    }
}

#[test]
fn a_forked_child_is_refused_and_takes_nothing_from_its_parent() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (legacy, _) = pair.exporter.alloc("cuda-malloc", LEN);
    pair.exporter.ok(&format!("fill {buffer} 14"));
    pair.exporter.ok(&format!("fill {legacy} 15"));
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let (_, by_legacy) = pair.exporter.export(legacy, 0, LEN);
    // The exporter maps memory of the importer, too, so that a mapping is inherited.
    let (theirs, _) = pair.importer.alloc("vmm-fd", LEN);
    let (_, their_handle) = pair.importer.export(theirs, 0, LEN);
    pair.exporter.import(&their_handle, "");
    assert_eq!(pair.exporter.ok("fork"), "FORKED dropped status=0");
    // Parent and broker are as they were.
    let mem = pair.importer.import(&handle, "");
    pair.importer.ok(&format!("read {} 14 0", mem.id));
    let mem = pair.importer.import(&by_legacy, "");
    pair.importer.ok(&format!("read {} 15 0", mem.id));
}

#[test]
fn a_dead_exporter_is_seen_behind_a_forked_child_that_lives_on() {
    for memory in ["cuda-malloc", "vmm-fd"] {
        let mut pair = Pair::new();
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        let (_, handle) = pair.exporter.export(buffer, 0, LEN);
        let child = pair.exporter.ok("fork-stay");
        let child = rustix::process::Pid::from_raw(child.parse().expect("a pid")).expect("a pid");
        pair.exporter.kill();
        let start = Instant::now();
        let refused = pair.importer.import_refused(&handle, "timeout=45000");
        assert_eq!(refused.status, "EXPORTER_GONE", "{memory}: {refused:?}");
        assert!(
            start.elapsed() < Duration::from_secs(40),
            "it waited for the deadline"
        );
        rustix::process::kill_process(child, rustix::process::Signal::KILL)
            .expect("the child is there");
    }
}

#[test]
fn a_keepalive_descriptor_goes_with_its_ipc_and_is_missed_by_nobody() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let before = pair.exporter.state();
    pair.exporter.ok("keepalive-ipc");
    assert_ne!(pair.exporter.state(), before);
    let (export, handle) = pair.exporter.export(buffer, 0, LEN);
    let mem = pair.importer.import(&handle, "");
    pair.importer.ok(&format!("drop mapping {}", mem.id));
    pair.exporter.ok(&format!("drop export {export}"));
    pair.exporter.ok("drop-ipc");
    pair.exporter.returns_to(&before);
    // Where there can be none, everything else works.
    for call in ["cuMemCreate", "cuMemExportToShareableHandle"] {
        pair.exporter.ok(&format!("fail {call} 1 801 1"));
        pair.exporter.ok("keepalive-ipc");
        pair.exporter.ok("no-faults");
        let (export, handle) = pair.exporter.export(buffer, 0, LEN);
        let mem = pair.importer.import(&handle, "");
        pair.importer.ok(&format!("drop mapping {}", mem.id));
        pair.exporter.ok(&format!("drop export {export}"));
        pair.exporter.ok("drop-ipc");
        pair.exporter.returns_to(&before);
    }
}
