//! The stress program: that it does all that it says, finds what is wrong, and leaves nothing.
#![allow(missing_docs)]

use serde_json::Value;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn stress(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuipc-stress"));
    command.arg("--driver=emulated").args(arguments);
    command
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
}

/// The folder of one that runs, which is in one of two places.
fn has_folder(pid: u32) -> bool {
    let name = format!("gpuipc-stress-{pid}");
    std::path::Path::new("/dev/shm").join(&name).exists()
        || std::env::temp_dir().join(name).exists()
}

#[test]
fn a_short_run_does_everything_and_leaves_nothing() {
    let arguments = ["--minutes=0.08", "--seed=7", "--processes=3", "--json"];
    let output = stress(&arguments).output().expect("it starts");
    let told = json(&output);
    assert!(output.status.success(), "{told}");
    let (deeds, numbers) = (&told["deeds"], &told["numbers"]);
    for (deed, counts) in deeds.as_object().expect("an object") {
        // These are rare, or refused nearly always.
        let which = usize::from(["ImportStale", "WriteReadOnly"].contains(&&**deed));
        let is_rare = ["Fork", "NewIpc"].contains(&&**deed);
        assert!(
            is_rare || counts[which].as_u64() > Some(0),
            "{deed}: {told}"
        );
    }
    for number in ["BytesVerified", "Kills", "Stops", "Signals"] {
        assert!(numbers[number].as_u64() > Some(0), "{number}: {told}");
    }
    assert_eq!(told["seed"], 7, "{told}");
    // The last process of each place came to its normal end, and was measured.
    assert_eq!(numbers["NormalEnds"], 3, "{told}");
}

#[test]
fn what_no_disturbance_explains_is_a_failure() {
    let arguments = [
        "--minutes=0.05",
        "--seed=3",
        "--processes=2",
        "--json",
        "--without=faults,kills",
    ];
    // A driver call that fails without an announcement.
    let output = stress(&arguments)
        .env("GPUIPC_EMULATED_FAIL", "cuMemMap@10=801")
        .output();
    let output = output.expect("it starts");
    let told = json(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    let failure = told["failures"][0].as_str().expect("a failure");
    assert!(
        failure.contains("nothing explains") && failure.contains("801"),
        "{told}"
    );
}

#[test]
fn an_interrupt_ends_it_early_and_its_folder_goes() {
    let mut command = stress(&["--minutes=60", "--processes=2"]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let pid = child.id();
    let end = Instant::now() + Duration::from_secs(60);
    while !has_folder(pid) {
        assert!(Instant::now() < end, "no folder");
        std::thread::sleep(Duration::from_millis(10));
    }
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(
        text.lines()
            .last()
            .is_some_and(|last| last.starts_with("stress: ")),
        "{text}"
    );
    assert!(!has_folder(pid));
}

#[test]
fn wrong_usage_is_code_2() {
    for wrong in [
        "--minutes=0",
        "--minutes=soon",
        "--seed=x",
        "--processes=1",
        "--without=all",
    ] {
        let output = stress(&[wrong]).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{wrong}: {output:?}");
    }
}
