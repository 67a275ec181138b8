//! B07: the system refuses multicast at any stage, with any code; memory that is
//! shared in the ordinary way lives on, and nothing leaks.

use crate::{Group, LEN, refused};
use gpuipc_tests::TestChild;

/// Of a sick system, an exhausted one, and of one that has none.
const CODES: [u32; 6] = [401, 802, 1, 800, 801, 2];

/// The way of one member to a mapped object, until a line fails.
fn go(group: &mut Group, buffers: &[u32], victim: usize) -> Result<(), Vec<String>> {
    let answer = group.members[0].ask(&format!("mc-create {LEN} 2"));
    let Some((created, handle)) = answer
        .strip_prefix("ok ")
        .and_then(|rest| rest.split_once(' '))
    else {
        return Err(vec![answer]);
    };
    let went = go_on(group, buffers, victim, handle);
    group.members[0].ok(&format!("mc-drop {created}"));
    went
}

fn go_on(
    group: &mut Group,
    buffers: &[u32],
    victim: usize,
    handle: &str,
) -> Result<(), Vec<String>> {
    let failed = |answers: &[String]| answers.iter().any(|answer| !answer.starts_with("ok"));
    let imported = group.all(|_| format!("mc-import {handle}"));
    if failed(&imported) {
        for (member, answer) in group.members.iter_mut().zip(&imported) {
            if let Some(id) = answer.strip_prefix("ok ") {
                member.ok(&format!("mc-drop {id}"));
            }
        }
        return Err(imported);
    }
    let id = |rank: usize| imported[rank].trim_start_matches("ok ").to_owned();
    let answers = group.all(|rank| format!("mc-add {} 0", id(rank)));
    if failed(&answers) {
        return Err(answers);
    }
    // Who binds goes on at once: a member whose bind failed waits for the others,
    // to tell them when they have mapped.
    for (rank, buffer) in buffers.iter().enumerate() {
        group.members[rank].send(&format!("mc-bind {} {buffer} {LEN}", id(rank)));
    }
    let mut last = vec![String::new(); 2];
    for rank in [1 - victim, victim] {
        last[rank] = group.members[rank].answer("mc-bind");
        if last[rank] == "ok" {
            group.members[rank].send(&format!("mc-map {}", id(rank)));
        }
    }
    for (member, last) in group.members.iter_mut().zip(&mut last) {
        if last == "ok" {
            *last = member.answer("mc-map");
        }
    }
    if failed(&last) {
        return Err(last);
    }
    group.all_ok(|rank| format!("mc-drop {}", id(rank)));
    Ok(())
}

/// Shares a buffer of member 0 with member 1 in the ordinary way.
fn ordinary(group: &mut Group) -> (u32, u32) {
    let (buffer, _) = group.members[0].alloc("vmm-fd", LEN);
    group.members[0].ok(&format!("fill {buffer} 21"));
    let (_, handle) = group.members[0].export(buffer, 0, LEN);
    (buffer, group.members[1].import(&handle, "").id)
}

#[test]
fn every_code_at_every_stage_is_told_and_the_ordinary_mapping_lives() {
    // Whose call, how many uses fail, and the stage that is told. Where the
    // fabric is refused an object without it is tried.
    let stages = [
        ("cuMulticastGetGranularity", 0, 1),
        ("cuMulticastCreate", 0, 2),
        ("cuMemExportToShareableHandle", 0, 1),
        ("cuMulticastGetGranularity", 1, 1),
        ("cuMemImportFromShareableHandle", 1, 2),
        ("cuDeviceGetAttribute", 1, 1),
        ("cuMulticastAddDevice", 1, 1),
        ("cuMulticastBindMem", 1, 1),
        ("cuMemAddressReserve", 1, 1),
        ("cuMemMap", 1, 1),
        ("cuMemSetAccess", 1, 1),
    ];
    let mut group = Group::new(2);
    let (_, mapping) = ordinary(&mut group);
    group.members[1].ok(&format!("read {mapping} 21 0"));
    let buffers = group.buffers(LEN);
    go(&mut group, &buffers, 0).expect("all is well");
    let before = group.states();
    for (symbol, victim, times) in stages {
        for code in CODES {
            group.members[victim].ok(&format!("fail {symbol} 1 {code} {times}"));
            let answers = go(&mut group, &buffers, victim).expect_err("a call fails");
            let own = answers.last().expect("an answer");
            let own = refused(if victim == 0 { &answers[0] } else { own });
            assert_eq!(
                own.status, "MULTICAST_UNAVAILABLE",
                "{symbol} {code}: {own:?}"
            );
            let says = own.text.contains(symbol) && own.text.contains(&format!("({code})"));
            assert!(says, "{symbol} {code}: {}", own.text);
            group.members[victim].ok("no-faults");
            group.return_to(&before);
            group.members[1].ok(&format!("read {mapping} 21 0"));
        }
    }
    // And it works again once the cause is gone.
    go(&mut group, &buffers, 0).expect("all is well");
    group.return_to(&before);
}

#[test]
fn a_gpu_or_a_driver_without_multicast_says_so() {
    for setting in [
        ("GPUIPC_EMULATED_ATTRIBUTES", "132=0"),
        ("GPUIPC_EMULATED_DRIVER_VERSION", "12000"),
        ("GPUIPC_EMULATED_PROFILE", "no-peer"),
    ] {
        let mut group = Group::with(2, &[setting]);
        let refused = refused(&group.members[0].ask(&format!("mc-create {LEN} 2")));
        assert_eq!(refused.status, "MULTICAST_UNAVAILABLE");
        assert!(
            refused.text.contains("has no multicast"),
            "{}",
            refused.text
        );
        let buffers = group.buffers(LEN);
        group.members[0].ok(&format!("fill {} 3", buffers[0]));
    }
}

#[test]
fn memory_that_cannot_be_bound_is_refused_before_the_driver_is_asked() {
    let mut group = Group::new(2);
    let buffers = group.buffers(2 * LEN);
    let (legacy, _) = group.members[1].alloc("cuda-malloc", 2 * LEN);
    let granularity = "a multiple of the multicast granularity, which is 2097152";
    let invalid = "INVALID_ARGUMENT";
    for (buffer, len, offset, status, words) in [
        (legacy, LEN, 0, "MULTICAST_UNAVAILABLE", "cannot be bound"),
        (buffers[1], LEN, 4096, invalid, granularity),
        (buffers[1], LEN + 4096, 0, invalid, granularity),
        (buffers[1], 0, 0, invalid, granularity),
        (buffers[1], 4 * LEN, 0, invalid, "has from ptr on are"),
    ] {
        let (created, handle) = group.create(8 * LEN);
        let ids = group.join(&handle);
        let answers = group.all(|rank| {
            let id = ids[rank];
            if rank == 0 {
                format!("mc-bind {id} {} {LEN}", buffers[0])
            } else {
                format!("mc-bind {id} {buffer} {len} {offset}")
            }
        });
        let own = refused(&answers[1]);
        assert_eq!(own.status, status);
        assert!(own.text.contains(words), "{}", own.text);
        assert!(
            crate::names(&answers[0], 1, "failed at layout"),
            "{}",
            answers[0]
        );
        group.members[0].ok(&format!("mc-drop {created}"));
    }
    let bound = |member: &mut TestChild| member.ok("calls cuMulticastBindMem") == "0";
    assert!(group.members.iter_mut().all(bound));
}

#[test]
fn a_handle_of_something_else_is_refused() {
    let mut group = Group::new(2);
    let (buffer, _) = group.members[0].alloc("vmm-fd", LEN);
    let (_, handle) = group.members[0].export(buffer, 0, LEN);
    let hex = gpuipc_tests::to_hex(&handle.encode());
    let memory = refused(&group.members[1].ask(&format!("mc-import {hex}")));
    assert_eq!(memory.status, "INVALID_ARGUMENT");
    let (_created, hex) = group.create(LEN);
    let handle = gpuipc_tests::handle_of(&hex);
    assert_eq!(
        group.members[1].import_refused(&handle, "").status,
        "UNSUPPORTED"
    );
    // Larger than it is: the driver refuses to map it.
    let forged = gpuipc_tests::forge(&handle, |fields| {
        fields.base_size = 2 * LEN;
        fields.length = 2 * LEN;
        fields.range.length = 2 * LEN;
    });
    let hex = gpuipc_tests::to_hex(&forged.encode());
    let buffers = group.buffers(LEN);
    let ids = group.join(&hex);
    group.all_ok(|rank| format!("mc-bind {} {} {LEN}", ids[rank], buffers[rank]));
    for answer in group.all(|rank| format!("mc-map {}", ids[rank])) {
        assert_eq!(refused(&answer).status, "MULTICAST_UNAVAILABLE");
    }
}
