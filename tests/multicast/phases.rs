//! From created to mapped, when nothing goes wrong.

use crate::{Group, LEN, refused};
use std::time::Duration;

#[test]
fn a_write_reaches_every_member_and_a_sum_is_over_all() {
    for size in [1, 2, 4, 8] {
        let mut group = Group::new(size);
        group.all_ok(|_| "context 0".to_owned());
        let before = group.states();
        let buffers = group.buffers(LEN);
        let (created, handle) = group.create(LEN);
        let ids = group.ready(&handle, &buffers);
        for (rank, writer) in (0..size).enumerate() {
            let value = 1000 + rank;
            group.members[writer].ok(&format!("mc-write {} {} {value}", ids[writer], 8 * rank));
            let seen = group.all_ok(|reader| format!("mc-peek {} {}", buffers[reader], 8 * rank));
            assert!(
                seen.iter().all(|seen| *seen == value.to_string()),
                "{seen:?}"
            );
        }
        group.all_ok(|rank| format!("mc-poke {} 4096 {}", buffers[rank], 1 << rank));
        let sums = group.all_ok(|rank| format!("mc-sum {} 4096", ids[rank]));
        assert!(sums.iter().all(|sum| *sum == ((1 << size) - 1).to_string()));
        group.all_ok(|rank| format!("mc-drop {}", ids[rank]));
        group.members[0].ok(&format!("mc-drop {created}"));
        group.all_ok(|rank| format!("free {}", buffers[rank]));
        group.all_ok(|_| "drop-ipc".to_owned());
        // The team's sockets were there from the start.
        group.return_to(&before);
    }
}

#[test]
fn the_creator_may_let_go_once_it_has_joined() {
    let mut group = Group::new(2);
    let buffers = group.buffers(LEN);
    let (created, handle) = group.create(LEN);
    let ids = group.join(&handle);
    group.members[0].ok(&format!("mc-drop {created}"));
    group.members[0].ok("drop-ipc");
    group.all_ok(|rank| format!("mc-bind {} {} {LEN}", ids[rank], buffers[rank]));
    group.all_ok(|rank| format!("mc-map {}", ids[rank]));
    group.members[1].ok(&format!("mc-write {} 0 5", ids[1]));
    assert_eq!(
        group.members[0].ok(&format!("mc-peek {} 0", buffers[0])),
        "5"
    );
    // Nobody can come later.
    let late = refused(&group.members[1].ask(&format!("mc-import {handle} timeout=500")));
    assert_eq!(late.status, "EXPORTER_GONE");
}

#[test]
fn nobody_has_the_address_before_all_have_bound() {
    let mut group = Group::new(2);
    let buffers = group.buffers(LEN);
    let (_created, handle) = group.create(LEN);
    let ids = group.join(&handle);
    group.members[0].send(&format!("mc-bind {} {} {LEN}", ids[0], buffers[0]));
    group.members[1].ok(&format!("mc-bind {} {} {LEN}", ids[1], buffers[1]));
    assert_eq!(group.members[0].answer("mc-bind"), "ok");
    group.members[0].send(&format!("mc-map {}", ids[0]));
    std::thread::sleep(Duration::from_millis(200));
    // The other one's memory is bound, but its member does not say so yet.
    assert_eq!(group.members[1].ok("calls cuMulticastBindMem"), "1");
    assert_eq!(group.members[1].ok("calls cuMemMap"), "1", "its buffer's");
    group.members[1].ok(&format!("mc-map {}", ids[1]));
    assert_eq!(group.members[0].answer("mc-map"), "ok");
    group.members[0].ok(&format!("mc-write {} 0 5", ids[0]));
}

#[test]
fn a_part_of_the_memory_may_be_bound() {
    let mut group = Group::new(2);
    let buffers = group.buffers(2 * LEN);
    let (_created, handle) = group.create(LEN);
    let ids = group.join(&handle);
    group.all_ok(|rank| format!("mc-bind {} {} {LEN} {LEN}", ids[rank], buffers[rank]));
    group.all_ok(|rank| format!("mc-map {}", ids[rank]));
    group.members[0].ok(&format!("mc-write {} 4 6", ids[0]));
    let seen = group.all_ok(|rank| format!("mc-peek {} {}", buffers[rank], LEN + 4));
    assert_eq!(seen, ["6", "6"]);
}

#[test]
fn the_object_is_as_large_as_the_driver_recommends() {
    let settings = [("GPUIPC_EMULATED_MULTICAST_GRANULARITY", "2MiB,8MiB")];
    let mut group = Group::with(2, &settings);
    let buffers = group.buffers(LEN);
    let (_created, handle) = group.create(1);
    assert_eq!(gpuipc_tests::handle_of(&handle).base_size(), 8 << 20);
    assert_eq!(gpuipc_tests::handle_of(&handle).num_devices(), 2);
    group.ready(&handle, &buffers);
}

#[test]
fn an_object_travels_by_fabric_handle_too() {
    let mut group = Group::new(2);
    let buffers = group.buffers(LEN);
    let (_created, handle) = group.create(LEN);
    let ids = group.all_ok(|_| format!("mc-import {handle} types=Fabric"));
    group.all_ok(|rank| format!("mc-add {} 0", ids[rank]));
    group.all_ok(|rank| format!("mc-bind {} {} {LEN}", ids[rank], buffers[rank]));
    group.all_ok(|rank| format!("mc-map {}", ids[rank]));
    group.members[1].ok(&format!("mc-write {} 0 5", ids[1]));
    assert_eq!(
        group.members[0].ok(&format!("mc-peek {} 0", buffers[0])),
        "5"
    );
}

#[test]
fn without_a_fabric_the_object_is_made_for_descriptors() {
    let mut group = Group::with(2, &[("GPUIPC_EMULATED_IMEX", "none")]);
    let buffers = group.buffers(LEN);
    let (_created, handle) = group.create(LEN);
    let types = gpuipc_tests::handle_of(&handle).types();
    assert_eq!(types.types().as_slice(), [gpuipc::HandleType::PosixFd]);
    group.ready(&handle, &buffers);
}

#[test]
fn a_creator_that_dies_before_all_have_imported_is_told() {
    let mut group = Group::new(2);
    let (_created, handle) = group.create(LEN);
    group.members[0].kill();
    let answer = group.members[1].ask(&format!("mc-import {handle} timeout=2000"));
    assert_eq!(refused(&answer).status, "EXPORTER_GONE");
}

#[test]
fn a_creator_that_dies_once_all_have_joined_leaves_the_object() {
    let mut group = Group::new(2);
    let buffers = group.buffers(LEN);
    let (_created, handle) = group.create(LEN);
    let ids = group.ready(&handle, &buffers);
    group.members[0].kill();
    // Its memory went with it; the object did not, and comes down in order.
    let closed = group.members[1].ask(&format!("mc-close {}", ids[1]));
    assert_eq!(closed, "ok");
}

#[test]
fn the_mapping_has_the_objects_alignment() {
    let settings = [("GPUIPC_EMULATED_MULTICAST_GRANULARITY", "16MiB")];
    let mut group = Group::with(2, &settings);
    // Addresses that would be just as good for memory are taken first.
    let buffers = group.buffers(16 << 20);
    let (_created, handle) = group.create(1);
    let ids = group.join(&handle);
    let len = 16 << 20;
    group.all_ok(|rank| format!("mc-bind {} {} {len}", ids[rank], buffers[rank]));
    group.all_ok(|rank| format!("mc-map {}", ids[rank]));
    group.members[0].ok(&format!("mc-write {} 0 5", ids[0]));
}
