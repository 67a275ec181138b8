//! Sharing between real processes on the emulated driver: a file a subject, a
//! test a behaviour.

mod access;
mod at_once;
mod bad_input;
mod broker;
mod captures;
mod chain;
mod connections;
mod context;
mod faults;
mod forged;
mod host_numa;
mod hostile;
mod kills;
mod legacy;
mod lifetimes;
mod lingering;
mod load;
mod losses;
mod names;
mod own;
mod pidfd;
mod places;
mod pools;
mod process;
mod queries;
mod ranges;
mod registered;
mod round_trip;
mod segments;
mod users;

use gpuipc_tests::{Scratch, TestChild};

/// Two processes that see the same GPUs: an exporter and an importer.
struct Pair {
    exporter: TestChild,
    importer: TestChild,
    scratch: Scratch,
}

impl Pair {
    fn new() -> Self {
        let scratch = Scratch::new();
        Self {
            exporter: child(&scratch),
            importer: child(&scratch),
            scratch,
        }
    }
}

/// The helper program.
const PROGRAM: &str = env!("CARGO_BIN_EXE_child");

/// Another process on the GPUs of `scratch`.
fn child(scratch: &Scratch) -> TestChild {
    TestChild::start(PROGRAM, scratch)
}

/// Tells an exporter whose handles are in this file that the others have seen enough.
fn end_race(file: &str) {
    std::fs::write(format!("{file}.end"), []).expect("a new file");
}
