//! Four members over a transport that loses, changes and mixes up messages.

use super::*;
use std::sync::{Barrier, Mutex};

const SIZE: usize = 4;
const BALLOT: Ballot = Ballot {
    stage: Stage::AddDevice,
    object: ([1; 16], 2),
    offset: 0,
    length: 4096,
};

/// What one member hears of another one's message: by exchange, sender,
/// receiver.
type Wire<'a> = dyn Fn(usize, usize, usize, [u8; MESSAGE_BYTES]) -> Heard + Sync + 'a;

/// Four members agree once over such a transport; what each answers.
fn agree(
    wire: &Wire<'_>,
    own: impl Fn(usize) -> (Ballot, Result<(), Error>) + Sync,
) -> Vec<Result<(), Error>> {
    let (board, barrier) = (Mutex::new([[0; MESSAGE_BYTES]; SIZE]), Barrier::new(SIZE));
    let member = |rank: usize| {
        let mut exchange = 0;
        let gather = |message: &[u8; MESSAGE_BYTES], _deadline| {
            board.lock().expect("no panic")[rank] = *message;
            barrier.wait();
            let messages = *board.lock().expect("no panic");
            barrier.wait();
            exchange += 1;
            let hear = |from: usize| wire(exchange, from, rank, messages[from]);
            (0..SIZE).map(hear).collect()
        };
        let mut team = Team::new(rank, SIZE, gather).expect("a member");
        let (ballot, own) = own(rank);
        team.agree(&ballot, own)
    };
    std::thread::scope(|scope| {
        let member = &member;
        let threads: Vec<_> = (0..SIZE)
            .map(|rank| scope.spawn(move || member(rank)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    })
}

fn well(_rank: usize) -> (Ballot, Result<(), Error>) {
    (BALLOT, Ok(()))
}

fn named(answer: &Result<(), Error>, member: usize, fault: Fault) -> bool {
    matches!(answer, Err(Error::MulticastTeam(error))
        if (error.stage, error.member, error.fault) == (Stage::AddDevice, member, fault))
}

#[test]
fn members_that_are_well_agree() {
    let answers = agree(&|_, _, _, message| Heard::Message(message), well);
    assert!(answers.iter().all(Result::is_ok));
}

#[test]
fn a_death_that_only_some_saw_is_known_to_all() {
    // Member 2 dies after its vote has reached member 0 only.
    let wire = |exchange, from, to, message| {
        if from == 2 && (exchange == 2 || to == 1 || to == 3) {
            Heard::Gone
        } else {
            Heard::Message(message)
        }
    };
    let answers = agree(&wire, well);
    for rank in [0, 1, 3] {
        assert!(named(&answers[rank], 2, Fault::Gone), "{:?}", answers[rank]);
    }
}

#[test]
fn a_death_in_the_second_exchange_is_known_to_who_sees_it() {
    let wire = |exchange, from, _, message| {
        if from == 1 && exchange == 2 {
            Heard::Gone
        } else {
            Heard::Message(message)
        }
    };
    let answers = agree(&wire, well);
    for rank in [0, 2, 3] {
        assert!(named(&answers[rank], 1, Fault::Gone), "{:?}", answers[rank]);
    }
}

#[test]
fn who_is_gone_is_named_before_who_is_silent() {
    // Member 1 has heard of member 3's death before and talks no more.
    let wire = |_, from, _, message| match from {
        1 => Heard::Silent,
        3 => Heard::Gone,
        _ => Heard::Message(message),
    };
    let answers = agree(&wire, well);
    assert!(
        [0, 2]
            .iter()
            .all(|rank| named(&answers[*rank], 3, Fault::Gone))
    );
}

#[test]
fn a_failure_is_told_with_its_stage_and_code() {
    let code = Code::Driver(crate::sys::CuResult::ILLEGAL_STATE);
    let own = |rank| {
        let error = Unavailable::with_code(Stage::Capability, code);
        (BALLOT, if rank == 3 { Err(error.into()) } else { Ok(()) })
    };
    let answers = agree(&|_, _, _, message| Heard::Message(message), own);
    let fault = Fault::Failed {
        stage: Stage::Capability,
        code,
    };
    assert!((0..3).all(|rank| named(&answers[rank], 3, fault)));
    assert!(matches!(answers[3], Err(Error::MulticastUnavailable(_))));
}

#[test]
fn who_differs_is_named_by_itself_too() {
    let own = |rank| {
        let length = if rank == 2 { 8192 } else { 4096 };
        (Ballot { length, ..BALLOT }, Ok(()))
    };
    let answers = agree(&|_, _, _, message| Heard::Message(message), own);
    let right = |answer| named(answer, 2, Fault::OutOfStep);
    assert!(answers.iter().all(right), "{answers:?}");
}

#[test]
fn other_bytes_and_other_members_messages_are_found() {
    let noise = |_, from, to, message| {
        if from == 3 && to != 3 {
            Heard::Message([0xff; MESSAGE_BYTES])
        } else {
            Heard::Message(message)
        }
    };
    let answers = agree(&noise, well);
    assert!((0..3).all(|rank| named(&answers[rank], 3, Fault::Unreadable)));
    // A transport that mixes two members up.
    let board = Mutex::new([0; MESSAGE_BYTES]);
    let mixed = |_, from, to, message| {
        let mut other = board.lock().expect("no panic");
        if from == 0 {
            *other = message;
        }
        let wrong = from == 1 && to == 2;
        Heard::Message(if wrong { *other } else { message })
    };
    let answers = agree(&mixed, well);
    assert!(named(&answers[2], 1, Fault::OutOfStep), "{:?}", answers[2]);
}

#[test]
fn a_transport_that_returns_too_few_names_the_first_missing() {
    let mut team = Team::new(0, 2, |_, _| Vec::new()).expect("a member");
    let answer = team.agree(&BALLOT, Ok(()));
    assert!(named(&answer, 1, Fault::Unreadable));
    // And the transport is not used again.
    assert!(named(&team.agree(&BALLOT, Ok(())), 1, Fault::Unreadable));
    assert!(Team::new(2, 2, |_, _| Vec::new()).is_err());
}
