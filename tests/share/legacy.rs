//! A legacy handle is opened once in a process, whoever imports it.

use crate::Pair;
use gpuipc_core::GpuIpcMemHandle;
use gpuipc_tests::to_hex;

const LEN: u64 = 2 << 20;
const OPENS: &str = "calls cuIpcOpenMemHandle_v2";

/// Memory, its export, and its handle.
fn exported(pair: &mut Pair) -> (u32, u32, GpuIpcMemHandle) {
    let (buffer, _) = pair.exporter.alloc("cuda-malloc", LEN);
    pair.exporter.ok(&format!("fill {buffer} 31"));
    let (export, handle) = pair.exporter.export(buffer, 0, LEN);
    (buffer, export, handle)
}

#[test]
fn other_options_trust_or_exports_share_the_driver_s_open() {
    let mut pair = Pair::new();
    let (buffer, export, handle) = exported(&mut pair);
    let first = pair.importer.import(&handle, "");
    let live = pair.importer.import(&handle, "live");
    let hex = to_hex(&handle.encode());
    let answer = pair.importer.ok(&format!("import-trusting-all {hex}"));
    let (trusting, _) = answer.split_once(' ').expect("two words");
    pair.exporter.ok(&format!("drop export {export}"));
    let (_, anew) = pair.exporter.export(buffer, 0, LEN);
    assert_ne!(anew.ticket(), handle.ticket());
    let anew = pair.importer.import(&anew, "");
    assert_eq!([live.ptr, anew.ptr], [first.ptr; 2]);
    assert_eq!(pair.importer.ok(OPENS), "1");
    // It stays open for the last of them.
    for id in [&*first.id.to_string(), &live.id.to_string(), trusting] {
        pair.importer.ok(&format!("drop mapping {id}"));
    }
    pair.importer.ok(&format!("read {} 31 0", anew.id));
    pair.importer.ok(&format!("drop mapping {}", anew.id));
    assert_eq!(pair.importer.ok("calls cuIpcCloseMemHandle"), "1");
}

#[test]
fn what_another_user_of_the_driver_has_open_is_tried_again_until_the_deadline() {
    let mut pair = Pair::new();
    let (_, _, handle) = exported(&mut pair);
    pair.importer.ok("fail cuIpcOpenMemHandle_v2 1 208 5");
    let mem = pair.importer.import(&handle, "");
    pair.importer.ok(&format!("read {} 31 0", mem.id));
    pair.importer.ok(&format!("drop mapping {}", mem.id));
    let before = pair.importer.state();
    pair.importer.ok("fail cuIpcOpenMemHandle_v2 1 208 1000000");
    let refused = pair.importer.import_refused(&handle, "timeout=100");
    assert_eq!(
        refused.attempts,
        ["RuntimeIpc/cuIpcOpenMemHandle/AlreadyMapped"]
    );
    for word in ["CUDA_ERROR_ALREADY_MAPPED (208)", "one copy of the library"] {
        assert!(refused.text.contains(word), "{}", refused.text);
    }
    let refused = pair
        .importer
        .import_refused(&handle, "cancel=50 timeout=30000");
    assert_eq!(refused.status, "CANCELLED", "{}", refused.text);
    pair.importer.ok("no-faults");
    pair.importer.returns_to(&before);
}

#[test]
fn an_exporter_that_the_driver_calls_gone_is_asked() {
    let mut pair = Pair::new();
    let (buffer, export, handle) = exported(&mut pair);
    let reason_of = |pair: &mut Pair| {
        pair.importer.ok("fail cuIpcOpenMemHandle_v2 1 400 1");
        let refused = pair.importer.import_refused(&handle, "");
        refused.attempts.join(",")
    };
    assert_eq!(reason_of(&mut pair), "RuntimeIpc/cuIpcOpenMemHandle/Driver");
    pair.exporter.ok(&format!("free {buffer}"));
    assert_eq!(
        reason_of(&mut pair),
        "RuntimeIpc/cuIpcOpenMemHandle/StaleMemory"
    );
    pair.exporter.ok(&format!("drop export {export}"));
    pair.exporter.ok("drop-ipc");
    pair.exporter.kill();
    assert_eq!(
        reason_of(&mut pair),
        "RuntimeIpc/cuIpcOpenMemHandle/ExporterGone"
    );
}
