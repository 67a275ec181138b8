//! The seeds of what a lying broker answers, as steps.

use super::BROKER_CLIENT;
use super::changed::input;
use super::made::{Seed, compare, golden};
use super::made_broker_server::step;
use gpuipc_fuzz::broker_client::{TIMEOUT, look};
use gpuipc_fuzz::broker_server::{Step, bytes_of};
use gpuipc_fuzz::change::Random;
use std::time::Duration;

const LEGACY: u8 = 0;
const FD: u8 = 1;
const SEGMENTS: u8 = 3;
const POOL: u8 = 4;
/// Options.
const WAY_AROUND: u8 = 1;
const REQUIRE_LIVE: u8 = 2;
const HANGS_UP: u8 = 8;

/// A status, with descriptors: how many in the upper half, which in the lower.
fn status(status: u8, which: u8) -> Step {
    step(0, which, status, &[])
}

/// An honest answer with these bytes over it.
fn over(at: u8, bytes: &[u8], which: u8) -> Step {
    step(1, which, at, bytes)
}

fn lies(memory: u8, options: u8, steps: &[Step]) -> Vec<u8> {
    [vec![memory, options], bytes_of(steps)].concat()
}

fn every_status(memory: u8, options: u8, which: u8) -> Vec<u8> {
    let steps: Vec<Step> = (0..13).map(|of| status(of, which)).collect();
    lies(memory, options, &steps)
}

fn seeds() -> Vec<Seed> {
    let fd = |steps: &[Step]| lies(FD, HANGS_UP, steps);
    let hang_up = || step(3, 0, 0, &[]);
    vec![
        ("silent", lies(FD, 0, &[])),
        ("silent_legacy", lies(LEGACY, REQUIRE_LIVE, &[])),
        ("silent_segments", lies(SEGMENTS, 0, &[])),
        ("silent_pool", lies(POOL, 0, &[])),
        ("silent_but_another_way", lies(FD, WAY_AROUND, &[])),
        (
            "hangs_up_but_another_way",
            lies(FD, WAY_AROUND | HANGS_UP, &[]),
        ),
        (
            "hangs_up",
            fd(&[hang_up(), hang_up(), hang_up(), hang_up()]),
        ),
        ("the_truth", fd(&[status(1, 0x11), status(1, 0x11)])),
        ("the_truth_of_segments", {
            lies(
                SEGMENTS,
                HANGS_UP,
                &[status(1, 0x12), status(1, 0x12), status(1, 0x12)],
            )
        }),
        ("the_truth_of_a_pool", {
            lies(
                POOL,
                HANGS_UP,
                &[status(1, 0x13), status(2, 0), status(1, 0x13)],
            )
        }),
        (
            "the_truth_of_legacy",
            lies(LEGACY, REQUIRE_LIVE, &[status(2, 0), status(2, 0)]),
        ),
        ("other_memory", fd(&[status(1, 0x12), status(1, 0x13)])),
        ("no_memory", fd(&[status(1, 0x10)])),
        ("no_descriptor", fd(&[status(1, 0)])),
        ("two_descriptors", fd(&[status(1, 0x21)])),
        ("three_descriptors", fd(&[status(1, 0x31)])),
        ("every_status", every_status(FD, HANGS_UP, 0)),
        ("every_status_with_memory", every_status(FD, HANGS_UP, 0x11)),
        ("every_status_of_a_pool", every_status(POOL, HANGS_UP, 0x13)),
        ("every_status_of_legacy", every_status(LEGACY, HANGS_UP, 0)),
        ("every_status_of_legacy_that_must_live", {
            every_status(LEGACY, HANGS_UP | REQUIRE_LIVE, 0)
        }),
        (
            "every_status_but_another_way",
            every_status(FD, WAY_AROUND, 0),
        ),
        ("other_id", fd(&[over(8, &[9; 8], 0x11)])),
        ("other_allocation", fd(&[over(16, &[9; 8], 0x11)])),
        ("newer_version", fd(&[over(4, &[2], 0x11)])),
        ("reserved_bytes", fd(&[over(63, &[1], 0x11)])),
        (
            "own_pointer",
            fd(&[over(5, &[10], 0), over(32, &[0x7f; 16], 0)]),
        ),
        ("too_long", fd(&[over(63, &[0; 9], 0x11)])),
        ("a_request", fd(&[step(2, 0x11, 0, &golden("request"))])),
        ("junk_and_descriptors", fd(&[step(2, 0x31, 0, b"junk")])),
        ("no_bytes", fd(&[step(2, 0, 0, &[])])),
        ("no_bytes_but_a_descriptor", fd(&[step(2, 0x11, 0, &[])])),
        (
            "answers_twice",
            fd(&[status(1, 0x11), status(1, 0x15), status(1, 0x11)]),
        ),
        ("busy_for_ever", lies(FD, 0, &vec![status(7, 0); 40])),
        (
            "busy_then_the_truth",
            fd(&[status(7, 0), status(7, 0), status(1, 0x11)]),
        ),
        ("slow_truth", fd(&[step(5, 0, 100, &[]), status(1, 0x15)])),
        (
            "too_slow_truth",
            fd(&[
                step(5, 0, 255, &[]),
                step(5, 4, 255, &[]),
                step(5, 4, 255, &[]),
                status(1, 0x15),
            ]),
        ),
        ("a_segment_is_wrong", {
            lies(
                SEGMENTS,
                HANGS_UP,
                &[status(1, 0x12), status(1, 0x10), status(4, 0), status(4, 0)],
            )
        }),
        ("hangs_up_between_segments", {
            lies(SEGMENTS, HANGS_UP, &[status(1, 0x12), hang_up(), hang_up()])
        }),
    ]
}

#[test]
fn seeds_of_lies_are_made() {
    compare(BROKER_CLIENT, seeds());
}

#[test]
fn the_truth_is_believed_and_silence_is_not() {
    let enough = Duration::from_secs(20);
    for (name, mapped, timeout) in [
        ("the_truth", 2, enough),
        ("the_truth_of_segments", 1, enough),
        // Hung up on, it does not know whether the second one's memory is unchanged.
        ("the_truth_of_a_pool", 2, enough),
        ("the_truth_of_legacy", 2, enough),
        ("busy_then_the_truth", 1, enough),
        ("hangs_up_but_another_way", 2, enough),
        ("silent", 0, TIMEOUT),
        ("silent_legacy", 0, TIMEOUT),
        ("too_slow_truth", 0, TIMEOUT),
    ] {
        let seeds = seeds();
        let (_, bytes) = seeds.iter().find(|(of, _)| *of == name).unwrap();
        assert_eq!(look(bytes, timeout), mapped, "{name}");
    }
}

#[test]
fn changed_lies_lead_to_no_memory_and_leave_nothing() {
    let seeds = BROKER_CLIENT.seeds();
    let mut random = Random(29);
    for _ in 0..60 {
        (BROKER_CLIENT.run)(&input(&mut random, &seeds));
    }
}
