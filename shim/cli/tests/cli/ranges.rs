//! The commands `export` and `import` with ranges of several handles, host
//! memory, devices by name, and an import that is only asked about.

use crate::place::{Ended, Place, Running, wait_for};
use crate::share::{export, exporter, import, interrupt};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

const HANDLE: usize = 384;

/// An exporter of five MiB in pieces of two: the end of one, two whole ones, the
/// start of one.
fn segments(place: &Place, options: &[&str]) -> (Running, PathBuf) {
    let file = place.path("handles");
    let mut command = place.gpuipc(["export", "--driver=emulated", "--memory=segments"]);
    command
        .args(["--size=5MiB", "--out"])
        .arg(&file)
        .args(options);
    let running = Running::start(&mut command);
    wait_for("the handles", || file.exists().then_some(()));
    (running, file)
}

fn handles(file: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(file).expect("it is there");
    bytes.chunks(HANDLE).map(<[u8]>::to_vec).collect()
}

fn dry_run(place: &Place, file: &Path, options: &[&str]) -> Ended {
    let mut all = vec!["--dry-run"];
    all.extend(options);
    import(place, file, &all)
}

#[test]
fn a_range_is_imported_whole_in_any_order() {
    let place = Place::new();
    let (exporter, file) = segments(&place, &[]);
    let mut turned = handles(&file);
    assert_eq!(turned.len(), 4);
    turned.rotate_left(1);
    turned.swap(0, 1);
    // From a pipe, and from a file each.
    let mut command = place.gpuipc(["import", "-", "--driver=emulated"]);
    let mut importer = Running::start(command.stdin(Stdio::piped()));
    let mut stdin = importer.child.stdin.take().expect("it is piped");
    stdin.write_all(&turned.concat()).expect("it reads");
    drop(stdin);
    let mut command = place.gpuipc(["import", "--driver=emulated", "--answer"]);
    for (at, handle) in turned.iter().enumerate() {
        let part = place.path(&format!("part {at}"));
        std::fs::write(&part, handle).expect("there is room");
        command.arg(part);
    }
    let piped = importer.end();
    let filed = Running::start(&mut command).end();
    for ended in [piped, filed] {
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stdout.contains("bytes        5 MiB"), "{ended:?}");
        assert!(ended.stdout.contains("4, side by side"), "{ended:?}");
    }
    let ended = interrupt(exporter);
    assert!(ended.stdout.contains("handles: 4 in "), "{ended:?}");
    assert!(
        ended.stdout.contains("an importer wrote its answer"),
        "{ended:?}"
    );
}

#[test]
fn a_part_of_a_range_is_refused_by_name() {
    let place = Place::new();
    let (exporter, file) = segments(&place, &[]);
    let all = handles(&file);
    let part = place.path("part");
    for (bytes, what) in [
        (
            [&all[0][..], &all[1], &all[3]].concat(),
            "segment 2 of 4 is missing",
        ),
        (
            [&all[0][..], &all[1], &all[1]].concat(),
            "a second one for segment 1",
        ),
    ] {
        std::fs::write(&part, bytes).expect("there is room");
        for options in [&[][..], &["--dry-run"]] {
            let ended = import(&place, &part, options);
            assert_eq!(ended.code, Some(1), "{ended:?}");
            assert!(ended.stderr.contains(what), "{what}: {ended:?}");
        }
    }
    interrupt(exporter);
}

#[test]
fn descriptors_can_be_made_when_they_are_asked_for() {
    let place = Place::new();
    let (exporter, file) = segments(&place, &["--on-demand"]);
    let ended = place.run(["inspect", file.to_str().expect("plain letters"), "--json"]);
    for line in ended.stdout.lines().take(4) {
        let value: Value = serde_json::from_str(line).expect("one object");
        assert_eq!(value["fd"], Value::Null, "{value}");
    }
    let ended = import(&place, &file, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    interrupt(exporter);
}

#[test]
fn host_memory_is_read_by_the_cpu_on_request() {
    let place = Place::new();
    let file = place.path("handle");
    let running = exporter(&place, "host-numa", &file);
    let ended = import(&place, &file, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("not verified: "), "{ended:?}");
    assert!(ended.stdout.contains("with --host only"), "{ended:?}");
    let refused = import(&place, &file, &["--answer"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for options in [&["--host", "--read-only"][..], &["--host", "--answer"]] {
        let ended = import(&place, &file, options);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stdout.contains("the CPU reads the same"), "{ended:?}");
    }
    let ended = interrupt(running);
    assert!(
        ended.stdout.contains("an importer wrote its answer"),
        "{ended:?}"
    );
}

#[test]
fn a_gpus_memory_is_not_for_the_cpu() {
    let place = Place::new();
    let file = place.path("handle");
    let running = exporter(&place, "vmm-fd", &file);
    for options in [&["--host"][..], &["--host", "--dry-run"]] {
        let ended = import(&place, &file, options);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let all = format!("{}{}", ended.stdout, ended.stderr);
        assert!(all.contains("the CPU cannot have access"), "{ended:?}");
    }
    interrupt(running);
}

/// The UUID of the GPU that holds the memory.
fn device_of(place: &Place, file: &Path) -> String {
    let ended = place.run(["inspect", file.to_str().expect("plain letters"), "--json"]);
    let value: Value = serde_json::from_str(&ended.stdout).expect("one object");
    value["device_uuid"].as_str().expect("a UUID").to_owned()
}

#[test]
fn gpus_are_named_by_number_or_uuid() {
    let place = Place::new();
    let (first, second) = (place.path("first"), place.path("second"));
    let mut on_second = export(&place, "vmm-fd", &second);
    let running = [
        exporter(&place, "vmm-fd", &first),
        Running::start(on_second.args(["--device", "1"])),
    ];
    wait_for("the handle", || second.exists().then_some(()));
    let (zero, one) = (device_of(&place, &first), device_of(&place, &second));
    assert_ne!(zero, one);
    for (options, device) in [
        (&["--device", &one, "--also", &zero][..], 1),
        (&["--device", &zero, "--also", "1", "--also", "0"], 0),
        (&["--device", "1", "--also", "0"], 1),
    ] {
        let ended = import(&place, &first, options);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let row = format!("device       {device}\n");
        assert!(ended.stdout.contains(&row), "{ended:?}");
    }
    // An exporter by UUID, too.
    let third = place.path("third");
    let mut by_uuid = export(&place, "vmm-fd", &third);
    let by_uuid = Running::start(by_uuid.args(["--device", &one]));
    wait_for("the handle", || third.exists().then_some(()));
    assert_eq!(device_of(&place, &third), one);
    let unknown = "GPU-00000000-0000-0000-0000-000000000001";
    for (option, device) in [("--device", unknown), ("--also", unknown), ("--also", "2")] {
        let ended = import(&place, &first, &[option, device]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let start = format!("gpuipc: {option} {device}: ");
        assert!(ended.stderr.starts_with(&start), "{ended:?}");
    }
    interrupt(by_uuid);
    running
        .into_iter()
        .for_each(|running| drop(interrupt(running)));
}

#[test]
fn a_legacy_mapping_is_for_one_gpu() {
    let place = Place::new();
    let file = place.path("handle");
    let running = exporter(&place, "cuda-malloc", &file);
    let ended = import(&place, &file, &["--also", "1"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("one device only"), "{ended:?}");
    interrupt(running);
}

#[test]
fn an_import_can_be_asked_about_type_by_type() {
    let place = Place::new();
    let file = place.path("handle");
    let running = exporter(&place, "vmm-fabric", &file);
    let ended = dry_run(&place, &file, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for part in ["PosixFd  yes  ", "Fabric   yes  ", "\nimportable\n"] {
        assert!(ended.stdout.contains(part), "{part}: {ended:?}");
    }
    let ended = dry_run(&place, &file, &["--types", "Fabric"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.stdout.contains("PosixFd  no   failed at select"),
        "{ended:?}"
    );
    assert!(ended.stdout.contains("; allow the type"), "{ended:?}");
    let ended = dry_run(&place, &file, &["--types", "RuntimeIpc"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("not importable"), "{ended:?}");
    // Nothing was mapped or written.
    let ended = interrupt(running);
    assert!(ended.stdout.contains("no importer wrote"), "{ended:?}");
    let running = exporter(&place, "cuda-malloc", &file);
    let ended = dry_run(&place, &file, &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("RuntimeIpc  unknown  "), "{ended:?}");
    interrupt(running);
}

#[test]
fn memory_of_an_exporter_that_has_ended_is_not_importable() {
    let place = Place::new();
    let (file, kept) = (place.path("handle"), place.path("kept"));
    let running = exporter(&place, "pool", &file);
    std::fs::copy(&file, &kept).expect("a copy");
    interrupt(running);
    let ended = dry_run(&place, &kept, &[]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("has ended"), "{ended:?}");
}
