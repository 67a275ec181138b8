//! The importer really falls back: over import, map and access, with every
//! failed step undone before the next type is tried.

use crate::Pair;
use gpuipc_core::{Endpoint, GpuIpcMemHandle, Token};
use gpuipc_tests::{LEGACY_SEED, VMM_SEED, forge};

const LEN: u64 = 2 << 20;

/// Memory that can be had by all three types, and who imports it.
struct AllTypes {
    pair: Pair,
    handle: GpuIpcMemHandle,
}

impl AllTypes {
    fn new() -> Self {
        let mut pair = Pair::new();
        let handle = gpuipc_tests::all_types(&mut pair.exporter, LEN, 0, LEN);
        // The importer has used every type once: what stays, is there now.
        for types in ["PosixFd", "Fabric", "RuntimeIpc"] {
            let mem = pair.importer.import(&handle, &format!("types={types}"));
            pair.importer.ok(&format!("drop mapping {}", mem.id));
        }
        Self { pair, handle }
    }

    /// Imports with faults set; the next type must take over, the bytes must be
    /// the right ones, and everything be given back in the end.
    fn falls_back(&mut self, types: &str, faults: &[&str], used: &str, attempts: &[&str]) {
        let importer = &mut self.pair.importer;
        let before = importer.state();
        for fault in faults {
            importer.ok(&format!("fail {fault}"));
        }
        let mem = importer.import(&self.handle, &format!("types={types}"));
        importer.ok("no-faults");
        assert_eq!(mem.used, used, "with {faults:?} in {types}");
        assert_eq!(mem.attempts, attempts, "with {faults:?} in {types}");
        let seed = if used == "RuntimeIpc" {
            LEGACY_SEED
        } else {
            VMM_SEED
        };
        importer.ok(&format!("read {} {seed} 0", mem.id));
        importer.ok(&format!("drop mapping {}", mem.id));
        importer.returns_to(&before);
    }
}

#[test]
fn each_step_of_a_descriptor_import_leads_to_the_next_type_when_it_fails() {
    let mut all = AllTypes::new();
    for (step, code, reason) in [
        ("cuMemImportFromShareableHandle", 999, "NotCudaDescriptor"),
        ("cuMemImportFromShareableHandle", 1, "NotCudaDescriptor"),
        ("cuMemAddressReserve", 2, "OutOfMemory"),
        ("cuMemMap", 801, "SizeMismatch"),
        ("cuMemMap", 999, "Driver"),
        ("cuMemSetAccess", 217, "PeerUnsupported"),
        ("cuMemSetAccess", 2, "OutOfMemory"),
    ] {
        let attempt = format!("PosixFd/{step}/{reason}");
        all.falls_back(
            "PosixFd,Fabric,RuntimeIpc",
            &[&format!("{step} 1 {code} 1")],
            "Fabric",
            &[&attempt],
        );
        all.falls_back(
            "PosixFd,RuntimeIpc,Fabric",
            &[&format!("{step} 1 {code} 1")],
            "RuntimeIpc",
            &["Fabric/select/NotAllowed", &attempt][1..],
        );
    }
}

#[test]
fn each_step_of_a_fabric_import_leads_to_the_next_type_when_it_fails() {
    let mut all = AllTypes::new();
    for (step, code, reason) in [
        ("cuMemImportFromShareableHandle", 800, "FabricUnavailable"),
        ("cuMemImportFromShareableHandle", 801, "FabricUnavailable"),
        ("cuMemImportFromShareableHandle", 400, "FabricUnavailable"),
        ("cuMemAddressReserve", 2, "OutOfMemory"),
        ("cuMemMap", 801, "SizeMismatch"),
        ("cuMemSetAccess", 217, "PeerUnsupported"),
    ] {
        let attempt = format!("Fabric/{step}/{reason}");
        all.falls_back(
            "Fabric,PosixFd,RuntimeIpc",
            &[&format!("{step} 1 {code} 1")],
            "PosixFd",
            &[&attempt],
        );
        all.falls_back(
            "Fabric,RuntimeIpc,PosixFd",
            &[&format!("{step} 1 {code} 1")],
            "RuntimeIpc",
            &[&attempt],
        );
    }
}

#[test]
fn each_step_of_a_legacy_open_leads_to_the_next_type_when_it_fails() {
    let mut all = AllTypes::new();
    for (call, code, step, reason) in [
        ("cuDevicePrimaryCtxRetain", 2, "context", "OutOfMemory"),
        ("cuCtxPushCurrent_v2", 201, "context", "ContextRefused"),
        (
            "cuIpcOpenMemHandle_v2",
            // The exporter says that it is there.
            400,
            "cuIpcOpenMemHandle",
            "Driver",
        ),
        (
            "cuIpcOpenMemHandle_v2",
            1,
            "cuIpcOpenMemHandle",
            "StaleMemory",
        ),
        (
            "cuIpcOpenMemHandle_v2",
            201,
            "cuIpcOpenMemHandle",
            "ContextRefused",
        ),
        (
            "cuIpcOpenMemHandle_v2",
            711,
            "cuIpcOpenMemHandle",
            "TooManyPeers",
        ),
        ("cuPointerGetAttribute", 999, "compare", "Driver"),
    ] {
        let attempt = format!("RuntimeIpc/{step}/{reason}");
        all.falls_back(
            "RuntimeIpc,PosixFd,Fabric",
            &[&format!("{call} 1 {code} 1")],
            "PosixFd",
            &[&attempt],
        );
        all.falls_back(
            "RuntimeIpc,Fabric,PosixFd",
            &[&format!("{call} 1 {code} 1")],
            "Fabric",
            &[&attempt],
        );
    }
}

#[test]
fn two_types_failing_leave_the_third() {
    let mut all = AllTypes::new();
    all.falls_back(
        "PosixFd,Fabric,RuntimeIpc",
        &["cuMemSetAccess 1 217 2"],
        "RuntimeIpc",
        &[
            "PosixFd/cuMemSetAccess/PeerUnsupported",
            "Fabric/cuMemSetAccess/PeerUnsupported",
        ],
    );
}

#[test]
fn a_broker_out_of_reach_leads_to_the_next_type() {
    let mut all = AllTypes::new();
    all.handle = forge(&all.handle, |fields| {
        // As in another network namespace, and nothing to go around the broker by.
        fields.net_namespace ^= 1;
        if let Some(ticket) = &mut fields.ticket {
            ticket.endpoint = Endpoint([0xEE; 16]);
            (ticket.fd, ticket.table) = (None, None);
        }
    });
    all.falls_back(
        "PosixFd,Fabric,RuntimeIpc",
        &[],
        "Fabric",
        &["PosixFd/broker-connect/BrokerUnreachable"],
    );
    all.falls_back(
        "PosixFd,RuntimeIpc,Fabric",
        &[],
        "RuntimeIpc",
        &["PosixFd/broker-connect/BrokerUnreachable"],
    );
}

#[test]
fn a_refused_token_leads_to_the_next_type() {
    let mut all = AllTypes::new();
    all.handle = forge(&all.handle, |fields| {
        if let Some(ticket) = &mut fields.ticket {
            ticket.token = Token::new([0xEE; 16]);
        }
    });
    all.falls_back(
        "PosixFd,Fabric",
        &[],
        "Fabric",
        &[
            "RuntimeIpc/select/NotAllowed",
            "PosixFd/broker-request/ExportRevoked",
        ],
    );
}

#[test]
fn all_types_failing_names_each_attempt_and_leaves_nothing() {
    let mut all = AllTypes::new();
    let importer = &mut all.pair.importer;
    let before = importer.state();
    importer.ok("fail cuMemMap 1 801 2");
    importer.ok("fail cuIpcOpenMemHandle_v2 1 711 1");
    let refused = importer.import_refused(&all.handle, "");
    importer.ok("no-faults");
    assert_eq!(refused.status, "NO_TYPE_WORKED");
    assert_eq!(
        refused.attempts,
        [
            "PosixFd/cuMemMap/SizeMismatch",
            "Fabric/cuMemMap/SizeMismatch",
            "RuntimeIpc/cuIpcOpenMemHandle/TooManyPeers",
        ]
    );
    for words in [
        "PosixFd",
        "Fabric",
        "RuntimeIpc",
        "cuMemMap",
        "CUDA_ERROR_NOT_SUPPORTED (801)",
        "CUDA_ERROR_TOO_MANY_PEERS (711)",
    ] {
        assert!(
            refused.text.contains(words),
            "{words} is not in: {}",
            refused.text
        );
    }
    importer.returns_to(&before);
    // And it works again once the cause is gone.
    assert_eq!(importer.import(&all.handle, "").used, "PosixFd");
}

#[test]
fn a_failing_undo_does_not_stop_the_others() {
    let mut all = AllTypes::new();
    let importer = &mut all.pair.importer;
    importer.ok("fail cuMemSetAccess 1 217 1");
    importer.ok("fail cuMemUnmap 1 999 1");
    let mem = importer.import(&all.handle, "types=PosixFd,Fabric");
    assert_eq!(mem.used, "Fabric");
    importer.ok("no-faults");
    importer.ok(&format!("read {} {VMM_SEED} 0", mem.id));
}

#[test]
fn a_full_file_table_is_an_error_and_works_again_afterwards() {
    let mut all = AllTypes::new();
    let importer = &mut all.pair.importer;
    let before = importer.state();
    importer.ok("nofile 64");
    importer.ok("fill-fds");
    let refused = importer.import_refused(&all.handle, "types=PosixFd timeout=2000");
    assert!(
        refused
            .attempts
            .contains(&"PosixFd/broker-connect/TooManyFiles".to_owned()),
        "{refused:?}"
    );
    assert!(
        refused.text.contains("raise the limit (ulimit -n"),
        "{}",
        refused.text
    );
    importer.ok("free-fds");
    let mem = importer.import(&all.handle, "types=PosixFd");
    importer.ok(&format!("drop mapping {}", mem.id));
    importer.returns_to(&before);
}

#[test]
fn export_survives_each_of_its_types_failing() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fabric", LEN);
    let (export, _) = pair.exporter.export(buffer, 0, LEN);
    pair.exporter.ok(&format!("drop export {export}"));
    let before = pair.exporter.state();
    // The descriptor first, then the fabric handle.
    pair.exporter
        .ok("fail cuMemExportToShareableHandle 1 999 1");
    let (export, handle) = pair.exporter.export(buffer, 0, LEN);
    assert_eq!(
        handle.types().types().as_slice(),
        [gpuipc_core::HandleType::Fabric]
    );
    assert_eq!(pair.importer.import(&handle, "").used, "Fabric");
    pair.exporter.ok(&format!("drop export {export}"));
    for code in [800, 801, 1] {
        pair.exporter
            .ok(&format!("fail cuMemExportToShareableHandle 2 {code} 1"));
        let (export, handle) = pair.exporter.export(buffer, 0, LEN);
        assert_eq!(
            handle.types().types().as_slice(),
            [gpuipc_core::HandleType::PosixFd]
        );
        pair.exporter.ok(&format!("drop export {export}"));
    }
    pair.exporter
        .ok("fail cuMemExportToShareableHandle 1 801 2");
    let refused = pair.exporter.err(&format!("export {buffer} 0 {LEN}"));
    assert_eq!(refused.status, "NOT_EXPORTABLE");
    assert_eq!(
        refused.attempts,
        ["PosixFd/export/NotSupported", "Fabric/export/NotSupported"]
    );
    pair.exporter.ok("fail cuMemExportToShareableHandle 2 2 1");
    let refused = pair.exporter.err(&format!("export {buffer} 0 {LEN}"));
    assert!(
        refused.text.contains("CUDA_ERROR_OUT_OF_MEMORY"),
        "{}",
        refused.text
    );
    pair.exporter.ok("no-faults");
    pair.exporter.returns_to(&before);
}
