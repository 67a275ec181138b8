//! VMM memory on a host NUMA node: for the GPU, and on request for the CPU.

use crate::Pair;

const LEN: u64 = 2 << 20;

#[test]
fn host_memory_goes_by_descriptor_and_is_the_gpus() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("host-numa", LEN);
    pair.exporter.ok(&format!("fill {buffer} 61"));
    let (_, handle) = pair.exporter.export(buffer, 33, 5000);
    assert_eq!(handle.numa_node(), Some(0));
    assert_eq!(handle.device_uuid().0, [0; 16]);
    let mem = pair.importer.import(&handle, "");
    assert_eq!(
        (mem.used.as_str(), mem.liveness.as_str()),
        ("PosixFd", "Referenced")
    );
    pair.importer.ok(&format!("read {} 61 33", mem.id));
    pair.importer.ok(&format!("write {} 62", mem.id));
    pair.exporter.ok(&format!("check {buffer} 61 0 33"));
}

#[test]
fn the_cpu_uses_it_at_the_same_address_on_request() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("host-numa", LEN);
    pair.exporter.ok(&format!("fill {buffer} 63"));
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let mem = pair.importer.import(&handle, "host");
    pair.importer.ok(&format!("cpu-read {} 63", mem.id));
    pair.importer.ok(&format!("cpu-write {} 64", mem.id));
    pair.importer.ok(&format!("read {} 64 0", mem.id));
    pair.exporter.ok(&format!("check {buffer} 64 0 {LEN}"));
    pair.importer.ok(&format!("drop mapping {}", mem.id));
}

#[test]
fn read_only_host_memory_is_read_and_a_write_refused() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("host-numa", LEN);
    pair.exporter.ok(&format!("fill {buffer} 65"));
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let mem = pair.importer.import(&handle, "host read-only");
    pair.importer.ok(&format!("cpu-read {} 65", mem.id));
    pair.importer.ok(&format!("read {} 65 0", mem.id));
    // The driver's copy would end the process.
    let refused = pair.importer.err(&format!("write {} 66", mem.id));
    assert_eq!(refused.status, "INVALID_ARGUMENT");
    pair.exporter.ok(&format!("check {buffer} 65 0 {LEN}"));
}

#[test]
fn host_access_to_a_gpus_memory_is_refused_with_a_reason() {
    let mut pair = Pair::new();
    for (memory, handle_type) in [("vmm-fd", "PosixFd"), ("cuda-malloc", "RuntimeIpc")] {
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        let (_, handle) = pair.exporter.export(buffer, 0, LEN);
        if memory == "cuda-malloc" {
            // A legacy handle that claims to be of host memory.
            let forged = gpuipc_tests::forge(&handle, |fields| {
                fields.numa_node = Some(0);
                fields.device_uuid = gpuipc_core::DeviceUuid::default();
            });
            let refused = pair.importer.import_refused(&forged, "host");
            assert_eq!(refused.attempts, ["RuntimeIpc/select/NotHostMemory"]);
        }
        let refused = pair.importer.import_refused(&handle, "host");
        assert_eq!(
            refused.attempts,
            [format!("{handle_type}/select/NotHostMemory")]
        );
    }
}

#[test]
fn host_memory_of_which_the_driver_does_not_tell_the_piece_is_refused() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("host-numa", LEN);
    let mut refused = 0;
    // Where the piece is not told, there is another call; for host memory its
    // answer is the null pointer (seen on an H200, driver 580).
    for nth in 1..=12 {
        pair.exporter
            .ok(&format!("fail cuPointerGetAttribute {nth} 1 1"));
        let answer = pair.exporter.ask(&format!("export {buffer} 0 {LEN}"));
        pair.exporter.ok("no-faults");
        match answer.split(' ').collect::<Vec<_>>()[..] {
            ["ok", export, _] => drop(pair.exporter.ok(&format!("drop export {export}"))),
            ["err", ..] => refused += 1,
            _ => panic!("use {nth}: {answer}"),
        }
    }
    assert!(refused > 2, "{refused}");
}
