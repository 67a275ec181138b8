//! A stream capture anywhere in a process is not disturbed by the library, and nothing is
//! lost because of one.

use crate::{Pair, child};
use gpuipc_tests::TestChild;

const LEN: u64 = 64 << 10;

/// Flags of the stream, and modes of the capture.
const NON_BLOCKING: u32 = 1;
const BLOCKING: u32 = 0;
const MODES: [u32; 2] = [0, 1];

/// Every kind of capture: in the thread that works or in another one.
fn captures() -> impl Iterator<Item = String> {
    let places = ["here", "thread"].into_iter();
    places.flat_map(|place| {
        [NON_BLOCKING, BLOCKING]
            .into_iter()
            .flat_map(move |flags| MODES.map(|mode| format!("capture {place} {flags} {mode}")))
    })
}

/// Ends the capture, which gives a graph.
fn unharmed(child: &mut TestChild, what: &str) {
    assert_eq!(child.ok("capture-end"), "CUDA_SUCCESS (0)", "{what}");
}

#[test]
fn everything_an_owner_does_leaves_captures_alone() {
    for memory in gpuipc_tests::memories() {
        let mut pair = Pair::new();
        // What the process makes for good is there before.
        warm_up(&mut pair, memory);
        for capture in captures() {
            let before = pair.exporter.ok("state");
            pair.exporter.ok(&capture);
            let (buffer, address) = pair.exporter.alloc(memory, LEN);
            pair.exporter.ok(&format!("fill {buffer} 7"));
            pair.exporter.ok(&format!("check {buffer} 7 0 {LEN}"));
            let (export, handle) = pair.exporter.export(buffer, 0, LEN);
            let (again, _) = pair.exporter.export(buffer, 100, 100);
            let registered = pair.exporter.ok(&format!("register {address} {LEN} -"));
            let (registered, _) = registered.split_once(' ').expect("an id");
            let mem = pair.importer.import(&handle, "");
            pair.importer.ok(&format!("read {} 7 0", mem.id));
            pair.importer.ok(&format!("drop mapping {}", mem.id));
            pair.exporter.ok(&format!("drop registered {registered}"));
            pair.exporter.ok(&format!("drop export {again}"));
            pair.exporter.ok(&format!("drop export {export}"));
            pair.exporter.ok(&format!("drop buffer {buffer}"));
            unharmed(&mut pair.exporter, &format!("{capture}, {memory}"));
            assert_eq!(pair.exporter.ok("state"), before, "{capture}, {memory}");
        }
    }
}

#[test]
fn everything_an_importer_does_leaves_captures_alone() {
    for memory in gpuipc_tests::memories() {
        let mut pair = Pair::new();
        warm_up(&mut pair, memory);
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        let (_, handle) = pair.exporter.export(buffer, 0, LEN);
        let hex = gpuipc_tests::to_hex(&handle.encode());
        for capture in captures() {
            pair.exporter.ok(&format!("fill {buffer} 7"));
            let before = pair.importer.ok("state");
            pair.importer.ok(&capture);
            pair.importer.ok(&format!("can-import {hex}"));
            let mem = pair.importer.import(&handle, "");
            pair.importer.ok(&format!("read {} 7 0", mem.id));
            pair.importer.ok(&format!("write {} 8", mem.id));
            pair.importer.ok(&format!("drop mapping {}", mem.id));
            unharmed(&mut pair.importer, &format!("{capture}, {memory}"));
            pair.exporter.ok(&format!("check {buffer} 8 0 {LEN}"));
            assert_eq!(pair.importer.ok("state"), before, "{capture}, {memory}");
        }
    }
}

/// One share and its end.
fn warm_up(pair: &mut Pair, memory: &str) {
    let (buffer, _) = pair.exporter.alloc(memory, LEN);
    pair.exporter.ok(&format!("fill {buffer} 1"));
    let (export, handle) = pair.exporter.export(buffer, 0, LEN);
    let mem = pair.importer.import(&handle, "");
    pair.importer.ok(&format!("read {} 1 0", mem.id));
    pair.importer.ok(&format!("drop mapping {}", mem.id));
    pair.exporter.ok(&format!("drop export {export}"));
    pair.exporter.ok(&format!("drop buffer {buffer}"));
    for child in [&mut pair.exporter, &mut pair.importer] {
        for flags in [NON_BLOCKING, BLOCKING] {
            child.ok(&format!("capture thread {flags} 0"));
            unharmed(child, "nothing done");
        }
    }
}

#[test]
fn a_capture_of_a_peer_that_does_nothing_is_harmed_by_what_the_driver_refuses() {
    // The test's own tools: a capture does not survive a bare cuCtxSynchronize.
    let pair = Pair::new();
    let mut owner = child(&pair.scratch);
    owner.ok("capture here 1 0");
    owner.ok("synchronize");
    assert_eq!(
        owner.ok("capture-end"),
        "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED (901)"
    );
}
