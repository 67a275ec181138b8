//! Seeds, changed at random but the same in every run: what a short fuzz run would find is found
//! by `cargo test` already.

use super::{BROKER_MESSAGE, DECODE, ROUND_TRIP, Target};
use gpuipc_fuzz::change::Random;
use gpuipc_fuzz::slow::handle::{self as slow, Refused};
use gpuipc_fuzz::{broker_message, decode, round_trip};

const INPUTS: usize = 20_000;

/// Some changes of one seed; sometimes its end is another's, is cut off, or goes on.
fn input(random: &mut Random, seeds: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].1.clone();
    match random.below(16) {
        0 | 1 => {
            let other = &seeds[random.below(seeds.len())].1;
            let at = random.below(bytes.len().min(other.len()) + 1);
            bytes.truncate(at);
            bytes.extend(&other[at..]);
        }
        2 => bytes.truncate(random.below(bytes.len() + 1)),
        3 => bytes.push(0xa5),
        _ => {}
    }
    random.change_some(&mut bytes);
    bytes
}

fn run_changed(target: Target, mut count: impl FnMut(&[u8])) {
    let seeds = target.seeds();
    let mut random = Random(384);
    for _ in 0..INPUTS {
        let input = input(&mut random, &seeds);
        (target.run)(&input);
        count(&input);
    }
}

/// At least one in `parts`, so that neither side of a comparison goes untested.
fn enough(found: usize, parts: usize, what: &str) {
    assert!(
        found >= INPUTS / parts,
        "{what}: only {found} of {INPUTS} inputs"
    );
}

#[test]
fn changed_handles_get_past_the_checksum_and_are_judged_alike() {
    let (mut accepted, mut refused) = (0, 0);
    run_changed(DECODE, |input| match slow::read(&decode::repaired(input)) {
        Ok(_) => accepted += 1,
        Err(Refused::Fields(_)) => refused += 1,
        Err(other) => panic!("a repaired handle has the right checksum: {other:?}"),
    });
    enough(accepted, 10, "accepted");
    enough(refused, 10, "refused for a field");
}

#[test]
fn changed_fields_come_back_or_are_refused_alike() {
    let (mut accepted, mut refused) = (0, 0);
    run_changed(ROUND_TRIP, |input| {
        if round_trip::look(&round_trip::fields_of(input)) {
            accepted += 1;
        } else {
            refused += 1;
        }
    });
    enough(accepted, 10, "accepted");
    enough(refused, 10, "refused");
}

#[test]
fn changed_messages_are_judged_alike() {
    let (mut requests, mut replies, mut refused) = (0, 0, 0);
    run_changed(BROKER_MESSAGE, |input| {
        let request = broker_message::look(&broker_message::repaired(input, b"GIPQ"));
        let reply = broker_message::look(&broker_message::repaired(input, b"GIPR"));
        requests += usize::from(request);
        replies += usize::from(reply);
        refused += usize::from(!request && !reply);
    });
    enough(requests, 20, "requests");
    enough(replies, 20, "replies");
    enough(refused, 20, "refused");
}
