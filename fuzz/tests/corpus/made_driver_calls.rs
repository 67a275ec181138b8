//! The seeds of sequences of calls.

use super::DRIVER_CALLS;
use super::changed::input;
use super::made::{Seed, compare};
use gpuipc_fuzz::change::Random;
use gpuipc_fuzz::driver_calls::{Op, look};

/// What, place, other, bits, number.
type Short = (u8, u8, u8, u8, u32);

const FREE: Short = (1, 0, 0, 0, 0);
const WRITE: Short = (2, 0, 7, 0, 8);
const READ: Short = (3, 0, 0, 0, 8);
/// By the imported address.
const WRITE_BY_IMPORT: Short = (2, 0, 9, 1, 0);
const READ_BY_IMPORT: Short = (3, 0, 0, 1, 0);
const EXPORT: Short = (4, 0, 0, 0, 0xffff_0008);
const EXPORT_AGAIN: Short = (4, 1, 0, 0, 0x0010_0000);
const WITHDRAW: Short = (5, 0, 0, 0, 0);
const IMPORT_OWN: Short = (6, 0, 0, 0, 0);
const LET_GO: Short = (9, 0, 0, 0, 0);
const WORK: Short = (12, 0, 0, 0, 0);

const fn allocate(memory: u8) -> Short {
    (0, 0, memory, 0, 0)
}

const fn other(place: u8, memory: u8) -> Short {
    (7, place, memory, 0, 0)
}

const fn part(place: u8, memory: u8, start: u32) -> Short {
    (8, place, memory, 0, start)
}

const fn fail(call: u8, code: u8) -> Short {
    (11, call, code, 0, 0)
}

fn calls(ops: &[Short]) -> Vec<u8> {
    let bytes = ops.iter().map(|(what, place, other, bits, number)| {
        Op {
            what: *what,
            place: *place,
            other: *other,
            bits: *bits,
            number: *number,
        }
        .bytes()
    });
    bytes.flatten().collect()
}

/// The same with each kind of memory.
fn each(of: impl Fn(u8) -> Vec<Short>) -> Vec<u8> {
    (0..6).flat_map(|memory| calls(&of(memory))).collect()
}

/// An import of each memory while this call fails.
fn imports_while(call: u8) -> Vec<u8> {
    each(|memory| {
        vec![
            fail(call, 8),
            other(0, memory),
            WORK,
            other(1, memory),
            LET_GO,
        ]
    })
}

/// An export of each memory while this call fails.
fn exports_while(call: u8) -> Vec<u8> {
    each(|memory| {
        vec![
            allocate(memory),
            fail(call, 8),
            EXPORT,
            WORK,
            EXPORT,
            IMPORT_OWN,
            FREE,
        ]
    })
}

fn seeds() -> Vec<Seed> {
    vec![
        ("nothing", Vec::new()),
        ("own_memory", {
            each(|memory| {
                vec![
                    allocate(memory),
                    WRITE,
                    EXPORT,
                    IMPORT_OWN,
                    READ_BY_IMPORT,
                    WRITE_BY_IMPORT,
                    READ,
                    WITHDRAW,
                ]
            })
        }),
        (
            "freed_while_on_offer",
            each(|memory| vec![allocate(memory), EXPORT, FREE, IMPORT_OWN]),
        ),
        ("withdrawn_while_imported", {
            each(|memory| {
                vec![
                    allocate(memory),
                    EXPORT,
                    IMPORT_OWN,
                    WITHDRAW,
                    WRITE_BY_IMPORT,
                    READ,
                ]
            })
        }),
        ("on_offer_twice", {
            each(|memory| {
                vec![
                    allocate(memory),
                    EXPORT,
                    EXPORT_AGAIN,
                    WITHDRAW,
                    (6, 0, 1, 0, 0),
                ]
            })
        }),
        ("some_segments", {
            calls(&[
                allocate(3),
                (4, 0, 0, 0, 0x0001_0000),
                (4, 1, 0, 0, 0x3fff_ffff),
                FREE,
                WITHDRAW,
            ])
        }),
        (
            "other_memory",
            each(|memory| vec![other(0, memory), other(1, memory), LET_GO]),
        ),
        ("windows_of_other_memory", {
            each(|memory| {
                vec![
                    part(0, memory, 4096),
                    part(1, memory, 8192),
                    other(2, memory),
                    LET_GO,
                ]
            })
        }),
        (
            "asked_first",
            each(|memory| vec![(10, 0, memory, 0, 0), other(0, memory)]),
        ),
        ("reserve_fails", imports_while(2)),
        ("map_fails", imports_while(3)),
        ("access_fails", imports_while(4)),
        ("import_fails", imports_while(6)),
        ("open_fails", imports_while(8)),
        ("pool_import_fails", imports_while(15)),
        ("pointer_import_fails", imports_while(17)),
        ("uuid_fails", imports_while(18)),
        ("context_fails", imports_while(19)),
        ("export_fails", exports_while(5)),
        ("legacy_export_fails", exports_while(7)),
        ("attribute_fails", exports_while(9)),
        ("retain_fails", exports_while(10)),
        ("pool_export_fails", exports_while(14)),
        ("pointer_export_fails", exports_while(16)),
        ("second_segment_fails", {
            let second = |call| [(11, call, 8, 0, 1), other(0, 3), WORK, other(0, 3)];
            calls(&[second(3), second(6)].concat())
        }),
        ("allocations_fail", {
            let calls_of = [0, 1, 2, 3, 4, 11, 12, 13, 19];
            let ops = calls_of.map(|call| each(|memory| vec![fail(call, 1), allocate(memory)]));
            ops.concat()
        }),
        (
            "copies_fail",
            calls(&[
                allocate(1),
                WRITE,
                fail(20, 2),
                READ,
                READ,
                fail(21, 2),
                WRITE,
                READ,
            ]),
        ),
    ]
}

#[test]
fn seeds_of_calls_are_made() {
    compare(DRIVER_CALLS, seeds());
}

#[test]
fn changed_calls_do_what_the_model_says() {
    let seeds = DRIVER_CALLS.seeds();
    let mut random = Random(31);
    let (mut worked, mut failed) = (0, 0);
    for _ in 0..150 {
        let seen = look(&input(&mut random, &seeds));
        worked += seen.0;
        failed += seen.1;
    }
    assert!(
        worked >= 100 && failed >= 100,
        "{worked} worked, {failed} failed"
    );
}
