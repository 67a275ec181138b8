//! Descriptors fetched by their number, where the broker cannot be reached: the
//! right one or none.

use crate::{PROGRAM, Pair, end_race};
use gpuipc_core::GpuIpcMemHandle;
use gpuipc_tests::{Scratch, TestChild, forge, out_of_reach, skip, stop, to_hex};
use std::process::Command;

const LEN: u64 = 2 << 20;

fn exported() -> (Pair, u32, GpuIpcMemHandle) {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    pair.exporter.ok(&format!("fill {buffer} 91"));
    let (export, handle) = pair.exporter.export(buffer, 0, LEN);
    let warm = pair.importer.import(&handle, "");
    pair.importer.ok(&format!("drop mapping {}", warm.id));
    (pair, export, handle)
}

#[test]
fn the_descriptor_is_fetched_by_its_number_where_the_broker_is_out_of_reach() {
    let (mut pair, _, handle) = exported();
    let before = pair.importer.state();
    let mem = pair.importer.import(&out_of_reach(&handle), "");
    assert_eq!(mem.used, "PosixFd");
    assert_eq!(mem.attempts, ["PosixFd/broker-connect/BrokerUnreachable"]);
    pair.importer.ok(&format!("read {} 91 0", mem.id));
    pair.importer.ok(&format!("drop mapping {}", mem.id));
    pair.importer.returns_to(&before);
}

#[test]
fn a_stopped_exporter_still_gives_its_descriptor() {
    let (mut pair, _, handle) = exported();
    pair.exporter.ok("stop");
    std::thread::sleep(std::time::Duration::from_millis(200));
    let mem = pair.importer.import(&handle, "timeout=500");
    assert_eq!(mem.attempts, ["PosixFd/broker-request/TimedOut"]);
    pair.importer.ok(&format!("read {} 91 0", mem.id));
}

#[test]
fn a_refusal_of_the_kernel_is_an_attempt_with_the_cure() {
    for (errno, reason, cure) in [
        (libc::EPERM, "PtraceRefused", "SYS_PTRACE"),
        (libc::ENOSYS, "NoPidfd", "seccomp"),
    ] {
        let (mut pair, _, handle) = exported();
        let before = pair.importer.state();
        pair.importer.ok(&format!("refuse-pidfd {errno}"));
        let refused = pair.importer.import_refused(&out_of_reach(&handle), "");
        assert_eq!(
            refused.attempts,
            [
                "PosixFd/broker-connect/BrokerUnreachable".to_owned(),
                format!("PosixFd/pidfd_getfd/{reason}")
            ]
        );
        assert!(refused.text.contains(cure), "{}", refused.text);
        pair.importer.returns_to(&before);
        // The broker needs no such right.
        assert_eq!(pair.importer.import(&handle, "").used, "PosixFd");
    }
}

#[test]
fn a_revoked_export_s_number_gives_nothing() {
    let (mut pair, export, handle) = exported();
    let (other, _) = pair.exporter.alloc("vmm-fd", LEN);
    pair.exporter.ok(&format!("drop export {export}"));
    // Takes the same number, and the same slot of the export table.
    let (_, next) = pair.exporter.export(other, 0, LEN);
    let (old, new) = (
        handle.ticket().expect("a ticket"),
        next.ticket().expect("a ticket"),
    );
    assert_eq!(old.fd, new.fd, "the test needs the number to be reused");
    assert_eq!(
        old.table.map(|entry| entry.slot),
        new.table.map(|entry| entry.slot)
    );
    let refused = pair.importer.import_refused(&out_of_reach(&handle), "");
    assert_eq!(refused.attempts[1..], ["PosixFd/pidfd_getfd/ExportRevoked"]);
}

#[test]
fn another_process_s_descriptor_at_the_same_number_gives_nothing() {
    let (mut pair, _, handle) = exported();
    let mut other = crate::child(&pair.scratch);
    let (buffer, _) = other.alloc("vmm-fd", LEN);
    let (_, _theirs) = other.export(buffer, 0, LEN);
    let forged = forge(&out_of_reach(&handle), |fields| fields.pid = other.pid());
    let refused = pair.importer.import_refused(&forged, "");
    assert_eq!(refused.attempts.len(), 2, "{refused:?}");
    assert!(
        refused.attempts[1].ends_with("/ExportRevoked"),
        "{refused:?}"
    );
}

#[test]
fn a_ticket_leads_to_no_other_descriptor_than_its_own() {
    let (mut pair, _, handle) = exported();
    let (other, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, theirs) = pair.exporter.export(other, 0, LEN);
    let number = theirs.ticket().expect("a ticket").fd;
    // The own token, and the number of memory that is exported under another one.
    let forged = forge(&out_of_reach(&handle), |fields| {
        if let Some(ticket) = &mut fields.ticket {
            ticket.fd = number;
        }
    });
    let refused = pair.importer.import_refused(&forged, "");
    assert_eq!(refused.attempts[1..], ["PosixFd/pidfd_getfd/ExportRevoked"]);
    // No token, and a slot that nobody uses.
    for slot in [60_000, 65_535, 65_536, u32::MAX] {
        let forged = forge(&out_of_reach(&handle), |fields| {
            if let Some(ticket) = &mut fields.ticket {
                ticket.token = gpuipc_core::Token::new([0; 16]);
                ticket.table = ticket
                    .table
                    .map(|entry| gpuipc_core::TablePlace { slot, ..entry });
            }
        });
        let refused = pair.importer.import_refused(&forged, "");
        assert_eq!(
            refused.attempts[1..],
            ["PosixFd/pidfd_getfd/ExportRevoked"],
            "{slot}"
        );
    }
}

#[test]
fn a_ticket_is_good_for_its_own_allocation_only() {
    let (mut pair, _, handle) = exported();
    let forged = forge(&out_of_reach(&handle), |fields| fields.allocation_id += 1);
    let refused = pair.importer.import_refused(&forged, "");
    assert_eq!(refused.attempts[1..], ["PosixFd/pidfd_getfd/ExportRevoked"]);
}

/// Whether a process other than this one has a POSIX lock on the file.
fn is_locked(file: &std::fs::File) -> bool {
    let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    let unlock = rustix::fs::FlockOperation::Unlock;
    let taken = rustix::fs::fcntl_lock(file, lock);
    if taken.is_ok() {
        rustix::fs::fcntl_lock(file, unlock).expect("it is this process's own");
    }
    taken.is_err()
}

#[test]
fn a_forged_handle_closes_no_file_of_the_importer_s() {
    let (mut pair, _, handle) = exported();
    let path = pair.scratch.path().join("locked");
    let file = std::fs::File::create(&path).expect("a new file");
    let path = path.to_str().expect("a plain path");
    let answer = pair.exporter.ok(&format!("hold {path}"));
    let number = answer.split(' ').next().and_then(|word| word.parse().ok());
    pair.importer.ok(&format!("lock {path}"));
    assert!(is_locked(&file), "the importer has no lock");
    // Both numbers, and each alone. Out of the broker's reach and, once the exporter is
    // known, in it.
    pair.importer.ok("keep-connections");
    pair.importer.import(&handle, "");
    for (fd, table) in [(true, true), (true, false), (false, true)] {
        for handle in [handle, out_of_reach(&handle)] {
            let forged = forge(&handle, |fields| {
                fields.offset_from_base = 1;
                fields.length -= 1;
                fields.range.length -= 1;
                if let Some(ticket) = &mut fields.ticket {
                    if fd {
                        ticket.fd = number;
                    }
                    if let Some(entry) = ticket.table.as_mut().filter(|_| table) {
                        entry.fd = number.expect("a number");
                    }
                }
            });
            // In reach, the broker gives what the number does not.
            pair.importer.ask(&format!(
                "import {} types=PosixFd",
                to_hex(&forged.encode())
            ));
            assert!(is_locked(&file), "fd {fd}, table {table}");
        }
    }
}

#[test]
fn a_file_that_is_no_export_table_proves_nothing() {
    let (mut pair, _, handle) = exported();
    for file in ["/etc/passwd", "/proc/self/exe"] {
        let answer = pair.exporter.ok(&format!("hold {file}"));
        let numbers: Vec<u64> = answer
            .split(' ')
            .filter_map(|word| word.parse().ok())
            .collect();
        let bytes = std::fs::read(file).expect("everyone may read it");
        let mut start = [0; 16];
        start.copy_from_slice(&bytes[..16]);
        let forged = forge(&out_of_reach(&handle), |fields| {
            if let Some(ticket) = &mut fields.ticket {
                ticket.token = gpuipc_core::Token::new(start);
                ticket.table = Some(gpuipc_core::TablePlace {
                    fd: i32::try_from(numbers[0]).expect("a number"),
                    slot: 0,
                    device: numbers[1],
                    inode: numbers[2],
                });
            }
        });
        let refused = pair.importer.import_refused(&forged, "");
        assert_eq!(
            refused.attempts[1..],
            ["PosixFd/pidfd_getfd/ExportRevoked"],
            "{file}"
        );
    }
}

#[test]
fn a_legacy_export_is_known_to_live_by_its_export_table() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("cuda-malloc", LEN);
    let (export, handle) = pair.exporter.export(buffer, 0, LEN);
    let handle = out_of_reach(&handle);
    let mem = pair.importer.import(&handle, "");
    assert_eq!(mem.liveness, "ExportLives");
    let refused = pair.importer.import_refused(&handle, "live");
    assert_eq!(refused.attempts, ["RuntimeIpc/liveness/LivenessUnknown"]);
    pair.importer.ok(&format!("drop mapping {}", mem.id));
    pair.exporter.ok(&format!("drop export {export}"));
    let refused = pair.importer.import_refused(&handle, "");
    assert_eq!(refused.attempts, ["RuntimeIpc/liveness/ExportRevoked"]);
}

/// Whether `unshare` works with these options.
fn can_unshare(options: &[&str]) -> bool {
    let output = Command::new("unshare").args(options).arg("true").output();
    let works = output.is_ok_and(|output| output.status.success());
    if !works {
        skip(&format!("unshare {options:?} does not work here"));
    }
    works
}

#[test]
fn a_pid_of_another_namespace_is_never_taken_for_a_local_one() {
    const OPTIONS: [&str; 4] = ["--pid", "--fork", "--mount-proc", "--net"];
    if !can_unshare(&OPTIONS) {
        return;
    }
    let scratch = Scratch::new();
    let mut exporter = crate::child(&scratch);
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    let (_, handle) = exporter.export(buffer, 0, LEN);
    let mut importer = TestChild::start_with("unshare", &scratch, |command| {
        command
            .args(OPTIONS)
            .arg(PROGRAM)
            .env("GPUIPC_SOCKET_DIR", "/nonexistent");
    });
    // Pid 1 there is the importer itself.
    let handle = forge(&handle, |fields| fields.pid = 1);
    let refused = importer.import_refused(&handle, "");
    assert_eq!(
        refused.attempts,
        ["PosixFd/broker-connect/BrokerUnreachable"]
    );
    assert!(
        refused.text.contains("GPUIPC_SOCKET_DIR"),
        "{}",
        refused.text
    );
}

/// A stopped child would outlive `unshare`.
const NEW_PIDS: [&str; 4] = ["--pid", "--fork", "--mount-proc", "--kill-child"];

fn in_new_pid_namespace(scratch: &Scratch) -> TestChild {
    TestChild::start_with("unshare", scratch, |command| {
        command.args(NEW_PIDS).arg(PROGRAM);
    })
}

#[test]
fn in_a_pid_namespace_below_a_stopped_exporter_is_reached_through_its_socket() {
    if !can_unshare(&NEW_PIDS) {
        return;
    }
    let scratch = Scratch::new();
    let (mut exporter, mut importer) = (in_new_pid_namespace(&scratch), crate::child(&scratch));
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    exporter.ok(&format!("fill {buffer} 92"));
    let (_, handle) = exporter.export(buffer, 0, LEN);
    // What `unshare` has started is its only child.
    let unshare = exporter.pid();
    let children = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children"));
    let children = children.expect("it runs");
    stop(children.trim().parse().expect("one pid"));
    let mem = importer.import(&handle, "timeout=500");
    assert_eq!(mem.attempts, ["PosixFd/broker-request/TimedOut"]);
    importer.ok(&format!("read {} 92 0", mem.id));
}

#[test]
fn of_a_process_that_proc_does_not_show_nothing_is_fetched() {
    if !can_unshare(&NEW_PIDS) {
        return;
    }
    let scratch = Scratch::new();
    let (mut exporter, mut importer) = (crate::child(&scratch), in_new_pid_namespace(&scratch));
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    exporter.ok(&format!("fill {buffer} 92"));
    let (_, handle) = exporter.export(buffer, 0, LEN);
    // The broker serves.
    let mem = importer.import(&handle, "");
    assert_eq!(mem.attempts, Vec::<String>::new());
    importer.ok(&format!("read {} 92 0", mem.id));
    importer.ok(&format!("drop mapping {}", mem.id));
    exporter.stop();
    let refused = importer.import_refused(&handle, "timeout=500");
    assert_eq!(
        refused.attempts,
        [
            "PosixFd/broker-request/TimedOut",
            "PosixFd/pidfd_getfd/PtraceRefused"
        ]
    );
}

/// How long a race lasts at least.
fn milliseconds() -> u64 {
    if std::env::var_os("GPUIPC_TEST_LONG").is_some() {
        120_000
    } else if gpuipc_tests::on_real_gpu() {
        // CUDA takes seconds to start in each process.
        20_000
    } else {
        3000
    }
}

/// Two importers in another network namespace, where no name of a broker is
/// reached; `None` where there cannot be any.
fn importers_out_of_reach(scratch: &Scratch) -> Option<Vec<TestChild>> {
    if !can_unshare(&["--net"]) {
        return None;
    }
    let start = || {
        TestChild::start_with("unshare", scratch, |command| {
            command
                .args(["--net", PROGRAM])
                .env("GPUIPC_SOCKET_DIR", "/nonexistent");
        })
    };
    Some(vec![start(), start()])
}

/// Lets them chase the handle in `file` while `exporter` does what it was told;
/// every memory that they map must be the one with this seed. Each of them goes on until
/// it was right, and refused, at least so often.
fn race(exporter: &mut TestChild, importers: &mut [TestChild], file: &str, seed: u64, least: u64) {
    for importer in importers.iter_mut() {
        importer.send(&format!("chase {file} {seed} {} {least}", milliseconds()));
    }
    for importer in importers {
        let answer = importer.answer("chase");
        let numbers: Vec<u64> = answer
            .split(' ')
            .skip(1)
            .filter_map(|word| word.parse().ok())
            .collect();
        let [this_right, this_refused] = numbers.as_slice() else {
            panic!("an importer saw {answer:?}")
        };
        println!("right and refused: {answer}");
        assert!(
            this_right >= &least && this_refused >= &least,
            "no race: {answer}"
        );
    }
    end_race(file);
    exporter.answer("the race");
}

#[test]
fn a_number_that_is_reused_all_the_time_never_gives_the_wrong_memory() {
    let scratch = Scratch::new();
    if let Some(importers) = importers_out_of_reach(&scratch) {
        race_for_a_number(&scratch, importers);
    }
}

#[test]
fn nor_does_it_where_the_exporter_is_known_and_its_broker_in_reach() {
    let scratch = Scratch::new();
    let importers = vec![crate::child(&scratch), crate::child(&scratch)];
    race_for_a_number(&scratch, importers);
}

fn race_for_a_number(scratch: &Scratch, mut importers: Vec<TestChild>) {
    let mut exporter = crate::child(scratch);
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    let (decoy, _) = exporter.alloc("vmm-fd", LEN);
    let (anchor, _) = exporter.alloc("vmm-fd", LEN);
    exporter.ok(&format!("fill {buffer} 93"));
    exporter.ok(&format!("fill {decoy} 94"));
    // Keeps broker and export table while the other export comes and goes.
    exporter.export(anchor, 0, LEN);
    let file = scratch.path().join("handle");
    let file = file.to_str().expect("a plain path");
    exporter.send(&format!("churn {file} {buffer} {decoy}"));
    // On a real GPU each look at the memory takes a context of its own.
    let least = if gpuipc_tests::on_real_gpu() { 3 } else { 100 };
    race(&mut exporter, &mut importers, file, 93, least);
}

#[test]
fn an_exporter_that_execs_all_the_time_never_gives_the_wrong_memory() {
    let scratch = Scratch::new();
    let mut exporter = crate::child(&scratch);
    let file = scratch.path().join("handle");
    let file = file.to_str().expect("a plain path");
    let Some(mut importers) = importers_out_of_reach(&scratch) else {
        return;
    };
    exporter.send(&format!("churn-by-exec {file} 95"));
    // A real driver takes a second to start in each program.
    let least = if gpuipc_tests::on_real_gpu() { 0 } else { 3 };
    race(&mut exporter, &mut importers, file, 95, least);
}

/// The lowest limit of open files at which nothing is left: above it there is a free number.
fn open_below(pid: u32, most: u64) -> u64 {
    let is_open = |number: &u64| std::path::Path::new(&format!("/proc/{pid}/fd/{number}")).exists();
    (0..most).find(|number| !is_open(number)).unwrap_or(most)
}

#[test]
fn where_no_descriptor_is_left_to_look_with_nobody_is_called_another_user() {
    let (mut pair, _, handle) = exported();
    let before = pair.importer.state();
    let hex = to_hex(&out_of_reach(&handle).encode());
    let full = open_below(pair.importer.pid(), 64);
    // Each limit leaves room for one more than the one before it.
    let mut refused_at = Vec::new();
    for limit in 3..64 {
        pair.importer.ok(&format!("nofile {limit}"));
        let answer = pair.importer.ask(&format!("import {hex}"));
        pair.importer.ok("nofile 1024");
        assert!(!answer.contains("NotTrusted"), "limit {limit}: {answer}");
        match answer.split(' ').collect::<Vec<_>>()[..] {
            ["ok", id, ..] => {
                pair.importer.ok(&format!("drop mapping {id}"));
            }
            _ => refused_at.push(limit),
        }
    }
    // With room for no descriptor it is refused, with room for the exporter's process and
    // none beside it, too; and it comes to work, and goes on to.
    let first = 3 + refused_at.len() as u64;
    assert!(first > full + 1, "{full} open, refused at {refused_at:?}");
    assert_eq!(refused_at, (3..first).collect::<Vec<_>>());
    assert!(first < 64, "{full} open, refused at {refused_at:?}");
    pair.importer.returns_to(&before);
}
