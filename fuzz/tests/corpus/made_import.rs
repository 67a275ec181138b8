//! The seeds of imports, as steps.

use super::IMPORT;
use super::changed::input;
use super::made::{Seed, compare};
use gpuipc_fuzz::change::Random;
use gpuipc_fuzz::import::{Step, look};

/// What, which, at, number.
type Short = (u8, u8, u16, u64);

const IMPORT_IT: Short = (6, 0, 0, 0);
const LET_GO: Short = (7, 0, 0, 0);
const ASK: Short = (8, 0, 0, 0);
/// Of memories by their numbers.
const LEGACY: u64 = 0;
const FD: u64 = 1;
const FABRIC: u64 = 2;
const SEGMENTS: u64 = 3;
const POOL: u64 = 4;
const HOST: u64 = 5;

const fn take(memory: u64) -> Short {
    (0, 0, 0, memory)
}

/// A number of 8 bytes into the first handle.
const fn number(at: u16, number: u64) -> Short {
    (1, 0x70, at, number)
}

/// One byte into a handle.
const fn byte(handle: u8, at: u16, number: u64) -> Short {
    (1, handle, at, number)
}

/// A slot of another memory's handle.
const fn slot(at: u16, memory: u64) -> Short {
    (2, 0x30, at, memory)
}

fn steps(steps: &[Short]) -> Vec<u8> {
    let bytes = steps.iter().map(|(what, which, at, number)| {
        Step {
            what: *what,
            which: *which,
            at: *at,
            number: *number,
        }
        .bytes()
    });
    bytes.flatten().collect()
}

fn all_kinds(more: &[Short]) -> Vec<u8> {
    let kinds = [LEGACY, FD, FABRIC, SEGMENTS, POOL, HOST];
    let each = kinds.map(|kind| steps(&[&[take(kind)], more].concat()));
    each.concat()
}

fn seeds() -> Vec<Seed> {
    vec![
        ("nothing", Vec::new()),
        ("all_kinds", all_kinds(&[ASK, IMPORT_IT, LET_GO])),
        ("all_kinds_held", all_kinds(&[IMPORT_IT])),
        ("all_kinds_on_the_other_device", all_kinds(&[(6, 0, 1, 0)])),
        ("all_kinds_read_only", all_kinds(&[(6, 0, 2, 0)])),
        ("all_kinds_known_live", all_kinds(&[(6, 0, 4, 0)])),
        ("all_kinds_by_one_type", {
            all_kinds(&[(6, 0, 8, 0), (6, 0, 24, 0), (6, 0, 40, 0)])
        }),
        ("window_is_all", {
            let two_mebibytes = [number(32, 2 << 20), number(56, 2 << 20)];
            all_kinds(&[&[number(24, 0)], &two_mebibytes[..], &[IMPORT_IT]].concat())
        }),
        ("one_byte_window", {
            all_kinds(&[number(32, 1), number(56, 1), IMPORT_IT])
        }),
        ("larger_base", all_kinds(&[number(16, 4 << 20), IMPORT_IT])),
        (
            "smaller_base",
            all_kinds(&[number(16, 2 << 20 >> 1), IMPORT_IT]),
        ),
        (
            "half_of_the_base",
            all_kinds(&[
                number(32, 64),
                number(56, 64),
                number(16, 2 << 20),
                IMPORT_IT,
            ]),
        ),
        (
            "legacy_part_of_the_base",
            all_kinds(&[
                number(32, 64),
                number(56, 64),
                number(16, 1 << 20),
                IMPORT_IT,
            ]),
        ),
        ("huge_base", all_kinds(&[number(16, 1 << 40), IMPORT_IT])),
        ("huge_window", {
            let size = 1 << 46;
            let sizes = [number(16, size), number(32, size), number(56, size)];
            all_kinds(&[&sizes[..], &[number(24, 0), IMPORT_IT]].concat())
        }),
        (
            "offset_beyond",
            all_kinds(&[number(24, 1 << 21), IMPORT_IT]),
        ),
        (
            "other_allocation_id",
            all_kinds(&[number(40, 1), IMPORT_IT]),
        ),
        ("other_token", all_kinds(&[byte(0, 272, 7), IMPORT_IT])),
        ("other_ticket", all_kinds(&[slot(256, FD), IMPORT_IT])),
        (
            "other_legacy_bytes",
            all_kinds(&[slot(192, LEGACY), IMPORT_IT]),
        ),
        (
            "other_fabric_bytes",
            all_kinds(&[slot(320, FABRIC), IMPORT_IT]),
        ),
        ("damaged_driver_bytes", {
            let at_slots = [byte(0, 200, 0x5a), byte(0, 330, 0x5a)];
            all_kinds(&[&at_slots[..], &[IMPORT_IT]].concat())
        }),
        (
            "nobody_listens",
            all_kinds(&[byte(0, 256, 0), ASK, IMPORT_IT]),
        ),
        ("nobody_listens_other_number", {
            all_kinds(&[byte(0, 256, 0), byte(0, 288, 3), IMPORT_IT])
        }),
        ("nobody_listens_other_ledger_slot", {
            all_kinds(&[byte(0, 256, 0), byte(0, 296, 9), IMPORT_IT])
        }),
        ("nobody_listens_ledger_is_memory", {
            all_kinds(&[byte(0, 256, 0), byte(0, 292, 5), IMPORT_IT])
        }),
        ("other_process", all_kinds(&[byte(0, 96, 1), IMPORT_IT])),
        ("other_host", all_kinds(&[byte(0, 112, 1), ASK, IMPORT_IT])),
        ("other_pid", all_kinds(&[(1, 0x30, 128, 0), IMPORT_IT])),
        (
            "other_pid_namespace",
            all_kinds(&[byte(0, 132, 1), IMPORT_IT]),
        ),
        ("other_net_namespace", {
            all_kinds(&[byte(0, 136, 1), byte(0, 256, 0), IMPORT_IT])
        }),
        ("other_gpu", all_kinds(&[byte(0, 80, 1), IMPORT_IT])),
        (
            "as_a_pool",
            all_kinds(&[byte(0, 8, 3), slot(192, POOL), IMPORT_IT]),
        ),
        ("as_host_memory", {
            all_kinds(&[
                byte(0, 8, 5),
                (1, 0x10, 12, 0),
                (1, 0x70, 80, 0),
                (1, 0x70, 88, 0),
                IMPORT_IT,
            ])
        }),
        (
            "a_segment_is_missing",
            steps(&[take(SEGMENTS), (3, 1, 0, 0), IMPORT_IT]),
        ),
        (
            "a_segment_twice",
            steps(&[take(SEGMENTS), (4, 1, 0, 0), IMPORT_IT]),
        ),
        ("segments_in_another_order", {
            steps(&[
                take(SEGMENTS),
                (5, 0, 2, 0),
                IMPORT_IT,
                (5, 1, 2, 0),
                IMPORT_IT,
            ])
        }),
        ("a_segment_of_other_memory", {
            steps(&[
                take(SEGMENTS),
                (2, 0x31, 256, FD),
                (1, 0x71, 40, 2),
                IMPORT_IT,
            ])
        }),
        ("a_segment_with_a_wrong_token", {
            steps(&[take(SEGMENTS), byte(2, 272, 7), IMPORT_IT])
        }),
        (
            "no_handles",
            steps(&[take(FD), (3, 0, 0, 0), IMPORT_IT, ASK]),
        ),
        ("windows_of_one_mapping", {
            let other = [number(24, 4096), number(32, 4096), number(56, 4096)];
            let more = [IMPORT_IT, LET_GO, IMPORT_IT, LET_GO];
            steps(&[&[take(FD), IMPORT_IT], &other[..], &more[..]].concat())
        }),
    ]
}

#[test]
fn seeds_of_imports_are_made() {
    compare(IMPORT, seeds());
}

#[test]
fn changed_handles_of_another_process_map_what_is_on_offer_or_nothing() {
    let seeds = IMPORT.seeds();
    let mut random = Random(71);
    let (mut mapped, mut refused) = (0, 0);
    for _ in 0..400 {
        let seen = look(&input(&mut random, &seeds));
        mapped += seen.mapped;
        refused += seen.refused;
    }
    assert!(
        mapped >= 40 && refused >= 40,
        "{mapped} mapped, {refused} refused"
    );
}
