//! What holds for all handles and all bytes. Bytes near the border of what is accepted are the fuzz
//! targets' business, whose seeds replay in `cargo test`.
#![allow(clippy::unwrap_used, missing_docs)]

// Not every test program uses every sample.
#[allow(dead_code)]
mod samples;

use gpuipc_core::{
    ClusterUuid, DeviceUuid, Endpoint, GpuIpcMemHandle, HANDLE_BYTES, HandleFields, HostId,
    ProcessId, RegisteredFields, RegisteredMemoryRef, Reply, Request, SharedRange, TablePlace,
    Ticket, Token, TransportInfo,
};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

fn config() -> ProptestConfig {
    ProptestConfig {
        // Beside this file, to be committed.
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

/// Any number, the ends of the range more often.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX - 1),
        Just(u64::MAX),
        0..1_u64 << 40,
        any::<u64>(),
    ]
}

fn line() -> impl Strategy<Value = [u8; 64]> {
    any::<[[u8; 32]; 2]>().prop_map(|[low, high]| {
        let mut line = [0; 64];
        line[..32].copy_from_slice(&low);
        line[32..].copy_from_slice(&high);
        line
    })
}

/// A length of at least 1, a start and a whole that hold it.
fn part() -> impl Strategy<Value = (u64, u64, u64)> {
    (number(), number(), number()).prop_map(|(length, start, slack)| {
        let length = length.max(1);
        let start = start.min(u64::MAX - length);
        (length, start, (start + length).saturating_add(slack))
    })
}

fn range(length: u64) -> impl Strategy<Value = SharedRange> {
    let many = (number(), number(), any::<u32>(), any::<u32>()).prop_map(
        move |(start, slack, index, after)| {
            let offset = start.min(u64::MAX - length);
            let segment_count = index.saturating_add(after).max(2);
            SharedRange {
                id: 0,
                length: (offset + length).saturating_add(slack),
                offset,
                segment_index: index.min(segment_count - 1),
                segment_count,
            }
        },
    );
    let one = Just(SharedRange {
        id: 0,
        length,
        offset: 0,
        segment_index: 0,
        segment_count: 1,
    });
    (prop_oneof![one, many], any::<u64>()).prop_map(|(range, id)| SharedRange { id, ..range })
}

fn ticket() -> impl Strategy<Value = Ticket> {
    let fd = 0..=i32::MAX;
    let table = (0..=i32::MAX, any::<u32>(), any::<u64>(), 1..=u64::MAX);
    let table = table.prop_map(|(fd, slot, device, inode)| TablePlace {
        fd,
        slot,
        device,
        inode,
    });
    let fd = proptest::option::of(fd);
    let table = proptest::option::of(table);
    let names = (any::<[u8; 16]>(), any::<[u8; 16]>());
    (names, fd, table).prop_map(|((endpoint, token), fd, table)| Ticket {
        endpoint: Endpoint(endpoint),
        token: Token::new(token),
        fd,
        table,
    })
}

/// Where and whose the memory is.
fn origin() -> impl Strategy<Value = HandleFields> {
    let sizes = part().prop_flat_map(|part| (Just(part), range(part.0)));
    let names = any::<[[u8; 16]; 4]>();
    let numbers = any::<[u32; 4]>();
    (sizes, any::<u64>(), names, numbers).prop_map(
        |(((length, offset, base), range), allocation_id, names, numbers)| HandleFields {
            base_size: base,
            offset_from_base: offset,
            length,
            allocation_id,
            range,
            device_uuid: DeviceUuid(names[0]),
            process_id: ProcessId(names[1]),
            host_id: HostId(names[2]),
            fabric_cluster: ClusterUuid(names[3]),
            pid: numbers[0],
            pid_namespace: numbers[1],
            net_namespace: numbers[2],
            fabric_clique: numbers[3],
            ..HandleFields::default()
        },
    )
}

/// Any handle that the rules allow.
fn valid() -> impl Strategy<Value = HandleFields> {
    let lines = [(); 3].map(|()| proptest::option::of(line()));
    let ticket = proptest::option::of(ticket());
    let kinds = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let node = 0..=i16::MAX;
    let rest = (node, 1..=u16::MAX, any::<u64>());
    (origin(), lines, ticket, kinds, rest).prop_filter_map(
        "a handle has at least one type",
        |(origin, lines, ticket, kinds, rest)| {
            let [legacy, pool, fabric] = lines;
            let (posix_fd, host, multicast, prefer_pool) = kinds;
            let (node, devices, pool_id) = rest;
            let pool_pointer = pool.filter(|_| prefer_pool && !multicast);
            let runtime_ipc = legacy.filter(|_| pool_pointer.is_none() && !multicast);
            let posix_fd = posix_fd && ticket.is_some();
            let some = runtime_ipc.is_some() || posix_fd || fabric.is_some();
            some.then_some(HandleFields {
                device_uuid: if host {
                    DeviceUuid::default()
                } else {
                    origin.device_uuid
                },
                numa_node: host.then_some(node),
                num_devices: if multicast { devices } else { 0 },
                pool_id: if pool_pointer.is_some() { pool_id } else { 0 },
                runtime_ipc,
                pool_pointer,
                ticket,
                posix_fd,
                fabric,
                multicast,
                ..origin
            })
        },
    )
}

/// Transports of different kinds, at most as many as there may be.
fn transports() -> impl Strategy<Value = Vec<TransportInfo>> {
    let data = proptest::collection::vec(any::<u8>(), 1..=64);
    proptest::collection::btree_map(any::<u32>(), data, 0..=8).prop_map(|all| {
        let all = all.iter();
        all.map(|(kind, data)| TransportInfo::new(*kind, data).unwrap())
            .collect()
    })
}

/// Any registered memory that the rules allow, of up to five segments.
fn registered() -> impl Strategy<Value = samples::Registered> {
    let segments = proptest::collection::vec(valid(), 0..=5);
    (segments, transports(), origin(), any::<[u64; 3]>()).prop_filter_map(
        "a registered memory has a handle or a transport",
        |(segments, transports, origin, [pointer, size, range_id])| {
            let some = !segments.is_empty() || !transports.is_empty();
            let lengths = segments
                .iter()
                .map(|fields| fields.length.min(u64::MAX / 5));
            let lengths: Vec<u64> = lengths.collect();
            let fields = RegisteredFields {
                pointer,
                len: if segments.is_empty() {
                    size.max(1)
                } else {
                    lengths.iter().sum()
                },
                process_id: origin.process_id,
                host_id: origin.host_id,
                pid: origin.pid,
                pid_namespace: origin.pid_namespace,
            };
            let mut range = SharedRange {
                id: range_id,
                length: fields.len,
                offset: 0,
                segment_index: 0,
                segment_count: lengths.len() as u32,
            };
            let handles = segments.into_iter().zip(lengths).map(|(segment, length)| {
                let segment = HandleFields {
                    length,
                    range,
                    process_id: fields.process_id,
                    host_id: fields.host_id,
                    ..segment
                };
                range.offset += length;
                range.segment_index += 1;
                GpuIpcMemHandle::new(&segment).unwrap()
            });
            some.then(|| samples::Registered {
                name: "",
                about: "",
                fields,
                transports,
                handles: handles.collect(),
            })
        },
    )
}

#[test]
fn every_flipped_bit_of_every_sample_is_refused() {
    for sample in samples::all() {
        let bytes = GpuIpcMemHandle::new(&sample.fields).unwrap().encode();
        for bit in 0..8 * HANDLE_BYTES {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            let decoded = GpuIpcMemHandle::decode(&flipped);
            assert!(decoded.is_err(), "{} with bit {bit} flipped", sample.name);
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn valid_fields_come_back_from_their_bytes(fields in valid()) {
        let handle = GpuIpcMemHandle::new(&fields).unwrap();
        let decoded = GpuIpcMemHandle::decode(&handle.encode()).unwrap();
        prop_assert_eq!(decoded, handle);
        prop_assert_eq!(decoded.fields(), fields);
        prop_assert_eq!(decoded.encode(), handle.encode());
        prop_assert_eq!(decoded.types().types().len() as u32, decoded.types().bits().count_ones());
    }

    #[test]
    fn any_bytes_of_any_length_decode_to_a_result(
        bytes in proptest::collection::vec(any::<u8>(), 0..800),
    ) {
        prop_assert!(GpuIpcMemHandle::decode(&bytes).is_err());
        prop_assert!(RegisteredMemoryRef::decode(&bytes).is_err());
        let _ = Request::decode(&bytes);
        let _ = Reply::decode(&bytes);
    }

    #[test]
    fn a_part_of_a_handle_is_refused(fields in valid(), length in 0..HANDLE_BYTES) {
        let bytes = GpuIpcMemHandle::new(&fields).unwrap().encode();
        prop_assert!(GpuIpcMemHandle::decode(&bytes[..length]).is_err());
    }

    #[test]
    fn a_registered_memory_comes_back_from_its_bytes(sent in registered()) {
        let bytes = sent.encode();
        let decoded = RegisteredMemoryRef::decode(&bytes).unwrap();
        prop_assert_eq!(decoded.as_bytes(), &bytes);
        prop_assert_eq!(decoded.fields(), sent.fields);
        prop_assert!(decoded.transports().eq(sent.transports.iter().copied()));
        prop_assert!(decoded.handles().eq(sent.handles.iter().copied()));
        let again = samples::Registered {
            fields: decoded.fields(),
            transports: decoded.transports().collect(),
            handles: decoded.handles().collect(),
            ..sent
        };
        prop_assert_eq!(again.encode(), bytes);
    }
}
