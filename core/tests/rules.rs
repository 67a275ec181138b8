//! The handle's rules, one test each: a valid handle is changed in one place, its checksum is made
//! right again, and decoding must refuse it for this very reason.
//!
//! Places are given as numbers, to be independent of the crate's own table.
#![allow(clippy::unwrap_used, missing_docs)]

// Not every test program uses every sample.
#[allow(dead_code)]
mod samples;

use gpuipc_core::{
    Attributes, DecodeError, DeviceUuid, GpuIpcMemHandle, HANDLE_BYTES, HandleFields, LedgerEntry,
    Ticket, TypeFlags, checksum_of,
};

fn encoded(fields: &HandleFields) -> [u8; HANDLE_BYTES] {
    GpuIpcMemHandle::new(fields).unwrap().encode()
}

fn write(bytes: &mut [u8; HANDLE_BYTES], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn repair(bytes: &mut [u8; HANDLE_BYTES]) {
    let sum = checksum_of(bytes);
    write(bytes, 188, &sum.to_le_bytes());
}

/// A handle of the fields with other bytes at some places and a right checksum, decoded.
fn changed(
    fields: &HandleFields,
    changes: &[(usize, &[u8])],
) -> Result<GpuIpcMemHandle, DecodeError> {
    let mut bytes = encoded(fields);
    for (at, value) in changes {
        write(&mut bytes, *at, value);
    }
    repair(&mut bytes);
    let decoded = GpuIpcMemHandle::decode(&bytes);
    if let Ok(handle) = decoded {
        assert_eq!(handle.encode(), bytes, "what is accepted is kept as it is");
    }
    decoded
}

/// Field and value of the error that the changes give.
fn broken(fields: &HandleFields, changes: &[(usize, &[u8])]) -> (&'static str, u64) {
    match changed(fields, changes).unwrap_err() {
        DecodeError::Field { field, value, rule } => {
            let text = DecodeError::Field { field, value, rule }.to_string();
            assert!(text.starts_with(&format!("{field} is {value} ")), "{text}");
            assert!(text.contains(rule), "{text}");
            (field, value)
        }
        other => panic!("{other:?}"),
    }
}

/// Field of the error that these fields give.
fn refused(fields: &HandleFields) -> &'static str {
    match GpuIpcMemHandle::new(fields).unwrap_err() {
        DecodeError::Field { field, .. } => field,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_sample_is_valid() {
    for sample in samples::all() {
        assert_eq!(
            changed(&sample.fields, &[]).unwrap().fields(),
            sample.fields
        );
    }
}

#[test]
fn another_length_is_refused() {
    let bytes = encoded(&samples::fd());
    let mut longer = bytes.to_vec();
    longer.push(0);
    for part in [&[][..], &bytes[..383], &longer] {
        let error = DecodeError::Length { got: part.len() };
        assert_eq!(GpuIpcMemHandle::decode(part), Err(error));
    }
}

#[test]
fn another_magic_is_refused() {
    let error = changed(&samples::fd(), &[(0, b"GIPQ")]).unwrap_err();
    let got = u32::from_le_bytes(*b"GIPQ");
    assert_eq!(error, DecodeError::Magic { got });
}

#[test]
fn version_0_is_refused() {
    assert_eq!(broken(&samples::fd(), &[(4, &[0])]), ("version", 0));
}

#[test]
fn min_reader_0_is_refused() {
    assert_eq!(broken(&samples::fd(), &[(5, &[0])]), ("min_reader", 0));
}

#[test]
fn a_writer_that_could_not_read_itself_is_refused() {
    assert_eq!(broken(&samples::fd(), &[(4, &[2, 3])]), ("min_reader", 3));
}

#[test]
fn a_handle_for_newer_readers_only_is_refused() {
    let error = DecodeError::Newer {
        version: 3,
        min_reader: 2,
    };
    assert_eq!(changed(&samples::fd(), &[(4, &[3, 2])]), Err(error));
}

#[test]
fn a_newer_handle_is_told_from_a_damaged_one() {
    // The checksum of a version to come may be another.
    let mut bytes = encoded(&samples::fd());
    write(&mut bytes, 4, &[2, 2]);
    let error = DecodeError::Newer {
        version: 2,
        min_reader: 2,
    };
    assert_eq!(GpuIpcMemHandle::decode(&bytes), Err(error));
}

#[test]
fn a_wrong_checksum_is_refused() {
    let mut bytes = encoded(&samples::fd());
    write(&mut bytes, 188, &[1, 2, 3, 4]);
    let error = DecodeError::Checksum {
        stored: 0x0403_0201,
        computed: checksum_of(&bytes),
    };
    assert_eq!(GpuIpcMemHandle::decode(&bytes), Err(error));
}

#[test]
fn another_platform_is_refused() {
    for platform in [0, 2, 255] {
        let wrong = broken(&samples::fd(), &[(6, &[platform])]);
        assert_eq!(wrong, ("platform", platform.into()));
    }
}

#[test]
fn unknown_type_bits_are_refused_in_version_1() {
    assert_eq!(broken(&samples::fd(), &[(7, &[2 | 8])]), ("type_flags", 10));
}

#[test]
fn unknown_attribute_bits_are_refused_in_version_1() {
    assert_eq!(
        broken(&samples::fd(), &[(8, &[1 | 16])]),
        ("attributes", 17)
    );
}

#[test]
fn reserved_bytes_of_the_header_are_zero_in_version_1() {
    for at in [14, 15, 168, 187] {
        let wrong = broken(&samples::fd(), &[(at, &[1])]);
        assert_eq!(wrong, ("reserved", at.try_into().unwrap()));
    }
}

#[test]
fn a_handle_without_a_type_is_refused() {
    assert_eq!(broken(&samples::fd(), &[(7, &[0])]), ("type_flags", 0));
}

#[test]
fn a_descriptor_without_a_ticket_is_refused() {
    let without_ticket = [(8, &[0][..]), (256, &[0; 64])];
    assert_eq!(broken(&samples::fd(), &without_ticket), ("attributes", 0));
}

#[test]
fn pool_memory_with_legacy_ipc_is_refused() {
    assert_eq!(broken(&samples::pool(), &[(7, &[3])]), ("type_flags", 3));
    let both = HandleFields {
        runtime_ipc: Some([1; 64]),
        ..samples::pool()
    };
    assert_eq!(refused(&both), "type_flags");
}

#[test]
fn a_multicast_object_with_legacy_ipc_is_refused() {
    assert_eq!(
        broken(&samples::multicast(), &[(7, &[7])]),
        ("type_flags", 7)
    );
}

#[test]
fn a_multicast_object_from_a_pool_is_refused() {
    assert_eq!(
        broken(&samples::multicast(), &[(8, &[11])]),
        ("attributes", 11)
    );
}

#[test]
fn slot_0_is_zero_unless_announced() {
    assert_eq!(broken(&samples::fd(), &[(255, &[1])]), ("slot_0", 255));
}

#[test]
fn slot_1_is_zero_unless_announced() {
    let fields = HandleFields {
        runtime_ipc: Some([1; 64]),
        ..samples::plain()
    };
    assert_eq!(broken(&fields, &[(256, &[0xab])]), ("slot_1", 256));
}

#[test]
fn slot_2_is_zero_unless_announced() {
    assert_eq!(broken(&samples::fd(), &[(383, &[1])]), ("slot_2", 383));
}

#[test]
fn a_tickets_reserved_bytes_are_zero_in_version_1() {
    for at in [300, 303] {
        let wrong = broken(&samples::fd(), &[(at, &[1])]);
        assert_eq!(wrong, ("ticket.reserved", at.try_into().unwrap()));
    }
}

#[test]
fn a_tickets_descriptor_is_a_number_or_none() {
    let wrong = broken(&samples::fd(), &[(288, &(-2_i32).to_le_bytes())]);
    assert_eq!(wrong, ("ticket.fd", 0xffff_fffe));
    let none = changed(&samples::fd(), &[(288, &(-1_i32).to_le_bytes())]).unwrap();
    assert_eq!(none.ticket().unwrap().fd, None);
    let zero = changed(&samples::fd(), &[(288, &0_i32.to_le_bytes())]).unwrap();
    assert_eq!(zero.ticket().unwrap().fd, Some(0));
}

/// A ledger's bytes in a handle: descriptor, slot, device, inode.
fn ledger(fd: i32, slot: u32, device: u64, inode: u64) -> [(usize, Vec<u8>); 4] {
    [
        (292, fd.to_le_bytes().to_vec()),
        (296, slot.to_le_bytes().to_vec()),
        (304, device.to_le_bytes().to_vec()),
        (312, inode.to_le_bytes().to_vec()),
    ]
}

fn with_ledger(bytes: &[(usize, Vec<u8>); 4]) -> [(usize, &[u8]); 4] {
    [0, 1, 2, 3].map(|part| (bytes[part].0, &bytes[part].1[..]))
}

#[test]
fn a_ledger_is_there_if_it_has_an_inode() {
    let bytes = ledger(9, 3, 26, 1234);
    let handle = changed(&samples::fd(), &with_ledger(&bytes)).unwrap();
    let entry = LedgerEntry {
        fd: 9,
        slot: 3,
        device: 26,
        inode: 1234,
    };
    assert_eq!(handle.ticket().unwrap().ledger, Some(entry));
    assert_eq!(
        changed(&samples::fd(), &[])
            .unwrap()
            .ticket()
            .unwrap()
            .ledger,
        None
    );
    for (bytes, at) in [
        (ledger(9, 0, 0, 0), 292),
        (ledger(0, 3, 0, 0), 296),
        (ledger(0, 0, 26, 0), 304),
    ] {
        assert_eq!(
            broken(&samples::fd(), &with_ledger(&bytes)),
            ("ticket.ledger", at)
        );
    }
}

#[test]
fn a_ledger_has_a_descriptor() {
    let bytes = ledger(-1, 3, 26, 1234);
    let wrong = broken(&samples::fd(), &with_ledger(&bytes));
    assert_eq!(wrong, ("ticket.ledger.fd", 0xffff_ffff));
}

#[test]
fn a_ledger_may_speak_for_an_offer_without_a_descriptor() {
    let bytes = ledger(9, 3, 26, 1234);
    let handle = changed(&samples::legacy(), &with_ledger(&bytes)).unwrap();
    assert!(handle.ticket().unwrap().ledger.is_some());
}

#[test]
fn fields_with_a_ledger_without_an_inode_are_refused() {
    let fields = HandleFields {
        ticket: Some(Ticket {
            fd: Some(1),
            ledger: Some(LedgerEntry {
                fd: 9,
                slot: 0,
                device: 26,
                inode: 0,
            }),
            ..samples::TICKET
        }),
        ..samples::fd()
    };
    assert_eq!(refused(&fields), "ticket.ledger.inode");
}

#[test]
fn fields_with_a_negative_descriptor_are_refused() {
    for fd in [-1, -2, i32::MIN] {
        let fields = HandleFields {
            ticket: Some(Ticket {
                fd: Some(fd),
                ..samples::TICKET
            }),
            ..samples::fd()
        };
        assert_eq!(refused(&fields), "ticket.fd");
    }
}

#[test]
fn only_pool_memory_has_a_pool() {
    assert_eq!(broken(&samples::fd(), &[(160, &[5])]), ("pool_id", 5));
}

#[test]
fn a_multicast_object_has_devices_and_other_memory_none() {
    assert_eq!(broken(&samples::fd(), &[(10, &[1])]), ("num_devices", 1));
    assert_eq!(
        broken(&samples::multicast(), &[(10, &[0])]),
        ("num_devices", 0)
    );
}

#[test]
fn host_memory_has_a_node_and_a_gpus_memory_none() {
    assert_eq!(broken(&samples::fd(), &[(12, &[0, 0])]), ("numa_node", 0));
    assert_eq!(
        broken(&samples::fd(), &[(12, &[0xfe, 0xff])]),
        ("numa_node", 0xfffe)
    );
    let minus_1 = broken(&samples::host_numa(), &[(12, &[0xff, 0xff])]);
    assert_eq!(minus_1, ("numa_node", 0xffff));
    let negative = HandleFields {
        numa_node: Some(-1),
        ..samples::host_numa()
    };
    assert_eq!(refused(&negative), "numa_node");
}

#[test]
fn host_memory_has_no_device() {
    assert_eq!(
        broken(&samples::host_numa(), &[(95, &[1])]),
        ("device_uuid", 95)
    );
    let with_device = HandleFields {
        device_uuid: DeviceUuid([1; 16]),
        ..samples::host_numa()
    };
    assert_eq!(refused(&with_device), "device_uuid");
}

#[test]
fn an_empty_segment_is_refused() {
    assert_eq!(broken(&samples::fd(), &[(32, &[0; 8])]), ("length", 0));
}

#[test]
fn a_segment_stays_inside_its_allocation() {
    let last: u64 = (16 << 20) - (2 << 20);
    changed(&samples::fd(), &[(24, &last.to_le_bytes())]).unwrap();
    let over = last + 1;
    let wrong = broken(&samples::fd(), &[(24, &over.to_le_bytes())]);
    assert_eq!(wrong, ("offset_from_base", over));
}

#[test]
fn a_segment_that_wraps_around_is_refused() {
    let wrong = broken(&samples::fd(), &[(24, &[0xff; 8])]);
    assert_eq!(wrong, ("offset_from_base", u64::MAX));
    let whole = [(16, &[0xff; 8][..]), (24, &[0xff; 8])];
    assert_eq!(
        broken(&samples::fd(), &whole),
        ("offset_from_base", u64::MAX)
    );
}

#[test]
fn a_window_has_segments() {
    assert_eq!(broken(&samples::fd(), &[(76, &[0])]), ("segment_count", 0));
}

#[test]
fn a_segments_index_is_below_the_count() {
    assert_eq!(
        broken(&samples::segment(), &[(72, &[3])]),
        ("segment_index", 3)
    );
    assert_eq!(broken(&samples::fd(), &[(72, &[1])]), ("segment_index", 1));
}

#[test]
fn a_segment_stays_inside_its_window() {
    let last: u64 = (7 << 20) - (2 << 20);
    changed(&samples::segment(), &[(64, &last.to_le_bytes())]).unwrap();
    let over = last + 1;
    let wrong = broken(&samples::segment(), &[(64, &over.to_le_bytes())]);
    assert_eq!(wrong, ("window_offset", over));
    let wrong = broken(&samples::segment(), &[(64, &[0xff; 8])]);
    assert_eq!(wrong, ("window_offset", u64::MAX));
}

#[test]
fn the_only_segment_is_its_whole_window() {
    let long = broken(&samples::fd(), &[(56, &(3_u64 << 20).to_le_bytes())]);
    assert_eq!(long, ("window_length", 3 << 20));
    let later = [
        (56, &(3_u64 << 20).to_le_bytes()[..]),
        (64, &(1_u64 << 20).to_le_bytes()),
    ];
    assert_eq!(broken(&samples::fd(), &later), ("window_offset", 1 << 20));
}

#[test]
fn what_a_newer_writer_added_is_ignored_and_kept() {
    // `changed` compares the bytes.
    let added: [(usize, &[u8]); 5] = [
        (4, &[2]),
        (7, &[2 | 0x80]),
        (8, &[1, 0x80]),
        (168, &[9; 20]),
        (303, &[9]),
    ];
    let handle = changed(&samples::fd(), &added).unwrap();
    assert_eq!((handle.version(), handle.min_reader()), (2, 1));
    assert_eq!(handle.types(), TypeFlags::POSIX_FD);
    assert_eq!(handle.attributes(), Attributes::TICKET);
    assert_eq!(handle.fields(), samples::fd());
}

#[test]
fn a_newer_writers_bits_may_announce_any_slot() {
    let filled = [(4, &[2][..]), (192, &[1; 64]), (320, &[1; 64])];
    assert_eq!(broken(&samples::fd(), &filled), ("slot_0", 192));
    let type_bit = [filled[0], filled[1], filled[2], (7, &[2 | 8])];
    let handle = changed(&samples::fd(), &type_bit).unwrap();
    assert_eq!((handle.runtime_ipc(), handle.fabric()), (None, None));
    let no_ticket = [(4, &[2][..]), (7, &[4 | 8]), (8, &[0]), (256, &[0xfe; 64])];
    let handle = changed(&samples::fd_and_fabric(), &no_ticket).unwrap();
    assert_eq!(handle.ticket(), None);
    let attribute_bit = [filled[0], filled[1], filled[2], (9, &[1])];
    changed(&samples::fd(), &attribute_bit).unwrap();
}

#[test]
fn a_newer_handle_keeps_the_other_rules() {
    let only_new_types = [(4, &[2][..]), (7, &[8])];
    assert_eq!(broken(&samples::fd(), &only_new_types), ("type_flags", 8));
    let empty = [(4, &[2][..]), (32, &[0; 8])];
    assert_eq!(broken(&samples::fd(), &empty), ("length", 0));
    let platform = [(4, &[2][..]), (6, &[2])];
    assert_eq!(broken(&samples::fd(), &platform), ("platform", 2));
    let fd = [(4, &[2][..]), (288, &[0xfe, 0xff, 0xff, 0xff])];
    assert_eq!(broken(&samples::fd(), &fd).0, "ticket.fd");
}

#[test]
fn handles_are_equal_exactly_when_their_bytes_are() {
    for (i, a) in samples::all().iter().enumerate() {
        for (j, b) in samples::all().iter().enumerate() {
            let a = GpuIpcMemHandle::new(&a.fields).unwrap();
            let b = GpuIpcMemHandle::new(&b.fields).unwrap();
            assert_eq!(a == b, i == j);
        }
    }
}

#[test]
fn accessors_give_the_fields() {
    let handle = GpuIpcMemHandle::new(&samples::multicast()).unwrap();
    assert_eq!(handle.fabric(), Some(&samples::counting(0x80)));
    assert_eq!(handle.runtime_ipc(), None);
    assert_eq!(handle.num_devices(), 8);
    assert_eq!(handle.checksum(), checksum_of(&handle.encode()));
    let pool = GpuIpcMemHandle::new(&samples::pool()).unwrap();
    assert_eq!(pool.pool_pointer(), Some(&samples::counting(0x40)));
    assert_eq!((pool.pool_id(), pool.runtime_ipc()), (9, None));
}

#[test]
fn debug_shows_neither_the_token_nor_the_drivers_bytes() {
    let fields = HandleFields {
        runtime_ipc: Some([0x5a; 64]),
        fabric: Some([0x5a; 64]),
        ..samples::fd()
    };
    let handle = GpuIpcMemHandle::new(&fields).unwrap();
    let ticket = handle.ticket().unwrap();
    let texts = [
        format!("{handle:?}"),
        format!("{handle:#?}"),
        format!("{fields:?}"),
        format!("{:?}", samples::pool()),
        format!("{ticket:#?}"),
    ];
    for text in texts {
        let lower = text.to_lowercase();
        assert!(lower.contains("token(..)"), "{text}");
        assert!(!lower.contains("5a5a"), "{text}");
        assert!(!lower.contains("5a, "), "{text}");
        assert!(!lower.contains("90, "), "{text}");
        assert!(!lower.contains("90,\n"), "{text}");
    }
}
