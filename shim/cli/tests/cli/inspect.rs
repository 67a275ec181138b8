//! The command `inspect`: needs no driver, believes nothing.

use crate::place::{Ended, Place};
use gpuipc::core::{
    DeviceUuid, Endpoint, HandleFields, HostId, ProcessId, SharedRange, Ticket, Token,
};
use gpuipc::{GpuIpcMemHandle, HANDLE_BYTES};
use serde_json::Value;

fn fields() -> HandleFields {
    HandleFields {
        base_size: 4 << 20,
        offset_from_base: 4096,
        length: 1_000_000,
        allocation_id: 77,
        range: SharedRange {
            id: 5,
            length: 1_000_000,
            offset: 0,
            segment_index: 0,
            segment_count: 1,
        },
        device_uuid: DeviceUuid([0x11; 16]),
        process_id: ProcessId([0x22; 16]),
        host_id: HostId([0x33; 16]),
        pid: 4242,
        pid_namespace: 1,
        net_namespace: 2,
        ticket: Some(Ticket {
            endpoint: Endpoint([0x44; 16]),
            token: Token::new([0xab; 16]),
            fd: Some(9),
            table: None,
        }),
        posix_fd: true,
        fabric: Some([0xcd; 64]),
        ..HandleFields::default()
    }
}

fn encode(fields: &HandleFields) -> [u8; HANDLE_BYTES] {
    GpuIpcMemHandle::new(fields)
        .expect("the fields keep the rules")
        .encode()
}

fn bytes() -> [u8; HANDLE_BYTES] {
    encode(&fields())
}

/// The handles of a range over three allocations.
fn segments() -> [[u8; HANDLE_BYTES]; 3] {
    [(0, 4096), (1, 0), (2, 0)].map(|(index, offset)| {
        let mut fields = fields();
        fields.base_size = 8192;
        fields.offset_from_base = offset;
        fields.length = [4096, 8192, 100][index as usize];
        fields.range = SharedRange {
            id: 5,
            length: 12388,
            offset: [0, 4096, 12288][index as usize],
            segment_index: index,
            segment_count: 3,
        };
        encode(&fields)
    })
}

fn inspect(bytes: &[u8], options: &[&str]) -> Ended {
    let place = Place::new();
    let file = place.path("handle");
    std::fs::write(&file, bytes).expect("there is room");
    let file = file.to_str().expect("plain letters");
    place.run(["inspect", file].iter().chain(options))
}

#[test]
fn a_handle_is_shown_without_its_secrets() {
    let ended = inspect(&bytes(), &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for part in [
        "PosixFd, Fabric",
        "976.5 KiB (1000000 bytes)",
        "4 MiB",
        "GPU-11111111-1111-1111-1111-111111111111",
        "4242 in pid namespace 1",
        "another host",
        "token              (not shown)",
        "fabric handle      (not shown)",
    ] {
        assert!(ended.stdout.contains(part), "{part}: {ended:?}");
    }
    assert!(!ended.stdout.contains("abab"), "{ended:?}");
    assert!(!ended.stdout.contains("cdcd"), "{ended:?}");
}

#[test]
fn json_has_the_fields_by_their_names() {
    let ended = inspect(&bytes(), &["--json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let value: Value = serde_json::from_str(&ended.stdout).expect("one object");
    assert_eq!(value["base_size"], 4 << 20);
    assert_eq!(value["types"], Value::from(vec!["PosixFd", "Fabric"]));
    assert_eq!(value["this_host"], false);
    assert_eq!(value["fd"], 9);
    assert_eq!(value["runtime_ipc"], Value::Null);
    assert!(!ended.stdout.contains("abab"), "{ended:?}");
    assert!(!ended.stdout.contains("cdcd"), "{ended:?}");
}

#[test]
fn several_handles_in_one_file_are_all_shown() {
    let ended = inspect(&[bytes(), bytes()].concat(), &["--json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stdout.lines().count(), 3);
    let last: Value = serde_json::from_str(ended.stdout.lines().last().expect("three lines"))
        .expect("one object");
    assert_eq!(last["range"]["whole"], false);
    assert_eq!(last["range"]["doubled"][0]["position"], 1);
}

#[test]
fn the_handles_of_a_whole_range_are_said_to_be_one() {
    let [a, b, c] = segments();
    let ended = inspect(&[a, b, c].concat(), &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let last = ended.stdout.lines().last().expect("a line");
    assert_eq!(
        last,
        "range 5, 12.0 KiB (12388 bytes): all 3 segments are here, in their order"
    );
    assert!(
        ended.stdout.contains("segment 2 of 3, at 12 KiB"),
        "{ended:?}"
    );
    let ended = inspect(&[c, a, b].concat(), &["--json"]);
    let last = ended.stdout.lines().last().expect("a line");
    let range: Value = serde_json::from_str(last).expect("one object");
    assert_eq!(range["range"]["whole"], true);
    assert_eq!(range["range"]["in_order"], false);
}

#[test]
fn what_is_missing_doubled_or_foreign_is_named() {
    let [a, b, _] = segments();
    let ended = inspect(&[b, b, bytes()].concat(), &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for part in [
        "range 5, 12.0 KiB (12388 bytes), 3 segments: an import refuses these handles",
        "\n  missing: segment 0, 2\n",
        "\n  doubled: segment 1, again at position 1\n",
        "\n  of another range: the handle at position 2 (range_length differs)",
    ] {
        assert!(ended.stdout.contains(part), "{part}: {ended:?}");
    }
    assert!(!ended.stdout.contains("abab"), "{ended:?}");
    let ended = inspect(&a, &[]);
    assert!(ended.stdout.contains("missing: segment 1-2"), "{ended:?}");
}

#[test]
fn handles_come_from_several_files() {
    let place = Place::new();
    let names = ["a", "b", "c"].map(|name| place.path(name));
    for (name, bytes) in names.iter().zip(segments()) {
        std::fs::write(name, bytes).expect("there is room");
    }
    let mut arguments = vec!["inspect"];
    arguments.extend(
        names
            .iter()
            .map(|name| name.to_str().expect("plain letters")),
    );
    let ended = place.run(arguments);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("all 3 segments"), "{ended:?}");
}

#[test]
fn memory_of_a_pool_and_of_the_host_says_so() {
    let mut pooled = fields();
    pooled.fabric = None;
    pooled.pool_id = 31;
    pooled.pool_pointer = Some([0xef; 64]);
    let ended = inspect(&encode(&pooled), &[]);
    for part in [
        "Ticket, MemPool",
        "pool               number 31 of its exporter",
        "pool pointer       (not shown)",
        "exporter's fd      9 (of the pool)",
    ] {
        assert!(ended.stdout.contains(part), "{part}: {ended:?}");
    }
    assert!(!ended.stdout.contains("efef"), "{ended:?}");
    let mut host = fields();
    host.device_uuid = DeviceUuid::default();
    host.numa_node = Some(1);
    let ended = inspect(&encode(&host), &[]);
    for part in ["Ticket, HostNuma", "none: host memory of NUMA node 1"] {
        assert!(ended.stdout.contains(part), "{part}: {ended:?}");
    }
}

#[test]
fn what_is_wrong_is_said() {
    let good = bytes();
    let mut damaged = good;
    damaged[20] ^= 0x10;
    let mut newer = good;
    newer[4..6].copy_from_slice(&[9, 8]);
    let mut foreign = good;
    foreign[0] = b'X';
    for (bytes, part) in [
        (&good[..383], "length is 383 bytes"),
        (&[], "length is 0 bytes"),
        (&damaged, "the handle was damaged on its way"),
        (&newer, "version is 9, for readers of version 8 or newer"),
        (&foreign, "no gpuipc handle"),
        (&[7; (384 << 16) + 1][..], "is no handle"),
    ] {
        for options in [&[][..], &["--json"]] {
            let ended = inspect(bytes, options);
            assert_eq!(ended.code, Some(1), "{part}: {ended:?}");
            assert!(ended.stderr.contains(part), "{part}: {ended:?}");
            assert_eq!(ended.stdout, "");
        }
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let place = Place::new();
    let ended = place.run(["inspect", "/nonexistent/handle"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("/nonexistent/handle cannot be read"));
}
