//! The handle's rules, one test each: a valid handle is changed in one place, its checksum is made
//! right again, and decoding must refuse it for this very reason.
//!
//! Places are given as numbers, to be independent of the crate's own table.
#![allow(clippy::unwrap_used, missing_docs)]

// Not every test program uses every sample.
#[allow(dead_code)]
mod samples;

use gpuipc_core::{
    Attributes, DecodeError, DeviceUuid, GpuIpcMemHandle, HANDLE_BYTES, HandleFields, TablePlace,
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

/// A rule; a sample's handle; what is put where; the field and the value that the error names.
type Broken = (
    &'static str,
    HandleFields,
    Vec<(usize, Vec<u8>)>,
    (&'static str, u64),
);

#[rustfmt::skip]
fn broken_rules() -> Vec<Broken> {
    use samples::{fd, fd_and_table, host_numa, legacy, multicast, pool, segment};
    let max = || vec![0xff; 8];
    let bytes = |number: u64| number.to_le_bytes().to_vec();
    vec![
        ("versions start at 1", fd(), vec![(4, vec![0])], ("version", 0)),
        ("versions start at 1", fd(), vec![(5, vec![0])], ("min_reader", 0)),
        ("a writer can read itself", fd(), vec![(4, vec![2, 3])], ("min_reader", 3)),
        ("no platform 0", fd(), vec![(6, vec![0])], ("platform", 0)),
        ("no HIP yet", fd(), vec![(6, vec![2])], ("platform", 2)),
        ("no HIP of a newer writer", fd(), vec![(4, vec![2]), (6, vec![2])], ("platform", 2)),
        ("no unknown type", fd(), vec![(7, vec![2 | 8])], ("type_flags", 10)),
        ("no unknown attribute", fd(), vec![(8, vec![1 | 16])], ("attributes", 17)),
        ("reserved is zero", fd(), vec![(14, vec![1])], ("reserved", 14)),
        ("reserved is zero", fd(), vec![(15, vec![1])], ("reserved", 15)),
        ("reserved is zero", fd(), vec![(168, vec![1])], ("reserved", 168)),
        ("reserved is zero", fd(), vec![(187, vec![1])], ("reserved", 187)),
        ("at least one type", fd(), vec![(7, vec![0])], ("type_flags", 0)),
        ("at least one known type", fd(), vec![(4, vec![2]), (7, vec![8])], ("type_flags", 8)),
        ("a descriptor has a ticket", fd(), vec![(8, vec![0]), (256, vec![0; 64])], ("attributes", 0)),
        ("a pool has no legacy IPC", pool(), vec![(7, vec![3])], ("type_flags", 3)),
        ("multicast has no legacy IPC", multicast(), vec![(7, vec![7])], ("type_flags", 7)),
        ("multicast is from no pool", multicast(), vec![(8, vec![11])], ("attributes", 11)),
        ("slot 0 is announced", fd(), vec![(255, vec![1])], ("slot_0", 255)),
        ("slot 0 of a newer writer, too", fd(), vec![(4, vec![2]), (192, vec![1; 64])], ("slot_0", 192)),
        ("slot 1 is announced", legacy(), vec![(8, vec![0])], ("slot_1", 256)),
        ("slot 2 is announced", fd(), vec![(383, vec![1])], ("slot_2", 383)),
        ("the ticket's reserved is zero", fd(), vec![(300, vec![1])], ("ticket.reserved", 300)),
        ("the ticket's reserved is zero", fd(), vec![(303, vec![1])], ("ticket.reserved", 303)),
        ("a descriptor is a number or -1", fd(), vec![(288, vec![0xfe, 255, 255, 255])], ("ticket.fd", 0xffff_fffe)),
        ("of a newer writer, too", fd(), vec![(4, vec![2]), (288, vec![0xfe, 255, 255, 255])], ("ticket.fd", 0xffff_fffe)),
        ("an export table has a descriptor", fd_and_table(), vec![(292, vec![255; 4])], ("ticket.table.fd", 0xffff_ffff)),
        ("no export table, no descriptor of it", fd(), vec![(292, vec![9])], ("ticket.table", 292)),
        ("no export table, no slot", fd(), vec![(296, vec![3])], ("ticket.table", 296)),
        ("no export table, no device", fd(), vec![(304, vec![26])], ("ticket.table", 304)),
        ("no pool, no number of it", fd(), vec![(160, vec![5])], ("pool_id", 5)),
        ("no multicast, no members", fd(), vec![(10, vec![1])], ("num_devices", 1)),
        ("multicast has members", multicast(), vec![(10, vec![0])], ("num_devices", 0)),
        ("a GPU's memory has no node", fd(), vec![(12, vec![0, 0])], ("numa_node", 0)),
        ("a GPU's memory has -1", fd(), vec![(12, vec![0xfe, 0xff])], ("numa_node", 0xfffe)),
        ("host memory has a node", host_numa(), vec![(12, vec![0xff, 0xff])], ("numa_node", 0xffff)),
        ("host memory has no device", host_numa(), vec![(95, vec![1])], ("device_uuid", 95)),
        ("a segment has bytes", fd(), vec![(32, vec![0; 8])], ("length", 0)),
        ("of a newer writer, too", fd(), vec![(4, vec![2]), (32, vec![0; 8])], ("length", 0)),
        ("it lies in its allocation", fd(), vec![(24, bytes((14 << 20) + 1))], ("offset_from_base", (14 << 20) + 1)),
        ("it does not wrap around", fd(), vec![(24, max())], ("offset_from_base", u64::MAX)),
        ("in no allocation", fd(), vec![(16, max()), (24, max())], ("offset_from_base", u64::MAX)),
        ("a range has segments", fd(), vec![(76, vec![0])], ("segment_count", 0)),
        ("the index is below the count", segment(), vec![(72, vec![3])], ("segment_index", 3)),
        ("the index is below the count", fd(), vec![(72, vec![1])], ("segment_index", 1)),
        ("it lies in its range", segment(), vec![(64, bytes((5 << 20) + 1))], ("range_offset", (5 << 20) + 1)),
        ("it does not wrap around", segment(), vec![(64, max())], ("range_offset", u64::MAX)),
        ("the only segment is all", fd(), vec![(56, bytes(3 << 20))], ("range_length", 3 << 20)),
        ("the only segment is first", fd(), vec![(56, bytes(3 << 20)), (64, bytes(1 << 20))], ("range_offset", 1 << 20)),
    ]
}

#[test]
fn each_broken_rule_is_named_with_its_value() {
    for (rule, fields, changes, named) in broken_rules() {
        let changes = changes.iter().map(|(at, new)| (*at, &new[..]));
        let changes: Vec<(usize, &[u8])> = changes.collect();
        assert_eq!(broken(&fields, &changes), named, "{rule}");
    }
}

#[test]
fn the_largest_offsets_are_allowed() {
    let last: u64 = (16 << 20) - (2 << 20);
    changed(&samples::fd(), &[(24, &last.to_le_bytes())]).unwrap();
    let last: u64 = (7 << 20) - (2 << 20);
    changed(&samples::segment(), &[(64, &last.to_le_bytes())]).unwrap();
}

#[test]
fn fields_that_make_no_handle_are_refused() {
    let ticket = |fd, inode| {
        let table = TablePlace {
            fd: 9,
            slot: 0,
            device: 26,
            inode,
        };
        let table = Some(table).filter(|_| inode != 1);
        Some(Ticket {
            fd,
            table,
            ..samples::TICKET
        })
    };
    let fd = samples::fd;
    let cases = [
        (
            "type_flags",
            HandleFields {
                runtime_ipc: Some([1; 64]),
                ..samples::pool()
            },
        ),
        (
            "ticket.table.inode",
            HandleFields {
                ticket: ticket(Some(1), 0),
                ..fd()
            },
        ),
        (
            "ticket.fd",
            HandleFields {
                ticket: ticket(Some(-1), 1),
                ..fd()
            },
        ),
        (
            "ticket.fd",
            HandleFields {
                ticket: ticket(Some(-2), 1),
                ..fd()
            },
        ),
        (
            "ticket.fd",
            HandleFields {
                ticket: ticket(Some(i32::MIN), 1),
                ..fd()
            },
        ),
        (
            "numa_node",
            HandleFields {
                numa_node: Some(-1),
                ..samples::host_numa()
            },
        ),
        (
            "device_uuid",
            HandleFields {
                device_uuid: DeviceUuid([1; 16]),
                ..samples::host_numa()
            },
        ),
    ];
    for (field, fields) in cases {
        assert_eq!(refused(&fields), field);
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
fn a_tickets_descriptor_is_a_number_or_none() {
    let wrong = broken(&samples::fd(), &[(288, &(-2_i32).to_le_bytes())]);
    assert_eq!(wrong, ("ticket.fd", 0xffff_fffe));
    let none = changed(&samples::fd(), &[(288, &(-1_i32).to_le_bytes())]).unwrap();
    assert_eq!(none.ticket().unwrap().fd, None);
    let zero = changed(&samples::fd(), &[(288, &0_i32.to_le_bytes())]).unwrap();
    assert_eq!(zero.ticket().unwrap().fd, Some(0));
}

/// An export table's bytes in a handle: descriptor, slot, device, inode.
fn table(fd: i32, slot: u32, device: u64, inode: u64) -> [(usize, Vec<u8>); 4] {
    [
        (292, fd.to_le_bytes().to_vec()),
        (296, slot.to_le_bytes().to_vec()),
        (304, device.to_le_bytes().to_vec()),
        (312, inode.to_le_bytes().to_vec()),
    ]
}

fn with_table(bytes: &[(usize, Vec<u8>); 4]) -> [(usize, &[u8]); 4] {
    [0, 1, 2, 3].map(|part| (bytes[part].0, &bytes[part].1[..]))
}

#[test]
fn an_export_table_is_there_if_it_has_an_inode() {
    let bytes = table(9, 3, 26, 1234);
    let handle = changed(&samples::fd(), &with_table(&bytes)).unwrap();
    let entry = TablePlace {
        fd: 9,
        slot: 3,
        device: 26,
        inode: 1234,
    };
    assert_eq!(handle.ticket().unwrap().table, Some(entry));
    assert_eq!(
        changed(&samples::fd(), &[])
            .unwrap()
            .ticket()
            .unwrap()
            .table,
        None
    );
    for (bytes, at) in [
        (table(9, 0, 0, 0), 292),
        (table(0, 3, 0, 0), 296),
        (table(0, 0, 26, 0), 304),
    ] {
        assert_eq!(
            broken(&samples::fd(), &with_table(&bytes)),
            ("ticket.table", at)
        );
    }
}

#[test]
fn an_export_table_may_speak_for_an_export_without_a_descriptor() {
    let bytes = table(9, 3, 26, 1234);
    let handle = changed(&samples::legacy(), &with_table(&bytes)).unwrap();
    assert!(handle.ticket().unwrap().table.is_some());
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
