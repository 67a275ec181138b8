//! B40: whatever is dropped in whatever order, the driver sees one order; and a
//! failure on the way is told and stops nothing.

use crate::{Group, LEN, refused};

/// Every order of four things.
fn orders() -> Vec<[usize; 4]> {
    let mut orders = Vec::new();
    for code in 0..256_usize {
        let order = [code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6 & 3];
        if (0..4).all(|thing| order.contains(&thing)) {
            orders.push(order);
        }
    }
    orders
}

#[test]
fn every_drop_order_is_one_order_for_the_driver() {
    let orders = orders();
    assert_eq!(orders.len(), 24);
    let mut group = Group::new(2);
    let warm = group.buffers(LEN);
    let (created, handle) = group.create(LEN);
    let ids = group.ready(&handle, &warm);
    group.all_ok(|rank| format!("mc-drop {}", ids[rank]));
    group.members[0].ok(&format!("mc-drop {created}"));
    group.members[0].ok("drop-ipc");
    group.members[1].ok("drop-ipc");
    group.all_ok(|_| "mc-log".to_owned());
    let before = group.states();
    for order in orders {
        let buffers = group.buffers(LEN);
        let (created, handle) = group.create(LEN);
        let ids = group.ready(&handle, &buffers);
        for thing in order {
            group.members[0].ok("mc-log");
            let line = |rank: usize| match (thing, rank) {
                (0, 0) => format!("mc-drop {created}"),
                (1, _) => format!("mc-drop {}", ids[rank]),
                (2, _) => format!("free {}", buffers[rank]),
                (3, _) => "drop-ipc".to_owned(),
                _ => "mc-log".to_owned(),
            };
            group.all_ok(line);
            let calls = group.members[0].ok("mc-calls");
            // The broker's thread makes no driver call for an object.
            let expected = match thing {
                0 => "cuMemRelease",
                1 => "cuMemUnmap cuMemAddressFree cuMulticastUnbind cuMemRelease cuMemRelease",
                2 => "cuMemUnmap cuMemAddressFree cuDevicePrimaryCtxRelease_v2",
                _ => "",
            };
            assert_eq!(calls, expected, "{order:?}: {thing}");
        }
        group.return_to(&before);
    }
}

#[test]
fn what_is_dropped_in_an_early_phase_is_undone() {
    let mut group = Group::new(2);
    let buffers = group.buffers(LEN);
    let (created, handle) = group.create(LEN);
    let ids = group.ready(&handle, &buffers);
    group.all_ok(|rank| format!("mc-drop {}", ids[rank]));
    group.members[0].ok(&format!("mc-drop {created}"));
    let before = group.states();
    for phase in 0..3 {
        let (created, handle) = group.create(LEN);
        let ids = group.import(&handle);
        if phase > 0 {
            group.all_ok(|rank| format!("mc-add {} 0", ids[rank]));
        }
        if phase > 1 {
            group.all_ok(|rank| format!("mc-bind {} {} {LEN}", ids[rank], buffers[rank]));
        }
        group.members[0].ok(&format!("mc-drop {created}"));
        group.all_ok(|rank| format!("mc-drop {}", ids[rank]));
        group.return_to(&before);
    }
}

#[test]
fn the_binding_keeps_memory_that_its_owner_frees() {
    let mut group = Group::new(2);
    let buffers = group.buffers(LEN);
    let (_created, handle) = group.create(LEN);
    let ids = group.ready(&handle, &buffers);
    group.members[1].ok(&format!("free {}", buffers[1]));
    group.members[0].ok(&format!("mc-write {} 0 3", ids[0]));
    group.members[0].ok(&format!("mc-poke {} 0 4", buffers[0]));
    assert_eq!(group.members[0].ok(&format!("mc-sum {} 0", ids[0])), "7");
}

#[test]
fn the_device_that_was_added_is_unbound_and_no_other() {
    // Each process sees both GPUs, and its own is not device 0 for both.
    let mut group = Group::with(2, &[("GPUIPC_EMULATED_VISIBLE", "0,1")]);
    let buffers: Vec<u32> = group.buffers(LEN);
    let (_created, handle) = group.create(LEN);
    let ids = group.import(&handle);
    // Member 1 adds device 1, and has memory of device 0 only.
    group.all_ok(|rank| format!("mc-add {} {rank}", ids[rank]));
    let answers = group.all(|rank| format!("mc-bind {} {} {LEN}", ids[rank], buffers[rank]));
    assert!(
        refused(&answers[1]).text.contains("cannot be bound"),
        "{}",
        answers[1]
    );
    assert!(
        crate::names(&answers[0], 1, "failed at layout"),
        "{}",
        answers[0]
    );
}

#[test]
fn a_failing_unbind_is_told_and_the_rest_goes_on() {
    let mut group = Group::new(2);
    let buffers = group.buffers(LEN);
    let (created, handle) = group.create(LEN);
    let ids = group.ready(&handle, &buffers);
    group.members[0].ok(&format!("mc-drop {created}"));
    group.members[0].ok("fail cuMulticastUnbind 1 401 1");
    let told = refused(&group.members[0].ask(&format!("mc-close {}", ids[0])));
    assert_eq!(told.status, "MULTICAST_UNAVAILABLE");
    let says = told.text.contains("cuMulticastUnbind") && told.text.contains("401");
    assert!(says, "{}", told.text);
    // The drop says it in the log.
    group.members[1].ok("mc-log");
    group.members[1].ok("fail cuMulticastUnbind 1 401 1");
    group.members[1].ok(&format!("mc-drop {}", ids[1]));
    let calls = group.members[1].ok("mc-calls");
    let warned = calls.contains("warn:undo:_cuMulticastUnbind_failed");
    assert!(
        warned && calls.ends_with("cuMemRelease cuMemRelease"),
        "{calls}"
    );
    for member in &mut group.members {
        let state = member.state();
        assert!(state.contains("multicast 0 bindings 0"), "{state}");
        assert!(state.contains("handles 0 mappings 1"), "{state}");
    }
}

#[test]
fn a_failing_unmap_stops_nothing_either() {
    let mut group = Group::new(2);
    let buffers = group.buffers(LEN);
    let (created, handle) = group.create(LEN);
    let ids = group.ready(&handle, &buffers);
    group.members[0].ok(&format!("mc-drop {created}"));
    group.members[0].ok("mc-log");
    group.members[0].ok("fail cuMemUnmap 1 999 1");
    let told = refused(&group.members[0].ask(&format!("mc-close {}", ids[0])));
    assert!(told.text.contains("cuMemUnmap"), "{}", told.text);
    let calls = group.members[0].ok("mc-calls");
    assert!(calls.starts_with("cuMemUnmap cuMemAddressFree"), "{calls}");
    assert!(
        calls.ends_with("cuMulticastUnbind cuMemRelease cuMemRelease"),
        "{calls}"
    );
}

#[test]
fn a_forked_child_takes_nothing_from_its_parent() {
    let mut group = Group::new(2);
    let buffers = group.buffers(LEN);
    let (_created, handle) = group.create(LEN);
    let ids = group.ready(&handle, &buffers);
    group.members[0].ok("fork");
    group.members[1].ok(&format!("mc-write {} 0 8", ids[1]));
    assert_eq!(
        group.members[0].ok(&format!("mc-peek {} 0", buffers[0])),
        "8"
    );
}
