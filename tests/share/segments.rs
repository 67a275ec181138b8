//! Ranges over several allocations: all of it at one address, or nothing.

use crate::{PROGRAM, Pair, child};
use gpuipc_core::{GpuIpcMemHandle, HandleType};
use gpuipc_tests::{Scratch, TestChild, forge, on_real_gpu, skip};

const PIECE: u64 = 2 << 20;

/// Memory of `pieces` pieces, filled, and the handles of a part of it.
fn share(pair: &mut Pair, pieces: u64, offset: u64, len: u64) -> (u32, Vec<GpuIpcMemHandle>) {
    let (buffer, _) = pair.exporter.alloc("segments", pieces * PIECE);
    pair.exporter.ok(&format!("fill {buffer} 31"));
    let (_, handles) = pair.exporter.export_all(buffer, offset, len, "");
    (buffer, handles)
}

#[test]
fn a_range_over_a_seam_is_one_contiguous_address() {
    let mut pair = Pair::new();
    let (offset, len) = (PIECE - 1000, 3000);
    let (buffer, handles) = share(&mut pair, 2, offset, len);
    let [first, second] = &handles[..] else {
        panic!("{} handles", handles.len())
    };
    assert_eq!((first.offset_from_base(), first.length()), (offset, 1000));
    assert_eq!((second.offset_from_base(), second.length()), (0, 2000));
    assert_eq!(first.range().length, len);
    assert_eq!(
        (second.range().offset, second.range().segment_index),
        (1000, 1)
    );
    let mem = pair.importer.import_all(&handles, "");
    assert_eq!((mem.used.as_str(), mem.len), ("PosixFd", len));
    pair.importer.ok(&format!("read {} 31 {offset}", mem.id));
    pair.importer.ok(&format!("write {} 32", mem.id));
    // What lies outside the range is as it was.
    pair.exporter.ok(&format!("check {buffer} 31 0 {offset}"));
    let behind = offset + len;
    pair.exporter.ok(&format!(
        "check {buffer} 31 {behind} {}",
        2 * PIECE - behind
    ));
}

#[test]
fn a_range_inside_one_piece_is_one_handle() {
    let mut pair = Pair::new();
    let (_, handles) = share(&mut pair, 4, PIECE + 10, 20);
    assert_eq!(handles.len(), 1);
    assert_eq!(handles[0].base_size(), PIECE);
    let mem = pair.importer.import_all(&handles, "");
    pair.importer
        .ok(&format!("read {} 31 {}", mem.id, PIECE + 10));
}

#[test]
fn segments_come_in_any_order() {
    let mut pair = Pair::new();
    let (_, mut handles) = share(&mut pair, 7, 100, 7 * PIECE - 200);
    handles.reverse();
    handles.swap(1, 4);
    let mem = pair.importer.import_all(&handles, "");
    pair.importer.ok(&format!("read {} 31 100", mem.id));
}

#[test]
fn missing_doubled_and_foreign_segments_are_refused_by_name() {
    let mut pair = Pair::new();
    let (buffer, handles) = share(&mut pair, 3, 0, 3 * PIECE);
    let (_, others) = pair.exporter.export_all(buffer, 0, 3 * PIECE, "");
    let before = pair.importer.state();
    let [a, b, c] = &handles[..] else {
        panic!("three segments")
    };
    for (given, words) in [
        (vec![a, b], "segment 2 of 3 is missing"),
        (vec![c], "segment 0 of 3 is missing"),
        (vec![a, b, b, c], "position 2 is a second one for segment 1"),
        (
            vec![a, &others[1], c],
            "position 1 is of another range than the first one (range_id differs)",
        ),
    ] {
        let given: Vec<_> = given.into_iter().cloned().collect();
        let refused = pair.importer.import_all_refused(&given, "");
        assert_eq!(refused.status, "NOT_ONE_RANGE");
        assert!(refused.text.contains(words), "{}", refused.text);
    }
    pair.importer.returns_to(&before);
}

#[test]
fn a_segment_that_would_leave_a_gap_is_refused() {
    let mut pair = Pair::new();
    let (_, mut handles) = share(&mut pair, 3, 0, 3 * PIECE);
    handles[1] = forge(&handles[1], |fields| fields.base_size *= 2);
    let refused = pair.importer.import_all_refused(&handles, "");
    assert_eq!(refused.status, "NOT_ONE_RANGE");
    assert!(refused.text.contains("base_size"), "{}", refused.text);
}

#[test]
fn every_fault_in_the_chain_undoes_all_segments() {
    let mut pair = Pair::new();
    let (_, handles) = share(&mut pair, 5, 0, 5 * PIECE);
    let warm = pair.importer.import_all(&handles, "");
    pair.importer.ok(&format!("drop mapping {}", warm.id));
    let before = pair.importer.state();
    for (call, uses, code, reason) in [
        (
            "cuMemImportFromShareableHandle",
            5,
            999,
            "NotCudaDescriptor",
        ),
        ("cuMemAddressReserve", 1, 2, "OutOfMemory"),
        ("cuMemMap", 5, 801, "SizeMismatch"),
        ("cuMemSetAccess", 1, 217, "PeerUnsupported"),
        ("cuPointerGetAttribute", 5, 999, "Driver"),
    ] {
        for nth in 1..=uses {
            pair.importer.ok(&format!("fail {call} {nth} {code} 1"));
            let refused = pair.importer.import_all_refused(&handles, "");
            pair.importer.ok("no-faults");
            assert_eq!(refused.status, "NO_TYPE_WORKED");
            let step = match call {
                "cuPointerGetAttribute" => "compare",
                call => call,
            };
            assert_eq!(refused.attempts, [format!("PosixFd/{step}/{reason}")]);
            if uses > 1 {
                let words = format!("of segment {}", nth - 1);
                assert!(refused.text.contains(&words), "{}", refused.text);
            }
            pair.importer.returns_to(&before);
        }
    }
    let mem = pair.importer.import_all(&handles, "");
    pair.importer.ok(&format!("read {} 31 0", mem.id));
}

#[test]
fn a_revoked_segment_undoes_all() {
    let mut pair = Pair::new();
    let (_, mut handles) = share(&mut pair, 3, 0, 3 * PIECE);
    let before = pair.importer.state();
    handles[2] = forge(&handles[2], |fields| {
        if let Some(ticket) = &mut fields.ticket {
            ticket.token = gpuipc_core::Token::new([9; 16]);
        }
    });
    let refused = pair.importer.import_all_refused(&handles, "");
    assert_eq!(refused.status, "EXPORT_REVOKED");
    assert!(refused.text.contains("of segment 2"), "{}", refused.text);
    pair.importer.returns_to(&before);
}

#[test]
fn the_same_process_gets_the_original_address_of_all_segments() {
    let mut pair = Pair::new();
    let (buffer, ptr) = pair.exporter.alloc("segments", 3 * PIECE);
    let (_, handles) = pair.exporter.export_all(buffer, 500, 3 * PIECE - 500, "");
    let mem = pair.exporter.import_all(&handles, "");
    assert_eq!((mem.used.as_str(), mem.ptr), ("SameProcess", ptr + 500));
}

#[test]
fn what_lies_behind_the_last_piece_is_not_exported() {
    let mut pair = Pair::new();
    let (_, ptr) = pair.exporter.alloc("segments", 2 * PIECE);
    for len in [2 * PIECE + 1, 3 * PIECE] {
        let refused = pair.exporter.err(&format!("export-raw {ptr} {len}"));
        assert_eq!(refused.status, "NOT_EXPORTABLE");
        assert!(refused.text.contains("beyond"), "{}", refused.text);
    }
    // Legacy memory is one allocation.
    let (_, ptr) = pair.exporter.alloc("cuda-malloc", PIECE);
    let refused = pair
        .exporter
        .err(&format!("export-raw {ptr} {}", PIECE + 1));
    assert!(refused.text.contains("beyond"), "{}", refused.text);
}

#[test]
fn a_range_over_segments_goes_by_fabric_too() {
    if on_real_gpu() {
        return skip("needs a fabric");
    }
    let mut pair = Pair::new();
    let (a, _) = pair.exporter.alloc("vmm-fabric", PIECE);
    let (_, handle) = pair.exporter.export(a, 0, PIECE);
    assert!(handle.types().types().contains(&HandleType::Fabric));
    // Two allocations of their own, as one range: what only a forger does, and
    // harms nobody.
    let (b, _) = pair.exporter.alloc("vmm-fabric", PIECE);
    pair.exporter.ok(&format!("fill {a} 41"));
    pair.exporter.ok(&format!("fill {b} 42"));
    let (_, other) = pair.exporter.export(b, 0, PIECE);
    let place = |handle: &GpuIpcMemHandle, index: u32| {
        forge(handle, |fields| {
            fields.range.id = 77;
            fields.range.length = 2 * PIECE;
            fields.range.offset = u64::from(index) * PIECE;
            fields.range.segment_index = index;
            fields.range.segment_count = 2;
        })
    };
    let handles = [place(&handle, 0), place(&other, 1)];
    for types in ["types=Fabric", "types=PosixFd"] {
        let mem = pair.importer.import_all(&handles, types);
        assert_eq!(mem.len, 2 * PIECE);
        pair.importer.ok(&format!("drop mapping {}", mem.id));
    }
}

#[test]
fn descriptors_on_demand_are_made_for_each_importer_and_kept_by_none() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("segments", 6 * PIECE);
    pair.exporter.ok(&format!("fill {buffer} 33"));
    let (export, first) = pair.exporter.export_all(buffer, 0, 1, "on-demand");
    pair.exporter.ok(&format!("drop export {export}"));
    drop(first);
    let before = pair.exporter.ok("calls cuMemExportToShareableHandle");
    let (_, handles) = pair.exporter.export_all(buffer, 0, 6 * PIECE, "on-demand");
    assert_eq!(
        pair.exporter.ok("calls cuMemExportToShareableHandle"),
        before
    );
    assert!(
        handles
            .iter()
            .all(|handle| handle.ticket().is_some_and(|ticket| ticket.fd.is_none()))
    );
    let state = pair.exporter.state();
    for _ in 0..3 {
        let mem = pair.importer.import_all(&handles, "");
        pair.importer.ok(&format!("read {} 33 0", mem.id));
        pair.importer.ok(&format!("drop mapping {}", mem.id));
    }
    pair.exporter.returns_to(&state);
    // The exporter's driver may refuse: an attempt with its code.
    pair.exporter
        .ok("fail cuMemExportToShareableHandle 3 999 1");
    let refused = pair.importer.import_all_refused(&handles, "");
    assert_eq!(
        refused.attempts,
        ["PosixFd/broker-request/ExportFailed"],
        "{}",
        refused.text
    );
    assert!(refused.text.contains("CUDA_ERROR_UNKNOWN (999)"));
}

#[test]
fn thousands_of_segments_fit_into_a_thousand_descriptors() {
    const PIECES: u64 = 4096;
    if on_real_gpu() {
        return skip("for the emulated driver: takes 8 GiB");
    }
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    if hard.is_some_and(|hard| hard < 2 * PIECES) {
        return skip("the hard limit of open files is too low for so much emulated memory");
    }
    let scratch = Scratch::new();
    let start = || {
        TestChild::start_with(PROGRAM, &scratch, |command| {
            command.env("GPUIPC_EMULATED_ROOM", "on-write");
        })
    };
    let (mut exporter, mut importer) = (start(), start());
    for side in [&mut exporter, &mut importer] {
        side.ok("nofile 1024");
    }
    let (buffer, _) = exporter.alloc("segments", PIECES * PIECE);
    let (_, handles) = exporter.export_all(buffer, 1, PIECES * PIECE - 2, "");
    assert_eq!(handles.len() as u64, PIECES);
    let kept = handles
        .iter()
        .filter(|handle| handle.ticket().is_some_and(|ticket| ticket.fd.is_some()))
        .count();
    assert_eq!(kept, 256, "a quarter of the limit");
    let before = importer.state();
    let mem = importer.import_all(&handles, "timeout=50000");
    assert_eq!(mem.len, PIECES * PIECE - 2);
    importer.ok(&format!("drop mapping {}", mem.id));
    // A fault near the end undoes all that came before.
    importer.ok("fail cuMemMap 4090 999 1");
    let refused = importer.import_all_refused(&handles, "timeout=50000");
    assert!(refused.text.contains("of segment 4089"), "{}", refused.text);
    importer.ok("no-faults");
    importer.returns_to(&before);
    // Others are served meanwhile and afterwards.
    let mut another = child(&scratch);
    let mem = another.import_all(&handles, "timeout=50000");
    another.ok(&format!("drop mapping {}", mem.id));
}

#[test]
fn a_broker_that_does_not_answer_is_asked_and_told_of_once() {
    let mut pair = Pair::new();
    let (_, handles) = share(&mut pair, 20, 0, 20 * PIECE);
    let warm = pair.importer.import_all(&handles, "");
    pair.importer.ok(&format!("drop mapping {}", warm.id));
    pair.exporter.ok("stop");
    std::thread::sleep(std::time::Duration::from_millis(200));
    let mem = pair.importer.import_all(&handles, "timeout=300");
    assert_eq!(mem.attempts, ["PosixFd/broker-request/TimedOut"]);
}
