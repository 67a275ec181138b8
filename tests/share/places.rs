//! Memory at an address of the importer's choice, and sizes.

use crate::{PROGRAM, Pair};
use gpuipc_tests::{Scratch, TestChild, forge};

const LEN: u64 = 2 << 20;

/// The number and address of a place.
fn place_of(answer: &str) -> (u32, u64) {
    let mut words = answer.split(' ');
    let mut number = || {
        words
            .next()
            .expect("a word")
            .parse::<u64>()
            .expect("a number")
    };
    let (id, base) = (number(), number());
    (u32::try_from(id).expect("a small number"), base)
}

#[test]
fn memory_is_mapped_into_a_reservation_that_is_there() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    pair.exporter.ok(&format!("fill {buffer} 71"));
    let (_, handle) = pair.exporter.export(buffer, 100, 200);
    let (place, base) = place_of(&pair.importer.ok(&format!("reserve {}", 4 * LEN)));
    let reserves = pair.importer.ok("calls cuMemAddressReserve");
    let first = pair
        .importer
        .import(&handle, &format!("place={place}+{LEN}"));
    assert_eq!(first.ptr, base + LEN + 100);
    let second = pair
        .importer
        .import(&handle, &format!("place={place}+{}", 2 * LEN));
    assert_eq!(pair.importer.ok("calls cuMemAddressReserve"), reserves);
    pair.importer.ok(&format!("drop mapping {}", first.id));
    pair.importer.ok(&format!("read {} 71 100", second.id));
    // The place outlives whoever lets go of it first.
    pair.importer.ok(&format!("drop place {place}"));
    pair.importer.ok(&format!("read {} 71 100", second.id));
    pair.importer.ok(&format!("drop mapping {}", second.id));
}

#[test]
fn a_place_that_is_taken_or_too_small_is_refused_and_left_alone() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    pair.exporter.ok(&format!("fill {buffer} 72"));
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let (place, _) = place_of(&pair.importer.ok(&format!("reserve {}", 2 * LEN)));
    let mem = pair.importer.import(&handle, &format!("place={place}+0"));
    let before = pair.importer.state();
    for (offset, attempt) in [
        (0, "cuMemMap/PlaceTaken"),
        (4096, "cuMemMap/PlaceTaken"),
        (2 * LEN, "cuMemAddressReserve/PlaceTooSmall"),
        (LEN + 1, "cuMemAddressReserve/PlaceTooSmall"),
        (u64::MAX, "cuMemAddressReserve/PlaceTooSmall"),
    ] {
        let refused = pair
            .importer
            .import_refused(&handle, &format!("place={place}+{offset}"));
        assert_eq!(refused.attempts, [format!("PosixFd/{attempt}")], "{offset}");
    }
    pair.importer.returns_to(&before);
    pair.importer.ok(&format!("read {} 72 0", mem.id));
}

#[test]
fn memory_is_unmapped_and_mapped_again_at_the_same_address() {
    let mut pair = Pair::new();
    for memory in ["vmm-fd", "segments"] {
        let len = 3 * LEN;
        let (buffer, _) = pair.exporter.alloc(memory, len);
        pair.exporter.ok(&format!("fill {buffer} 73"));
        let (export, handles) = pair.exporter.export_all(buffer, 0, len, "");
        let mut mem = pair.importer.import_all(&handles, "");
        let ptr = mem.ptr;
        // Suspend; the owner frees and makes the memory anew; resume.
        let (place, base) = place_of(&pair.importer.ok(&format!("unmap {}", mem.id)));
        assert_eq!(base, ptr);
        pair.exporter.ok(&format!("drop export {export}"));
        pair.exporter.ok(&format!("free {buffer}"));
        let (buffer, _) = pair.exporter.alloc(memory, len);
        pair.exporter.ok(&format!("fill {buffer} 74"));
        let (_, handles) = pair.exporter.export_all(buffer, 0, len, "");
        mem = pair
            .importer
            .import_all(&handles, &format!("place={place}+0"));
        assert_eq!(mem.ptr, ptr);
        pair.importer.ok(&format!("drop place {place}"));
        pair.importer.ok(&format!("read {} 74 0", mem.id));
        pair.importer.ok(&format!("drop mapping {}", mem.id));
    }
}

#[test]
fn a_legacy_mapping_cannot_be_placed_and_says_so() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("cuda-malloc", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let (place, _) = place_of(&pair.importer.ok(&format!("reserve {LEN}")));
    let refused = pair
        .importer
        .import_refused(&handle, &format!("place={place}+0"));
    assert_eq!(refused.attempts, ["RuntimeIpc/select/CannotBePlaced"]);
}

#[test]
fn ranges_of_one_byte_and_of_sixteen_gibibytes() {
    let scratch = Scratch::new();
    let start = || {
        TestChild::start_with(PROGRAM, &scratch, |command| {
            command.env("GPUIPC_EMULATED_ROOM", "on-write");
        })
    };
    let (mut exporter, mut importer) = (start(), start());
    let len = 16 << 30;
    let (buffer, _) = exporter.alloc("vmm-fd", len);
    for (offset, len) in [(0, len), (len - 1, 1), (12_345_678_901, 1)] {
        let (_, handle) = exporter.export(buffer, offset, len);
        let mem = importer.import(&handle, "");
        assert_eq!(mem.len, len);
        importer.ok(&format!("drop mapping {}", mem.id));
    }
}

#[test]
fn no_more_than_the_allocation_is_reserved_and_mapped() {
    let mut pair = Pair::new();
    // No multiple of the granularity: the driver rounds up.
    let (buffer, _) = pair.exporter.alloc("vmm-fd", 3 * LEN - 1);
    let (_, handle) = pair.exporter.export(buffer, 0, 3 * LEN - 1);
    assert_eq!(handle.base_size(), 3 * LEN);
    let mem = pair.importer.import(&handle, "");
    let answer = pair.importer.ok(&format!("unmap {}", mem.id));
    assert!(answer.ends_with(&format!(" {}", 3 * LEN)), "{answer}");
}

#[test]
fn a_size_that_is_not_the_allocations_is_refused() {
    let mut pair = Pair::new();
    for memory in ["vmm-fd", "pool", "host-numa"] {
        let (buffer, _) = pair.exporter.alloc(memory, 2 * LEN);
        let (_, handle) = pair.exporter.export(buffer, 0, 1);
        let warm = pair.importer.import(&handle, "");
        pair.importer.ok(&format!("drop mapping {}", warm.id));
        let before = pair.importer.state();
        for size in [LEN, 4 * LEN, 3 * LEN / 2, 1 << 62] {
            let forged = forge(&handle, |fields| fields.base_size = size);
            let refused = pair.importer.import_refused(&forged, "");
            let reason = refused.attempts[0].rsplit('/').next();
            assert!(
                matches!(reason, Some("SizeMismatch" | "OutOfMemory")),
                "{memory} {size}: {refused:?}"
            );
        }
        pair.importer.returns_to(&before);
    }
}
