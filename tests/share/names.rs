//! The broker's name in a folder: who reaches it, and what is cleaned up.

use crate::PROGRAM;
use gpuipc_tests::{Peer, Scratch, skip};

const LEN: u64 = 2 << 20;

#[test]
fn a_folder_of_one_s_own_carries_the_broker_across_network_namespaces() {
    use std::process::Command;
    let unshare = Command::new("unshare").args(["--net", "true"]).output();
    if !unshare.is_ok_and(|output| output.status.success()) {
        return skip("unshare --net does not work here");
    }
    let scratch = Scratch::new();
    let folder = scratch.path().join("sockets");
    let mut exporter = Peer::start_with(PROGRAM, &scratch, |command| {
        command.env("GPUIPC_SOCKET_DIR", &folder);
    });
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    exporter.ok(&format!("fill {buffer} 51"));
    let (_, handle) = exporter.export(buffer, 0, LEN);
    let mut importer = Peer::start_with("unshare", &scratch, |command| {
        command
            .args(["--net", PROGRAM])
            .env("GPUIPC_SOCKET_DIR", &folder);
    });
    let mem = importer.import(&handle, "");
    importer.ok(&format!("read {} 51 0", mem.id));
}

#[test]
fn a_folder_whose_path_is_too_long_is_named_with_the_limit() {
    let scratch = Scratch::new();
    let mut exporter = Peer::start_with(PROGRAM, &scratch, |command| {
        command.env("GPUIPC_SOCKET_DIR", scratch.path().join("x".repeat(80)));
    });
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    let refused = exporter.err(&format!("export {buffer} 0 {LEN}"));
    assert_eq!(refused.status, "BROKER_START");
    assert!(refused.text.contains("107"), "{}", refused.text);
}

#[test]
fn names_of_dead_brokers_are_removed_and_living_ones_stay() {
    let scratch = Scratch::new();
    let folder = scratch.path().join("sockets");
    let start = || {
        Peer::start_with(PROGRAM, &scratch, |command| {
            command.env("GPUIPC_SOCKET_DIR", &folder);
        })
    };
    let names = || std::fs::read_dir(&folder).expect("the folder").count();
    let export = |peer: &mut Peer| {
        let (buffer, _) = peer.alloc("vmm-fd", LEN);
        peer.export(buffer, 0, LEN).1
    };
    let (mut first, mut second) = (start(), start());
    export(&mut first);
    let living = export(&mut second);
    std::fs::write(folder.join("ffffffff-another-host"), b"").expect("another host's name");
    // What merely looks like a name is nobody's to remove.
    let boot = living.host_id().to_string()[..8].to_owned();
    for file in [
        boot.clone(),
        format!("{boot}-notes.txt"),
        format!(".{boot}-{}", "0".repeat(32)),
    ] {
        std::fs::write(folder.join(file), b"precious").expect("a user's file");
    }
    assert_eq!(names(), 6);
    first.kill();
    assert_eq!(names(), 6, "kill -9 leaves a name behind");
    let mut third = start();
    export(&mut third);
    assert_eq!(
        names(),
        6,
        "the dead name is gone, the living and the foreign ones are there"
    );
    assert_eq!(third.import(&living, "").used, "PosixFd");
}

#[test]
fn a_folder_that_others_can_write_to_is_refused_unless_it_is_sticky() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let folder = scratch.path().join("sockets");
    std::fs::create_dir(&folder).expect("a folder");
    let export = |mode| {
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).expect("its mode");
        let mut exporter = Peer::start_with(PROGRAM, &scratch, |command| {
            command.env("GPUIPC_SOCKET_DIR", &folder);
        });
        let (buffer, _) = exporter.alloc("vmm-fd", LEN);
        exporter.ask(&format!("export {buffer} 0 {LEN}"))
    };
    let refused = export(0o777);
    assert!(
        refused.starts_with("err BROKER_START") && refused.contains("sticky"),
        "{refused}"
    );
    assert!(export(0o1777).starts_with("ok"));
    assert!(export(0o755).starts_with("ok"));
}
