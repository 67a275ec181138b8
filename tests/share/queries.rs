//! "Could I import this?", answered by type, without mapping anything.

use crate::{PROGRAM, Pair};
use gpuipc_tests::{Scratch, TestChild, forge};

const LEN: u64 = 2 << 20;

/// Asks, and sees that asking left nothing behind.
fn ask(
    importer: &mut TestChild,
    handle: &gpuipc_core::GpuIpcMemHandle,
    options: &str,
) -> (bool, Vec<String>) {
    importer.can_import(core::slice::from_ref(handle), options);
    let before = importer.state();
    let maps = importer.ok("calls cuMemMap");
    let answer = importer.can_import(core::slice::from_ref(handle), options);
    assert_eq!(importer.ok("calls cuMemMap"), maps);
    importer.returns_to(&before);
    answer
}

#[test]
fn every_type_is_answered_and_nothing_is_mapped() {
    let mut pair = Pair::new();
    let handle = gpuipc_tests::all_types(&mut pair.exporter, LEN, 0, LEN);
    let (own, types) = ask(&mut pair.importer, &handle, "");
    assert!(!own);
    assert_eq!(types, ["PosixFd/Yes", "Fabric/Yes", "RuntimeIpc/Unknown"]);
    let (_, types) = ask(&mut pair.importer, &handle, "types=Fabric read-only");
    assert_eq!(
        types,
        [
            "No:RuntimeIpc/select/NotAllowed",
            "No:PosixFd/select/NotAllowed",
            "Fabric/Yes"
        ]
    );
    let (_, types) = ask(&mut pair.importer, &handle, "read-only");
    assert_eq!(types[2], "No:RuntimeIpc/select/CannotBeReadOnly");
    // An import then does what was said.
    assert_eq!(pair.importer.import(&handle, "").used, "PosixFd");
}

#[test]
fn pools_and_the_process_itself_are_answered() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("pool", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    assert_eq!(
        ask(&mut pair.importer, &handle, ""),
        (false, vec!["PosixFd/Unknown".to_owned()])
    );
    assert_eq!(
        pair.exporter.can_import(&[handle], ""),
        (true, vec!["PosixFd/Yes".to_owned()])
    );
}

#[test]
fn what_would_fail_says_so_with_the_reason() {
    let mut pair = Pair::new();
    let handle = gpuipc_tests::all_types(&mut pair.exporter, LEN, 0, LEN);
    let foreign = forge(&handle, |fields| fields.host_id.0[0] ^= 1);
    let (_, types) = ask(&mut pair.importer, &foreign, "");
    assert_eq!(
        types,
        [
            "No:PosixFd/select/OtherHost",
            "No:RuntimeIpc/select/OtherHost",
            "Fabric/Yes"
        ]
    );
    pair.exporter.kill();
    let (_, types) = pair.importer.can_import(&[handle], "");
    assert!(
        types.contains(&"No:PosixFd/broker-connect/ExporterGone".to_owned()),
        "{types:?}"
    );
}

#[test]
fn a_gpu_out_of_reach_is_answered() {
    let scratch = Scratch::new();
    let start = || {
        TestChild::start_with(PROGRAM, &scratch, |command| {
            command.env("GPUIPC_EMULATED_PROFILE", "no-peer");
        })
    };
    let (mut exporter, mut importer) = (start(), start());
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    let (_, handle) = exporter.export(buffer, 0, LEN);
    let (_, types) = importer.can_import(core::slice::from_ref(&handle), "device=1");
    assert_eq!(types, ["No:PosixFd/cuMemSetAccess/PeerUnsupported"]);
    let (_, types) = importer.can_import(&[handle], "device=0");
    assert_eq!(types, ["PosixFd/Yes"]);
}
