//! The main job: one process shares, another one maps, both see each other's bytes.

use crate::{Pair, child};

const LEN: u64 = 3 << 20;

fn shares_both_ways(memory: &str, used: &str, liveness: &str) {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc(memory, LEN);
    pair.exporter.ok(&format!("fill {buffer} 7"));
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let mem = pair.importer.import(&handle, "");
    assert_eq!(
        (mem.used.as_str(), mem.liveness.as_str(), mem.len),
        (used, liveness, LEN)
    );
    assert_eq!(mem.attempts, Vec::<String>::new());
    pair.importer.ok(&format!("read {} 7 0", mem.id));
    pair.importer.ok(&format!("write {} 8", mem.id));
    pair.exporter.ok(&format!("check {buffer} 8 0 {LEN}"));
}

#[test]
fn cuda_malloc_memory_goes_by_runtime_ipc() {
    shares_both_ways("cuda-malloc", "RuntimeIpc", "MemoryUnchanged");
}

#[test]
fn vmm_memory_with_a_descriptor_goes_by_posix_fd() {
    shares_both_ways("vmm-fd", "PosixFd", "Referenced");
}

#[test]
fn vmm_memory_with_both_types_goes_by_the_descriptor_first() {
    shares_both_ways("vmm-fabric", "PosixFd", "Referenced");
}

#[test]
fn an_interior_range_keeps_its_offset_and_length() {
    for memory in gpuipc_tests::memories() {
        let mut pair = Pair::new();
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        pair.exporter.ok(&format!("fill {buffer} 3"));
        let (_, handle) = pair.exporter.export(buffer, 12_345, 77_777);
        assert_eq!(
            (handle.offset_from_base(), handle.length()),
            (12_345, 77_777)
        );
        let mem = pair.importer.import(&handle, "");
        assert_eq!(mem.len, 77_777);
        pair.importer.ok(&format!("read {} 3 12345", mem.id));
    }
}

#[test]
fn two_ranges_of_one_allocation_live_and_die_apart() {
    let mut pair = Pair::new();
    for memory in ["cuda-malloc", "vmm-fd"] {
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        pair.exporter.ok(&format!("fill {buffer} 5"));
        let (_, first) = pair.exporter.export(buffer, 1, 1000);
        let (_, second) = pair.exporter.export(buffer, 2001, 999);
        assert_ne!(first.range().id, second.range().id);
        let (first, second) = (
            pair.importer.import(&first, ""),
            pair.importer.import(&second, ""),
        );
        pair.importer.ok(&format!("drop mapping {}", first.id));
        pair.importer.ok(&format!("read {} 5 2001", second.id));
    }
}

#[test]
fn the_order_of_types_can_be_chosen() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fabric", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    assert_eq!(
        pair.importer.import(&handle, "types=Fabric,PosixFd").used,
        "Fabric"
    );
    assert_eq!(
        pair.importer.import(&handle, "types=PosixFd,Fabric").used,
        "PosixFd"
    );
    let refused = pair.importer.import_refused(&handle, "types=RuntimeIpc");
    assert_eq!(refused.status, "NO_TYPE_WORKED");
    assert_eq!(
        refused.attempts,
        ["PosixFd/select/NotAllowed", "Fabric/select/NotAllowed"]
    );
}

#[test]
fn gpuipc_types_chooses_without_recompiling() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fabric", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let mut importer =
        gpuipc_tests::TestChild::start_with(crate::PROGRAM, &pair.scratch, |command| {
            command.env("GPUIPC_TYPES", "fabric");
        });
    assert_eq!(importer.import(&handle, "").used, "Fabric");
    let mut wrong = gpuipc_tests::TestChild::start_with(crate::PROGRAM, &pair.scratch, |command| {
        command.env("GPUIPC_TYPES", "carrier-pigeon");
    });
    let refused = wrong.import_refused(&handle, "");
    assert_eq!(refused.status, "INVALID_SETTING");
    assert!(refused.text.contains("carrier-pigeon"), "{}", refused.text);
}

#[test]
fn the_same_process_gets_the_original_pointer() {
    for memory in gpuipc_tests::memories() {
        let mut pair = Pair::new();
        let (buffer, ptr) = pair.exporter.alloc(memory, LEN);
        let (export, handle) = pair.exporter.export(buffer, 4096, 100);
        let mem = pair.exporter.import(&handle, "");
        assert_eq!(
            (mem.used.as_str(), mem.ptr, mem.len),
            ("SameProcess", ptr + 4096, 100)
        );
        pair.exporter.ok(&format!("drop mapping {}", mem.id));
        pair.exporter.ok(&format!("drop export {export}"));
        let refused = pair.exporter.import_refused(&handle, "");
        assert_eq!(refused.status, "EXPORT_REVOKED");
    }
}

#[test]
fn a_read_only_mapping_cannot_be_written() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    pair.exporter.ok(&format!("fill {buffer} 9"));
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let mem = pair.importer.import(&handle, "read-only");
    pair.importer.ok(&format!("read {} 9 0", mem.id));
    let refused = pair.importer.err(&format!("write {} 10", mem.id));
    assert!(
        refused.text.contains("CUDA_ERROR_INVALID_VALUE"),
        "{}",
        refused.text
    );
    pair.exporter.ok(&format!("check {buffer} 9 0 {LEN}"));
}

#[test]
fn a_legacy_mapping_cannot_be_read_only_and_says_so() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("cuda-malloc", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let refused = pair.importer.import_refused(&handle, "read-only");
    assert_eq!(refused.attempts, ["RuntimeIpc/select/CannotBeReadOnly"]);
}

#[test]
fn exporting_again_gives_the_same_identity_and_no_second_descriptor() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, first) = pair.exporter.export(buffer, 0, LEN);
    let exports = pair.exporter.ok("calls cuMemExportToShareableHandle");
    let state = pair.exporter.state();
    for _ in 0..1000 {
        let (export, again) = pair.exporter.export(buffer, 0, LEN);
        let (a, b) = (
            first.ticket().expect("a ticket"),
            again.ticket().expect("a ticket"),
        );
        assert!(a.token.matches(&b.token));
        assert_eq!(
            (first.allocation_id(), a.endpoint),
            (again.allocation_id(), b.endpoint)
        );
        pair.exporter.ok(&format!("drop export {export}"));
    }
    assert_eq!(
        pair.exporter.ok("calls cuMemExportToShareableHandle"),
        exports
    );
    pair.exporter.returns_to(&state);
}

/// Allocates, shares, maps and gives back, a hundred times.
pub(crate) fn a_hundred_rounds_of(memory: &str) {
    let mut pair = Pair::new();
    let round = |pair: &mut Pair| {
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        let (export, handle) = pair.exporter.export(buffer, 0, LEN);
        let mem = pair.importer.import(&handle, "");
        pair.importer.ok(&format!("drop mapping {}", mem.id));
        pair.exporter.ok(&format!("drop export {export}"));
        pair.exporter.ok(&format!("drop buffer {buffer}"));
    };
    // The first round starts what stays: the broker, the driver's files.
    round(&mut pair);
    let before = (pair.exporter.state(), pair.importer.state());
    for _ in 0..100 {
        round(&mut pair);
    }
    pair.exporter.returns_to(&before.0);
    pair.importer.returns_to(&before.1);
}

#[test]
fn a_hundred_rounds_leave_nothing_behind() {
    for memory in gpuipc_tests::memories() {
        a_hundred_rounds_of(memory);
    }
}

#[test]
fn several_importers_map_one_allocation_at_once() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    pair.exporter.ok(&format!("fill {buffer} 21"));
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let mut importers: Vec<_> = (0..6).map(|_| child(&pair.scratch)).collect();
    let ids: Vec<u32> = importers
        .iter_mut()
        .map(|importer| importer.import(&handle, "").id)
        .collect();
    for (importer, id) in importers.iter_mut().zip(ids) {
        importer.ok(&format!("read {id} 21 0"));
    }
}
