//! B37: who fails, dies or is silent at any stage is named, and nobody hangs.

use crate::{Group, LEN, names, refused};
use std::time::{Duration, Instant};

/// The member that is in trouble, of four.
const VICTIM: usize = 2;
const OTHERS: [usize; 3] = [0, 1, 3];

/// The lines by which a member goes from imported to mapped.
const STEPS: [&str; 3] = ["mc-add ID 0", "mc-bind ID BUFFER LEN", "mc-map ID"];

struct Four {
    group: Group,
    buffers: Vec<u32>,
    ids: Vec<u32>,
}

impl Four {
    fn new(settings: &[(&str, &str)]) -> Self {
        let mut group = Group::with(4, settings);
        let buffers = group.buffers(LEN);
        let (_created, handle) = group.create(LEN);
        let ids = group.import(&handle);
        Self {
            group,
            buffers,
            ids,
        }
    }

    fn line(&self, step: &str) -> impl Fn(usize) -> String + use<> {
        let (ids, buffers, step) = (self.ids.clone(), self.buffers.clone(), step.to_owned());
        move |rank| {
            step.replace("ID", &ids[rank].to_string())
                .replace("BUFFER", &buffers[rank].to_string())
                .replace("LEN", &LEN.to_string())
        }
    }

    /// All go through the steps before this one.
    fn up_to(&mut self, step: usize) {
        for step in &STEPS[..step] {
            let line = self.line(step);
            self.group.all_ok(line);
        }
    }
}

#[test]
fn a_member_killed_before_any_stage_is_named_by_all_others() {
    for (at, step) in STEPS.iter().enumerate() {
        let mut four = Four::new(&[]);
        four.up_to(at);
        four.group.members[VICTIM].kill();
        let start = Instant::now();
        let line = four.line(step);
        let answers = four.group.some(&OTHERS, line);
        assert!(start.elapsed() < Duration::from_secs(10), "they waited");
        for answer in answers {
            assert!(
                names(&answer, VICTIM, "has left or died"),
                "{step}: {answer}"
            );
        }
        // What they had is undone, and their own memory is as it was.
        for rank in OTHERS {
            let buffer = four.buffers[rank];
            four.group.members[rank].ok(&format!("mc-poke {buffer} 0 7"));
            let state = four.group.members[rank].state();
            assert!(
                state.contains("bindings 0") && state.contains("mappings 1"),
                "{state}"
            );
        }
    }
}

#[test]
fn a_member_killed_while_the_others_wait_is_named() {
    for (at, step) in STEPS.iter().enumerate() {
        let mut four = Four::new(&[]);
        four.up_to(at);
        let line = four.line(step);
        for rank in OTHERS {
            four.group.members[rank].send(&line(rank));
        }
        std::thread::sleep(Duration::from_millis(100));
        four.group.members[VICTIM].kill();
        for rank in OTHERS {
            let answer = four.group.members[rank].answer(step);
            assert!(
                names(&answer, VICTIM, "has left or died"),
                "{step}: {answer}"
            );
        }
    }
}

#[test]
fn a_member_that_is_stopped_is_named_at_the_deadline() {
    for (at, step) in STEPS.iter().enumerate() {
        let mut four = Four::new(&[("GPUIPC_TEST_TEAM_TIMEOUT_MS", "1500")]);
        four.up_to(at);
        four.group.members[VICTIM].ok("stop");
        std::thread::sleep(Duration::from_millis(150));
        let start = Instant::now();
        let line = four.line(step);
        for answer in four.group.some(&OTHERS, line) {
            assert!(names(&answer, VICTIM, "said nothing"), "{step}: {answer}");
        }
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "{:?}",
            start.elapsed()
        );
    }
}

#[test]
fn a_member_that_fails_is_named_with_its_stage_and_code() {
    let calls = [
        ("cuMulticastAddDevice", STEPS[0], "cuMulticastAddDevice"),
        ("cuMulticastBindMem", STEPS[1], "cuMulticastBindMem"),
        ("cuMemMap", STEPS[2], "cuMemMap"),
    ];
    for (at, (symbol, step, stage)) in calls.into_iter().enumerate() {
        let mut four = Four::new(&[]);
        four.up_to(at);
        four.group.members[VICTIM].ok(&format!("fail {symbol} 1 802 1"));
        let line = four.line(step);
        four.group.members[VICTIM].send(&line(VICTIM));
        let mut told = four.group.some(&OTHERS, line);
        if symbol == "cuMulticastBindMem" {
            // The others have bound; they hear of it when they have mapped.
            assert_eq!(told, ["ok"; 3]);
            let line = four.line(STEPS[2]);
            told = four.group.some(&OTHERS, line);
        }
        let own = refused(&four.group.members[VICTIM].answer(step));
        assert_eq!(own.status, "MULTICAST_UNAVAILABLE");
        assert!(
            own.text.contains(stage) && own.text.contains("802"),
            "{}",
            own.text
        );
        for answer in told {
            let what = format!("failed at {stage} [CUDA_ERROR_SYSTEM_NOT_READY (802)]");
            assert!(names(&answer, VICTIM, &what), "{answer}");
        }
    }
}

#[test]
fn a_member_that_leaves_between_stages_is_named() {
    let mut four = Four::new(&[]);
    four.up_to(1);
    // It gives the object up, and says nothing: its process ends.
    let id = four.ids[VICTIM];
    four.group.members[VICTIM].ok(&format!("mc-drop {id}"));
    four.group.members[VICTIM].kill();
    let line = four.line(STEPS[1]);
    for answer in four.group.some(&OTHERS, line) {
        assert!(names(&answer, VICTIM, "has left or died"), "{answer}");
    }
}

#[test]
fn a_member_killed_once_all_is_mapped_takes_nobody_with_it() {
    let mut four = Four::new(&[]);
    four.up_to(3);
    four.group.members[VICTIM].kill();
    for rank in OTHERS {
        let (id, buffer) = (four.ids[rank], four.buffers[rank]);
        // Its memory is gone, so the object reaches nothing any more.
        let answer = refused(&four.group.members[rank].ask(&format!("mc-write {id} 0 1")));
        assert_eq!(answer.status, "DRIVER_CALL");
        four.group.members[rank].ok(&format!("mc-close {id}"));
        four.group.members[rank].ok(&format!("mc-poke {buffer} 0 7"));
        let state = four.group.members[rank].state();
        assert!(
            state.contains("bindings 0") && state.contains("mappings 1"),
            "{state}"
        );
    }
}

#[test]
fn members_of_different_objects_do_not_agree() {
    let mut group = Group::new(3);
    let handles: Vec<String> = (0..2).map(|_| group.create(LEN).1).collect();
    let ids = group.all_ok(|rank| format!("mc-import {}", handles[rank / 2]));
    for answer in group.all(|rank| format!("mc-add {} 0", ids[rank])) {
        assert!(names(&answer, 2, "is at another stage"), "{answer}");
    }
}

#[test]
fn members_that_bind_different_lengths_do_not_agree() {
    let mut group = Group::new(3);
    let buffers = group.buffers(2 * LEN);
    let (_created, handle) = group.create(2 * LEN);
    let ids = group.join(&handle);
    let before = group.states();
    let len = |rank| if rank == 1 { 2 * LEN } else { LEN };
    let bind = |rank: usize| format!("mc-bind {} {} {}", ids[rank], buffers[rank], len(rank));
    for answer in group.all(bind) {
        assert!(names(&answer, 1, "is at another stage"), "{answer}");
    }
    for member in &mut group.members {
        assert_eq!(member.ok("calls cuMulticastBindMem"), "0");
    }
    assert!(before.iter().all(|state| state.contains("multicast ")));
}

#[test]
fn a_team_of_another_size_is_refused() {
    let mut group = Group::new(2);
    let answer = group.members[0].ok(&format!("mc-create {LEN} 3"));
    let (_, handle) = answer.split_once(' ').expect("two words");
    let ids = group.import(handle);
    for answer in group.all(|rank| format!("mc-add {} 0", ids[rank])) {
        assert_eq!(refused(&answer).status, "INVALID_ARGUMENT");
    }
}

#[test]
fn of_several_that_die_all_others_name_the_same() {
    let mut group = Group::new(8);
    let (_created, handle) = group.create(LEN);
    let ids = group.import(&handle);
    let others = [1, 2, 4, 5, 7];
    for rank in others {
        group.members[rank].send(&format!("mc-add {} 0", ids[rank]));
    }
    // The creator, too.
    for victim in [6, 0, 3] {
        group.members[victim].kill();
    }
    for rank in others {
        let answer = group.members[rank].answer("mc-add");
        assert!(names(&answer, 0, "has left or died"), "{answer}");
    }
}

#[test]
fn a_member_that_cannot_import_tells_the_others() {
    let mut group = Group::new(4);
    let (_created, handle) = group.create(LEN);
    let others = OTHERS.map(|rank| {
        let id = group.members[rank].ok(&format!("mc-import {handle}"));
        (rank, id)
    });
    group.members[VICTIM].ok("fail cuMemImportFromShareableHandle 1 801 2");
    group.members[VICTIM].send(&format!("mc-import-or-give-up {handle}"));
    for (rank, id) in &others {
        group.members[*rank].send(&format!("mc-add {id} 0"));
    }
    let start = Instant::now();
    for (rank, _) in &others {
        let answer = group.members[*rank].answer("mc-add");
        let what = "failed at cuMemImportFromShareableHandle [CUDA_ERROR_NOT_SUPPORTED (801)]";
        assert!(names(&answer, VICTIM, what), "{answer}");
    }
    assert!(start.elapsed() < Duration::from_secs(10), "they waited");
    let own = refused(&group.members[VICTIM].answer("mc-import-or-give-up"));
    assert_eq!(own.status, "MULTICAST_UNAVAILABLE");
    // The team is well, and takes another object.
    let (_created, handle) = group.create(LEN);
    let buffers = group.buffers(LEN);
    group.ready(&handle, &buffers);
}

#[test]
fn a_member_killed_at_any_moment_is_named_or_was_not_needed_any_more() {
    let long = std::env::var_os("GPUIPC_TEST_LONG").is_some();
    let rounds: u64 = if long { 500 } else { 40 };
    let (mut named, mut ready) = (0, 0);
    for round in 0..rounds {
        let mut four = Four::new(&[("GPUIPC_TEST_TEAM_TIMEOUT_MS", "3000")]);
        let lines: Vec<Vec<String>> = (0..4)
            .map(|rank| STEPS.map(|step| four.line(step)(rank)).to_vec())
            .collect();
        let mixed = round.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        let moment = Duration::from_micros(mixed % 20_000);
        let mut members: Vec<_> = four.group.members.iter_mut().collect();
        let victim = members.remove(VICTIM);
        let ends: Vec<Result<(), String>> = std::thread::scope(|scope| {
            let threads: Vec<_> = members
                .into_iter()
                .zip(OTHERS)
                .map(|(member, rank)| {
                    let lines = &lines[rank];
                    scope.spawn(move || {
                        for line in lines {
                            let answer = member.ask(line);
                            if answer != "ok" {
                                return Err(answer);
                            }
                        }
                        Ok(())
                    })
                })
                .collect();
            for line in &lines[VICTIM] {
                victim.send(line);
            }
            std::thread::sleep(moment);
            victim.kill();
            let ends = threads.into_iter().map(|thread| thread.join());
            ends.map(|end| end.expect("no panic")).collect()
        });
        for end in ends {
            match end {
                Ok(()) => ready += 1,
                Err(answer) => {
                    let right = names(&answer, VICTIM, "has left or died");
                    assert!(right, "after {moment:?}: {answer}");
                    named += 1;
                }
            }
        }
    }
    assert!(
        named > 0 && ready > 0,
        "the moments are not spread: {named} and {ready}"
    );
}
