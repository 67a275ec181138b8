//! The seeds of what clients send to a broker, as steps.

use super::BROKER_SERVER;
use super::changed::input;
use super::made::{Seed, compare, golden};
use gpuipc_fuzz::broker_server::{Step, bytes_of};
use gpuipc_fuzz::change::Random;

pub(super) fn step(what: u8, which: u8, at: u8, bytes: &[u8]) -> Step {
    Step {
        what,
        which,
        at,
        bytes: bytes.to_vec(),
    }
}

fn connect(which: u8) -> Step {
    step(0, which, 0, &[])
}

/// The right request with these bytes over it.
fn request(which: u8, at: u8, bytes: &[u8]) -> Step {
    step(2, which, at, bytes)
}

fn read(which: u8) -> Step {
    step(3, which, 0, &[])
}

fn honest() -> Step {
    step(7, 0, 0, &[])
}

fn seeds() -> Vec<Seed> {
    let of = |steps: &[Step]| bytes_of(steps);
    let one = |step: Step| of(&[connect(1), step, read(1), read(1), honest()]);
    vec![
        ("nothing", Vec::new()),
        ("an_honest_request", one(request(1, 0, &[]))),
        ("a_check", one(request(1, 1, &[]))),
        ("own_pointer", one(request(1, 5, &[3]))),
        ("wrong_token", one(request(1, 24, &[0; 16]))),
        ("wrong_allocation", one(request(1, 16, &[0xff; 8]))),
        ("id_zero", one(request(1, 8, &[0; 8]))),
        ("unknown_kind", one(request(1, 5, &[9]))),
        ("newer_version", one(request(1, 4, &[2]))),
        ("reserved_bytes", one(request(1, 63, &[1]))),
        ("a_byte_too_long", one(request(1, 63, &[0, 0]))),
        (
            "two_requests_in_one_message",
            one(step(
                1,
                1,
                0,
                &[golden("request"), golden("request")].concat(),
            )),
        ),
        ("cut", one(step(1, 1, 0, &golden("request")[..63]))),
        ("a_reply", one(step(1, 1, 0, &golden("reply")))),
        ("no_bytes", one(step(1, 1, 0, &[]))),
        ("no_bytes_but_a_descriptor", one(step(1, 0x11, 0, &[]))),
        ("a_descriptor", one(request(0x11, 0, &[]))),
        ("three_descriptors", one(request(0x31, 0, &[]))),
        ("a_descriptor_that_lingers", one(request(0x51, 0, &[]))),
        (
            "three_descriptors_that_linger_and_junk",
            one(step(1, 0x71, 0, b"junk")),
        ),
        ("three_descriptors_and_junk", one(step(1, 0x31, 0, b"junk"))),
        ("asks_without_reading", {
            of(&[
                connect(1),
                request(1, 0, &[]),
                request(1, 0, &[]),
                request(1, 0, &[]),
                honest(),
                read(1),
                read(1),
            ])
        }),
        ("asks_again", {
            let ask = [request(1, 0, &[]), read(1)];
            of(&[&[connect(1)], &ask[..], &ask, &ask].concat())
        }),
        (
            "hangs_up_after_asking",
            of(&[connect(1), request(1, 0, &[]), step(4, 1, 0, &[]), honest()]),
        ),
        ("ends_its_side", {
            of(&[
                connect(1),
                request(1, 0, &[]),
                step(5, 1, 1, &[]),
                step(6, 0, 100, &[]),
                read(1),
                read(1),
            ])
        }),
        ("ends_the_brokers_side", {
            of(&[
                connect(1),
                step(5, 1, 0, &[]),
                request(1, 0, &[]),
                read(1),
                honest(),
            ])
        }),
        (
            "silent_clients",
            of(&[
                connect(0),
                connect(1),
                connect(2),
                connect(3),
                step(6, 0, 255, &[]),
                honest(),
            ]),
        ),
        ("interleaved", {
            of(&[
                connect(0),
                connect(1),
                request(0, 0, &[]),
                request(1, 24, &[7]),
                read(1),
                read(0),
                request(0, 0, &[]),
                step(4, 1, 0, &[]),
                read(0),
            ])
        }),
        ("withdrawn_while_asked", {
            of(&[
                connect(1),
                request(1, 0, &[]),
                step(8, 0, 0, &[]),
                read(1),
                request(1, 0, &[]),
                read(1),
            ])
        }),
        (
            "withdrawn_often",
            of(&[
                connect(1),
                step(8, 0, 0, &[]),
                step(8, 0, 0, &[]),
                honest(),
                step(8, 0, 0, &[]),
            ]),
        ),
    ]
}

#[test]
fn seeds_of_what_clients_send_are_made_and_stand_for_the_steps() {
    compare(BROKER_SERVER, seeds());
}

#[test]
fn changed_clients_stop_no_broker() {
    let seeds = BROKER_SERVER.seeds();
    let mut random = Random(17);
    for _ in 0..300 {
        (BROKER_SERVER.run)(&input(&mut random, &seeds));
    }
}
