//! What happens around the library in its process: signals, programs that are
//! started, exec, the process's end, a full table of descriptors.

use crate::{PROGRAM, Pair, child};
use gpuipc_tests::{Scratch, TestChild, by_broker_alone, forge, to_hex};
use std::process::Command;
use std::time::{Duration, Instant};

const LEN: u64 = 2 << 20;

#[test]
fn signals_that_interrupt_every_wait_do_no_harm() {
    let mut pair = Pair::new();
    pair.exporter.ok("alarms");
    pair.importer.ok("alarms");
    for memory in gpuipc_tests::memories() {
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        pair.exporter.ok(&format!("fill {buffer} 1"));
        let (_, handle) = pair.exporter.export(buffer, 0, LEN);
        for _ in 0..50 {
            let mem = pair.importer.import(&handle, "");
            assert_eq!(mem.attempts, Vec::<String>::new());
            pair.importer.ok(&format!("read {} 1 0", mem.id));
            pair.importer.ok(&format!("drop mapping {}", mem.id));
        }
    }
    let came: u64 = pair.importer.ok("count-alarms").parse().expect("a number");
    assert!(came > 20, "only {came} signals");
}

#[test]
fn a_program_that_is_started_inherits_no_descriptor() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let _mem = pair.importer.import(&handle, "");
    let (theirs, _) = pair.importer.alloc("vmm-fabric", LEN);
    let (_, _other) = pair.importer.export(theirs, 0, LEN);
    for side in [&mut pair.exporter, &mut pair.importer] {
        let pid: i32 = side.ok("spawn-sleep").parse().expect("a pid");
        // The kernel closes them a moment after the exec has returned here.
        std::thread::sleep(Duration::from_millis(300));
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
        // What the test itself was started with is not the library's.
        let ours: Vec<String> = files
            .flatten()
            .filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .map(|file| file.to_string_lossy().into_owned())
            .filter(|file| {
                ["socket:", "anon_inode", "memfd", "gpuipc"]
                    .iter()
                    .any(|ours| file.contains(ours))
            })
            .collect();
        assert!(ours.is_empty(), "{ours:?}");
        let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
    }
}

#[test]
fn objects_in_a_static_are_dropped_in_silence_after_the_driver_s_end() {
    let mut pair = Pair::new();
    let mut handles = Vec::new();
    for memory in ["vmm-fd", "cuda-malloc"] {
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        handles.push(pair.exporter.export(buffer, 0, LEN).1);
        let (theirs, _) = pair.importer.alloc(memory, LEN);
        let (_, handle) = pair.importer.export(theirs, 0, LEN);
        let mem = pair.exporter.import(&handle, "");
        pair.exporter.ok(&format!("write {} 5", mem.id));
    }
    pair.exporter.ok("exit-with-everything");
    assert_eq!(pair.exporter.answer("its end"), "dropped at the end");
    assert!(pair.exporter.wait().success());
    for handle in handles {
        assert_eq!(
            pair.importer.import_refused(&handle, "").status,
            "EXPORTER_GONE"
        );
    }
}

#[test]
fn a_process_that_execs_exports_nothing_any_more() {
    let mut pair = Pair::new();
    for round in 0..10 {
        let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
        pair.exporter.ok(&format!("fill {buffer} 7"));
        let (_, handle) = pair.exporter.export(buffer, 0, LEN);
        // Out of the broker's reach, so that the number is all there is.
        let handle = forge(&handle, |fields| {
            fields.net_namespace ^= 1;
            if let Some(ticket) = &mut fields.ticket {
                ticket.endpoint.0[0] ^= 1;
            }
        });
        let mem = pair.importer.import(&handle, "");
        pair.importer.ok(&format!("read {} 7 0", mem.id));
        pair.importer.ok(&format!("drop mapping {}", mem.id));
        assert_eq!(pair.exporter.ask("exec"), "ready");
        // The new program's descriptors take the old numbers.
        let (decoy, _) = pair.exporter.alloc("vmm-fd", LEN);
        let (_, new) = pair.exporter.export(decoy, 0, LEN);
        let number = |handle: &gpuipc_core::GpuIpcMemHandle| handle.ticket().expect("a ticket").fd;
        assert_eq!(
            number(&handle),
            number(&new),
            "the test needs the same number"
        );
        let refused = pair.importer.import_refused(&handle, "");
        assert_eq!(
            refused.status, "EXPORT_REVOKED",
            "round {round}: {refused:?}"
        );
        assert_eq!(pair.exporter.ask("exec"), "ready");
    }
}

#[test]
fn no_descriptor_is_closed_twice() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fabric", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    pair.exporter.ok("guard");
    pair.importer.ok("guard");
    for round in 0..100 {
        for types in ["PosixFd", "Fabric"] {
            let mem = pair.importer.import(&handle, &format!("types={types}"));
            pair.importer.ok(&format!("drop mapping {}", mem.id));
        }
        pair.importer.ok("fail cuMemMap 1 801 2");
        pair.importer.import_refused(&handle, "");
        pair.importer.ok("no-faults");
        let (another, _) = pair.exporter.alloc("vmm-fd", LEN);
        let (export, _) = pair.exporter.export(another, 0, LEN);
        pair.exporter.ok(&format!("drop export {export}"));
        pair.exporter.ok(&format!("drop buffer {another}"));
        if round % 10 == 0 {
            pair.exporter.ok("fork");
        }
    }
    assert_eq!(pair.importer.ok("stop-guard"), "0");
    assert_eq!(pair.exporter.ok("stop-guard"), "0");
}

#[test]
fn an_exporter_with_a_full_table_serves_again_once_there_is_room() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    pair.exporter.ok(&format!("fill {buffer} 3"));
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    // Nothing to go around the broker by.
    let by_broker_alone = forge(&handle, |fields| {
        if let Some(ticket) = &mut fields.ticket {
            (ticket.fd, ticket.table) = (None, None);
        }
    });
    pair.exporter.ok("nofile 64");
    pair.exporter.ok("fill-fds");
    let refused = pair
        .importer
        .import_refused(&by_broker_alone, "timeout=500");
    assert_eq!(refused.attempts, ["PosixFd/broker-request/TimedOut"]);
    // Where the number leads to it, a busy broker is no matter, nor takes the whole time.
    let start = Instant::now();
    let mem = pair.importer.import(&handle, "timeout=60000");
    assert!(start.elapsed() < Duration::from_secs(20));
    pair.importer.ok(&format!("read {} 3 0", mem.id));
    // Where it does not, the broker is waited for all the same.
    let mut without_pidfd = child(&pair.scratch);
    without_pidfd.ok(&format!("refuse-pidfd {}", libc::EPERM));
    let import = format!("import {} timeout=60000", to_hex(&handle.encode()));
    without_pidfd.send(&import);
    std::thread::sleep(Duration::from_secs(1));
    pair.exporter.ok("free-fds");
    let answer = without_pidfd.answer(&import);
    assert!(answer.starts_with("ok "), "{answer}");
    let mem = pair.importer.import(&by_broker_alone, "");
    pair.importer.ok(&format!("read {} 3 0", mem.id));
}

#[test]
fn a_descriptor_that_the_program_closed_is_made_anew_and_no_file_of_its_own_is_sent() {
    let mut pair = Pair::new();
    for memory in ["vmm-fd", "pool"] {
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        pair.exporter.ok(&format!("fill {buffer} 4"));
        let (export, handle) = pair.exporter.export(buffer, 0, LEN);
        let number = handle.ticket().and_then(|ticket| ticket.fd);
        let number = number.expect("it is kept open");
        pair.exporter.ok(&format!("replace {number}"));
        let handle = by_broker_alone(&handle);
        if memory == "pool" {
            let refused = pair.importer.import_refused(&handle, "");
            assert_eq!(refused.attempts, ["PosixFd/broker-request/NoDescriptor"]);
        } else {
            let mem = pair.importer.import(&handle, "");
            pair.importer.ok(&format!("read {} 4 0", mem.id));
        }
        pair.exporter.ok(&format!("drop export {export}"));
        assert_eq!(pair.exporter.ok("closed-are-mine"), "true");
    }
}

#[test]
fn two_processes_that_are_both_pid_1_are_two() {
    const OPTIONS: [&str; 3] = ["--pid", "--fork", "--mount-proc"];
    let works = Command::new("unshare").args(OPTIONS).arg("true").output();
    if !works.is_ok_and(|output| output.status.success()) {
        return gpuipc_tests::skip("unshare --pid does not work here");
    }
    let scratch = Scratch::new();
    let container = || {
        TestChild::start_with("unshare", &scratch, |command| {
            command.args(OPTIONS).arg(PROGRAM);
        })
    };
    let (mut exporter, mut importer) = (container(), container());
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    exporter.ok(&format!("fill {buffer} 9"));
    let (_, handle) = exporter.export(buffer, 0, LEN);
    assert_eq!(handle.pid(), 1);
    let mem = importer.import(&handle, "");
    assert_eq!(mem.used, "PosixFd");
    importer.ok(&format!("read {} 9 0", mem.id));
    assert_eq!(exporter.import(&handle, "").used, "SameProcess");
    // The driver itself takes the one for the other.
    let (buffer, _) = exporter.alloc("cuda-malloc", LEN);
    let (_, handle) = exporter.export(buffer, 0, LEN);
    let refused = importer.import_refused(&handle, "");
    assert_eq!(refused.attempts, ["RuntimeIpc/cuIpcOpenMemHandle/SamePid"]);
    assert!(refused.text.contains("--init"), "{}", refused.text);
}

#[test]
fn a_container_with_its_own_dev_shm_is_reached_by_the_abstract_name() {
    let works = Command::new("unshare").args(["--mount", "true"]).output();
    if !works.is_ok_and(|output| output.status.success()) {
        return gpuipc_tests::skip("unshare --mount does not work here");
    }
    // The emulated GPU must stay in sight: it lies elsewhere here.
    let folder = std::env::temp_dir().join(format!("gpuipc-mount-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let start = |program: &str, arguments: &[&str]| {
        TestChild::start_with(program, &Scratch::new(), |command| {
            command.args(arguments).env("GPUIPC_EMULATED_DIR", &folder);
        })
    };
    let mut exporter = start(PROGRAM, &[]);
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    exporter.ok(&format!("fill {buffer} 6"));
    let (_, handle) = exporter.export(buffer, 0, LEN);
    let script = format!("mount -t tmpfs none /dev/shm && exec {PROGRAM}");
    let mut importer = start("unshare", &["--mount", "sh", "-c", &script]);
    let mem = importer.import(&handle, "");
    assert_eq!(mem.attempts, Vec::<String>::new());
    importer.ok(&format!("read {} 6 0", mem.id));
    drop((exporter, importer));
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

#[test]
fn an_exporter_that_starts_anew_is_another_process() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, first) = pair.exporter.export(buffer, 0, LEN);
    pair.exporter.kill();
    let mut exporter = child(&pair.scratch);
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    let (_, second) = exporter.export(buffer, 0, LEN);
    assert_ne!(first.process_id(), second.process_id());
    assert_eq!(
        pair.importer.import_refused(&first, "").status,
        "EXPORTER_GONE"
    );
    assert_eq!(pair.importer.import(&second, "").used, "PosixFd");
}
