//! What the broker loses or is refused: it is noticed at the next export, made anew or
//! told, and costs what it gave and nothing else.

use crate::broker::connect_to;
use crate::{PROGRAM, Pair, child};
use gpuipc_core::GpuIpcMemHandle;
use gpuipc_tests::{Scratch, TestChild, by_broker_alone, skip};
use std::io::{Read as _, Write as _};
use std::time::Duration;

const LEN: u64 = 2 << 20;

/// Exports new memory, and imports it by the broker alone.
fn is_served(exporter: &mut TestChild, importer: &mut TestChild) -> GpuIpcMemHandle {
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    exporter.ok(&format!("fill {buffer} 81"));
    let (_, handle) = exporter.export(buffer, 0, LEN);
    let mem = importer.import(&by_broker_alone(&handle), "");
    importer.ok(&format!("read {} 81 0", mem.id));
    importer.ok(&format!("drop mapping {}", mem.id));
    handle
}

/// Imports it by the broker alone.
fn comes(importer: &mut TestChild, handle: &GpuIpcMemHandle) {
    let mem = importer.import(&by_broker_alone(handle), "");
    assert_eq!(mem.used, "PosixFd");
    importer.ok(&format!("drop mapping {}", mem.id));
}

#[test]
fn a_logger_that_panics_does_not_end_the_broker() {
    let mut pair = Pair::new();
    let first = is_served(&mut pair.exporter, &mut pair.importer);
    pair.exporter.ok("log panics");
    for _ in 0..3 {
        let mut stranger = connect_to(&first);
        stranger.write_all(b"nonsense").expect("sent");
        // An answer, and the end.
        let _ = stranger.read(&mut [0; 80]);
        pair.importer.ok("close-idle");
        comes(&mut pair.importer, &first);
        is_served(&mut pair.exporter, &mut pair.importer);
    }
}

/// Processor time of a process, in ticks.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there");
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_whitespace()
        .collect();
    fields[11..13]
        .iter()
        .map(|ticks| ticks.parse::<u64>().expect("a number"))
        .sum()
}

#[test]
fn a_program_that_closes_the_library_s_descriptors_exports_again() {
    for how in ["", "replace"] {
        let mut pair = Pair::new();
        pair.exporter.ok("log");
        let lost = is_served(&mut pair.exporter, &mut pair.importer);
        let closed = pair.exporter.ok(&format!("close-sockets {how}"));
        assert_ne!(closed, "0");
        // Whatever it does now, it does not do it for ever: 100 ticks are a second.
        let before = ticks(pair.exporter.pid());
        let _ = pair
            .importer
            .import_refused(&by_broker_alone(&lost), "timeout=500");
        std::thread::sleep(Duration::from_secs(1));
        assert!(ticks(pair.exporter.pid()) - before < 30);
        is_served(&mut pair.exporter, &mut pair.importer);
        let told = pair.exporter.ok("log-lines");
        assert!(told.contains("closed its descriptors"), "{told}");
        // What was exported before is exported anew.
        let (_, again) = pair.exporter.export(1, 0, LEN);
        comes(&mut pair.importer, &again);
        if how == "replace" {
            assert_eq!(pair.exporter.ok("closed-are-mine"), "true");
            pair.exporter.ok("drop-ipc");
            for export in [2, 4, 5] {
                let _ = pair.exporter.ask(&format!("drop export {export}"));
            }
            assert_eq!(pair.exporter.ok("closed-are-mine"), "true");
        }
    }
}

#[test]
fn a_name_that_was_removed_is_made_anew_by_the_next_export() {
    let unshare = std::process::Command::new("unshare")
        .args(["--net", "true"])
        .output();
    if !unshare.is_ok_and(|output| output.status.success()) {
        return skip("unshare --net does not work here");
    }
    let scratch = Scratch::new();
    let folder = scratch.path().join("sockets");
    let mut exporter = TestChild::start_with(PROGRAM, &scratch, |command| {
        command.env("GPUIPC_SOCKET_DIR", &folder);
    });
    let mut importer = TestChild::start_with("unshare", &scratch, |command| {
        command
            .args(["--net", PROGRAM])
            .env("GPUIPC_SOCKET_DIR", &folder);
    });
    let first = is_served(&mut exporter, &mut importer);
    for _ in 0..3 {
        importer.ok("close-idle");
        std::fs::remove_dir_all(&folder).expect("the folder");
        importer.import_refused(&by_broker_alone(&first), "");
        is_served(&mut exporter, &mut importer);
        // What was exported before is reached again.
        importer.ok("close-idle");
        comes(&mut importer, &first);
    }
    assert_eq!(std::fs::read_dir(&folder).expect("the folder").count(), 1);
    exporter.ok("drop-ipc");
}

#[test]
fn without_any_socket_memory_is_shared_by_what_needs_none() {
    for (call, errno) in [
        ("socket", libc::EAFNOSUPPORT),
        ("bind", libc::EACCES),
        ("pipe2", libc::EPERM),
    ] {
        let scratch = Scratch::new();
        let (mut exporter, mut importer) = (child(&scratch), child(&scratch));
        exporter.ok("log");
        exporter.ok(&format!("refuse {call} {errno}"));
        for (memory, options) in [("cuda-malloc", ""), ("vmm-fd", ""), ("vmm-fd", "on-demand")] {
            let (buffer, _) = exporter.alloc(memory, LEN);
            exporter.ok(&format!("fill {buffer} 82"));
            let (_, handles) = exporter.export_all(buffer, 0, LEN, options);
            let mem = importer.import(&handles[0], "");
            importer.ok(&format!("read {} 82 0", mem.id));
        }
        let told = exporter.ok("log-lines");
        assert!(told.contains("there is no broker"), "{told}");
        assert_eq!(told.matches("there is no broker").count(), 1, "{told}");
    }
}

#[test]
fn memory_that_nobody_could_fetch_is_not_exported() {
    let scratch = Scratch::new();
    let mut exporter = child(&scratch);
    exporter.ok(&format!("refuse socket+memfd_create {}", libc::EPERM));
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    let refused = exporter.err(&format!("export {buffer} 0 {LEN}"));
    assert_eq!(refused.status, "BROKER_START");
    assert!(refused.text.contains("socket"), "{}", refused.text);
    let (buffer, _) = exporter.alloc("cuda-malloc", LEN);
    exporter.export(buffer, 0, LEN);
}

#[test]
fn no_descriptor_of_the_library_takes_a_standard_number() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("cuda-malloc", LEN);
    pair.exporter.ok("open");
    // The next descriptor that is opened: the broker's.
    pair.exporter.ok("close-stderr");
    pair.exporter.export(buffer, 0, LEN);
    let link = pair.exporter.ok("link-of 2");
    for ours in ["socket:", "pipe:", "memfd:"] {
        assert!(!link.contains(ours), "{link}");
    }
}
