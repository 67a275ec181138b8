//! The command `doctor`.

use crate::place::{Ended, Place, Running};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
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
        "host id",
        "export table",
        "forked children",
        "threads",
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
    // At 12 there is no room for the broker, and the driver alone shares legacy memory.
    for (limit, code) in [(8, 1), (12, 0), (40, 0)] {
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
        // The abstract name is left.
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let file = check(&report, "broker, file name");
        assert_eq!(file["verdict"], "no");
        assert!(contains(&file["found"], reason), "{file}");
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

/// Says why the running test did nothing, whatever the harness shows.
fn skip(why: &str) {
    let thread = std::thread::current();
    let line = format!("SKIP {}: {why}\n", thread.name().unwrap_or("test"));
    std::io::stderr()
        .write_all(line.as_bytes())
        .expect("stderr is open");
}

/// A copy of the program under a path that every user can reach, removed at the end.
struct Copy(PathBuf);

impl Copy {
    fn of(doctor: &Command, folder: &Path) -> Option<Self> {
        let copy = Self(folder.join(format!("gpuipc-{}", std::process::id())));
        std::fs::copy(doctor.get_program(), &copy.0).ok()?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&copy.0, mode).ok()?;
        Some(copy)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A program under another one that changes where it runs.
fn under(wrapper: &[&str], program: &OsStr) -> Command {
    let (first, arguments) = wrapper.split_first().expect("a program");
    let mut command = Command::new(first);
    command.args(arguments).arg(program).current_dir("/");
    command
}

fn can_run(wrapper: &[&str], program: &OsStr) -> bool {
    let output = under(wrapper, program).arg("--version").output();
    output.is_ok_and(|output| output.status.success())
}

fn run_inside(wrapper: &[&str], program: &OsStr, doctor: &Command) -> (Ended, Value) {
    let mut command = under(wrapper, program);
    command.args(doctor.get_args());
    for (name, value) in doctor.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    run(command.stdin(std::process::Stdio::null()))
}

/// Runs the program under another one; `None` where the machine does not allow that.
fn inside(wrapper: &[&str], doctor: &Command) -> Option<(Ended, Value)> {
    if !can_run(wrapper, doctor.get_program()) {
        skip(&format!("{wrapper:?} is not possible here"));
        return None;
    }
    Some(run_inside(wrapper, doctor.get_program(), doctor))
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
    // A user who may not enter the folder of the program's own file runs a copy.
    let folders = [place.path(""), std::env::temp_dir(), "/tmp".into()];
    let copies = folders.map(|folder| Copy::of(&doctor, &folder));
    let reached = |copy: &&Copy| can_run(&unmapped, copy.0.as_os_str());
    let Some(copy) = copies.iter().flatten().find(reached) else {
        return skip(
            "another user without a number in a user namespace cannot be, or runs no copy",
        );
    };
    let (ended, report) = run_inside(&unmapped, copy.0.as_os_str(), &doctor);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let users = check(&report, "users");
    assert_eq!(users["verdict"], "no", "{users}");
    assert!(contains(&users["cure"], "GPUIPC_TRUST=token"), "{users}");
    // And setting it helps.
    doctor.env("GPUIPC_TRUST", "token");
    let (ended, report) = run_inside(&unmapped, copy.0.as_os_str(), &doctor);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(check(&report, "users")["verdict"], "note");
    assert_eq!(
        report["types"],
        Value::from(vec!["RuntimeIpc", "PosixFd", "Fabric"])
    );
}

#[test]
fn what_a_sandbox_refuses_is_told_with_its_cure() {
    let place = Place::new();
    // The emulated driver would grow files itself.
    let mut plain = doctor(&place, &["--driver", "cuda"]);
    plain.env("GPUIPC_LIBCUDA", "/nonexistent");
    let small = ["sh", "-c", "ulimit -f 1000 && exec \"$0\" \"$@\""];
    let (_, report) = run_inside(&small, plain.get_program(), &plain);
    let table = check(&report, "export table");
    assert_eq!(table["verdict"], "no", "{table}");
    assert!(contains(&table["found"], "RLIMIT_FSIZE"), "{table}");
    assert!(contains(&table["cure"], "ulimit -f"), "{table}");
    let no_boot_id = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        "mount -t tmpfs none /proc/sys && exec \"$0\" \"$@\"",
    ];
    let doctor = doctor(&place, &["--driver", "emulated"]);
    let Some((ended, report)) = inside(&no_boot_id, &doctor) else {
        return;
    };
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let host = check(&report, "host id");
    assert_eq!(host["verdict"], "no", "{host}");
    assert!(contains(&host["cure"], "GPUIPC_HOST_ID"), "{host}");
}

#[test]
fn a_host_that_is_named_is_told_by_its_name() {
    let place = Place::new();
    let mut command = doctor(&place, &["--driver", "cuda"]);
    command
        .env("GPUIPC_LIBCUDA", "/nonexistent")
        .env("GPUIPC_HOST_ID", "node-17");
    let (_, report) = run(&mut command);
    let host = check(&report, "host id");
    assert_eq!(host["verdict"], "ok", "{host}");
    assert!(contains(&host["found"], "node-17"), "{host}");
}
