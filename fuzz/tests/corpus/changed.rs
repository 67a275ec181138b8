//! Seeds, changed at random but the same in every run: what a short fuzz run would find is found
//! by `cargo test` already.

use super::{BROKER_MESSAGE, C_CALLS, DECODE, PARSERS, REGISTERED_MEMORY, ROUND_TRIP, Target};
use gpuipc_fuzz::change::Random;
use gpuipc_fuzz::checker::{HANDLES, judge};
use gpuipc_fuzz::{broker_message, decode, registered_memory, round_trip};

const INPUTS: usize = 20_000;
/// Fewer of what is long.
const LONG_INPUTS: usize = 5_000;

/// Some changes of one seed; sometimes its end is another's, is cut off, or goes on.
pub(super) fn input(random: &mut Random, seeds: &[(String, Vec<u8>)]) -> Vec<u8> {
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

fn run_changed(target: Target, inputs: usize, mut count: impl FnMut(&[u8])) {
    let seeds = target.seeds();
    let mut random = Random(384);
    for _ in 0..inputs {
        let input = input(&mut random, &seeds);
        (target.run)(&input);
        count(&input);
    }
}

/// So many at least, so that neither side of a comparison goes untested.
fn enough(found: usize, wanted: usize, what: &str) {
    assert!(found >= wanted, "{what}: only {found} inputs");
}

#[test]
fn changed_handles_get_past_the_checksum_and_are_judged_alike() {
    let (mut accepted, mut refused) = (0, 0);
    run_changed(DECODE, INPUTS, |input| {
        if judge(&HANDLES, &decode::repaired(input)).is_empty() {
            accepted += 1;
        } else {
            refused += 1;
        }
    });
    enough(accepted, INPUTS / 10, "accepted");
    enough(refused, INPUTS / 10, "refused for a field");
}

#[test]
fn changed_fields_come_back_or_are_refused_alike() {
    let (mut accepted, mut refused) = (0, 0);
    run_changed(ROUND_TRIP, INPUTS, |input| {
        if round_trip::look(&round_trip::fields_of(input)) {
            accepted += 1;
        } else {
            refused += 1;
        }
    });
    enough(accepted, INPUTS / 10, "accepted");
    enough(refused, INPUTS / 10, "refused");
}

#[test]
fn changed_c_programs_keep_the_headers_promises() {
    let seeds = C_CALLS.seeds();
    let mut random = Random(45);
    for _ in 0..INPUTS / 40 {
        (C_CALLS.run)(&input(&mut random, &seeds));
    }
}

#[test]
fn changed_texts_and_entries_are_parsed_as_they_stand() {
    run_changed(PARSERS, INPUTS / 2, |_| {});
}

#[test]
fn changed_messages_are_judged_alike() {
    let (mut requests, mut replies, mut refused) = (0, 0, 0);
    run_changed(BROKER_MESSAGE, INPUTS, |input| {
        let request = broker_message::look(&broker_message::repaired(input, b"GIPQ"));
        let reply = broker_message::look(&broker_message::repaired(input, b"GIPR"));
        requests += usize::from(request);
        replies += usize::from(reply);
        refused += usize::from(!request && !reply);
    });
    enough(requests, INPUTS / 20, "requests");
    enough(replies, INPUTS / 20, "replies");
    enough(refused, INPUTS / 20, "refused");
}

#[test]
fn changed_registered_memories_are_judged_and_written_alike() {
    let (mut accepted, mut refused, mut written, mut unwritten) = (0, 0, 0, 0);
    run_changed(REGISTERED_MEMORY, LONG_INPUTS, |input| {
        let repaired = registered_memory::repaired(input);
        let nearly = registered_memory::nearly(&repaired);
        for bytes in [&repaired, &nearly] {
            if registered_memory::look(bytes) {
                accepted += 1;
            } else {
                refused += 1;
            }
        }
        if registered_memory::write(&registered_memory::parts(&repaired)) {
            written += 1;
        } else {
            unwritten += 1;
        }
    });
    enough(accepted, LONG_INPUTS / 10, "accepted");
    enough(refused, LONG_INPUTS / 10, "refused");
    enough(written, LONG_INPUTS / 10, "written");
    enough(unwritten, LONG_INPUTS / 10, "not written");
}
