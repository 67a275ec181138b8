//! Exporter and importer of different users, and what one user may have in flight.

use crate::PROGRAM;
use crate::broker::connect_to;
use gpuipc_core::Request;
use gpuipc_tests::{ForEveryone, Scratch, TestChild, forge};
use std::io::Write as _;
use std::time::Duration;

const LEN: u64 = 2 << 20;

fn as_user(scratch: &Scratch, program: &ForEveryone, uid: u32, trust: &str) -> TestChild {
    use std::os::unix::process::CommandExt;
    TestChild::start_with(&program.program().to_string_lossy(), scratch, |command| {
        command
            .uid(uid)
            .gid(uid)
            .current_dir("/")
            .env("GPUIPC_TRUST", trust);
    })
}

const NOBODY: u32 = 65534;
const SOMEONE: u32 = 12345;

/// What becomes of an import from one user's process by another's, with each
/// side's policy: `ok`, or the attempt that failed.
fn between_users(program: &ForEveryone, exporter: (u32, &str), importer: (u32, &str)) -> String {
    let scratch = Scratch::new();
    let mut exporter = as_user(&scratch, program, exporter.0, exporter.1);
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    exporter.ok(&format!("fill {buffer} 41"));
    let (_, handle) = exporter.export(buffer, 0, LEN);
    let mut importer = as_user(&scratch, program, importer.0, importer.1);
    let answer = importer.ask(&format!(
        "import {}",
        gpuipc_tests::to_hex(&handle.encode())
    ));
    if let Some(rest) = answer.strip_prefix("ok ") {
        let id = rest.split(' ').next().expect("a number").to_owned();
        importer.ok(&format!("read {id} 41 0"));
        return "ok".to_owned();
    }
    answer.split(' ').nth(2).expect("the attempts").to_owned()
}

/// The helper program for all users that the tests are.
fn program() -> Option<ForEveryone> {
    ForEveryone::copy(PROGRAM, NOBODY)
}

#[test]
fn both_sides_refuse_another_user() {
    let Some(program) = program() else { return };
    let import = |exporter, importer| between_users(&program, (exporter, ""), (importer, ""));
    assert_eq!(import(SOMEONE, SOMEONE), "ok");
    assert_eq!(import(NOBODY, NOBODY), "ok");
    // The importer does not give its token to another user's process.
    assert_eq!(import(SOMEONE, NOBODY), "PosixFd/broker-connect/NotTrusted");
    assert_eq!(import(SOMEONE, 0), "PosixFd/broker-connect/NotTrusted");
    // Root's broker is trusted, but does not serve everyone.
    assert_eq!(import(0, SOMEONE), "PosixFd/broker-request/UserRefused");
}

#[test]
fn other_users_are_served_once_both_sides_trust_them() {
    let Some(program) = program() else { return };
    assert_eq!(
        between_users(&program, (SOMEONE, "65534"), (NOBODY, "12345")),
        "ok"
    );
    assert_eq!(between_users(&program, (SOMEONE, ""), (0, "12345")), "ok");
    assert_eq!(
        between_users(&program, (SOMEONE, "token"), (NOBODY, "token")),
        "ok"
    );
    // One side alone is not enough.
    assert_eq!(
        between_users(&program, (SOMEONE, ""), (NOBODY, "token")),
        "PosixFd/broker-request/UserRefused"
    );
    assert_eq!(
        between_users(&program, (SOMEONE, "token"), (NOBODY, "")),
        "PosixFd/broker-connect/NotTrusted"
    );
}

#[test]
fn too_many_descriptors_in_flight_make_the_broker_busy_and_nothing_worse() {
    let Some(program) = program() else { return };
    // An ordinary user's descriptors in flight are limited by its table's size.
    let scratch = Scratch::new();
    let mut exporter = as_user(&scratch, &program, SOMEONE, "");
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    exporter.ok(&format!("fill {buffer} 42"));
    let (_, handle) = exporter.export(buffer, 0, LEN);
    exporter.ok("nofile 64");
    let ticket = handle.ticket().expect("a ticket");
    let request = Request {
        kind: gpuipc_core::RequestKind::FetchFd,
        id: 1,
        allocation_id: handle.allocation_id(),
        token: ticket.token,
    };
    // This test is root, whom the broker serves; it never reads.
    let mut silent = Vec::new();
    for _ in 0..100 {
        let mut stream = connect_to(&handle);
        if stream.write_all(&request.encode()).is_err() {
            break;
        }
        silent.push(stream);
        // One after the other, since the broker's own table is small, too.
        std::thread::sleep(Duration::from_millis(2));
    }
    let by_broker_alone = forge(&handle, |fields| {
        if let Some(ticket) = &mut fields.ticket {
            (ticket.fd, ticket.table) = (None, None);
        }
    });
    let mut importer = as_user(&scratch, &program, SOMEONE, "");
    let refused = importer.import_refused(&by_broker_alone, "timeout=600");
    assert!(
        refused.attempts == ["PosixFd/broker-request/BrokerBusy"]
            || refused.attempts == ["PosixFd/broker-request/TimedOut"],
        "{refused:?}"
    );
    drop(silent);
    let mem = importer.import(&by_broker_alone, "timeout=20000");
    importer.ok(&format!("read {} 42 0", mem.id));
}
