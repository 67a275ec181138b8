//! The broker's name in a folder: who reaches it, and what is cleaned up.

use crate::PROGRAM;
use gpuipc_core::GpuIpcMemHandle;
use gpuipc_tests::{Scratch, TestChild, by_broker_alone, skip};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Another user, who has no process.
const STRANGER: u32 = 12345;

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
    let mut exporter = TestChild::start_with(PROGRAM, &scratch, |command| {
        command.env("GPUIPC_SOCKET_DIR", &folder);
    });
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    exporter.ok(&format!("fill {buffer} 51"));
    let (_, handle) = exporter.export(buffer, 0, LEN);
    let mut importer = TestChild::start_with("unshare", &scratch, |command| {
        command
            .args(["--net", PROGRAM])
            .env("GPUIPC_SOCKET_DIR", &folder);
    });
    let mem = importer.import(&handle, "");
    importer.ok(&format!("read {} 51 0", mem.id));
}

#[test]
fn a_folder_whose_path_is_too_long_costs_its_name_and_is_told_with_the_limit() {
    let scratch = Scratch::new();
    let mut exporter = TestChild::start_with(PROGRAM, &scratch, |command| {
        command.env("GPUIPC_SOCKET_DIR", scratch.path().join("x".repeat(80)));
    });
    exporter.ok("log");
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    let (_, handle) = exporter.export(buffer, 0, LEN);
    let told = exporter.ok("log-lines");
    assert!(
        told.contains("107") && told.contains("GPUIPC_SOCKET_DIR"),
        "{told}"
    );
    // The abstract name is left.
    let mem = crate::child(&scratch).import(&by_broker_alone(&handle), "");
    assert_eq!(mem.used, "PosixFd");
}

#[test]
fn names_of_dead_brokers_are_removed_and_living_ones_stay() {
    let scratch = Scratch::new();
    let folder = scratch.path().join("sockets");
    let start = || {
        TestChild::start_with(PROGRAM, &scratch, |command| {
            command.env("GPUIPC_SOCKET_DIR", &folder);
        })
    };
    let names = || std::fs::read_dir(&folder).expect("the folder").count();
    let export = |child: &mut TestChild| {
        let (buffer, _) = child.alloc("vmm-fd", LEN);
        child.export(buffer, 0, LEN).1
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

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("its mode");
}

fn can_be_other_users() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("only root can give folders to other users");
    }
    root
}

fn has_net_namespaces() -> bool {
    let unshare = std::process::Command::new("unshare")
        .args(["--net", "true"])
        .output();
    let has = unshare.is_ok_and(|output| output.status.success());
    if !has {
        skip("unshare --net does not work here");
    }
    has
}

/// A child that finds brokers by this folder alone, or by its own.
fn elsewhere(scratch: &Scratch, folder: &Path) -> TestChild {
    TestChild::start_with("unshare", scratch, |command| {
        command
            .args(["--net", PROGRAM])
            .env("GPUIPC_SOCKET_DIR", folder);
    })
}

fn here(scratch: &Scratch, folder: &Path) -> TestChild {
    TestChild::start_with(PROGRAM, scratch, |command| {
        command.env("GPUIPC_SOCKET_DIR", folder);
    })
}

#[test]
fn a_volume_of_kubernetes_that_all_can_write_to_carries_the_broker() {
    if !has_net_namespaces() {
        return;
    }
    for folder_mode in [0o777, 0o2777, 0o2775, 0o1777, 0o755] {
        let scratch = Scratch::new();
        let folder = scratch.path().join("sockets");
        std::fs::create_dir(&folder).expect("a folder");
        mode(&folder, folder_mode);
        let mut exporter = here(&scratch, &folder);
        let (buffer, _) = exporter.alloc("vmm-fd", LEN);
        exporter.ok(&format!("fill {buffer} 52"));
        let (_, handle) = exporter.export(buffer, 0, LEN);
        let mut importer = elsewhere(&scratch, &folder);
        let mem = importer.import(&by_broker_alone(&handle), "");
        importer.ok(&format!("read {} 52 0", mem.id));
    }
}

#[test]
fn a_folder_of_another_user_is_not_used_and_named_with_its_owner() {
    if !can_be_other_users() {
        return;
    }
    for trust in ["", "token"] {
        let scratch = Scratch::new();
        let folder = scratch.path().join("sockets");
        std::fs::create_dir(&folder).expect("a folder");
        std::os::unix::fs::chown(&folder, Some(STRANGER), None).expect("its owner");
        // Sticky or not: its owner may rename what is in it.
        mode(&folder, 0o1777);
        let mut exporter = TestChild::start_with(PROGRAM, &scratch, |command| {
            command
                .env("GPUIPC_SOCKET_DIR", &folder)
                .env("GPUIPC_TRUST", trust);
        });
        exporter.ok("log");
        let (buffer, _) = exporter.alloc("vmm-fd", LEN);
        let (_, handle) = exporter.export(buffer, 0, LEN);
        assert_eq!(std::fs::read_dir(&folder).expect("it is there").count(), 0);
        let told = exporter.ok("log-lines");
        assert!(
            told.contains(&format!("belongs to user {STRANGER}")),
            "{told}"
        );
        let mut importer = here(&scratch, &folder);
        assert_eq!(importer.import(&handle, "").used, "PosixFd");
    }
}

#[test]
fn the_socket_s_mode_is_the_policy_s_whatever_the_umask() {
    for (trust, umask, wanted) in [
        ("", 0, 0o600),
        ("", 0o077, 0o600),
        ("token", 0o077, 0o666),
        ("token", 0, 0o666),
    ] {
        let scratch = Scratch::new();
        let folder = scratch.path().join("sockets");
        let mut exporter = TestChild::start_with(PROGRAM, &scratch, |command| {
            command
                .env("GPUIPC_SOCKET_DIR", &folder)
                .env("GPUIPC_TRUST", trust);
        });
        exporter.ok(&format!("umask {umask}"));
        if trust.is_empty() {
            // By its descriptor alone: a path may lead elsewhere by then.
            exporter.ok(&format!("refuse chmod+fchmodat {}", libc::EPERM));
        }
        let (buffer, _) = exporter.alloc("vmm-fd", LEN);
        exporter.export(buffer, 0, LEN);
        let mut names = std::fs::read_dir(&folder).expect("the folder");
        let name = names.next().expect("a name").expect("an entry");
        let meta = name.metadata().expect("its mode");
        assert_eq!(
            meta.permissions().mode() & 0o777,
            wanted,
            "{trust} {umask:o}"
        );
    }
}

/// A socket under a broker's name in a folder, whose backlog is full.
fn full_socket(address: &SocketAddrUnix) -> Vec<OwnedFd> {
    let socket = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket")
    };
    let listener = socket();
    bind(&listener, address).expect("bind");
    listen(&listener, 0).expect("listen");
    let mut all = vec![listener];
    loop {
        let client = socket();
        match connect(&client, address) {
            Ok(()) => all.push(client),
            Err(rustix::io::Errno::AGAIN) => return all,
            Err(errno) => panic!("connect: {errno}"),
        }
    }
}

fn name_in(folder: &Path, handle: &GpuIpcMemHandle) -> PathBuf {
    let endpoint = handle.ticket().expect("a ticket").endpoint;
    folder.join(format!("{}-{endpoint}", &handle.host_id().to_string()[..8]))
}

#[test]
fn a_stranger_s_socket_with_a_full_backlog_is_not_waited_for() {
    if !can_be_other_users() || !has_net_namespaces() {
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.path().join("sockets");
    std::fs::create_dir(&folder).expect("a folder");
    mode(&folder, 0o777);
    let mut exporter = crate::child(&scratch);
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    let (_, handle) = exporter.export(buffer, 0, LEN);
    let path = name_in(&folder, &handle);
    let _full = full_socket(&SocketAddrUnix::new(&path).expect("an address"));
    std::os::unix::fs::chown(&path, Some(STRANGER), None).expect("its owner");
    let mut importer = elsewhere(&scratch, &folder);
    let start = Instant::now();
    let refused = importer.import_refused(&by_broker_alone(&handle), "timeout=30000");
    assert_eq!(
        refused.attempts,
        ["PosixFd/broker-connect/BrokerUnreachable"]
    );
    assert!(start.elapsed() < Duration::from_secs(20));
    // Nor is a symlink followed, wherever it leads.
    let moved = scratch.path().join("moved");
    std::fs::rename(&path, &moved).expect("another name");
    std::os::unix::fs::chown(&moved, Some(0), None).expect("its owner");
    std::os::unix::fs::symlink(&moved, &path).expect("a symlink");
    let refused = importer.import_refused(&by_broker_alone(&handle), "timeout=30000");
    assert_eq!(
        refused.attempts,
        ["PosixFd/broker-connect/BrokerUnreachable"]
    );
    assert!(start.elapsed() < Duration::from_secs(40));
}

#[test]
fn a_full_backlog_of_one_name_hides_no_other_name() {
    if !has_net_namespaces() {
        return;
    }
    let scratch = Scratch::new();
    let folder = scratch.path().join("sockets");
    // Its abstract name is in another network namespace, and so free in this one.
    let mut exporter = elsewhere(&scratch, &folder);
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    exporter.ok(&format!("fill {buffer} 53"));
    let (_, handle) = exporter.export(buffer, 0, LEN);
    let name = format!("gpuipc-{}", handle.ticket().expect("a ticket").endpoint);
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name");
    let _full = full_socket(&address);
    let mut importer = here(&scratch, &folder);
    let start = Instant::now();
    let mem = importer.import(&by_broker_alone(&handle), "timeout=30000");
    importer.ok(&format!("read {} 53 0", mem.id));
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_name_that_another_process_took_after_the_exporter_s_end_is_not_waited_for() {
    let scratch = Scratch::new();
    let mut exporter = crate::child(&scratch);
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    let (_, handle) = exporter.export(buffer, 0, LEN);
    let name = format!("gpuipc-{}", handle.ticket().expect("a ticket").endpoint);
    exporter.kill();
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name");
    let _full = full_socket(&address);
    let mut importer = crate::child(&scratch);
    let start = Instant::now();
    for handle in [handle, by_broker_alone(&handle)] {
        let refused = importer.import_refused(&handle, "timeout=30000");
        assert_eq!(refused.status, "EXPORTER_GONE", "{refused:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn folders_of_very_many_users_do_not_outlast_the_deadline() {
    // The emulated GPU must stay in sight: it lies elsewhere here.
    let folder = std::env::temp_dir().join(format!("gpuipc-many-{}", std::process::id()));
    let works = std::process::Command::new("unshare")
        .args([
            "--mount",
            "--net",
            "sh",
            "-c",
            "mount -t tmpfs none /dev/shm",
        ])
        .output();
    if !works.is_ok_and(|output| output.status.success()) {
        return skip("a tmpfs in a mount namespace needs root");
    }
    std::fs::create_dir_all(&folder).expect("a folder");
    let scratch = Scratch::new();
    let mut exporter = TestChild::start_with(PROGRAM, &scratch, |command| {
        command.env("GPUIPC_EMULATED_DIR", &folder);
    });
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    let (_, handle) = exporter.export(buffer, 0, LEN);
    let script = format!(
        "mount -t tmpfs none /dev/shm && cd /dev/shm && \
         seq -f gpuipc-%.0f 100001 120000 | xargs mkdir && exec {PROGRAM}"
    );
    let mut importer = TestChild::start_with("unshare", &scratch, |command| {
        command
            .args(["--mount", "--net", "sh", "-c", &script])
            .env("GPUIPC_EMULATED_DIR", &folder);
    });
    let hex = gpuipc_tests::to_hex(&by_broker_alone(&handle).encode());
    let mut import = |timeout| {
        let start = Instant::now();
        let refused = importer.err(&format!("import-trusting-all {hex} timeout={timeout}"));
        (refused.attempts, start.elapsed())
    };
    // All of them are looked into, if there is time.
    let (attempts, _) = import(60_000);
    assert_eq!(attempts, ["PosixFd/broker-connect/BrokerUnreachable"]);
    // In a millisecond nobody looks into so many.
    let (attempts, _) = import(1);
    assert_eq!(attempts, ["PosixFd/broker-connect/TimedOut"]);
    let (_, took) = import(100);
    assert!(took < Duration::from_secs(3), "took {took:?}");
    drop((exporter, importer));
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

#[test]
fn a_relative_folder_is_the_one_of_the_start() {
    let scratch = Scratch::new();
    let mut exporter = TestChild::start_with(PROGRAM, &scratch, |command| {
        command
            .env("GPUIPC_SOCKET_DIR", "relative")
            .current_dir(scratch.path());
    });
    exporter.ok("open");
    exporter.ok("chdir /");
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    let (export, _) = exporter.export(buffer, 0, LEN);
    let names = || {
        let folder = std::fs::read_dir(scratch.path().join("relative"));
        folder.expect("the folder").count()
    };
    assert_eq!(names(), 1);
    exporter.ok(&format!("drop export {export}"));
    exporter.ok("drop-ipc");
    assert_eq!(names(), 0);
}
