//! Bytes that lie: a forged handle never leads to a pointer or a descriptor
//! that was not exported under its token.

use crate::{Pair, child};
use gpuipc_core::{ProcessId, Token};
use gpuipc_tests::forge;

const LEN: u64 = 2 << 20;

#[test]
fn a_handle_that_names_this_process_gives_nothing_without_the_token() {
    for memory in gpuipc_tests::memories() {
        let mut pair = Pair::new();
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        let (_, honest) = pair.exporter.export(buffer, 0, LEN);
        let forged = forge(&honest, |fields| {
            if let Some(ticket) = &mut fields.ticket {
                ticket.token = Token::new([1; 16]);
            }
        });
        let before = pair.exporter.state();
        let refused = pair.exporter.import_refused(&forged, "");
        assert_eq!(refused.status, "EXPORT_REVOKED", "{memory}");
        let without = forge(&honest, |fields| {
            fields.ticket = None;
            if fields.posix_fd {
                fields.posix_fd = false;
                fields.fabric = Some([7; 64]);
            }
        });
        assert_eq!(
            pair.exporter.import_refused(&without, "").status,
            "EXPORT_REVOKED",
            "{memory}"
        );
        pair.exporter.returns_to(&before);
    }
}

#[test]
fn a_handle_of_another_process_that_claims_to_be_this_one_gives_nothing() {
    let mut pair = Pair::new();
    let (theirs, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, their_handle) = pair.exporter.export(theirs, 0, LEN);
    let (mine, _) = pair.importer.alloc("vmm-fd", LEN);
    let (_, my_handle) = pair.importer.export(mine, 0, LEN);
    // The importer's own process and allocation, the stranger's token.
    let forged = forge(&my_handle, |fields| fields.ticket = their_handle.ticket());
    assert_eq!(
        pair.importer.import_refused(&forged, "").status,
        "EXPORT_REVOKED"
    );
    let forged = forge(&their_handle, |fields| {
        fields.process_id = my_handle.process_id()
    });
    assert_eq!(
        pair.importer.import_refused(&forged, "").status,
        "EXPORT_REVOKED"
    );
}

#[test]
fn a_handle_that_leads_to_this_process_s_own_broker_gives_nothing() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, honest) = pair.exporter.export(buffer, 0, LEN);
    let forged = forge(&honest, |fields| {
        fields.process_id = ProcessId([9; 16]);
        fields.pid += 1;
    });
    let refused = pair.exporter.import_refused(&forged, "");
    assert_eq!(refused.attempts, ["PosixFd/broker-connect/OwnBroker"]);
    // As another copy of the library in this process would have made it, but
    // without the token.
    let forged = forge(&honest, |fields| {
        fields.process_id = ProcessId([9; 16]);
        fields.ticket = fields.ticket.map(|ticket| gpuipc_core::Ticket {
            token: Token::new([2; 16]),
            ..ticket
        });
    });
    let refused = pair.exporter.import_refused(&forged, "");
    assert_eq!(refused.attempts, ["PosixFd/broker-request/ExportRevoked"]);
    // Another process is never told an address.
    let forged = forge(&honest, |fields| {
        fields.process_id = ProcessId([9; 16]);
        fields.pid = pair.importer.pid();
    });
    let refused = pair.importer.import_refused(&forged, "");
    assert_eq!(refused.attempts, ["PosixFd/broker-request/UserRefused"]);
}

#[test]
fn a_token_opens_no_other_allocation() {
    let mut pair = Pair::new();
    let (first, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (second, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, one) = pair.exporter.export(first, 0, LEN);
    let (_, two) = pair.exporter.export(second, 0, LEN);
    let forged = forge(&one, |fields| fields.allocation_id = two.allocation_id());
    let refused = pair.importer.import_refused(&forged, "");
    assert_eq!(refused.attempts, ["PosixFd/broker-request/ExportRevoked"]);
}

#[test]
fn a_guessed_token_gets_no_descriptor() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, honest) = pair.exporter.export(buffer, 0, LEN);
    let real = *honest.ticket().expect("a ticket").token.as_bytes();
    for bit in [0_usize, 63, 127] {
        let mut guess = real;
        guess[bit / 8] ^= 1 << (bit % 8);
        let forged = forge(&honest, |fields| {
            if let Some(ticket) = &mut fields.ticket {
                ticket.token = Token::new(guess);
            }
        });
        let before = pair.importer.state();
        assert_eq!(
            pair.importer.import_refused(&forged, "").status,
            "EXPORT_REVOKED"
        );
        pair.importer.returns_to(&before);
    }
}

#[test]
fn a_forged_size_maps_nothing() {
    for memory in gpuipc_tests::memories() {
        let mut pair = Pair::new();
        let (buffer, _) = pair.exporter.alloc(memory, 2 * LEN);
        let (_, honest) = pair.exporter.export(buffer, 0, LEN);
        let warm = pair.importer.import(&honest, "");
        pair.importer.ok(&format!("drop mapping {}", warm.id));
        let before = pair.importer.state();
        for size in [LEN, 4 * LEN, 1 << 40, 1 << 62, LEN + 4096, u64::MAX] {
            let forged = forge(&honest, |fields| fields.base_size = size);
            let refused = pair.importer.import_refused(&forged, "");
            assert!(
                refused
                    .attempts
                    .iter()
                    .all(|attempt| attempt.ends_with("/SizeMismatch")
                        || attempt.ends_with("/OutOfMemory")),
                "{memory} {size}: {refused:?}"
            );
            pair.importer.returns_to(&before);
        }
    }
}

#[test]
fn a_forged_size_gives_no_pointer_in_the_same_process_either() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, honest) = pair.exporter.export(buffer, 0, LEN);
    let forged = forge(&honest, |fields| {
        fields.base_size = 1 << 40;
        fields.offset_from_base = 1 << 39;
    });
    let refused = pair.exporter.import_refused(&forged, "");
    assert_eq!(refused.attempts, ["PosixFd/select/SizeMismatch"]);
}

#[test]
fn another_host_s_handle_is_tried_by_fabric_alone() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fabric", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let foreign = forge(&handle, |fields| fields.host_id.0[0] ^= 1);
    let mem = pair.importer.import(&foreign, "");
    assert_eq!(mem.used, "Fabric");
    assert_eq!(mem.attempts, ["PosixFd/select/OtherHost"]);

    let (buffer, _) = pair.exporter.alloc("cuda-malloc", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let foreign = forge(&handle, |fields| fields.host_id.0[0] ^= 1);
    let mut fresh = child(&pair.scratch);
    let refused = fresh.import_refused(&foreign, "");
    assert_eq!(refused.status, "OTHER_HOST");
    assert_eq!(fresh.ok("calls cuIpcOpenMemHandle_v2"), "0");
}
