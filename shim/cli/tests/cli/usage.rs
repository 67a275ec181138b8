//! What is refused, with which exit code, and an output that nobody reads.

use crate::place::{Place, Running, wait_for};
use std::process::Stdio;

#[test]
fn wrong_usage_is_code_2() {
    let place = Place::new();
    for arguments in [
        &["export", "--memory=stone", "--size=1MiB", "--out=x"][..],
        &["export", "--memory=vmm-fd", "--size=0", "--out=x"],
        &["demo", "--driver=vulkan"],
        &["demo", "--size=1.5GiB"],
        &["demo", "--timeout-ms=0"],
        &["doctor", "--driver=vulkan"],
        &["doctor", "--json=yes"],
        &["import", "x", "--types=PosixFd,carrier-pigeon"],
        &["import", "x", "--read-only", "--answer"],
        &["import", "x", "--dry-run", "--answer"],
        &["import", "x", "--device=GPU-1"],
        &["import", "x", "--also=-1"],
        &[
            "export",
            "--memory=vmm-fd",
            "--size=1",
            "--out=x",
            "--device=first",
        ],
        &["inspect"],
        &["import"],
        &["fly"],
        &[],
    ] {
        let ended = place.run(arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {ended:?}");
        assert_eq!(ended.stdout, "", "{arguments:?}");
    }
    let ended = place.run(["export", "--memory=stone", "--size=1MiB", "--out=x"]);
    for kind in [
        "cuda-malloc",
        "vmm-fd",
        "vmm-fabric",
        "segments",
        "pool",
        "host-numa",
    ] {
        assert!(ended.stderr.contains(kind), "{ended:?}");
    }
}

#[test]
fn help_names_the_commands() {
    let place = Place::new();
    let ended = place.run(["--help"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for command in ["demo", "export", "import", "inspect", "doctor"] {
        assert!(ended.stdout.contains(command), "{ended:?}");
    }
    for hidden in ["demo-importer", "doctor-probe"] {
        assert!(!ended.stdout.contains(hidden), "{ended:?}");
    }
}

#[test]
fn a_driver_that_is_not_there_is_an_error() {
    let place = Place::new();
    let mut command = place.gpuipc(["demo", "--driver", "cuda"]);
    let ended = Running::start(command.env("GPUIPC_LIBCUDA", "/nonexistent")).end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("/nonexistent"), "{ended:?}");
    assert!(ended.stderr.contains("cannot be loaded"), "{ended:?}");
    assert_eq!(ended.stdout, "");
}

#[test]
fn hidden_gpus_are_named_as_the_cause() {
    let place = Place::new();
    let mut command = place.gpuipc(["demo"]);
    command
        .env("GPUIPC_LIBCUDA", "/nonexistent")
        .env("CUDA_VISIBLE_DEVICES", "");
    let ended = Running::start(&mut command).end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("no GPU found"), "{ended:?}");
    assert!(ended.stderr.contains("CUDA_VISIBLE_DEVICES"), "{ended:?}");
}

#[test]
fn garbage_is_not_imported() {
    let place = Place::new();
    let file = place.path("garbage");
    std::fs::write(&file, [0x5a; 384]).expect("there is room");
    let file = file.to_str().expect("plain letters");
    let ended = place.run(["import", "--driver=emulated", file]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("no gpuipc handle"), "{ended:?}");
}

#[test]
fn a_setting_that_says_nothing_is_an_error() {
    let place = Place::new();
    for (name, value) in [("GPUIPC_LOG", "loud"), ("GPUIPC_TYPES", "Telepathy")] {
        let mut command = place.gpuipc(["demo", "--driver=emulated"]);
        let ended = Running::start(command.env(name, value)).end();
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains(name), "{ended:?}");
    }
}

#[test]
fn a_handle_that_cannot_be_written_leaves_nothing() {
    let place = Place::new();
    let out = place.path("missing/handle");
    let mut command = place.gpuipc(["export", "--driver=emulated", "--memory=vmm-fd"]);
    command.arg("--size=4096").arg("--out").arg(&out);
    let ended = Running::start(&mut command).end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("cannot be written"), "{ended:?}");
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let place = Place::new();
    for arguments in [
        &["demo", "--driver=emulated"][..],
        &["demo", "--driver=emulated", "--json"],
        &["doctor", "--driver=emulated"],
        &["doctor", "--driver=emulated", "--json"],
        &["--help"],
    ] {
        // A pipe without a reader.
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut child = place
            .gpuipc(arguments)
            .stdout(Stdio::from(writer))
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let status = wait_for("its end", || child.try_wait().expect("it is a child"));
        assert!(status.code().is_some_and(|code| code < 2), "{status}");
        let mut stderr = String::new();
        let mut pipe = child.stderr.take().expect("it is piped");
        std::io::Read::read_to_string(&mut pipe, &mut stderr).expect("text");
        assert_eq!(stderr, "", "{arguments:?}");
    }
}
