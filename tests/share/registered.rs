//! RegisteredMemory: a buffer with all ways to it, described in bytes.

use crate::Pair;
use gpuipc_core::RegisteredMemoryRef;
use gpuipc_tests::{TestChild, forge, lacks_a_second_gpu};

const LEN: u64 = 2 << 20;

/// What `register` was answered.
fn register(child: &mut TestChild, ptr: u64, len: u64, transports: &str) -> (u32, String) {
    let answer = child.ok(&format!("register {ptr} {len} {transports}"));
    let (id, hex) = answer.split_once(' ').expect("two words");
    (id.parse().expect("a number"), hex.to_owned())
}

/// What `deserialize` was answered: id, data, type, transports, error.
fn deserialize(child: &mut TestChild, hex: &str, options: &str) -> [String; 5] {
    let answer = child.ok(&format!("deserialize {hex} {options}"));
    let words: Vec<String> = answer.split(' ').map(str::to_owned).collect();
    words.try_into().expect("five words")
}

#[test]
fn a_peer_gets_the_memory_and_the_transports() {
    let mut pair = Pair::new();
    for memory in ["cuda-malloc", "vmm-fd", "segments", "pool", "host-numa"] {
        let (buffer, ptr) = pair.exporter.alloc(memory, 2 * LEN);
        pair.exporter.ok(&format!("fill {buffer} 91"));
        let (kept, hex) = register(&mut pair.exporter, ptr + 9, 2 * LEN - 18, "7:c0ffee,3:01");
        let [id, _, used, transports, error] = deserialize(&mut pair.importer, &hex, "");
        assert_eq!(transports, "7:c0ffee,3:01");
        assert_eq!(error, "-");
        let wanted = if memory == "cuda-malloc" {
            "RuntimeIpc"
        } else {
            "PosixFd"
        };
        assert_eq!(used, wanted, "{memory}");
        pair.importer.ok(&format!("read-registered {id} 91 9"));
        pair.importer.ok(&format!("drop registered {id}"));
        pair.exporter.ok(&format!("drop registered {kept}"));
        let [_, data, _, _, error] = deserialize(&mut pair.importer, &hex, "");
        assert_eq!([&*data, &error], ["-", "EXPORT_REVOKED"], "{memory}");
    }
}

#[test]
fn the_owner_gets_its_original_pointer_with_access_for_its_device() {
    if lacks_a_second_gpu() {
        return;
    }
    let mut pair = Pair::new();
    let (_, ptr) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, hex) = register(&mut pair.exporter, ptr + 5, 100, "-");
    let access = |child: &mut TestChild, ptr: u64| child.ok(&format!("access-at {ptr} 1"));
    assert_eq!(access(&mut pair.exporter, ptr), "0");
    // A thread that works on another GPU: that one gets access to the owner's memory.
    pair.exporter.ok("context 1");
    let [_, data, used, ..] = deserialize(&mut pair.exporter, &hex, "");
    assert_eq!((data, used.as_str()), ((ptr + 5).to_string(), "own"));
    assert_eq!(access(&mut pair.exporter, ptr), "3");
    for memory in ["cuda-malloc", "pool"] {
        let (_, ptr) = pair.exporter.alloc(memory, LEN);
        let (_, hex) = register(&mut pair.exporter, ptr, LEN, "-");
        let [_, data, ..] = deserialize(&mut pair.exporter, &hex, "");
        assert_eq!(data, ptr.to_string());
    }
}

#[test]
fn the_owner_s_import_for_reading_only_takes_no_right_away() {
    if lacks_a_second_gpu() {
        return;
    }
    let mut pair = Pair::new();
    let (_, ptr) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, hex) = register(&mut pair.exporter, ptr, 100, "-");
    for device in ["0", "1"] {
        let options = format!("device={device} read-only");
        let [_, data, ..] = deserialize(&mut pair.exporter, &hex, &options);
        assert_eq!(data, ptr.to_string());
        // PROT_READWRITE.
        let rights = pair.exporter.ok(&format!("access-at {ptr} {device}"));
        assert_eq!(rights.trim(), "3", "device {device}");
    }
}

/// A pool's rights are never to read alone.
#[test]
fn the_owner_s_import_for_reading_only_works_for_memory_of_a_pool() {
    let mut pair = Pair::new();
    let (buffer, ptr) = pair.exporter.alloc("pool", LEN);
    let (_, hex) = register(&mut pair.exporter, ptr, 100, "-");
    let [_, data, used, ..] = deserialize(&mut pair.exporter, &hex, "read-only");
    assert_eq!((data, used.as_str()), (ptr.to_string(), "own"));
    pair.exporter.ok(&format!("fill {buffer} 7"));
}

#[test]
fn a_mapping_that_fails_is_left_to_another_transport_if_there_is_one() {
    let mut pair = Pair::new();
    let (_, ptr) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, alone) = register(&mut pair.exporter, ptr, LEN, "-");
    let (_, with) = register(&mut pair.exporter, ptr, LEN, "1:aa");
    pair.importer.ok("fail cuMemMap 1 801 2");
    let refused = pair.importer.err(&format!("deserialize {alone}"));
    assert_eq!(refused.status, "NO_TYPE_WORKED");
    let [_, data, used, transports, error] = deserialize(&mut pair.importer, &with, "");
    pair.importer.ok("no-faults");
    assert_eq!(
        [&*data, &used, &transports, &error],
        ["-", "-", "1:aa", "NO_TYPE_WORKED"]
    );
    let [_, data, ..] = deserialize(&mut pair.importer, &with, "");
    assert_ne!(data, "-");
}

#[test]
fn memory_that_cannot_be_shared_is_registered_for_its_transports_alone() {
    let mut pair = Pair::new();
    let refused = pair.exporter.err(&format!("register {} 64 -", 0x1000));
    assert_eq!(refused.status, "NOT_EXPORTABLE");
    let (id, hex) = register(&mut pair.exporter, 0x1000, 64, "1:ff");
    let [_, data, used, transports, error] = deserialize(&mut pair.importer, &hex, "");
    assert_eq!(
        [&*data, &used, &transports, &error],
        ["-", "-", "1:ff", "-"]
    );
    // Its owner knows it as long as it is registered.
    let [_, data, used, ..] = deserialize(&mut pair.exporter, &hex, "");
    assert_eq!((&*data, &*used), ("4096", "own"));
    pair.exporter.ok(&format!("drop registered {id}"));
    let [_, data, ..] = deserialize(&mut pair.exporter, &hex, "");
    assert_eq!(data, "-");
}

#[test]
fn bytes_that_are_none_are_refused_by_name_and_nothing_is_asked() {
    let mut pair = Pair::new();
    let (_, ptr) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, hex) = register(&mut pair.exporter, ptr, LEN, "1:aa");
    for (bytes, words) in [
        (hex[2..].to_owned(), "GIPM"),
        (hex[..hex.len() - 2].to_owned(), "length"),
        (format!("{hex}00"), "length"),
        (hex.replacen("01", "02", 3), ""),
    ] {
        let refused = pair.importer.err(&format!("deserialize {bytes}"));
        assert!(
            refused.status.starts_with("REGISTERED") || refused.status.starts_with("HANDLE"),
            "{refused:?}"
        );
        assert!(refused.text.contains(words), "{}", refused.text);
    }
}

#[test]
fn a_registered_memory_of_another_host_is_left_to_its_transport() {
    let mut pair = Pair::new();
    let (_, ptr) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, hex) = register(&mut pair.exporter, ptr, LEN, "9:0102");
    let bytes = gpuipc_tests::from_hex(&hex).expect("hex digits");
    let memory = RegisteredMemoryRef::decode(&bytes).expect("what was registered");
    let mut fields = memory.fields();
    fields.host_id.0[0] ^= 1;
    let handles: Vec<_> = memory
        .handles()
        .map(|handle| forge(&handle, |fields| fields.host_id.0[0] ^= 1))
        .collect();
    let transports: Vec<_> = memory.transports().collect();
    let mut elsewhere = vec![0; bytes.len()];
    fields
        .encode(&transports, &handles, &mut elsewhere)
        .expect("a valid one");
    let hex = gpuipc_tests::to_hex(&elsewhere);
    let [_, data, _, transports, error] = deserialize(&mut pair.importer, &hex, "");
    assert_eq!([&*data, &transports, &error], ["-", "9:0102", "OTHER_HOST"]);
}

#[test]
fn rounds_leave_nothing_behind() {
    let mut pair = Pair::new();
    let (_, ptr) = pair.exporter.alloc("segments", 4 * LEN);
    let round = |pair: &mut Pair| {
        let (id, hex) = register(&mut pair.exporter, ptr, 4 * LEN, "1:aa");
        let [theirs, ..] = deserialize(&mut pair.importer, &hex, "");
        pair.importer.ok(&format!("drop registered {theirs}"));
        pair.exporter.ok(&format!("drop registered {id}"));
    };
    round(&mut pair);
    let before = (pair.exporter.state(), pair.importer.state());
    for _ in 0..50 {
        round(&mut pair);
    }
    pair.exporter.returns_to(&before.0);
    pair.importer.returns_to(&before.1);
}
