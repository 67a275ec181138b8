//! The stress program: that it does all that it says, finds what is wrong, and leaves nothing.
#![allow(missing_docs)]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn stress(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuipc-stress"));
    command.arg("--driver=emulated").args(arguments);
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What the table says was done and refused.
fn counts(text: &str, name: &str) -> [u64; 2] {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name} ")));
    let mut words = line.expect(name).split_whitespace();
    [0; 2].map(|_: u64| {
        words
            .next()
            .and_then(|word| word.parse().ok())
            .expect("a number")
    })
}

#[test]
fn a_short_run_does_everything_and_leaves_nothing() {
    let arguments = ["--minutes=0.08", "--seed=7", "--processes=3"];
    let output = stress(&arguments).output().expect("it starts");
    let told = text(&output);
    assert!(output.status.success(), "{told}");
    for name in [
        "Allocate",
        "Export",
        "Revoke",
        "Free",
        "FreeWhileExported",
        "Import",
        "ImportInOwner",
        "Verify",
        "Unmap",
        "BytesVerified",
        "Kills",
        "Stops",
        "Signals",
    ] {
        assert!(counts(&told, name)[0] > 0, "{name}: {told}");
    }
    // Nearly always refused.
    assert!(counts(&told, "ImportStale")[1] > 0, "{told}");
    assert!(told.contains("seed 7"), "{told}");
    // The last process of each place came to its normal end, and was measured.
    assert_eq!(counts(&told, "NormalEnds")[0], 3, "{told}");
}

#[test]
fn what_no_disturbance_explains_is_a_failure() {
    let mut command = stress(&["--minutes=0.05", "--seed=3", "--processes=2"]);
    // A driver call fails without an announcement, before the first disturbance of the driver.
    let output = command
        .env("GPUIPC_EMULATED_FAIL", "cuMemMap@10=801")
        .output();
    let output = output.expect("it starts");
    let told = text(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    let is_it = |line: &str| line.contains("nothing explains") && line.contains("801");
    assert!(told.lines().any(is_it), "{told}");
}

#[test]
fn an_interrupt_ends_it_early_and_its_folder_goes() {
    let mut command = stress(&["--minutes=60", "--processes=2"]);
    let child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let name = format!("gpuipc-stress-{}", child.id());
    let exists = || {
        let folders = [
            Path::new("/dev/shm").join(&name),
            std::env::temp_dir().join(&name),
        ];
        folders.iter().any(|folder| folder.exists())
    };
    let end = Instant::now() + Duration::from_secs(60);
    while !exists() {
        assert!(Instant::now() < end, "no folder");
        std::thread::sleep(Duration::from_millis(10));
    }
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    let told = text(&output);
    assert!(output.status.success(), "{told}");
    assert!(
        told.lines()
            .last()
            .is_some_and(|last| last.starts_with("stress: ")),
        "{told}"
    );
    assert!(!exists());
}

#[test]
fn wrong_usage_is_code_2() {
    for wrong in ["--minutes=0", "--minutes=soon", "--seed=x", "--processes=1"] {
        let output = stress(&[wrong]).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{wrong}: {output:?}");
    }
}
