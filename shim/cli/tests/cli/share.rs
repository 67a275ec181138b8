//! The commands `export` and `import`, in two processes that start apart.

use crate::place::{Ended, Place, Running, wait_for};
use rustix::process::{Signal, kill_process};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Kinds of memory, and the types by which they are imported.
const KINDS: [(&str, &str); 5] = [
    ("cuda-malloc", "RuntimeIpc"),
    ("vmm-fd", "PosixFd"),
    ("vmm-fabric", "PosixFd"),
    ("segments", "PosixFd"),
    ("pool", "PosixFd"),
];

pub(crate) fn export(place: &Place, kind: &str, out: &Path) -> Command {
    let mut command = place.gpuipc(["export", "--driver=emulated", "--size=100001", "--memory"]);
    command.arg(kind).arg("--out").arg(out);
    command
}

/// Starts an exporter and waits for its handle.
pub(crate) fn exporter(place: &Place, kind: &str, out: &Path) -> Running {
    let running = Running::start(&mut export(place, kind, out));
    wait_for("the handle", || out.exists().then_some(()));
    running
}

pub(crate) fn import(place: &Place, file: &Path, options: &[&str]) -> Ended {
    let mut command = place.gpuipc(["import", "--driver=emulated"]);
    command.arg(file).args(options);
    Running::start(&mut command).end()
}

/// Ends an exporter as a user does.
pub(crate) fn interrupt(running: Running) -> Ended {
    kill_process(running.pid(), Signal::INT).expect("it runs");
    running.end()
}

#[test]
fn memory_of_each_kind_is_imported_and_verified() {
    for (kind, used) in KINDS {
        let place = Place::new();
        let file = place.path("handle");
        let exporter = exporter(&place, kind, &file);
        let mode = file.metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let handles = if kind == "segments" { 2 } else { 1 };
        assert_eq!(file.metadata().expect("it is there").len(), handles * 384);
        // More than once, by one after the other.
        for _ in 0..2 {
            let ended = import(&place, &file, &[]);
            assert_eq!(ended.code, Some(0), "{kind}: {ended:?}");
            assert!(ended.stdout.contains(used), "{kind}: {ended:?}");
            assert!(ended.stdout.contains("verified: "), "{kind}: {ended:?}");
        }
        let ended = interrupt(exporter);
        assert_eq!(ended.code, Some(0), "{kind}: {ended:?}");
        assert!(ended.stdout.contains("SIGINT"), "{kind}: {ended:?}");
        assert!(ended.stdout.contains("no importer wrote"), "{ended:?}");
        assert!(!file.exists());
    }
}

#[test]
fn each_type_that_is_allowed_is_used() {
    let place = Place::new();
    let file = place.path("handle");
    let exporter = exporter(&place, "vmm-fabric", &file);
    let ended = import(&place, &file, &["--types", "fabric,runtime-ipc"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("type used    Fabric"), "{ended:?}");
    assert!(ended.stdout.contains("failed before: PosixFd"), "{ended:?}");
    let ended = import(&place, &file, &["--types", "RuntimeIpc"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("allow the type"), "{ended:?}");
    interrupt(exporter);
}

#[test]
fn the_exporter_finds_an_importers_answer() {
    let place = Place::new();
    let file = place.path("handle");
    let exporter = exporter(&place, "cuda-malloc", &file);
    let ended = import(&place, &file, &["--answer", "--require-live"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // The memory is no longer as it was exported, and the next one says so.
    let ended = import(&place, &file, &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("byte 0 is"), "{ended:?}");
    let ended = interrupt(exporter);
    assert!(ended.stdout.contains("an importer wrote its answer"));
}

#[test]
fn memory_can_be_mapped_for_reading_only() {
    let place = Place::new();
    let file = place.path("handle");
    let fd = exporter(&place, "vmm-fd", &file);
    let ended = import(&place, &file, &["--read-only"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    interrupt(fd);
    let legacy = exporter(&place, "cuda-malloc", &file);
    let ended = import(&place, &file, &["--read-only"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("always writable"), "{ended:?}");
    interrupt(legacy);
}

#[test]
fn a_handle_comes_through_a_pipe() {
    let place = Place::new();
    let file = place.path("handle");
    let exporter = exporter(&place, "vmm-fd", &file);
    let mut command = place.gpuipc(["import", "-", "--driver=emulated"]);
    let mut importer = Running::start(command.stdin(Stdio::piped()));
    let mut stdin = importer.child.stdin.take().expect("it is piped");
    stdin
        .write_all(&std::fs::read(&file).expect("it is there"))
        .expect("it reads");
    drop(stdin);
    let ended = importer.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    interrupt(exporter);
}

#[test]
fn a_killed_exporter_is_said_to_be_gone() {
    for (kind, _) in KINDS {
        let place = Place::new();
        let file = place.path("handle");
        let mut exporter = exporter(&place, kind, &file);
        exporter.child.kill().expect("it runs");
        exporter.end();
        let ended = import(&place, &file, &["--timeout-ms", "10000"]);
        assert_eq!(ended.code, Some(1), "{kind}: {ended:?}");
        assert!(
            ended.stderr.contains("the exporting process has ended"),
            "{kind}: {ended:?}"
        );
    }
}

#[test]
fn a_handle_kept_beyond_the_export_opens_nothing() {
    let place = Place::new();
    let (file, kept) = (place.path("handle"), place.path("kept"));
    let exporter = exporter(&place, "vmm-fd", &file);
    std::fs::copy(&file, &kept).expect("a copy");
    interrupt(exporter);
    let ended = import(&place, &kept, &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("has ended"), "{ended:?}");
}

#[test]
fn an_export_can_end_by_itself() {
    let place = Place::new();
    let file = place.path("handle");
    let ended = Running::start(export(&place, "vmm-fd", &file).args(["--hold-seconds", "0"])).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!file.exists());
    let left = std::fs::read_dir(file.parent().expect("a folder"))
        .expect("it is there")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name != "machine")
        .collect::<Vec<_>>();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn a_file_of_somebody_else_stays() {
    let place = Place::new();
    let file = place.path("handle");
    let exporter = exporter(&place, "vmm-fd", &file);
    let other = place.path("other");
    std::fs::write(&other, "mine").expect("there is room");
    std::fs::rename(&other, &file).expect("the same folder");
    let ended = interrupt(exporter);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(std::fs::read(&file).expect("it stays"), b"mine");
}

#[test]
fn no_secret_is_in_any_output() {
    let place = Place::new();
    let file = place.path("handle");
    for kind in ["vmm-fabric", "cuda-malloc", "segments", "pool"] {
        let mut command = export(&place, kind, &file);
        let exporter = Running::start(command.env("GPUIPC_LOG", "trace"));
        wait_for("the handle", || file.exists().then_some(()));
        let bytes = std::fs::read(&file).expect("it is there");
        let mut texts = Vec::new();
        for types in ["PosixFd", "Fabric,RuntimeIpc"] {
            let mut command = place.gpuipc(["import", "--driver=emulated", "--types", types]);
            command.arg(&file).env("GPUIPC_LOG", "trace");
            texts.push(Running::start(&mut command).end());
            texts.push(Running::start(command.arg("--dry-run")).end());
        }
        for options in [&["inspect"][..], &["inspect", "--json"]] {
            let mut command = place.gpuipc(options);
            command.arg(&file).env("GPUIPC_LOG", "trace");
            texts.push(Running::start(&mut command).end());
        }
        let exporter = interrupt(exporter);
        assert!(exporter.stderr.contains("gpuipc::gpu"), "{exporter:?}");
        texts.push(exporter);
        let hex =
            |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
        // The token, and whatever the driver gave, by its telling parts.
        let mut secrets = vec![&bytes[272..288]];
        secrets.extend([&bytes[208..232], &bytes[336..360]]);
        for secret in secrets
            .into_iter()
            .filter(|bytes| bytes.iter().any(|byte| *byte != 0))
        {
            for ended in &texts {
                let all = format!("{}{}", ended.stdout, ended.stderr);
                assert!(!all.to_lowercase().contains(&hex(secret)), "{ended:?}");
                assert!(!all.contains(&format!("{secret:?}")), "{ended:?}");
            }
        }
    }
}
