//! B38: the switches have no slot left, and a thousand rounds leave nothing.

use crate::{Group, LEN, refused};

#[test]
fn without_a_free_slot_the_resources_are_exhausted_and_the_rest_lives() {
    let mut group = Group::with(2, &[("GPUIPC_EMULATED_MULTICAST_SLOTS", "4")]);
    let buffers = group.buffers(LEN);
    let mut objects = Vec::new();
    for _ in 0..4 {
        let (created, handle) = group.create(LEN);
        objects.push(group.ready(&handle, &buffers));
        group.members[0].ok(&format!("mc-drop {created}"));
    }
    let before = group.states();
    let (created, handle) = group.create(LEN);
    let ids = group.join(&handle);
    let answers = group.all(|rank| format!("mc-bind {} {} {LEN}", ids[rank], buffers[rank]));
    for answer in answers {
        let refused = refused(&answer);
        assert_eq!(refused.status, "MULTICAST_UNAVAILABLE");
        assert!(
            refused.text.contains("no multicast slot"),
            "{}",
            refused.text
        );
    }
    group.members[0].ok(&format!("mc-drop {created}"));
    group.return_to(&before);
    for ids in &objects {
        group.members[0].ok(&format!("mc-write {} 0 9", ids[0]));
    }
    assert_eq!(
        group.members[1].ok(&format!("mc-peek {} 0", buffers[1])),
        "9"
    );
    // One that is dropped makes room.
    let last = objects.pop().expect("four objects");
    group.all_ok(|rank| format!("mc-drop {}", last[rank]));
    let (_created, handle) = group.create(LEN);
    group.ready(&handle, &buffers);
}

#[test]
fn slots_of_killed_members_are_free_again() {
    let mut group = Group::with(2, &[("GPUIPC_EMULATED_MULTICAST_SLOTS", "1")]);
    let buffers = group.buffers(LEN);
    let (_created, handle) = group.create(LEN);
    group.ready(&handle, &buffers);
    let mut next = Group::beside(&group);
    let buffers = next.buffers(LEN);
    let (created, handle) = next.create(LEN);
    let ids = next.join(&handle);
    let bind = |rank: usize| format!("mc-bind {} {} {LEN}", ids[rank], buffers[rank]);
    for answer in next.all(bind) {
        assert!(answer.contains("no multicast slot"), "{answer}");
    }
    next.members[0].ok(&format!("mc-drop {created}"));
    group
        .members
        .iter_mut()
        .for_each(gpuipc_tests::TestChild::kill);
    let (_created, handle) = next.create(LEN);
    next.ready(&handle, &buffers);
}

#[test]
fn a_thousand_rounds_are_flat() {
    let mut group = Group::new(2);
    let buffers = group.buffers(LEN);
    let round = |group: &mut Group| {
        let (created, handle) = group.create(LEN);
        let ids = group.ready(&handle, &buffers);
        group.all_ok(|rank| format!("mc-drop {}", ids[rank]));
        group.members[0].ok(&format!("mc-drop {created}"));
    };
    round(&mut group);
    let before = group.states();
    for _ in 0..1000 {
        round(&mut group);
    }
    group.return_to(&before);
}
