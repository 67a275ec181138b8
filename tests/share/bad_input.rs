//! Bad input and dead processes: a typed error each, within the deadline.

use crate::Pair;
use std::time::{Duration, Instant};

const LEN: u64 = 2 << 20;

#[test]
fn zero_bytes_cannot_be_exported() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    assert_eq!(
        pair.exporter.err(&format!("export {buffer} 0 0")).status,
        "INVALID_ARGUMENT"
    );
}

#[test]
fn a_host_pointer_is_refused_with_the_cure() {
    let mut pair = Pair::new();
    let refused = pair.exporter.err("export-host");
    assert_eq!(refused.status, "NOT_EXPORTABLE");
    assert!(refused.text.contains("device pointer"), "{}", refused.text);
    for address in ["0", "4096", "18446744073709551615"] {
        assert_eq!(
            pair.exporter.err(&format!("export-raw {address} 1")).status,
            "NOT_EXPORTABLE"
        );
    }
}

#[test]
fn memory_without_a_way_of_sharing_is_named_with_the_cure() {
    let mut pair = Pair::new();
    for (kind, name, cure) in [
        ("managed", "managed memory", "use cuMemAlloc"),
        (
            "pinned",
            "pinned host memory",
            "CU_MEM_LOCATION_TYPE_HOST_NUMA",
        ),
        (
            "vmm-typeless",
            "without a handle type",
            "requestedHandleTypes",
        ),
        ("pool-default", "default pool", "cuMemPoolCreate"),
        ("pool-plain", "without a handle type", "cuMemPoolCreate"),
    ] {
        let refused = pair.exporter.err(&format!("export-odd {kind}"));
        assert_eq!(refused.status, "NOT_EXPORTABLE", "{kind}");
        assert_eq!(refused.attempts, Vec::<String>::new());
        assert!(
            refused.text.contains(name) && refused.text.contains(cure),
            "{kind}: {}",
            refused.text
        );
    }
}

#[test]
fn a_freed_pointer_is_refused() {
    let mut pair = Pair::new();
    for memory in ["cuda-malloc", "vmm-fd"] {
        let (buffer, ptr) = pair.exporter.alloc(memory, LEN);
        pair.exporter.ok(&format!("free {buffer}"));
        assert_eq!(
            pair.exporter.err(&format!("export-raw {ptr} 1")).status,
            "NOT_EXPORTABLE"
        );
    }
}

#[test]
fn a_range_beyond_the_allocation_is_refused() {
    let mut pair = Pair::new();
    for memory in ["cuda-malloc", "vmm-fd"] {
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        for (offset, len) in [(0, LEN + 1), (LEN - 1, 2), (1, u64::MAX - 1)] {
            let refused = pair
                .exporter
                .err(&format!("export {buffer} {offset} {len}"));
            assert_eq!(refused.status, "NOT_EXPORTABLE", "{memory} {offset} {len}");
            assert!(
                refused.text.contains("beyond the allocation"),
                "{}",
                refused.text
            );
        }
    }
}

#[test]
fn imported_memory_is_not_passed_on() {
    let mut pair = Pair::new();
    for memory in ["cuda-malloc", "vmm-fd"] {
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        let (_, handle) = pair.exporter.export(buffer, 0, LEN);
        let mem = pair.importer.import(&handle, "");
        let refused = pair.importer.err(&format!("export-raw {} {LEN}", mem.ptr));
        assert_eq!(refused.status, "NOT_EXPORTABLE", "{memory}");
    }
}

#[test]
fn bytes_that_are_no_handle_are_named_for_what_they_are() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let good = handle.encode();
    let mut importer = |bytes: &[u8]| {
        pair.importer
            .err(&format!("import {}", gpuipc_tests::to_hex(bytes)))
            .status
    };
    assert_eq!(importer(&good[..383]), "HANDLE_LENGTH");
    assert_eq!(importer(&[&good[..], &[0]].concat()), "HANDLE_LENGTH");
    let mut bytes = good;
    bytes[0] ^= 1;
    assert_eq!(importer(&bytes), "HANDLE_MAGIC");
    let mut bytes = good;
    bytes[200] ^= 0x40;
    assert_eq!(importer(&bytes), "HANDLE_DAMAGED");
    let mut bytes = good;
    (bytes[4], bytes[5]) = (9, 9);
    assert_eq!(importer(&bytes), "HANDLE_NEWER");
}

/// How long a refusal may take beyond its deadline on a busy machine.
const SLACK: Duration = Duration::from_secs(20);

#[test]
fn a_dead_exporter_is_named_within_the_deadline() {
    for memory in ["cuda-malloc", "vmm-fd"] {
        let mut pair = Pair::new();
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        let (_, handle) = pair.exporter.export(buffer, 0, LEN);
        let warm = pair.importer.import(&handle, "");
        pair.importer.ok(&format!("drop mapping {}", warm.id));
        let before = pair.importer.state();
        pair.exporter.kill();
        let start = Instant::now();
        let refused = pair.importer.import_refused(&handle, "timeout=1000");
        assert!(start.elapsed() < Duration::from_secs(1) + SLACK);
        assert_eq!(refused.status, "EXPORTER_GONE", "{memory}: {refused:?}");
        pair.importer.returns_to(&before);
    }
}

#[test]
fn a_revoked_export_is_told_apart_from_a_dead_exporter() {
    for memory in ["cuda-malloc", "vmm-fd"] {
        let mut pair = Pair::new();
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        let (_, _other) = pair.exporter.export(buffer, 0, LEN);
        let (second, _) = pair.exporter.alloc(memory, LEN);
        let (export, handle) = pair.exporter.export(second, 0, LEN);
        pair.exporter.ok(&format!("drop export {export}"));
        let refused = pair.importer.import_refused(&handle, "");
        assert_eq!(refused.status, "EXPORT_REVOKED", "{memory}: {refused:?}");
    }
}

#[test]
fn a_legacy_handle_of_freed_memory_is_refused_even_when_other_memory_lies_there() {
    let mut pair = Pair::new();
    // A block of the driver's own, so that the address comes again, and a
    // context that lives on: handles from before a new one the driver refuses
    // by itself (seen on an H200).
    let len = 8 << 20;
    pair.exporter.ok("context 0");
    let (buffer, ptr) = pair.exporter.alloc("cuda-malloc", len);
    let (_, handle) = pair.exporter.export(buffer, 0, len);
    let mem = pair.importer.import(&handle, "");
    pair.importer.ok(&format!("drop mapping {}", mem.id));
    pair.exporter.ok(&format!("free {buffer}"));
    let refused = pair.importer.import_refused(&handle, "");
    assert_eq!(
        refused.attempts,
        ["RuntimeIpc/cuIpcOpenMemHandle/StaleMemory"]
    );
    let (again, same_place) = pair.exporter.alloc("cuda-malloc", len);
    assert_eq!(ptr, same_place, "the test needs memory at the same address");
    let (_, _fresh) = pair.exporter.export(again, 0, len);
    let before = pair.importer.state();
    let refused = pair.importer.import_refused(&handle, "");
    assert_eq!(refused.attempts, ["RuntimeIpc/liveness/StaleMemory"]);
    pair.importer.returns_to(&before);
}

#[test]
fn an_unknown_device_is_an_error_of_its_own() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    for device in ["device=99", "device=-1"] {
        let refused = pair.importer.import_refused(&handle, device);
        assert!(
            refused.text.contains("CUDA_ERROR_INVALID_DEVICE"),
            "{}",
            refused.text
        );
    }
}

#[test]
fn memory_of_which_nobody_can_speak_is_mapped_as_unknown_unless_live_is_required() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("cuda-malloc", LEN);
    pair.exporter.ok(&format!("fill {buffer} 61"));
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    // No broker behind this name; another network namespace, so that this says
    // nothing about the exporter's life.
    let handle = gpuipc_tests::forge(&handle, |fields| {
        fields.net_namespace ^= 1;
        if let Some(ticket) = &mut fields.ticket {
            ticket.endpoint.0[3] ^= 1;
            ticket.table = None;
        }
    });
    let mem = pair.importer.import(&handle, "");
    assert_eq!(mem.liveness, "Unknown");
    pair.importer.ok(&format!("read {} 61 0", mem.id));
    pair.importer.ok(&format!("drop mapping {}", mem.id));
    let before = pair.importer.state();
    let refused = pair.importer.import_refused(&handle, "live");
    assert_eq!(refused.attempts, ["RuntimeIpc/liveness/LivenessUnknown"]);
    pair.importer.returns_to(&before);
}
