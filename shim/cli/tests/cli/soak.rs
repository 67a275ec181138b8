//! The command `soak`: that it does all that it says, notices its end, and leaves
//! nothing.

use crate::place::{Place, Running, wait_for};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;

/// What must be done or refused at least once in any run.
const DONE: [&str; 12] = [
    "allocate",
    "export",
    "register",
    "can_import",
    "import",
    "import in the own process",
    "deserialize",
    "verify",
    "unmap",
    "withdraw",
    "free",
    "free while on offer",
];

fn grounds() -> Vec<OsString> {
    [Path::new("/dev/shm"), &std::env::temp_dir()]
        .into_iter()
        .flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten())
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().starts_with("gpuipc-soak-"))
        .collect()
}

#[test]
fn a_short_soak_does_everything_and_leaves_nothing() {
    let place = Place::new();
    let ended = place.run([
        "soak",
        "--driver=emulated",
        "--minutes=0.08",
        "--seed=7",
        "--processes=3",
        "--json",
    ]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // No progress is shown where stderr is no terminal.
    assert_eq!(ended.stderr, "");
    let told: Value = serde_json::from_str(&ended.stdout).expect("one JSON object");
    let operations = &told["operations"];
    for name in DONE {
        assert!(operations[name][0].as_u64() > Some(0), "{name}: {told}");
    }
    // What must always be refused, or nearly always is.
    for name in ["import what is gone", "write to a read-only mapping"] {
        assert!(operations[name][1].as_u64() > Some(0), "{name}: {told}");
    }
    let numbers = &told["numbers"];
    for name in ["bytes verified", "kills", "stops", "signals"] {
        assert!(numbers[name].as_u64() > Some(0), "{name}: {told}");
    }
    assert_eq!(told["seed"], 7, "{told}");
    for name in ["wrong_bytes", "hangs", "leaked"] {
        assert_eq!(told[name], 0, "{told}");
    }
    // Each place's last incarnation came to its normal end, and was measured.
    assert_eq!(told["normal_ends"], 3, "{told}");
    let items = told["leaks"].as_array().expect("a list");
    for item in ["open descriptors", "threads", "live driver objects"] {
        let row = items.iter().find(|row| row["item"] == item);
        let row = row.unwrap_or_else(|| panic!("{item}: {told}"));
        assert!(row["before"].as_u64() > Some(0), "{told}");
        assert_eq!(row["leaked"], false, "{told}");
    }
}

#[test]
fn an_interrupt_ends_it_early_with_the_tables_and_its_folder_goes() {
    let place = Place::new();
    let soak = Running::start(&mut place.gpuipc([
        "soak",
        "--driver=emulated",
        "--minutes=60",
        "--processes=2",
    ]));
    let own = format!("gpuipc-soak-{}", soak.child.id());
    wait_for("its folder", || {
        grounds().iter().any(|name| *name == *own).then_some(())
    });
    kill_process(soak.pid(), Signal::INT).expect("it runs");
    let ended = soak.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines[0].starts_with("driver: emulated"), "{ended:?}");
    assert!(lines[1].starts_with("seed "), "{ended:?}");
    let last = lines.last().expect("a last line");
    assert!(
        last.starts_with("soak: ") && last.ends_with("ended early by SIGINT"),
        "{last}"
    );
    assert!(last.contains(" 0 wrong bytes, 0 hangs, 0 leaks"), "{last}");
    assert!(!grounds().iter().any(|name| *name == *own));
}

#[test]
fn wrong_usage_is_code_2() {
    let place = Place::new();
    for arguments in [
        &["soak"][..],
        &["soak", "--minutes=0"],
        &["soak", "--minutes=-1"],
        &["soak", "--minutes=soon"],
        &["soak", "--minutes=1", "--seed=x"],
        &["soak", "--minutes=1", "--processes=1"],
        &["soak", "--minutes=1", "--driver=vulkan"],
    ] {
        let ended = place.run(arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {ended:?}");
        assert_eq!(ended.stdout, "", "{arguments:?}");
    }
}
