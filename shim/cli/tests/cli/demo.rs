//! The command `demo`.

use crate::place::{Ended, Place, Running, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn rows(ended: &Ended) -> Vec<Value> {
    ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("one JSON object a line"))
        .collect()
}

/// The importing process of a demo.
fn importer_of(demo: &Running) -> Pid {
    let own = demo.child.id().to_string();
    let is_importer = |name: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{name}/stat")).ok()?;
        // After the name in brackets: state, parent.
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?;
        let arguments = std::fs::read(format!("/proc/{name}/cmdline")).ok()?;
        let started = arguments.windows(13).any(|part| part == b"demo-importer");
        (parent == own && started).then(|| name.parse().ok().and_then(Pid::from_raw))?
    };
    wait_for("the importer", || {
        std::fs::read_dir("/proc")
            .expect("/proc is there")
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .find_map(|name| is_importer(&name))
    })
}

/// Gone, or dead and only waiting for whoever inherited it.
fn wait_for_the_end_of(pid: Pid) {
    wait_for("the importer's end", || {
        match std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())) {
            Ok(stat) => stat
                .rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.starts_with('Z'))
                .then_some(()),
            Err(_) => Some(()),
        }
    });
}

#[test]
fn all_kinds_are_verified_on_the_emulated_driver() {
    let place = Place::new();
    let mut command = place.gpuipc(["demo", "--driver", "emulated"]);
    command.env_remove("GPUIPC_EMULATED_IMEX");
    let ended = Running::start(&mut command).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines[0].starts_with("driver: emulated"), "{ended:?}");
    assert!(lines[1].contains("GPUIPC_EMULATED_IMEX=demo"), "{ended:?}");
    let cases = [
        ("cuda-malloc", "1        4 MiB  yes "),
        ("vmm-fd", "1        4 MiB  yes "),
        ("vmm-fabric", "1        4 MiB  yes "),
        ("segments", "3        4 MiB  yes "),
        ("pool", "1        4 MiB  yes "),
        ("host-numa", "1        4 MiB  yes, CPU too "),
        ("read-only", "1        4 MiB  yes, no writes "),
    ];
    assert_eq!(lines.len(), 3 + cases.len(), "{ended:?}");
    for (line, (case, result)) in lines[3..].iter().zip(cases) {
        assert!(line.starts_with(case), "{ended:?}");
        assert!(line.contains(result), "{ended:?}");
    }
    assert_eq!(ended.stderr, "");
}

#[test]
fn auto_without_a_gpu_says_why_it_emulates() {
    let place = Place::new();
    let mut command = place.gpuipc(["demo", "--size", "1KiB"]);
    command.env("GPUIPC_LIBCUDA", "/nonexistent");
    let ended = Running::start(&mut command).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let first = ended.stdout.lines().next().expect("a first line");
    assert!(
        first.starts_with("driver: emulated (no GPU found: /nonexistent: "),
        "{first}"
    );
}

#[test]
fn json_has_every_promised_field() {
    let place = Place::new();
    // A size that is no multiple of anything, of more than one piece.
    let ended = place.run([
        "demo", "--driver", "emulated", "--json", "--size", "9000001",
    ]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let rows = rows(&ended);
    let fd = || vec!["PosixFd"];
    let expected = [
        ("cuda-malloc", vec!["RuntimeIpc"], "RuntimeIpc", 1),
        ("vmm-fd", fd(), "PosixFd", 1),
        ("vmm-fabric", vec!["PosixFd", "Fabric"], "PosixFd", 1),
        // The end of a piece, four whole ones, the start of one.
        ("segments", fd(), "PosixFd", 6),
        ("pool", fd(), "PosixFd", 1),
        ("host-numa", fd(), "PosixFd", 1),
        ("read-only", fd(), "PosixFd", 1),
    ];
    assert_eq!(rows.len(), expected.len());
    for (row, (case, exported_types, used, handles)) in rows.iter().zip(expected) {
        let memory = if case == "read-only" { "vmm-fd" } else { case };
        assert_eq!(row["case"], case);
        assert_eq!(row["handles"], handles);
        assert_eq!(row["driver"], "emulated");
        assert_eq!(row["memory"], memory);
        assert_eq!(row["allocated"], true);
        assert_eq!(row["exported"], Value::from(exported_types));
        assert_eq!(row["used"], used);
        assert_eq!(row["bytes"], 9_000_001);
        assert_eq!(row["verified"], true);
        assert_eq!(row["attempts"], Value::Array(Vec::new()));
        assert_eq!(row["error"], Value::Null);
        assert!(row["import_us"].is_u64(), "{row}");
    }
}

#[test]
fn memory_that_is_not_available_is_no_failure() {
    let place = Place::new();
    let mut command = place.gpuipc(["demo", "--driver", "emulated", "--json"]);
    command.env("GPUIPC_EMULATED_IMEX", "none");
    let ended = Running::start(&mut command).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let row = &rows(&ended)[2];
    assert_eq!(row["memory"], "vmm-fabric");
    assert_eq!(row["allocated"], false);
    assert_eq!(row["used"], Value::Null);
    assert_eq!(row["verified"], false);
    assert_eq!(
        row["error"],
        "cuMemCreate answered CUDA_ERROR_NOT_PERMITTED (800)"
    );
}

#[test]
fn what_a_machine_without_vmm_lacks_is_said_case_by_case() {
    let place = Place::new();
    let mut command = place.gpuipc(["demo", "--driver", "emulated"]);
    command.env("GPUIPC_EMULATED_PROFILE", "no-vmm");
    let ended = Running::start(&mut command).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for case in ["vmm-fd", "segments", "pool", "host-numa", "read-only"] {
        let reason = format!("\n{case}: not available: cuMem");
        assert!(ended.stdout.contains(&reason), "{case}: {ended:?}");
    }
}

#[test]
fn even_a_small_range_of_segments_has_several() {
    let place = Place::new();
    let ended = place.run(["demo", "--driver=emulated", "--json", "--size=3"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(rows(&ended)[3]["handles"], 2);
}

#[test]
fn a_range_of_very_many_handles_gets_through() {
    let place = Place::new();
    let mut command = place.gpuipc(["demo", "--driver=emulated", "--json", "--size=40MiB"]);
    // More bytes of handles than a pipe holds, and more handles than descriptors
    // that are kept open.
    command.env("GPUIPC_EMULATED_GRANULARITY", "64KiB");
    let ended = Running::start(&mut command).end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let row = &rows(&ended)[3];
    assert_eq!(row["case"], "segments");
    assert_eq!(row["verified"], true, "{row}");
    assert!(row["handles"].as_u64() > Some(600), "{row}");
}

#[test]
fn a_segment_that_fails_is_named() {
    let place = Place::new();
    let mut command = place.gpuipc(["demo", "--driver=emulated", "--json"]);
    // The importer's first two are of vmm-fd and vmm-fabric.
    command.env(
        "GPUIPC_EMULATED_FAIL",
        "cuMemImportFromShareableHandle@4=999",
    );
    let ended = Running::start(&mut command).end();
    let rows = rows(&ended);
    let failed = rows
        .iter()
        .find(|row| row["attempts"][0]["side"] == "import");
    let failed = failed.unwrap_or_else(|| panic!("{ended:?}"));
    assert_eq!(failed["case"], "segments");
    assert_eq!(failed["attempts"][0]["segment"], 1, "{failed}");
    assert_eq!(failed["attempts"][0]["gpu_pair"], Value::Null);
}

#[test]
fn nothing_available_is_a_failure() {
    let place = Place::new();
    let ended = place.run(["demo", "--driver", "emulated", "--size", "1024TiB"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("OUT_OF_MEMORY"), "{ended:?}");
    assert!(
        ended
            .stderr
            .contains("no kind of memory could be allocated"),
        "{ended:?}"
    );
}

#[test]
fn failed_attempts_of_both_sides_are_listed() {
    let place = Place::new();
    let mut command = place.gpuipc(["demo", "--driver", "emulated", "--json"]);
    // The exporter's second export is the descriptor of vmm-fabric.
    command
        .env("GPUIPC_EMULATED_FAIL", "cuMemExportToShareableHandle@2=999")
        .env("GPUIPC_TYPES", "Fabric,RuntimeIpc");
    let ended = Running::start(&mut command).end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let rows = rows(&ended);
    // Its only type is not allowed.
    assert_eq!(rows[1]["verified"], false);
    assert_eq!(rows[1]["attempts"][0]["side"], "import");
    assert_eq!(rows[1]["attempts"][0]["type"], "PosixFd");
    assert_eq!(rows[1]["attempts"][0]["step"], "select");
    let error = rows[1]["error"].as_str().expect("an error");
    assert!(!error.contains('\n'), "{error}");
    // Its descriptor could not be made; the fabric did it.
    let row = &rows[2];
    assert_eq!(row["verified"], true, "{row}");
    assert_eq!(row["used"], "Fabric");
    let attempt = &row["attempts"][0];
    assert_eq!(attempt["side"], "export");
    assert_eq!(attempt["type"], "PosixFd");
    assert_eq!(attempt["step"], "export");
    assert_eq!(attempt["code"], "CUDA_ERROR_UNKNOWN (999)");
    for name in ["reason", "hint"] {
        assert!(attempt[name].as_str().is_some_and(|text| !text.is_empty()));
    }
    assert!(ended.stderr.contains("not verified: vmm-fd"), "{ended:?}");
}

#[test]
fn two_gpus_can_take_part() {
    let place = Place::new();
    let ended = place.run([
        "demo",
        "--driver=emulated",
        "--device=0",
        "--importer-device=1",
    ]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let ended = place.run(["demo", "--driver=emulated", "--importer-device=2"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("--importer-device 2"), "{ended:?}");
}

#[test]
fn a_hung_importer_ends_the_demo() {
    let place = Place::new();
    let demo = Running::start(&mut place.gpuipc([
        "demo",
        "--driver=emulated",
        "--size=64MiB",
        "--timeout-ms=500",
    ]));
    let importer = importer_of(&demo);
    kill_process(importer, Signal::STOP).expect("it runs");
    let ended = demo.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("no sign of life"), "{ended:?}");
    assert!(ended.stderr.contains("it was killed"), "{ended:?}");
    wait_for_the_end_of(importer);
}

#[test]
fn a_dead_importer_ends_the_demo() {
    let place = Place::new();
    let demo = Running::start(&mut place.gpuipc(["demo", "--driver=emulated", "--size=64MiB"]));
    let importer = importer_of(&demo);
    kill_process(importer, Signal::KILL).expect("it runs");
    let ended = demo.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("signal: 9"), "{ended:?}");
}

#[test]
fn a_killed_demo_takes_its_importer_along() {
    let place = Place::new();
    let demo = Running::start(&mut place.gpuipc(["demo", "--driver=emulated", "--size=64MiB"]));
    let importer = importer_of(&demo);
    kill_process(demo.pid(), Signal::KILL).expect("it runs");
    demo.end();
    wait_for_the_end_of(importer);
}
