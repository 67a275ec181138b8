//! The seeds, made from the golden bytes. To write them anew:
//!
//! ```text
//! GPUIPC_BLESS=1 cargo test -p gpuipc-fuzz
//! ```
//!
//! Inputs that a fuzz run found lie beside them, under a name that says what they show; this list
//! does not need to have them.

use super::{BROKER_MESSAGE, C_CALLS, DECODE, ROUND_TRIP, Target};
use gpuipc_core::{GpuIpcMemHandle, HandleFields, LedgerEntry, Ticket};
use gpuipc_fuzz::c_calls::Op;
use gpuipc_fuzz::round_trip::{bytes_of, fields_of};
use gpuipc_fuzz::slow::handle::{BYTES, seal};
use std::path::Path;

pub(super) type Seed = (&'static str, Vec<u8>);

pub(super) fn golden(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    let text = std::fs::read_to_string(folder.join(format!("{name}.hex"))).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .flat_map(str::split_whitespace)
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect()
}

/// A golden handle with some bytes changed and the right checksum.
fn handle(name: &str, changes: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes: [u8; BYTES] = golden(name).try_into().unwrap();
    for (at, new) in changes {
        bytes[*at..*at + new.len()].copy_from_slice(new);
    }
    seal(&mut bytes);
    bytes.into()
}

/// Golden bytes with some changed, the checksum included.
fn plain(name: &str, changes: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = golden(name);
    for (at, new) in changes {
        bytes[*at..*at + new.len()].copy_from_slice(new);
    }
    bytes
}

fn handles() -> Vec<Seed> {
    let max = [0xff; 8];
    let longer = [golden("fd"), vec![0]].concat();
    vec![
        ("legacy", golden("legacy")),
        ("vmm_fd", golden("fd")),
        ("vmm_fd_and_fabric", golden("fd-fabric")),
        ("pool", golden("pool")),
        ("host_numa", golden("host-numa")),
        ("multicast", golden("multicast")),
        ("second_of_three_segments", golden("segment")),
        ("empty", Vec::new()),
        ("one_byte_short", golden("fd")[..BYTES - 1].into()),
        ("one_byte_long", longer),
        ("wrong_magic", plain("fd", &[(0, b"GIPX")])),
        ("wrong_checksum", plain("fd", &[(188, &[0; 4])])),
        ("damaged_length", plain("fd", &[(32, &[1])])),
        ("version_zero", handle("fd", &[(4, &[0])])),
        ("min_reader_zero", handle("fd", &[(5, &[0])])),
        ("min_reader_above_version", handle("fd", &[(5, &[2])])),
        ("newer_version", handle("fd", &[(4, &[2, 1])])),
        ("newer_version_for_newer_readers", {
            handle("fd", &[(4, &[2, 2])])
        }),
        ("newer_version_with_unknown_bits", {
            let changes: [(usize, &[u8]); 4] = [
                (4, &[2, 1, 1, 0x82, 1, 0x80]),
                (14, &[7, 7]),
                (168, &[7; 20]),
                (192, &[7; 64]),
            ];
            handle("fd", &changes)
        }),
        ("newer_version_with_unknown_type_only", {
            handle("fd", &[(4, &[2, 1, 1, 0x80])])
        }),
        ("newer_version_with_unknown_attribute_and_slot", {
            handle("fd", &[(4, &[2]), (9, &[1]), (192, &[7])])
        }),
        ("newer_version_with_slot_not_announced", {
            handle("fd", &[(4, &[2]), (192, &[7])])
        }),
        ("newer_version_with_ticket_reserved", {
            handle("fd", &[(4, &[2]), (300, &[7])])
        }),
        ("hip_platform", handle("fd", &[(6, &[2])])),
        ("no_type", handle("fd", &[(7, &[0])])),
        ("unknown_type", handle("fd", &[(7, &[10])])),
        ("unknown_attribute", handle("fd", &[(8, &[17])])),
        ("reserved_short", handle("fd", &[(15, &[1])])),
        ("reserved_bytes", handle("fd", &[(187, &[1])])),
        ("fd_without_ticket", handle("fd", &[(8, &[0])])),
        ("pool_with_legacy", handle("pool", &[(7, &[3])])),
        ("multicast_with_legacy", handle("multicast", &[(7, &[7])])),
        ("multicast_from_pool", handle("multicast", &[(8, &[11])])),
        ("slot_0_not_announced", handle("fd", &[(192, &[1])])),
        ("slot_1_not_announced", handle("legacy", &[(8, &[0])])),
        ("slot_2_not_announced", handle("fd", &[(383, &[1])])),
        ("ticket_reserved", handle("fd", &[(300, &[1])])),
        ("vmm_fd_and_ledger", golden("fd-ledger")),
        ("ledger_with_inode_zero", {
            handle("fd-ledger", &[(312, &[0; 8])])
        }),
        ("ledger_of_inode_only", handle("fd", &[(319, &[1])])),
        ("ledger_with_negative_fd", {
            handle("fd-ledger", &[(292, &[255; 4])])
        }),
        ("ledger_without_descriptor", {
            handle("fd-ledger", &[(288, &[255; 4])])
        }),
        ("newer_version_with_ledger_and_reserved", {
            handle("fd-ledger", &[(4, &[2]), (303, &[7])])
        }),
        (
            "negative_fd",
            handle("fd", &[(288, &[0xfe, 255, 255, 255])]),
        ),
        ("no_fd", handle("fd", &[(288, &[255; 4])])),
        ("pool_id_without_pool", handle("fd", &[(160, &[1])])),
        ("devices_without_multicast", handle("fd", &[(10, &[1])])),
        ("multicast_without_devices", {
            handle("multicast", &[(10, &[0])])
        }),
        ("gpu_with_numa_node", handle("fd", &[(12, &[0, 0])])),
        ("host_without_numa_node", {
            handle("host-numa", &[(12, &[255; 2])])
        }),
        ("host_with_device", handle("host-numa", &[(95, &[1])])),
        ("zero_length", {
            handle("fd", &[(32, &[0; 8]), (56, &[0; 8])])
        }),
        ("offset_overflow", handle("fd", &[(24, &max)])),
        ("offset_past_base", handle("fd", &[(24, &[1, 0, 0xe0])])),
        ("whole_address_space", {
            handle("fd", &[(16, &max), (24, &[0; 8]), (32, &max), (56, &max)])
        }),
        ("window_overflow", handle("segment", &[(64, &max)])),
        ("window_offset_past_end", {
            handle("segment", &[(64, &[1, 0, 0x50])])
        }),
        ("no_segments", handle("fd", &[(76, &[0])])),
        ("index_past_count", handle("segment", &[(72, &[3])])),
        ("only_segment_with_offset", {
            handle("fd", &[(56, &[0, 0, 0x30]), (64, &[0, 0, 0x10])])
        }),
        ("only_segment_shorter_than_window", {
            handle("fd", &[(56, &[1])])
        }),
    ]
}

fn all_fields() -> Vec<Seed> {
    let fields = |name: &str| GpuIpcMemHandle::decode(&golden(name)).unwrap().fields();
    let changed = |name: &str, change: fn(&mut HandleFields)| {
        let mut fields = fields(name);
        change(&mut fields);
        bytes_of(&fields)
    };
    let same: fn(&mut HandleFields) = |_| ();
    vec![
        ("legacy", changed("legacy", same)),
        ("vmm_fd", changed("fd", same)),
        ("vmm_fd_and_fabric", changed("fd-fabric", same)),
        ("pool", changed("pool", same)),
        ("host_numa", changed("host-numa", same)),
        ("multicast", changed("multicast", same)),
        ("second_of_three_segments", changed("segment", same)),
        ("nothing", bytes_of(&HandleFields::default())),
        ("everything", {
            changed("pool", |fields| {
                fields.runtime_ipc = Some([1; 64]);
                fields.fabric = Some([2; 64]);
                fields.numa_node = Some(0);
                fields.multicast = true;
                fields.num_devices = 2;
            })
        }),
        ("legacy_and_pool", {
            changed("pool", |fields| fields.runtime_ipc = Some([1; 64]))
        }),
        (
            "fd_without_ticket",
            changed("fd", |fields| fields.ticket = None),
        ),
        ("ledger", {
            changed("fd", |fields| {
                fields.ticket = fields.ticket.map(with_ledger);
            })
        }),
        ("legacy_with_ledger", {
            changed("legacy", |fields| {
                fields.ticket = fields.ticket.map(with_ledger);
            })
        }),
        ("fd_minus_one", {
            changed("fd", |fields| {
                let ticket = fields.ticket;
                fields.ticket = ticket.map(|ticket| Ticket {
                    fd: Some(-1),
                    ..ticket
                });
            })
        }),
        ("numa_node_minus_one", {
            changed("host-numa", |fields| fields.numa_node = Some(-1))
        }),
        ("zero_length", changed("fd", |fields| fields.length = 0)),
        ("offset_overflow", {
            changed("fd", |fields| fields.offset_from_base = u64::MAX)
        }),
        ("window_overflow", {
            changed("segment", |fields| fields.window.offset = u64::MAX)
        }),
        ("no_segments", {
            changed("fd", |fields| fields.window.segment_count = 0)
        }),
    ]
}

fn messages() -> Vec<Seed> {
    vec![
        ("request_fetch_fd", golden("request")),
        ("request_check_memory", plain("request", &[(5, &[2])])),
        ("request_unknown_kind", plain("request", &[(5, &[4])])),
        ("request_no_kind", plain("request", &[(5, &[0])])),
        ("request_newer_version", plain("request", &[(4, &[2])])),
        ("request_reserved_short", plain("request", &[(7, &[1])])),
        ("request_reserved_bytes", plain("request", &[(63, &[1])])),
        ("reply_fd_attached", {
            plain("reply", &[(5, &[1]), (24, &[0; 4])])
        }),
        ("reply_malformed", {
            plain("reply", &[(5, &[6]), (8, &[0; 20])])
        }),
        ("reply_check_failed", golden("reply")),
        ("reply_unknown_status", plain("reply", &[(5, &[12])])),
        ("reply_no_status", plain("reply", &[(5, &[0])])),
        ("reply_newer_version", plain("reply", &[(4, &[2])])),
        ("reply_reserved_short", plain("reply", &[(6, &[1])])),
        ("reply_reserved_bytes", plain("reply", &[(28, &[1])])),
        ("request_sent_as_reply", plain("request", &[(0, b"GIPR")])),
        ("a_handle", golden("fd")),
        ("empty", Vec::new()),
        ("one_byte_short", golden("request")[..63].into()),
        ("one_byte_long", [golden("reply"), vec![0]].concat()),
    ]
}

/// Calls as numbers: call, object, other, bits, number.
fn calls(ops: &[(u8, u8, u8, u8, u32)]) -> Vec<u8> {
    let bytes = ops.iter().map(|(call, object, other, bits, number)| {
        Op {
            call: *call,
            object: *object,
            other: *other,
            bits: *bits,
            number: *number,
        }
        .bytes()
    });
    bytes.flatten().collect()
}

fn c_programs() -> Vec<Seed> {
    const OPEN: (u8, u8, u8, u8, u32) = (0, 0, 0, 0, 0);
    const MALLOC: (u8, u8, u8, u8, u32) = (2, 0, 1, 0, 1 << 20);
    const FD: (u8, u8, u8, u8, u32) = (2, 0, 2, 0, 1 << 20);
    const EXPORT: (u8, u8, u8, u8, u32) = (5, 0, 0, 0, 0);
    const BYTES: (u8, u8, u8, u8, u32) = (7, 0, 1, 0, 0);
    const IMPORT: (u8, u8, u8, u8, u32) = (8, 0, 0, 0, 0);
    /// Of another process, as its id says.
    const FORGED: (u8, u8, u8, u8, u32) = (8, 0, 0, 1, 96);
    vec![
        ("nothing", Vec::new()),
        ("nulls_everywhere", {
            let null = |call| (call, 9, 0, 0xc4, 0);
            calls(
                &[
                    0, 2, 4, 5, 7, 8, 10, 11, 12, 14, 16, 20, 21, 22, 23, 24, 25, 26, 27,
                ]
                .map(null),
            )
        }),
        ("share_legacy", {
            let read = (10, 0, 4, 0, 100);
            calls(&[OPEN, MALLOC, (4, 0, 4, 1, 100), EXPORT, BYTES, IMPORT, read])
        }),
        ("share_descriptor_and_free_first", {
            calls(&[
                OPEN,
                FD,
                EXPORT,
                BYTES,
                IMPORT,
                (3, 0, 0, 0, 0),
                (10, 0, 4, 0, 0),
                (6, 0, 0, 0, 0),
            ])
        }),
        (
            "forged_process",
            calls(&[OPEN, FD, EXPORT, BYTES, FORGED, (11, 0, 2, 0, 0)]),
        ),
        ("forged_fabric_where_there_is_one", {
            let fabric = (2, 0, 3, 0, 1 << 20);
            calls(&[OPEN, fabric, EXPORT, BYTES, FORGED, (10, 0, 4, 0, 0)])
        }),
        (
            "forged_legacy",
            calls(&[OPEN, MALLOC, EXPORT, BYTES, FORGED, (12, 0, 0, 1, 3)]),
        ),
        (
            "forged_host",
            calls(&[OPEN, FD, EXPORT, BYTES, (8, 0, 0, 1, 112), (19, 0, 9, 0, 3)]),
        ),
        (
            "withdrawn",
            calls(&[
                OPEN,
                FD,
                EXPORT,
                BYTES,
                (6, 0, 0, 0, 0),
                IMPORT,
                (19, 0, 50, 0, 2),
            ]),
        ),
        ("cancelled", {
            calls(&[
                OPEN,
                FD,
                EXPORT,
                BYTES,
                (13, 0, 0, 0, 0),
                (13, 0, 1, 0, 1),
                IMPORT,
                FORGED,
            ])
        }),
        ("closed_library_other_threads", {
            calls(&[
                OPEN,
                FD,
                EXPORT,
                BYTES,
                (8, 1, 0, 16, 0),
                (1, 0, 0, 16, 0),
                (6, 0, 0, 16, 0),
                (9, 1, 0, 16, 0),
            ])
        }),
        ("faults", {
            calls(&[
                OPEN,
                (17, 1, 1, 0, 0),
                FD,
                FD,
                (17, 5, 7, 0, 0),
                EXPORT,
                EXPORT,
                BYTES,
                (17, 3, 2, 0, 0),
                FORGED,
            ])
        }),
        ("options_of_all_sizes", {
            let sizes = [0, 8, 16, 24, 32, 40, 41, 64, 88, 4096, 4097, 8000];
            let ops: Vec<_> = (0..3)
                .flat_map(|kind| sizes.map(|size| (15, 0, kind, 0, size)))
                .collect();
            calls(&ops)
        }),
        ("short_buffers", {
            calls(&[
                OPEN,
                FD,
                EXPORT,
                (7, 0, 1, 8, 9),
                (7, 0, 2, 8, 0),
                (7, 0, 2, 8, 5),
                (8, 0, 0, 8, 77),
                (14, 0, 1, 8, 3),
            ])
        }),
        ("segments", {
            let segments = (2, 0, 4, 0, 3 << 20);
            let all = (26, 0, 0, 0, 0);
            let forged = (22, 0, 0, 1, 96);
            calls(&[
                OPEN,
                segments,
                EXPORT,
                all,
                IMPORT,
                (10, 0, 4, 0, (2 << 20) - 4),
                (22, 0, 0, 0, 0),
                forged,
                FORGED,
            ])
        }),
        ("pool_and_host", {
            calls(&[
                OPEN,
                (2, 0, 5, 0, 1 << 20),
                EXPORT,
                BYTES,
                IMPORT,
                (22, 0, 0, 1, 96),
                (2, 0, 6, 0, 1 << 20),
                EXPORT,
                BYTES,
                (27, 9, 0x21, 0, 0),
                FORGED,
                IMPORT,
            ])
        }),
        ("places", {
            calls(&[
                OPEN,
                FD,
                EXPORT,
                BYTES,
                (20, 0, 0, 0, 8),
                (20, 0, 0, 0, 3),
                (20, 0, 1, 0, 0),
                (20, 0, 2, 4, 0),
                (20, 0, 4, 0, 0),
                (27, 0, 1, 1, 2),
                FORGED,
                IMPORT,
                (21, 0, 1, 0, 0),
                (20, 0, 3, 0, 0),
                IMPORT,
                (21, 0, 1, 4, 0),
                (21, 0, 1, 0, 0),
            ])
        }),
        ("registered", {
            let says: Vec<_> = (0..11).map(|what| (25, 0, what, 0, 1)).collect();
            let other: Vec<_> = (0..11).map(|what| (25, 1, what, 0, 4)).collect();
            let make = [OPEN, FD, (23, 0, 0x10, 0, 0), (23, 1, 0x2f, 2, 0x0004_0001)];
            let read = [
                (24, 1, 0, 0, 0),
                (24, 2, 0, 1, 40),
                (24, 2, 0, 8, 99),
                (27, 0, 0, 0, 0),
                (24, 2, 0, 0, 0),
                (25, 2, 5, 0, 0),
            ];
            calls(&[&make[..], &says, &read, &other].concat())
        }),
        ("registered_for_a_transport", {
            calls(&[
                OPEN,
                (23, 0, 0x17, 0, 0),
                (25, 0, 0, 0, 0),
                (25, 0, 4, 0, 0),
                (25, 0, 8, 0, 60),
                (25, 0, 10, 0, 0),
                (27, 0, 2, 0, 0),
                (24, 0, 0, 0, 0),
                (24, 0, 0, 1, 33),
            ])
        }),
        ("two_libraries", {
            calls(&[
                OPEN,
                (0, 1, 1, 0, 0),
                FD,
                EXPORT,
                BYTES,
                (5, 1, 0, 64, 4096),
                (8, 0, 0, 64, 0),
                FORGED,
            ])
        }),
    ]
}

pub(super) fn compare(target: Target, made: Vec<Seed>) {
    let folder = target.folder();
    let bless = std::env::var_os("GPUIPC_BLESS").is_some();
    if bless {
        std::fs::create_dir_all(&folder).unwrap();
    }
    for (name, bytes) in made {
        let path = folder.join(name);
        if bless {
            std::fs::write(&path, &bytes).unwrap();
        }
        let there =
            std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(there == bytes, "{} is as made", path.display());
    }
}

#[test]
fn seeds_are_made_from_golden_bytes() {
    compare(DECODE, handles());
    compare(ROUND_TRIP, all_fields());
    compare(BROKER_MESSAGE, messages());
    compare(C_CALLS, c_programs());
}

#[test]
fn seeds_of_fields_stand_for_the_fields() {
    for (name, bytes) in all_fields() {
        assert_eq!(bytes_of(&fields_of(&bytes)), bytes, "{name}");
    }
    let fields = GpuIpcMemHandle::decode(&golden("pool")).unwrap().fields();
    assert_eq!(fields_of(&bytes_of(&fields)), fields);
}

/// The ticket with an entry in a ledger.
fn with_ledger(ticket: Ticket) -> Ticket {
    Ticket {
        ledger: Some(LedgerEntry {
            fd: 41,
            slot: 2,
            device: 26,
            inode: 1234,
        }),
        ..ticket
    }
}
