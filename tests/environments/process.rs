//! A process that forks, that has little room, that ends.

use crate::PROGRAM;
use gpuipc_tests::{Scratch, TestChild};

const LEN: u64 = 4096;

/// An exporter that was refused these calls before it used the library, and its buffer.
fn exporter(scratch: &Scratch, refused: &str) -> (TestChild, u32) {
    let mut child = TestChild::start(PROGRAM, scratch);
    if !refused.is_empty() {
        child.ok(&format!("refuse {refused}"));
    }
    let (buffer, _) = child.alloc("vmm-fd", LEN);
    child.ok(&format!("fill {buffer} 34"));
    (child, buffer)
}

#[test]
fn a_forked_child_is_known_with_and_without_pages_that_the_kernel_wipes() {
    for refused in [
        "",
        &format!("wipe-on-fork {}", libc::EINVAL),
        &format!("madvise {}", libc::ENOSYS),
    ] {
        let scratch = Scratch::new();
        let (mut child, buffer) = exporter(&scratch, refused);
        let (_, handle) = child.export(buffer, 0, LEN);
        assert_eq!(child.ok("fork"), "FORKED dropped status=0", "{refused}");
        // And takes nothing from its parent.
        let mut importer = TestChild::start(PROGRAM, &scratch);
        let mem = importer.import(&handle, "");
        importer.ok(&format!("read {} 34 0", mem.id));
        // Nor does a parent that forks pass for a child.
        child.export(buffer, 0, LEN);
    }
}

#[test]
fn six_free_descriptors_are_enough_and_fewer_are_an_error() {
    for room in 0..12 {
        let scratch = Scratch::new();
        let (mut child, buffer) = exporter(&scratch, "");
        child.ok("nofile 64");
        child.ok(&format!("room {room}"));
        let answer = child.ask(&format!("export {buffer} 0 {LEN}"));
        let exported = answer
            .strip_prefix("ok ")
            .and_then(|rest| rest.split(' ').nth(1));
        let came = exported.map(|hex| {
            let mut importer = TestChild::start(PROGRAM, &scratch);
            importer.ask(&format!("import {hex} timeout=300"))
        });
        let came = came.unwrap_or(answer);
        assert!(
            came.starts_with("ok ") || came.starts_with("err "),
            "{room}: {came}"
        );
        assert!(came.starts_with("ok ") || room < 6, "{room}: {came}");
    }
}

#[test]
fn what_a_destroyed_context_took_back_is_no_warning() {
    let scratch = Scratch::new();
    let (mut child, buffer) = exporter(&scratch, "");
    let (_, handle) = child.export(buffer, 0, LEN);
    let mut importer = TestChild::start(PROGRAM, &scratch);
    let mem = importer.import(&handle, "");
    importer.ok("log");
    for symbol in ["cuMemUnmap", "cuMemAddressFree"] {
        importer.ok(&format!("fail {symbol} 1 709 1000"));
    }
    importer.ok(&format!("drop mapping {}", mem.id));
    assert_eq!(importer.ok("log-lines"), "");
    // Any other failure is one.
    importer.ok("no-faults");
    let mem = importer.import(&handle, "");
    importer.ok("fail cuMemUnmap 1 999 1");
    importer.ok(&format!("drop mapping {}", mem.id));
    let told = importer.ok("log-lines");
    assert!(told.contains("undo: cuMemUnmap"), "{told}");
}
