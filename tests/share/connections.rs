//! Connections to brokers are kept for the next import, and never in the way.

use crate::{Pair, peer};

const LEN: u64 = 2 << 20;

/// The open sockets in a peer's state.
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

#[test]
fn connections_to_many_exporters_are_bounded() {
    let mut pair = Pair::new();
    pair.importer.ok("keep-connections");
    let mut exporters = Vec::new();
    let before = sockets(&pair.importer.state());
    for _ in 0..12 {
        let mut exporter = peer(&pair.scratch);
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
