//! Several buffers on one object.

use crate::{Group, LEN, names, refused};

/// Everyone's connection on one object of `size` bytes.
fn connect(group: &mut Group, size: u64) -> Vec<u32> {
    let (created, handle) = group.create(size);
    let ids = group.join(&handle);
    group.all_ok(|rank| format!("mc-connect {}", ids[rank]));
    group.members[0].ok(&format!("mc-drop {created}"));
    ids
}

/// Everyone binds a buffer; the number of each, and the offset of all.
fn bind(group: &mut Group, ids: &[u32], buffers: &[u32], len: u64) -> (Vec<u32>, u64) {
    let answers = group.all_ok(|rank| format!("mc-buffer {} {} {len}", ids[rank], buffers[rank]));
    let parts: Vec<(u32, u64)> = answers
        .iter()
        .map(|answer| {
            let (id, offset) = answer.split_once(' ').expect("two words");
            (
                id.parse().expect("a number"),
                offset.parse().expect("an offset"),
            )
        })
        .collect();
    let offset = parts[0].1;
    assert!(parts.iter().all(|(_, other)| *other == offset), "{parts:?}");
    (parts.iter().map(|(id, _)| *id).collect(), offset)
}

#[test]
fn each_buffer_has_an_address_of_its_own_on_one_object() {
    let mut group = Group::new(2);
    let buffers: Vec<Vec<u32>> = (0..3).map(|_| group.buffers(2 * LEN)).collect();
    let ids = connect(&mut group, 5 * LEN);
    let (first, at_first) = bind(&mut group, &ids, &buffers[0], 2 * LEN);
    let (second, at_second) = bind(&mut group, &ids, &buffers[1], LEN);
    let (third, at_third) = bind(&mut group, &ids, &buffers[2], 2 * LEN);
    assert_eq!([at_first, at_second, at_third], [0, 2 * LEN, 3 * LEN]);
    assert_eq!(
        group.all_ok(|rank| format!("mc-free {}", ids[rank])),
        ["0", "0"]
    );
    for (nth, bound) in [&first, &second, &third].into_iter().enumerate() {
        group.members[0].ok(&format!("mc-write {} 64 {}", bound[0], 100 + nth));
    }
    for (nth, own) in buffers.iter().enumerate() {
        let seen = group.all_ok(|rank| format!("mc-peek {} 64", own[rank]));
        assert_eq!(seen, [(100 + nth).to_string(), (100 + nth).to_string()]);
    }
    assert_eq!(
        group.members[1].ok(&format!("mc-sum {} 64", second[1])),
        "202"
    );
    // One mapping for all.
    assert_eq!(
        group.members[0].ok("calls cuMemMap"),
        "4",
        "three buffers, one object"
    );
}

#[test]
fn buffers_are_freed_and_bound_in_any_order() {
    let mut group = Group::new(2);
    group.all_ok(|_| "context 0".to_owned());
    let before = group.states();
    let ids = connect(&mut group, 4 * LEN);
    let own: Vec<Vec<u32>> = (0..4).map(|_| group.buffers(2 * LEN)).collect();
    let mut bound: Vec<_> = (0..4)
        .map(|nth| bind(&mut group, &ids, &own[nth], LEN))
        .collect();
    let drop = |group: &mut Group, ids: &[u32]| {
        group.all_ok(|rank| format!("mc-drop {}", ids[rank]));
    };
    // Two holes that do not meet, then three that do.
    drop(&mut group, &bound[2].0);
    drop(&mut group, &bound[0].0);
    let full = group.all(|rank| format!("mc-buffer {} {} {}", ids[rank], own[0][rank], 2 * LEN));
    for answer in full {
        let refused = refused(&answer);
        assert_eq!(refused.status, "MULTICAST_UNAVAILABLE");
        assert!(refused.text.contains("no free range"), "{}", refused.text);
    }
    drop(&mut group, &bound[1].0);
    let (large, offset) = bind(&mut group, &ids, &own[0], 2 * LEN);
    assert_eq!(offset, 0);
    let (small, offset) = bind(&mut group, &ids, &own[1], LEN);
    assert_eq!(offset, 2 * LEN);
    group.members[1].ok(&format!("mc-write {} {} 31", large[1], LEN + 4));
    let seen = group.all_ok(|rank| format!("mc-peek {} {}", own[0][rank], LEN + 4));
    assert_eq!(seen, ["31", "31"]);
    // The connection first, then what is on it.
    drop(&mut group, &ids);
    group.members[0].ok(&format!("mc-write {} 0 32", small[0]));
    drop(&mut group, &small);
    drop(&mut group, &large);
    let last = bound.pop().expect("four buffers").0;
    group.all_ok(|_| "mc-log".to_owned());
    drop(&mut group, &last);
    assert_eq!(
        group.members[0].ok("mc-calls"),
        "cuMemUnmap cuMemAddressFree cuMulticastUnbind cuMemRelease cuMemRelease",
        "the last one unmaps first"
    );
    for own in &own {
        group.all_ok(|rank| format!("free {}", own[rank]));
    }
    group.all_ok(|_| "drop-ipc".to_owned());
    for (rank, member) in group.members.iter_mut().enumerate() {
        let now = member.state();
        let (counters, _) = now.split_once(" | ").expect("two parts");
        let (then, _) = before[rank].split_once(" | ").expect("two parts");
        assert_eq!(counters, then, "the sockets went with the connection");
    }
}

#[test]
fn a_member_that_frees_in_another_order_is_found_before_anything_is_bound() {
    let mut group = Group::new(3);
    let own: Vec<Vec<u32>> = (0..3).map(|_| group.buffers(LEN)).collect();
    let ids = connect(&mut group, 4 * LEN);
    let bound: Vec<_> = (0..2)
        .map(|nth| bind(&mut group, &ids, &own[nth], LEN))
        .collect();
    // Member 1 drops the second, the others the first.
    group.all_ok(|rank| format!("mc-drop {}", bound[usize::from(rank == 1)].0[rank]));
    let answers = group.all(|rank| format!("mc-buffer {} {} {LEN}", ids[rank], own[2][rank]));
    for answer in answers {
        assert!(names(&answer, 1, "is at another stage"), "{answer}");
    }
    assert_eq!(group.members[0].ok("calls cuMulticastBindMem"), "2");
}

#[test]
fn a_failing_member_leaves_the_other_buffers_and_the_connection_as_they_were() {
    let mut group = Group::new(2);
    let own: Vec<Vec<u32>> = (0..2).map(|_| group.buffers(LEN)).collect();
    let ids = connect(&mut group, 4 * LEN);
    let (first, _) = bind(&mut group, &ids, &own[0], LEN);
    // What stays of memory that was bound once is there now.
    let (warm, _) = bind(&mut group, &ids, &own[1], LEN);
    group.all_ok(|rank| format!("mc-drop {}", warm[rank]));
    group.members[0].ok(&format!("mc-write {} 0 9", first[0]));
    let before = group.states();
    for (victim, symbol) in [
        (0, "cuMulticastBindMem"),
        (1, "cuMemRetainAllocationHandle"),
    ] {
        group.members[victim].ok(&format!("fail {symbol} 1 2 1"));
        let answers = group.all(|rank| format!("mc-buffer {} {} {LEN}", ids[rank], own[1][rank]));
        assert_eq!(refused(&answers[victim]).status, "MULTICAST_UNAVAILABLE");
        assert!(
            names(&answers[1 - victim], victim, "failed at"),
            "{answers:?}"
        );
        group.return_to(&before);
        group.members[0].ok(&format!("mc-write {} 0 9", first[0]));
    }
    let (second, offset) = bind(&mut group, &ids, &own[1], LEN);
    assert_eq!(offset, LEN);
    group.members[0].ok(&format!("mc-write {} 0 10", second[0]));
    assert_eq!(
        group.members[1].ok(&format!("mc-peek {} 0", own[1][1])),
        "10"
    );
}

#[test]
fn a_range_that_stays_bound_is_not_given_out_again() {
    let mut group = Group::new(2);
    let own: Vec<Vec<u32>> = (0..2).map(|_| group.buffers(LEN)).collect();
    let ids = connect(&mut group, 4 * LEN);
    let (first, _) = bind(&mut group, &ids, &own[0], LEN);
    group.all_ok(|_| "fail cuMulticastUnbind 1 401 1".to_owned());
    let closed = group.all(|rank| format!("mc-close {}", first[rank]));
    assert!(
        closed
            .iter()
            .all(|answer| answer.contains("cuMulticastUnbind"))
    );
    let (_, offset) = bind(&mut group, &ids, &own[1], LEN);
    assert_eq!(offset, LEN);
}

#[test]
fn a_member_killed_between_two_buffers_is_named() {
    let mut group = Group::new(4);
    let own: Vec<Vec<u32>> = (0..2).map(|_| group.buffers(LEN)).collect();
    let ids = connect(&mut group, 4 * LEN);
    bind(&mut group, &ids, &own[0], LEN);
    group.members[3].kill();
    let line = |rank: usize| format!("mc-buffer {} {} {LEN}", ids[rank], own[1][rank]);
    for answer in group.some(&[0, 1, 2], line) {
        assert!(names(&answer, 3, "has left or died"), "{answer}");
    }
}
