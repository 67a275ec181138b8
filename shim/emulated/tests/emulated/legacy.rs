//! Legacy handles between processes.

use crate::child::TestChild;
use crate::driver::*;
use crate::scene;
use gpuipc_emulated::counters;
use gpuipc_sys::{CuIpcMemHandle, CuResult, pointer_attribute as is};

const SIZE: usize = 3 * MIB;
const INVALID: CuResult = CuResult::INVALID_VALUE;

scene!(another_process_opens_twice_and_closes_twice, || {
    start_on(0);
    let ptr = alloc(SIZE).expect("memory");
    write(ptr + 65536, 0xc0de).expect("a write");
    let handle = ipc_handle(ptr).expect("a handle");
    assert_eq!(ipc_handle(ptr + 65536), Ok(handle));
    assert_eq!(
        ipc_open(handle, 1),
        Err(CuResult::INVALID_CONTEXT),
        "the exporter itself"
    );

    let mut child = TestChild::new();
    let there = child.open(handle).expect("open");
    assert_eq!(child.read(there + 65536), Ok(0xc0de));
    assert_eq!(child.open(handle), Ok(there));
    let mut attribute = |number: u32| child.ask(&format!("attribute {there} {number}"));
    assert_eq!(attribute(is::IS_LEGACY_CUDA_IPC_CAPABLE), Ok(0));
    assert_eq!(attribute(is::RANGE_START_ADDR), Ok(there));
    assert_eq!(attribute(is::RANGE_SIZE), Ok(SIZE as u64));
    assert_eq!(attribute(is::MAPPING_SIZE), Ok(4 * MIB as u64));
    assert_ne!(attribute(is::CONTEXT), Ok(0));
    let close = format!("close {there}");
    assert_eq!(child.ask(&format!("free {there}")), Err(INVALID));
    assert_eq!(child.ask(&close), Ok(0));
    assert_eq!(child.read(there + 65536), Ok(0xc0de), "still open once");
    assert_eq!(child.ask(&close), Ok(0));
    assert_eq!(child.ask(&close), Err(INVALID));
    assert_eq!(child.read(there), Err(INVALID));
});

scene!(garbage, || {
    start_on(0);
    for byte in [0, 0x5a] {
        for flags in [0, 1] {
            assert_eq!(
                ipc_open(
                    CuIpcMemHandle {
                        reserved: [byte; 64]
                    },
                    flags
                ),
                Err(INVALID)
            );
        }
    }
});

scene!(a_stale_handle_opens_what_lies_there_now, || {
    start_on(0);
    let mut child = TestChild::new();
    let ptr = alloc(8 * MIB).expect("memory");
    write(ptr, 0x1111).expect("a write");
    let old = ipc_handle(ptr).expect("a handle");
    free(ptr).expect("free");
    assert_eq!(child.open(old), Err(INVALID), "nothing lies there");
    assert_eq!(alloc(8 * MIB), Ok(ptr));
    write(ptr, 0x2222).expect("a write");
    let there = child.open(old).expect("the new memory");
    assert_eq!(child.read(there), Ok(0x2222));
    assert_ne!(ipc_handle(ptr), Ok(old));
});

scene!(a_stale_handle_opens_no_block_of_another_size, || {
    start_on(0);
    let mut child = TestChild::new();
    let ptr = alloc(8 * MIB).expect("memory");
    let old = ipc_handle(ptr).expect("a handle");
    free(ptr).expect("free");
    assert_eq!(alloc(4 * MIB), Ok(ptr), "half the size, the same address");
    assert_eq!(child.open(old), Err(INVALID));
    assert!(child.open(ipc_handle(ptr).expect("a handle")).is_ok());
});

scene!(an_open_handle_opens_without_its_exporter, || {
    start_on(0);
    let mut exporter = TestChild::new();
    let ptr = exporter.ask("alloc 4194304").expect("memory");
    let handle_of = |exporter: &mut TestChild| CuIpcMemHandle {
        reserved: exporter.ask_bytes(&format!("handle {ptr}")),
    };
    let old = handle_of(&mut exporter);
    let there = ipc_open(old, 1).expect("open");
    assert_eq!(exporter.ask(&format!("free {ptr}")), Ok(0));
    assert_eq!(ipc_open(old, 1), Ok(there), "freed");
    assert_eq!(exporter.ask("alloc 4194304"), Ok(ptr));
    assert_eq!(ipc_open(old, 1), Ok(there), "allocated again");
    let new = ipc_open(handle_of(&mut exporter), 1).expect("the new memory");
    assert_ne!(new, there);
    exporter.kill();
    assert_eq!(ipc_open(old, 1), Ok(there), "killed");
    for _ in 0..4 {
        assert_eq!(ipc_close(there), Ok(()));
    }
    assert_eq!(ipc_open(old, 1), Err(CuResult::INVALID_HANDLE));
    assert_eq!(ipc_close(new), Ok(()));
});

scene!(two_handles_of_one_memory_are_two_mappings, || {
    start_on(0);
    let mut child = TestChild::new();
    let ptr = alloc(SIZE).expect("memory");
    let old = ipc_handle(ptr).expect("a handle");
    free(ptr).expect("free");
    assert_eq!(alloc(SIZE), Ok(ptr));
    let stale = child.open(old).expect("the new memory");
    let new = child
        .open(ipc_handle(ptr).expect("a handle"))
        .expect("open");
    assert_ne!(stale, new);
    write(ptr, 3).expect("a write");
    assert_eq!((child.read(stale), child.read(new)), (Ok(3), Ok(3)));
});

scene!(without_the_flag_nothing_opens, || {
    start_on(0);
    let ptr = alloc(SIZE).expect("memory");
    let handle = ipc_handle(ptr).expect("a handle");
    assert_eq!(ipc_open(handle, 0), Err(INVALID), "also in the exporter");
    let hex = crate::child::hex(&handle.reserved);
    let mut child = TestChild::new();
    assert_eq!(child.ask(&format!("open {hex} 0")), Err(INVALID));
    let there = child.open(handle).expect("open");
    assert_eq!(child.ask(&format!("open {hex} 0")), Err(INVALID));
    assert_eq!(child.read(there), Ok(0), "it stays open");
});

scene!(an_open_mapping_reads_on_after_free_and_exit, || {
    start_on(0);
    let mut exporter = TestChild::new();
    let ptr = exporter.ask("alloc 4194304").expect("memory");
    exporter
        .ask(&format!("write {ptr} 43690"))
        .expect("a write");
    let handle = CuIpcMemHandle {
        reserved: exporter.ask_bytes(&format!("handle {ptr}")),
    };
    let there = ipc_open(handle, 1).expect("open");
    assert_eq!(exporter.ask(&format!("free {ptr}")), Ok(0));
    assert_eq!(read(there), Ok(0xaaaa));
    exporter.end();
    assert_eq!(read(there), Ok(0xaaaa));
    assert_eq!(ipc_close(there), Ok(()));
    assert_eq!(ipc_open(handle, 1), Err(CuResult::INVALID_HANDLE));
});

scene!(a_small_allocation_exposes_no_neighbour, || {
    start_on(0);
    let (a, b) = (alloc(4096).expect("a"), alloc(4096).expect("b"));
    write(a, 1).expect("a write");
    write(b, 0xb2).expect("a write");
    let mut child = TestChild::new();
    let there = child.open(ipc_handle(a).expect("a handle")).expect("open");
    assert_eq!(child.read(there), Ok(1));
    assert_eq!(child.read(there + (b - a)), Err(INVALID));
    let first = there;
    let there = child.open(ipc_handle(b).expect("a handle")).expect("open");
    assert_eq!(child.read(there), Ok(0xb2));
    assert_eq!(there - first, b - a, "in one block, as in the exporter");
    let mapping = child
        .ask(&format!("attribute {there} {}", is::MAPPING_BASE_ADDR))
        .expect("an attribute");
    assert_eq!(
        there - mapping,
        b - a,
        "it lies in its block as in the exporter"
    );
});

scene!(across_devices_only_with_peer_access, || {
    start_on(0);
    let ptr = alloc(SIZE).expect("memory");
    write(ptr, 7).expect("a write");
    let handle = ipc_handle(ptr).expect("a handle");
    let hex = crate::child::hex(&handle.reserved);
    let mut child = TestChild::new();
    child.ask("device 1").expect("a context");
    assert_eq!(child.ask(&format!("open {hex} 0")), Err(INVALID));
    let there = child.open(handle).expect("open");
    assert_eq!(child.read(there), Ok(7));
    assert_eq!(
        child.ask(&format!("attribute {there} {}", is::DEVICE_ORDINAL)),
        Ok(1),
        "the opener's"
    );
    let mut lonely = TestChild::with(&[
        ("GPUIPC_EMULATED_PEER", "none"),
        ("CUDA_VISIBLE_DEVICES", "1,0"),
    ]);
    assert_eq!(lonely.open(handle), Err(CuResult::PEER_ACCESS_UNSUPPORTED));
});

scene!(with_the_exporters_device_hidden, || {
    start_on(0);
    let ptr = alloc(SIZE).expect("memory");
    write(ptr, 7).expect("a write");
    let mut child = TestChild::with(&[("CUDA_VISIBLE_DEVICES", "1")]);
    let there = child
        .open(ipc_handle(ptr).expect("a handle"))
        .expect("open");
    assert_eq!(child.read(there), Ok(7));
    assert_eq!(
        child.ask(&format!("attribute {there} {}", is::DEVICE_ORDINAL)),
        Ok(0)
    );
});

scene!(opening_and_closing_leaves_nothing, || {
    start_on(0);
    let mut exporter = TestChild::new();
    let ptr = exporter.ask("alloc 4194304").expect("memory");
    let handle = CuIpcMemHandle {
        reserved: exporter.ask_bytes(&format!("handle {ptr}")),
    };
    let before = counters::read();
    let first = ipc_open(handle, 1).expect("open");
    assert_eq!(counters::read().legacy_opens, 1);
    ipc_close(first).expect("close");
    for _ in 0..100 {
        let again = ipc_open(handle, 1).expect("open");
        assert_eq!(again, first);
        ipc_close(again).expect("close");
    }
    assert_eq!(counters::read(), before);
});
