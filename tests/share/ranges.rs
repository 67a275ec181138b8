//! Many ranges of one allocation: one mapping, as long as one of them is in use.

use crate::Pair;
use gpuipc_core::Token;
use gpuipc_tests::{forge, lacks_a_second_gpu, on_real_gpu, skip, to_hex};

const LEN: u64 = 2 << 20;

/// The driver calls that map, by type.
const MAPPING: [(&str, &str); 2] = [
    ("vmm-fd", "cuMemMap"),
    ("cuda-malloc", "cuIpcOpenMemHandle_v2"),
];

#[test]
fn a_thousand_ranges_are_one_mapping() {
    for (memory, call) in MAPPING {
        let mut pair = Pair::new();
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        pair.exporter.ok(&format!("fill {buffer} 5"));
        let (_, whole) = pair.exporter.export(buffer, 0, LEN);
        let warm = pair.importer.import(&whole, "");
        pair.importer.ok(&format!("drop mapping {}", warm.id));
        let before = pair.importer.state();
        let calls: u64 = pair
            .importer
            .ok(&format!("calls {call}"))
            .parse()
            .expect("a number");
        let mut ranges = Vec::new();
        for index in 0..1000_u64 {
            let (_, handle) = pair.exporter.export(buffer, index * 2000, 1999);
            ranges.push(pair.importer.import(&handle, ""));
        }
        let now: u64 = pair
            .importer
            .ok(&format!("calls {call}"))
            .parse()
            .expect("a number");
        assert_eq!(now, calls + 1, "{memory}");
        let base = ranges[0].ptr;
        for (index, range) in (0_u64..).zip(&ranges) {
            assert_eq!((range.ptr, range.len), (base + index * 2000, 1999));
        }
        // Whichever goes last undoes it.
        let last = ranges.swap_remove(500);
        for range in ranges {
            pair.importer.ok(&format!("drop mapping {}", range.id));
        }
        pair.importer
            .ok(&format!("read {} 5 {}", last.id, 500 * 2000));
        pair.importer.ok(&format!("drop mapping {}", last.id));
        pair.importer.returns_to(&before);
    }
}

#[test]
fn other_rights_and_devices_are_other_mappings() {
    if lacks_a_second_gpu() {
        return;
    }
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let mut addresses = Vec::new();
    for options in [
        "device=0",
        "device=1",
        "device=0 read-only",
        "device=0 more=1",
    ] {
        let mem = pair.importer.import(&handle, options);
        assert!(!addresses.contains(&mem.ptr), "{options}");
        assert_eq!(pair.importer.import(&handle, options).ptr, mem.ptr);
        addresses.push(mem.ptr);
    }
}

#[test]
fn a_forged_handle_reaches_no_honest_mapping() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, 100);
    pair.importer.import(&handle, "");
    let without_token = forge(&handle, |fields| {
        if let Some(ticket) = &mut fields.ticket {
            ticket.token = Token::new([7; 16]);
        }
    });
    let refused = pair.importer.import_refused(&without_token, "");
    assert_eq!(refused.status, "EXPORT_REVOKED");
    let larger = forge(&handle, |fields| {
        fields.base_size *= 2;
        fields.length = 2 * LEN;
        fields.range.length = 2 * LEN;
    });
    let refused = pair.importer.import_refused(&larger, "");
    assert_eq!(refused.attempts, ["PosixFd/cuMemMap/SizeMismatch"]);
}

#[test]
fn the_order_of_types_holds_and_what_had_failed_is_not_tried_again() {
    if on_real_gpu() {
        return skip("needs a fabric");
    }
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fabric", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    pair.importer.ok("fail cuMemMap 1 801 1");
    let first = pair.importer.import(&handle, "");
    pair.importer.ok("no-faults");
    assert_eq!(first.used, "Fabric");
    assert_eq!(first.attempts, ["PosixFd/cuMemMap/SizeMismatch"]);
    let again = pair.importer.import(&handle, "");
    assert_eq!((again.ptr, &again.attempts), (first.ptr, &first.attempts));
    // Who asks for another type gets it.
    let fd = pair.importer.import(&handle, "types=PosixFd");
    assert_eq!(fd.used, "PosixFd");
    for mem in [first, again, fd] {
        pair.importer.ok(&format!("drop mapping {}", mem.id));
    }
    assert_eq!(pair.importer.import(&handle, "").used, "PosixFd");
}

#[test]
fn nobody_is_given_an_old_answer_to_whether_memory_lives() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("cuda-malloc", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let mem = pair.importer.import(&handle, "");
    pair.exporter.ok(&format!("free {buffer}"));
    for options in ["", "live"] {
        let refused = pair.importer.import_refused(&handle, options);
        assert_eq!(refused.attempts, ["RuntimeIpc/liveness/StaleMemory"]);
    }
    pair.importer.ok(&format!("drop mapping {}", mem.id));
}

#[test]
fn threads_that_ask_at_once_share_one_mapping() {
    for (memory, call) in MAPPING {
        let mut pair = Pair::new();
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        pair.exporter.ok(&format!("fill {buffer} 6"));
        let (_, handle) = pair.exporter.export(buffer, 0, LEN);
        let hex = to_hex(&handle.encode());
        let keeper = pair.importer.import(&handle, "");
        // The context of copies stays as long as the mapping.
        pair.importer.ok(&format!("read {} 6 0", keeper.id));
        let before = pair.importer.state();
        let calls = pair.importer.ok(&format!("calls {call}"));
        pair.importer.ok(&format!("threads 8 100 6 {hex}"));
        assert_eq!(pair.importer.ok(&format!("calls {call}")), calls);
        pair.importer.returns_to(&before);
        pair.importer.ok(&format!("drop mapping {}", keeper.id));
        // Nobody keeps it: made and undone again and again, never twice at once.
        pair.importer.ok(&format!("threads 8 100 6 {hex}"));
    }
}

#[test]
fn a_failure_is_its_own_askers_and_the_next_one_tries_again() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    for _ in 0..3 {
        pair.importer.ok("fail cuMemSetAccess 1 999 1");
        pair.importer.import_refused(&handle, "");
        let mem = pair.importer.import(&handle, "");
        pair.importer.ok(&format!("drop mapping {}", mem.id));
    }
}

#[test]
fn importers_that_trust_others_do_not_share_with_those_who_do_not() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let hex = to_hex(&handle.encode());
    let first = pair.importer.import(&handle, "");
    let answer = pair.importer.ok(&format!("import-trusting-all {hex}"));
    let other = answer.split(' ').nth(1).expect("an address");
    assert_ne!(other, first.ptr.to_string());
    assert_eq!(pair.importer.import(&handle, "").ptr, first.ptr);
}
