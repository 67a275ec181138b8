//! The seeds of registered memories, made from the golden bytes as those in [`made`](super::made)
//! are.

use super::REGISTERED_MEMORY;
use super::made::{Seed, compare, golden};
use gpuipc_fuzz::slow::handle::seal as seal_handle;
use gpuipc_fuzz::slow::registered::seal;

/// Where the first of the three handles is, behind two transports.
const FIRST: usize = 128 + 2 * 72;
const SECOND: usize = FIRST + 384;
const THIRD: usize = SECOND + 384;

/// The golden bytes of three segments with some changed, the checksums included.
fn plain(changes: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = golden("registered-segments");
    for (at, new) in changes {
        bytes[*at..*at + new.len()].copy_from_slice(new);
    }
    bytes
}

/// Golden bytes with some changed, and the right checksums.
fn changed(name: &str, first_handle: usize, changes: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = golden(name);
    for (at, new) in changes {
        bytes[*at..*at + new.len()].copy_from_slice(new);
    }
    for handle in bytes[first_handle..].chunks_exact_mut(384) {
        seal_handle(handle.try_into().unwrap());
    }
    seal(&mut bytes);
    bytes
}

fn three(changes: &[(usize, &[u8])]) -> Vec<u8> {
    changed("registered-segments", FIRST, changes)
}

fn one(changes: &[(usize, &[u8])]) -> Vec<u8> {
    changed("registered-handle", 128, changes)
}

fn none(changes: &[(usize, &[u8])]) -> Vec<u8> {
    changed("registered-transport", 200, changes)
}

/// The golden bytes of three segments with these handles and the right checksums.
fn handles(places: &[usize]) -> Vec<u8> {
    let golden = golden("registered-segments");
    let mut bytes = golden[..FIRST].to_vec();
    for at in places {
        bytes.extend(&golden[*at..*at + 384]);
    }
    bytes[8] = places.len().try_into().unwrap();
    seal(&mut bytes);
    bytes
}

fn seeds() -> Vec<Seed> {
    let all = golden("registered-segments");
    let mut empty = golden("registered-transport")[..128].to_vec();
    empty[6] = 0;
    seal(&mut empty);
    vec![
        ("one_handle", golden("registered-handle")),
        ("three_segments_two_transports", all.clone()),
        ("one_transport", golden("registered-transport")),
        ("empty", Vec::new()),
        ("header_one_byte_short", all[..127].into()),
        ("header_only", all[..128].into()),
        ("one_byte_short", all[..all.len() - 1].into()),
        ("one_byte_long", [&all[..], &[0]].concat()),
        ("one_handle_short", all[..THIRD].into()),
        ("a_handle_alone", golden("fd")),
        ("wrong_magic", plain(&[(0, b"GIPC")])),
        ("version_zero", three(&[(4, &[0])])),
        ("min_reader_zero", three(&[(5, &[0])])),
        ("min_reader_above_version", three(&[(5, &[2])])),
        ("newer_version_for_newer_readers", three(&[(4, &[2, 2])])),
        ("newer_version_with_reserved", {
            three(&[(4, &[2]), (68, &[7; 56]), (133, &[7; 3])])
        }),
        ("nine_transports", plain(&[(6, &[9])])),
        ("many_transports", plain(&[(7, &[1])])),
        ("most_handles_not_there", plain(&[(8, &[0, 0, 16, 0])])),
        ("too_many_handles", plain(&[(8, &[1, 0, 16, 0])])),
        ("all_handles_of_the_world", plain(&[(8, &[0xff; 4])])),
        ("wrong_checksum", plain(&[(124, &[0; 4])])),
        ("damaged_transport", plain(&[(136, &[0])])),
        ("damaged_handle", plain(&[(SECOND + 192, &[1])])),
        ("reserved_bytes", three(&[(123, &[1])])),
        ("size_zero", three(&[(24, &[0; 8])])),
        ("size_zero_without_handles", none(&[(24, &[0; 8])])),
        ("whole_address_space", none(&[(24, &[0xff; 8])])),
        ("neither_handle_nor_transport", empty),
        ("transport_reserved", three(&[(133, &[1])])),
        ("transport_length_zero", three(&[(132, &[0])])),
        ("transport_length_65", three(&[(204, &[65])])),
        ("transport_padding", three(&[(148, &[1])])),
        ("transport_kind_twice", three(&[(200, &[1, 0, 0, 0])])),
        ("other_process", three(&[(32, &[1])])),
        ("other_host", three(&[(63, &[1])])),
        ("handle_of_other_process", three(&[(SECOND + 111, &[1])])),
        ("handle_of_other_host", three(&[(THIRD + 112, &[1])])),
        ("handle_of_other_window", three(&[(SECOND + 48, &[8])])),
        ("handle_that_breaks_a_rule", three(&[(SECOND + 6, &[2])])),
        ("handle_of_newer_version", {
            three(&[(SECOND + 4, &[2]), (SECOND + 14, &[1])])
        }),
        ("handles_swapped", handles(&[SECOND, FIRST, THIRD])),
        ("handle_twice", handles(&[FIRST, SECOND, SECOND])),
        ("last_handle_missing", handles(&[FIRST, SECOND])),
        (
            "one_handle_too_many",
            handles(&[FIRST, SECOND, THIRD, THIRD]),
        ),
        ("window_longer_than_size", one(&[(24, &[1])])),
        ("segments_with_a_gap", three(&[(SECOND + 64, &[1])])),
        ("segments_overlap", three(&[(FIRST + 32, &[1])])),
        ("last_segment_short", three(&[(THIRD + 34, &[0x0f])])),
    ]
}

#[test]
fn seeds_of_registered_memories_are_made_from_golden_bytes() {
    compare(REGISTERED_MEMORY, seeds());
}
