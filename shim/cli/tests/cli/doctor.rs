//! The command `doctor`.

use crate::place::{Ended, Place, Running};
use serde_json::Value;
use std::process::Command;

fn report(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).expect("one JSON object")
}

fn doctor(place: &Place, options: &[&str]) -> Command {
    let mut command = place.gpuipc(["doctor", "--json"]);
    command.args(options);
    command
}

fn run(command: &mut Command) -> (Ended, Value) {
    let ended = Running::start(command).end();
    let report = report(&ended);
    (ended, report)
}

/// The only check of a subject.
fn check<'a>(report: &'a Value, subject: &str) -> &'a Value {
    let checks = report["checks"].as_array().expect("checks");
    let mut found = checks.iter().filter(|check| check["subject"] == subject);
    let check = found
        .next()
        .unwrap_or_else(|| panic!("{subject}: {report}"));
    assert!(found.next().is_none(), "{subject} twice: {report}");
    check
}

fn trials(report: &Value) -> &Vec<Value> {
    report["trials"].as_array().expect("trials")
}

fn contains(value: &Value, part: &str) -> bool {
    value.as_str().is_some_and(|text| text.contains(part))
}

#[test]
fn all_trials_succeed_on_the_emulated_driver_with_its_fabric() {
    let place = Place::new();
    let (ended, report) = run(&mut doctor(&place, &["--driver", "emulated"]));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stderr, "");
    assert_eq!(report["driver_asked"], "emulated");
    assert_eq!(report["driver_used"], "emulated");
    assert_eq!(report["works"], true);
    assert_eq!(
        report["types"],
        Value::from(vec!["RuntimeIpc", "PosixFd", "Fabric"])
    );
    // Two GPUs, each by seven ways to each.
    let trials = trials(&report);
    assert_eq!(trials.len(), 28);
    for trial in trials {
        assert_eq!(trial["verdict"], "ok", "{trial}");
        assert_eq!(trial["driver"], "emulated");
        assert_eq!(trial["bytes"], 2 << 20);
        let handles = if trial["memory"] == "segments" { 2 } else { 1 };
        assert_eq!(trial["handles"], handles, "{trial}");
        assert!(trial["import_us"].is_u64(), "{trial}");
        assert_eq!(trial["attempts"], Value::Array(Vec::new()));
        for nothing in ["error", "reason", "cure"] {
            assert_eq!(trial[nothing], Value::Null, "{trial}");
        }
    }
    let ways: Vec<(&Value, &Value)> = trials.iter().map(|t| (&t["memory"], &t["type"])).collect();
    for way in [
        ("cuda-malloc", "RuntimeIpc"),
        ("vmm-fd", "PosixFd"),
        ("vmm-fabric", "PosixFd"),
        ("vmm-fabric", "Fabric"),
        ("segments", "PosixFd"),
        ("pool", "PosixFd"),
        ("host-numa", "PosixFd"),
    ] {
        let count = ways.iter().filter(|(m, t)| *m == way.0 && *t == way.1);
        assert_eq!(count.count(), 4, "{way:?}");
    }
}

#[test]
fn every_check_has_its_fields_and_what_fails_has_a_cure() {
    let place = Place::new();
    let (_, report) = run(&mut doctor(&place, &["--driver", "emulated"]));
    for check in report["checks"].as_array().expect("checks") {
        assert!(
            check["subject"].is_string() && check["found"].is_string(),
            "{check}"
        );
        let verdict = check["verdict"].as_str().expect("a verdict");
        assert!(
            ["ok", "no", "unknown", "note"].contains(&verdict),
            "{check}"
        );
        assert!(verdict != "no" || check["cure"].is_string(), "{check}");
    }
    for subject in [
        "namespaces",
        "users",
        "container",
        "open files",
        "/dev/shm",
        "broker, abstract name",
        "broker, file name",
        "rules for pidfd",
        "SO_PEERPIDFD",
        "IMEX channels",
        "emulated driver",
        "GPU 0",
        "GPU 1",
        "verdict",
    ] {
        check(&report, subject);
    }
    let gpu = &check(&report, "GPU 0")["found"];
    for part in ["multicast yes", "host memory yes", "pools yes (descriptors"] {
        assert!(contains(gpu, part), "{gpu}");
    }
    let folder = place.path("");
    let folder = folder
        .to_str()
        .expect("plain letters")
        .trim_end_matches('/');
    let file = check(&report, "broker, file name");
    assert_eq!(file["verdict"], "ok", "{file}");
    assert!(contains(&file["found"], folder), "{file}");
}

#[test]
fn lines_are_short_and_say_what_json_says() {
    let place = Place::new();
    let ended = place.run(["doctor", "--driver", "emulated"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for line in ended.stdout.lines() {
        assert!(line.chars().count() <= 110, "{line}");
    }
    assert!(
        ended.stdout.contains(
            "vmm-fabric Fabric       ok       emulated GPU 1 to GPU 1, 0: 2 MiB verified"
        ),
        "{ended:?}"
    );
    let last = ended.stdout.lines().last().expect("a verdict");
    assert!(last.starts_with("verdict                 ok "), "{last}");
    assert!(last.ends_with("RuntimeIpc, PosixFd, Fabric"), "{last}");
}

#[test]
fn without_a_fabric_its_trials_say_why_and_the_rest_works() {
    let place = Place::new();
    let mut command = doctor(&place, &["--driver", "emulated"]);
    let (ended, report) = run(command.env("GPUIPC_EMULATED_IMEX", "none"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(report["types"], Value::from(vec!["RuntimeIpc", "PosixFd"]));
    for trial in trials(&report) {
        if trial["memory"] == "vmm-fabric" {
            assert_eq!(trial["verdict"], "no");
            assert!(contains(&trial["reason"], "NOT_PERMITTED"), "{trial}");
            assert!(contains(&trial["cure"], "GPUIPC_EMULATED_IMEX"), "{trial}");
        } else {
            assert_eq!(trial["verdict"], "ok", "{trial}");
        }
    }
}

#[test]
fn gpus_that_are_no_peers_are_told_apart() {
    let place = Place::new();
    let mut command = doctor(&place, &["--driver", "emulated"]);
    let (ended, report) = run(command.env("GPUIPC_EMULATED_PEER", "none"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for trial in trials(&report) {
        // Host memory belongs to no GPU.
        let is_near = trial["device"] == trial["importer_device"];
        if is_near || trial["memory"] == "host-numa" {
            assert_eq!(trial["verdict"], "ok", "{trial}");
        } else {
            assert_eq!(trial["verdict"], "no", "{trial}");
            assert!(
                contains(&trial["reason"], "PEER_ACCESS_UNSUPPORTED"),
                "{trial}"
            );
            assert!(contains(&trial["cure"], "topo -p2p"), "{trial}");
        }
    }
}

#[test]
fn without_the_real_driver_the_rest_is_told_all_the_same() {
    let place = Place::new();
    let mut command = doctor(&place, &["--driver", "cuda"]);
    let (ended, report) = run(command.env("GPUIPC_LIBCUDA", "/nonexistent"));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(report["works"], false);
    assert_eq!(report["driver_used"], Value::Null);
    assert_eq!(report["trials"], Value::Array(Vec::new()));
    let driver = check(&report, "driver");
    assert_eq!(driver["verdict"], "no");
    assert!(contains(&driver["found"], "/nonexistent"), "{driver}");
    assert!(contains(&driver["cure"], "GPUIPC_LIBCUDA"), "{driver}");
    for subject in ["users", "open files", "broker, abstract name"] {
        check(&report, subject);
    }
    let settings = report["checks"].as_array().expect("checks").iter();
    let mut settings = settings.filter(|check| check["subject"] == "environment");
    assert!(settings.any(|check| check["found"] == "GPUIPC_LIBCUDA=\"/nonexistent\""));
}

#[test]
fn auto_does_not_take_the_emulated_driver_for_a_gpu() {
    let place = Place::new();
    let mut command = doctor(&place, &[]);
    let (ended, report) = run(command.env("GPUIPC_LIBCUDA", "/nonexistent"));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(check(&report, "driver")["verdict"], "no");
    assert_eq!(check(&report, "verdict")["verdict"], "no");
    assert_eq!(report["driver_used"], "emulated");
    assert_eq!(report["works"], false);
    assert_eq!(report["types"], Value::Array(Vec::new()));
    assert_eq!(trials(&report).len(), 28);
    assert!(
        trials(&report)
            .iter()
            .all(|trial| trial["driver"] == "emulated")
    );
}

#[test]
fn a_driver_that_fails_a_step_fails_the_types_that_need_it() {
    let place = Place::new();
    let mut command = doctor(&place, &["--driver", "emulated"]);
    let (ended, report) = run(command.env(
        "GPUIPC_EMULATED_FAIL",
        "cuMemMap@*=999,cuMemPoolCreate@*=999",
    ));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(report["types"], Value::from(vec!["RuntimeIpc"]));
    // Without a context no GPU can be used at all.
    let mut command = doctor(&place, &["--driver", "emulated"]);
    let (ended, report) =
        run(command.env("GPUIPC_EMULATED_FAIL", "cuDevicePrimaryCtxRetain@*=999"));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(report["works"], false);
    let gpus = report["checks"].as_array().expect("checks").iter();
    let gpus = gpus.filter(|check| check["subject"] == "GPU 1");
    assert!(
        gpus.clone().any(|gpu| contains(&gpu["found"], "999")),
        "{report}"
    );
}

#[test]
fn importers_that_go_wrong_fail_their_trials_and_not_the_doctor() {
    let place = Place::new();
    // Too short for a process to start: one side or the other gives up.
    let mut command = doctor(&place, &["--driver", "emulated", "--timeout-ms", "1"]);
    let (ended, report) = run(&mut command);
    assert!(ended.code.is_some(), "{ended:?}");
    assert_eq!(trials(&report).len(), 28);
    for trial in trials(&report) {
        let failed = contains(&trial["reason"], "importing process");
        assert!(failed || trial["verdict"] == "ok", "{trial}");
    }
}

#[test]
fn few_descriptors_are_shown_as_the_cause() {
    let place = Place::new();
    for (limit, code) in [(8, 1), (12, 1), (40, 0)] {
        let doctor = doctor(&place, &["--driver", "emulated"]);
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg(format!("ulimit -n {limit} && exec \"$@\""))
            .arg("sh")
            .arg(doctor.get_program())
            .args(doctor.get_args());
        for (name, value) in doctor.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        let (ended, report) = run(shell.stdin(std::process::Stdio::null()));
        assert_eq!(ended.code, Some(code), "{limit}: {ended:?}");
        let files = check(&report, "open files");
        assert!(
            contains(&files["found"], &format!("soft {limit}, hard {limit}")),
            "{files}"
        );
        assert!(contains(&files["cure"], "ulimit -n"), "{files}");
        assert_eq!(files["verdict"] == "no", limit < 32, "{files}");
    }
}

#[test]
fn a_folder_that_cannot_hold_a_name_is_told_with_the_reason() {
    let place = Place::new();
    let long = place.path(&"x".repeat(70));
    for (folder, reason) in [
        (long.to_str().expect("plain letters"), "64 fit"),
        ("/proc", "GPUIPC_SOCKET_DIR"),
        ("/nonexistent/folder", "No such file"),
    ] {
        let mut command = doctor(&place, &["--driver", "emulated"]);
        let (ended, report) = run(command.env("GPUIPC_SOCKET_DIR", folder));
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let file = check(&report, "broker, file name");
        assert_eq!(file["verdict"], "no");
        assert!(contains(&file["found"], reason), "{file}");
        let trial = &trials(&report)[0];
        assert!(contains(&trial["reason"], "broker"), "{trial}");
    }
    assert!(!long.exists());
}

#[test]
fn a_folder_that_was_made_for_the_try_goes_again() {
    let place = Place::new();
    let folder = place.path("new");
    let mut command = doctor(&place, &["--driver", "cuda"]);
    command
        .env("GPUIPC_LIBCUDA", "/nonexistent")
        .env("GPUIPC_SOCKET_DIR", &folder);
    let (_, report) = run(&mut command);
    assert_eq!(check(&report, "broker, file name")["verdict"], "ok");
    assert!(!folder.exists());
}

/// Runs a program under another one that changes where it runs; `None` where
/// the machine does not allow that.
fn inside(wrapper: &[&str], doctor: &Command) -> Option<(Ended, Value)> {
    let (program, arguments) = wrapper.split_first().expect("a program");
    let allowed = Command::new(program)
        .args(arguments)
        .arg("true")
        .output()
        .is_ok_and(|output| output.status.success());
    if !allowed {
        println!("SKIP: {wrapper:?} is not possible here");
        return None;
    }
    let mut command = Command::new(program);
    command
        .args(arguments)
        .arg(doctor.get_program())
        .args(doctor.get_args());
    for (name, value) in doctor.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Some(run(command.stdin(std::process::Stdio::null())))
}

#[test]
fn another_network_namespace_has_another_number() {
    let place = Place::new();
    let doctor = doctor(&place, &["--driver", "emulated"]);
    let own = std::fs::read_link("/proc/self/ns/net").expect("it is there");
    let own = own.to_string_lossy().replace("net:[", "").replace(']', "");
    let Some((ended, report)) = inside(&["unshare", "--net"], &doctor) else {
        return;
    };
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let name = check(&report, "broker, abstract name");
    assert_eq!(name["verdict"], "ok", "{name}");
    assert!(!contains(&name["found"], &own), "{name}");
}

#[test]
fn a_user_without_a_number_learns_what_to_set() {
    let place = Place::new();
    std::fs::create_dir(place.path("machine")).expect("a new folder");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(place.path("machine"), open).expect("it is ours");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(place.path(""), open).expect("it is ours");
    let unmapped = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "unshare",
        "--user",
    ];
    let mut doctor = doctor(&place, &["--driver", "emulated"]);
    let Some((ended, report)) = inside(&unmapped, &doctor) else {
        return;
    };
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let users = check(&report, "users");
    assert_eq!(users["verdict"], "no", "{users}");
    assert!(contains(&users["cure"], "GPUIPC_TRUST=token"), "{users}");
    // And setting it helps.
    doctor.env("GPUIPC_TRUST", "token");
    let (ended, report) = inside(&unmapped, &doctor).expect("it was possible before");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(check(&report, "users")["verdict"], "note");
    assert_eq!(
        report["types"],
        Value::from(vec!["RuntimeIpc", "PosixFd", "Fabric"])
    );
}
