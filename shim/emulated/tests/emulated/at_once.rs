//! Calls about one allocation that meet in two threads.

use crate::child::TestChild;
use crate::driver::*;
use crate::scene;
use crate::scene::Dir;
use gpuipc_sys::{CuIpcMemHandle, CuResult, IPC_MEM_LAZY_ENABLE_PEER_ACCESS, access};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

const PAIR: &str = "GPUIPC_EMULATED_TEST_PAIR";

/// A process in which `cuMemUnmap` and another call meet for a while.
fn meet(pair: &str) -> Output {
    let dir = Dir::new();
    Command::new(std::env::current_exe().expect("own path"))
        .args(["at_once::serve", "--exact", "--nocapture"])
        .env(PAIR, pair)
        .env_remove("CUDA_VISIBLE_DEVICES")
        .env("GPUIPC_EMULATED_DIR", dir.path())
        .output()
        .expect("own program runs")
}

/// The process's side; as a test of its own it does nothing.
#[test]
fn serve() {
    let Ok(pair) = std::env::var(PAIR) else {
        return;
    };
    start_on(0);
    let until = if pair == "export" { 2 } else { 60 };
    let end = Instant::now() + Duration::from_secs(until);
    while Instant::now() < end {
        let handle = create_fd(2 * MIB);
        let ptr = map_for(handle, 2 * MIB, 0, access::READ_WRITE).expect("a mapping");
        let beside = map_for(handle, 2 * MIB, 0, access::READ_WRITE).expect("a mapping");
        let barrier = Barrier::new(2);
        let retained = thread::scope(|scope| {
            let other = scope.spawn(|| {
                barrier.wait();
                match pair.as_str() {
                    "release" => release(handle).expect("a handle"),
                    // Nothing may be mapped there any more.
                    "retain" => return retain(ptr).ok(),
                    "unmap" => unmap(beside, 2 * MIB).expect("a mapping"),
                    "export" => close_fd(export_fd(handle).expect("a descriptor")),
                    other => panic!("{other}"),
                }
                None
            });
            barrier.wait();
            unmap(ptr, 2 * MIB).expect("a mapping");
            other.join().expect("no thread panics")
        });
        if let Some(handle) = retained {
            release(handle).expect("a handle");
        }
        if pair != "unmap" {
            unmap(beside, 2 * MIB).expect("a mapping");
        }
        if pair != "release" {
            release(handle).expect("a handle");
        }
        for address in [ptr, beside] {
            unreserve(address, 2 * MIB).expect("a reservation");
        }
    }
}

#[test]
fn an_unmap_that_meets_a_release_a_retain_or_an_unmap_ends_the_process() {
    for (pair, call) in [
        ("release", "cuMemRelease"),
        ("retain", "cuMemRetainAllocationHandle"),
        ("unmap", "cuMemUnmap and cuMemUnmap"),
    ] {
        let output = meet(pair);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(6), "{pair}: {text}");
        assert!(text.contains("in two threads at once"), "{pair}: {text}");
        assert!(text.contains(call), "{pair}: {text}");
    }
}

#[test]
fn an_unmap_may_meet_an_export() {
    let output = meet("export");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

scene!(
    an_open_that_meets_a_first_open_or_a_last_close_is_refused,
    || {
        let mut exporter = TestChild::new();
        let ptr = exporter.ask("alloc 65536").expect("memory");
        let handle = CuIpcMemHandle {
            reserved: exporter.ask_bytes(&format!("handle {ptr}")),
        };
        start_on(0);
        let end = Instant::now() + Duration::from_secs(60);
        let refused = OnceLock::new();
        let work = || {
            use_device(0);
            while refused.get().is_none() && Instant::now() < end {
                match ipc_open(handle, IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
                    Ok(open) => ipc_close(open).expect("an open"),
                    Err(code) => drop(refused.set(code)),
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(work);
            work();
        });
        assert_eq!(refused.get(), Some(&CuResult::ALREADY_MAPPED));
    }
);
