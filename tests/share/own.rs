//! Imports in the process that exported: the original pointer, with what was asked for.

use crate::Pair;
use gpuipc_tests::lacks_a_second_gpu;

const LEN: u64 = 2 << 20;

#[test]
fn an_import_for_another_gpu_gives_access_or_an_error_as_deserialize_does() {
    if lacks_a_second_gpu() {
        return;
    }
    let mut pair = Pair::new();
    let exporter = &mut pair.exporter;
    for (memory, wanted) in [
        ("vmm-fd", "1"),
        ("segments", "1"),
        ("pool", "1"),
        ("cuda-malloc", "OneDeviceOnly"),
    ] {
        let (_, ptr) = exporter.alloc(memory, LEN);
        let answer = exporter.ok(&format!("export-raw {ptr} {LEN}"));
        let (_, handles) = answer.split_once(' ').expect("two words");
        let answer = exporter.ok(&format!("register {ptr} {LEN} -"));
        let (_, registered) = answer.split_once(' ').expect("two words");
        for import in [
            format!("import {handles} device=1"),
            format!("import {handles} device=0 more=1"),
            format!("deserialize {registered} device=1"),
        ] {
            let answer = exporter.ask(&import);
            let words: Vec<&str> = answer.split(' ').take(3).collect();
            if memory == "cuda-malloc" {
                assert_eq!(words[0], "err", "{answer}");
                assert!(
                    words[2].ends_with(&format!("cuMemSetAccess/{wanted}")),
                    "{answer}"
                );
                continue;
            }
            assert_eq!((words[0], words[2]), ("ok", &*ptr.to_string()), "{memory}");
            if import.starts_with("import") && !import.contains("more") {
                let device = exporter.ok(&format!("device-of {}", words[1]));
                assert_eq!(device, wanted, "{memory}");
            }
            if memory != "pool" {
                assert_eq!(exporter.ok(&format!("access-at {ptr} 1")), "3", "{memory}");
            }
        }
    }
}

#[test]
fn what_a_pointer_that_stays_where_it_is_cannot_do_is_refused() {
    let mut pair = Pair::new();
    let exporter = &mut pair.exporter;
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    let (_, handle) = exporter.export(buffer, 0, LEN);
    let answer = exporter.ok(&format!("reserve {LEN}"));
    let place = answer.split(' ').next().expect("a number").to_owned();
    for (options, reason) in [
        (format!("place={place}+0"), "CannotBePlaced"),
        ("host".to_owned(), "NotHostMemory"),
    ] {
        let attempt = format!("PosixFd/select/{reason}");
        let refused = exporter.import_refused(&handle, &options);
        assert_eq!(refused.attempts, [&*attempt]);
        let (own, types) = exporter.can_import(&[handle], &options);
        assert_eq!((own, types), (false, vec![format!("No:{attempt}")]));
    }
}

#[test]
fn its_copies_do_not_touch_what_its_owner_has_freed() {
    let mut pair = Pair::new();
    let exporter = &mut pair.exporter;
    for memory in ["vmm-fd", "segments"] {
        let (buffer, _) = exporter.alloc(memory, LEN);
        exporter.ok(&format!("fill {buffer} 21"));
        let (export, handles) = exporter.export_all(buffer, 100, LEN - 100, "");
        let mem = exporter.import_all(&handles, "");
        assert_eq!(mem.used, "SameProcess");
        exporter.ok(&format!("drop buffer {buffer}"));
        // The export keeps the memory, at no address.
        exporter.ok(&format!("read {} 21 100", mem.id));
        exporter.ok(&format!("write {} 22", mem.id));
        exporter.ok(&format!("read {} 22 0", mem.id));
        exporter.ok(&format!("drop export {export}"));
        let refused = exporter.err(&format!("read {} 22 0", mem.id));
        assert_eq!(refused.status, "UNSUPPORTED", "{}", refused.text);
    }
    // Nothing keeps these.
    for memory in ["cuda-malloc", "pool"] {
        let (buffer, _) = exporter.alloc(memory, LEN);
        let (_, handle) = exporter.export(buffer, 0, LEN);
        let mem = exporter.import(&handle, "");
        for copy in ["read", "write"] {
            let refused = exporter.err(&format!("{copy} {} 1 0", mem.id));
            assert!(
                refused.text.contains("use the original pointer"),
                "{}",
                refused.text
            );
        }
    }
}

#[test]
fn a_cancelled_import_ends_at_once_whatever_is_here_already() {
    let mut pair = Pair::new();
    for memory in ["vmm-fd", "cuda-malloc", "pool"] {
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        let (_, handle) = pair.exporter.export(buffer, 0, LEN);
        pair.importer.import(&handle, "");
        for child in [&mut pair.importer, &mut pair.exporter] {
            let refused = child.import_refused(&handle, "cancelled");
            assert_eq!(refused.status, "CANCELLED", "{memory}: {}", refused.text);
        }
    }
    let (_, ptr) = pair.exporter.alloc("vmm-fd", LEN);
    let answer = pair.exporter.ok(&format!("register {ptr} {LEN} -"));
    let (_, hex) = answer.split_once(' ').expect("two words");
    let refused = pair.exporter.err(&format!("deserialize {hex} cancelled"));
    assert_eq!(refused.status, "CANCELLED", "{}", refused.text);
}
