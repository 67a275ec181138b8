//! Connections to brokers are kept for the next import, and never in the way.

use crate::{Pair, child};
use gpuipc_core::GpuIpcMemHandle;

const LEN: u64 = 2 << 20;

/// The open sockets in a child's state.
fn sockets(state: &str) -> u32 {
    let count = state.split("\"socket:[]\": ").nth(1).unwrap_or("0");
    let digits: String = count.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

#[test]
fn one_connection_serves_one_import_after_another() {
    let mut pair = Pair::new();
    pair.importer.ok("keep-connections");
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let idle = sockets(&pair.exporter.state());
    for _ in 0..10 {
        let mem = pair.importer.import(&handle, "");
        pair.importer.ok(&format!("drop mapping {}", mem.id));
        assert_eq!(sockets(&pair.exporter.state()), idle + 1);
    }
    pair.importer.ok("close-idle");
    assert_eq!(sockets(&pair.exporter.state()), idle);
}

#[test]
fn a_broker_that_hung_up_on_a_silent_client_is_found_again() {
    let mut pair = Pair::new();
    pair.importer.ok("keep-connections");
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let idle = sockets(&pair.exporter.state());
    let mem = pair.importer.import(&handle, "");
    pair.importer.ok(&format!("drop mapping {}", mem.id));
    // Its patience is ten seconds.
    let start = std::time::Instant::now();
    while sockets(&pair.exporter.state()) > idle && start.elapsed().as_secs() < 30 {
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let mem = pair.importer.import(&handle, "");
    assert_eq!(mem.attempts, Vec::<String>::new());
}

#[test]
fn an_exporter_that_died_is_told_from_one_that_hung_up() {
    let mut pair = Pair::new();
    pair.importer.ok("keep-connections");
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let mem = pair.importer.import(&handle, "");
    pair.importer.ok(&format!("drop mapping {}", mem.id));
    pair.exporter.kill();
    let refused = pair.importer.import_refused(&handle, "");
    assert_eq!(refused.status, "EXPORTER_GONE");
}

/// A pair whose importer has imported once and keeps the connection.
fn known(memory: &str) -> (Pair, u32, u32, GpuIpcMemHandle) {
    let mut pair = Pair::new();
    pair.importer.ok("keep-connections");
    let (buffer, _) = pair.exporter.alloc(memory, LEN);
    pair.exporter.ok(&format!("fill {buffer} 61"));
    let (export, handle) = pair.exporter.export(buffer, 0, LEN);
    let mem = pair.importer.import(&handle, "");
    pair.importer.ok(&format!("drop mapping {}", mem.id));
    (pair, buffer, export, handle)
}

#[test]
fn a_known_exporter_need_not_answer_for_a_descriptor_that_it_keeps_open() {
    let (mut pair, _, _, handle) = known("vmm-fd");
    let before = pair.importer.state();
    // Its broker answers no one any more.
    pair.exporter.ok("stop");
    for _ in 0..3 {
        let mem = pair.importer.import(&handle, "timeout=500");
        assert_eq!(mem.attempts, Vec::<String>::new());
        pair.importer.ok(&format!("read {} 61 0", mem.id));
        pair.importer.ok(&format!("drop mapping {}", mem.id));
    }
    pair.importer.returns_to(&before);
}

#[test]
fn the_segments_of_a_known_exporter_need_no_answer_either() {
    let (mut pair, ..) = known("vmm-fd");
    let (buffer, _) = pair.exporter.alloc("segments", 5 * LEN);
    pair.exporter.ok(&format!("fill {buffer} 62"));
    let (_, handles) = pair.exporter.export_all(buffer, 9, 5 * LEN - 20, "");
    let first = pair.importer.import_all(&handles, "");
    pair.importer.ok(&format!("read {} 62 9", first.id));
    pair.importer.ok(&format!("drop mapping {}", first.id));
    let before = pair.importer.state();
    pair.exporter.ok("stop");
    let mem = pair.importer.import_all(&handles, "timeout=500");
    assert_eq!(mem.attempts, Vec::<String>::new());
    pair.importer.ok(&format!("read {} 62 9", mem.id));
    pair.importer.ok(&format!("drop mapping {}", mem.id));
    pair.importer.returns_to(&before);
}

#[test]
fn a_known_exporter_s_broker_is_asked_where_the_kernel_refuses_the_number() {
    for errno in [libc::EPERM, libc::ENOSYS] {
        let (mut pair, _, _, handle) = known("vmm-fd");
        pair.importer.ok(&format!("refuse-pidfd {errno}"));
        let before = pair.importer.state();
        for _ in 0..3 {
            let mem = pair.importer.import(&handle, "");
            assert_eq!(mem.attempts, Vec::<String>::new());
            pair.importer.ok(&format!("read {} 61 0", mem.id));
            pair.importer.ok(&format!("drop mapping {}", mem.id));
        }
        pair.importer.returns_to(&before);
    }
}

#[test]
fn a_known_exporter_s_revoked_export_gives_nothing() {
    let (mut pair, _, export, handle) = known("vmm-fd");
    // Another export, at the same number and in the same slot of the export table.
    let (other, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (anchor, _) = pair.exporter.alloc("vmm-fd", LEN);
    pair.exporter.export(anchor, 0, LEN);
    pair.exporter.ok(&format!("drop export {export}"));
    let (_, next) = pair.exporter.export(other, 0, LEN);
    let number = |handle: &GpuIpcMemHandle| handle.ticket().expect("a ticket").fd;
    assert_eq!(
        number(&handle),
        number(&next),
        "the test needs the number to be reused"
    );
    let refused = pair.importer.import_refused(&handle, "");
    assert_eq!(refused.attempts, ["PosixFd/broker-request/ExportRevoked"]);
}

#[test]
fn connections_to_many_exporters_are_bounded() {
    let mut pair = Pair::new();
    pair.importer.ok("keep-connections");
    let mut exporters = Vec::new();
    let before = sockets(&pair.importer.state());
    for _ in 0..12 {
        let mut exporter = child(&pair.scratch);
        let (buffer, _) = exporter.alloc("vmm-fd", LEN);
        let (_, handle) = exporter.export(buffer, 0, LEN);
        let mem = pair.importer.import(&handle, "");
        pair.importer.ok(&format!("drop mapping {}", mem.id));
        exporters.push(exporter);
    }
    assert_eq!(sockets(&pair.importer.state()), before + 8);
    pair.importer.ok("close-idle");
    assert_eq!(sockets(&pair.importer.state()), before);
}

#[test]
fn a_descriptor_for_which_the_importer_has_no_room_is_told_from_a_bad_reply() {
    let mut pair = Pair::new();
    pair.importer.ok("keep-connections");
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    pair.exporter.ok(&format!("fill {buffer} 5"));
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let mem = pair.importer.import(&handle, "");
    pair.importer.ok(&format!("drop mapping {}", mem.id));
    // The connection is there, and room for nothing else.
    pair.importer.ok("nofile 64");
    pair.importer.ok("fill-fds");
    let refused = pair.importer.import_refused(&handle, "");
    assert!(
        refused.text.contains("broker request") && refused.text.contains("(os error 24)"),
        "{}",
        refused.text
    );
    pair.importer.ok("free-fds");
    let mem = pair.importer.import(&handle, "");
    pair.importer.ok(&format!("read {} 5 0", mem.id));
}
