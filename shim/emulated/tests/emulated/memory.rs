//! `cuMemAlloc`, `cuMemHostAlloc`, copies and contexts.

use crate::driver::*;
use crate::scene;
use gpuipc_sys::{CuContext, CuResult, memory_type, pointer_attribute as is};
use std::ffi::c_void;

const SIZE: usize = 3 * MIB;

scene!(alloc_attributes, || {
    start_on(0);
    let ptr = alloc(SIZE).expect("memory");
    let inside = ptr + 65536;
    let expected = [
        (is::MEMORY_TYPE, u64::from(memory_type::DEVICE)),
        (is::DEVICE_ORDINAL, 0),
        (is::IS_MANAGED, 0),
        (is::IS_LEGACY_CUDA_IPC_CAPABLE, 1),
        (is::RANGE_START_ADDR, ptr),
        (is::RANGE_SIZE, SIZE as u64),
        (is::MAPPED, 1),
        (is::ALLOWED_HANDLE_TYPES, 0),
        (is::MEMPOOL_HANDLE, 0),
        (is::MAPPING_SIZE, 4 * MIB as u64),
        (is::MAPPING_BASE_ADDR, ptr),
    ];
    for (attribute_number, value) in expected {
        assert_eq!(
            attribute(inside, attribute_number),
            Ok(value),
            "attribute {attribute_number}"
        );
    }
    assert_ne!(attribute(inside, is::CONTEXT), Ok(0));
    assert_ne!(attribute(inside, is::MEMORY_BLOCK_ID), Ok(0));
    assert_eq!(range(inside), Ok((ptr, SIZE)));
    assert_eq!(retain(ptr), Err(CuResult::INVALID_VALUE));
    assert_eq!(ipc_close(ptr), Err(CuResult::INVALID_VALUE));
});

scene!(
    small_allocations_are_ranges_of_their_own_in_one_block,
    || {
        start_on(0);
        let (a, b) = (alloc(4096).expect("a"), alloc(4096).expect("b"));
        assert_eq!(b - a, 4096);
        assert_eq!(range(b), Ok((b, 4096)));
        assert_ne!(
            ipc_handle(a).expect("a handle"),
            ipc_handle(b).expect("a handle")
        );
        assert_eq!(attribute(b, is::MAPPING_BASE_ADDR), Ok(a));
        assert_eq!(attribute(b, is::MAPPING_SIZE), Ok(2 * MIB as u64));
    }
);

scene!(copies_stay_inside_their_memory, || {
    start_on(0);
    let ptr = alloc(SIZE).expect("memory");
    let bytes: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
    assert_eq!(
        cu!(memcpy_htod(ptr, bytes.as_ptr().cast(), SIZE)),
        CuResult::SUCCESS
    );
    let mut back = vec![0_u8; SIZE];
    assert_eq!(
        cu!(memcpy_dtoh(back.as_mut_ptr().cast(), ptr, SIZE)),
        CuResult::SUCCESS
    );
    assert_eq!(bytes, back);
    assert_eq!(cu!(memset_d8(ptr + 5, 7, 1000)), CuResult::SUCCESS);
    assert_eq!(
        (read(ptr + 5), read(ptr + 1001)),
        (Ok(0x0707_0707), Ok(0x0707_0707))
    );
    let after = ptr + SIZE as u64;
    assert_eq!(read(after - 3), Err(CuResult::INVALID_VALUE));
    assert_eq!(write(after, 1), Err(CuResult::INVALID_VALUE));
    assert_eq!(read(0x1000), Err(CuResult::INVALID_VALUE));
    let unmapped = std::ptr::without_provenance::<c_void>(0x10);
    assert_eq!(
        cu!(memcpy_htod(ptr, unmapped, 4)),
        CuResult::INVALID_VALUE,
        "no fault"
    );
});

scene!(unknown_pointers, || {
    start_on(0);
    let host = Box::new(0_u64);
    let address = (&raw const *host) as u64;
    assert_eq!(range(address), Err(CuResult::NOT_FOUND));
    assert_eq!(range(0x1000), Err(CuResult::NOT_FOUND));
    assert_eq!(
        attribute(address, is::MEMORY_TYPE),
        Err(CuResult::INVALID_VALUE)
    );
    assert_eq!(ipc_handle(address), Err(CuResult::INVALID_VALUE));
    assert_eq!(retain(address), Err(CuResult::INVALID_VALUE));
    assert_eq!(free(address), Err(CuResult::INVALID_VALUE));
    assert_eq!(unmap(0x1000_0000, 2 * MIB), Err(CuResult::INVALID_VALUE));
});

scene!(
    freed_memory_comes_back_at_its_address_with_another_buffer_id,
    || {
        start_on(0);
        let first = alloc(8 * MIB).expect("memory");
        let id = buffer_id(first);
        write(first, 0x1111).expect("a write");
        assert_eq!(free(first), Ok(()));
        assert_eq!(free(first), Err(CuResult::INVALID_VALUE));
        let second = alloc(8 * MIB).expect("memory");
        assert_eq!(second, first);
        assert_ne!(buffer_id(second), id);
        assert_eq!(read(second), Ok(0));
    }
);

scene!(host_memory_is_seen_by_the_cpu, || {
    start_on(0);
    let mut place = std::ptr::null_mut();
    assert_eq!(cu!(mem_host_alloc(&mut place, SIZE, 1)), CuResult::SUCCESS);
    let ptr = place as u64;
    write(ptr, 0xabcd).expect("a write");
    // SAFETY: the driver just gave this memory, SIZE bytes, page-aligned.
    assert_eq!(unsafe { place.cast::<u32>().read() }, 0xabcd);
    assert_eq!(
        attribute(ptr, is::MEMORY_TYPE),
        Ok(u64::from(memory_type::HOST))
    );
    assert_eq!(attribute(ptr, is::IS_LEGACY_CUDA_IPC_CAPABLE), Ok(0));
    assert_eq!(attribute(ptr, is::MAPPING_SIZE), Ok(4 * MIB as u64));
    assert_eq!(range(ptr + 100), Ok((ptr, SIZE)));
    assert_eq!(ipc_handle(ptr), Err(CuResult::INVALID_VALUE));
    assert_eq!(cu!(mem_free_host(place)), CuResult::SUCCESS);
    assert_eq!(cu!(mem_free_host(place)), CuResult::INVALID_VALUE);
});

scene!(without_a_current_context, || {
    start_on(0);
    let ptr = alloc(SIZE).expect("memory");
    assert_eq!(cu!(ctx_set_current(CuContext::NULL)), CuResult::SUCCESS);
    let none = CuResult::INVALID_CONTEXT;
    assert_eq!(range(ptr), Err(none));
    assert_eq!(ipc_handle(ptr), Err(none));
    assert_eq!(
        ipc_open(gpuipc_sys::CuIpcMemHandle { reserved: [0; 64] }, 1),
        Err(none)
    );
    assert_eq!(alloc(4096), Err(none));
    assert_eq!(read(ptr), Err(none));
    assert_eq!(cu!(ctx_synchronize()), none);
    assert_eq!(cu!(ctx_pop_current(std::ptr::null_mut())), none);
    assert_eq!(attribute(ptr, is::DEVICE_ORDINAL), Ok(0), "needs none");
    assert_eq!(free(ptr), Ok(()), "needs none");
});

scene!(null_and_no_bytes, || {
    start_on(0);
    assert_eq!(free(0), Ok(()));
    assert_eq!(cu!(mem_free_host(std::ptr::null_mut())), CuResult::SUCCESS);
    assert_eq!(alloc(0), Err(CuResult::INVALID_VALUE));
    let mut place = std::ptr::dangling_mut::<c_void>();
    assert_eq!(cu!(mem_host_alloc(&mut place, 0, 0)), CuResult::SUCCESS);
    assert!(place.is_null());
    assert_eq!(
        cu!(ctx_push_current(CuContext::NULL)),
        CuResult::INVALID_VALUE
    );
});

scene!(contexts_are_a_stack_of_each_thread, || {
    start_on(0);
    let mut second = CuContext::NULL;
    assert_eq!(cu!(primary_ctx_retain(&mut second, 1)), CuResult::SUCCESS);
    let device = || {
        let mut device = -1;
        ok(cu!(ctx_get_device(&mut device))).map(|()| device)
    };
    assert_eq!(cu!(ctx_push_current(second)), CuResult::SUCCESS);
    assert_eq!(device(), Ok(1));
    let on_second = alloc(MIB).expect("memory");
    std::thread::spawn(move || {
        let mut current = CuContext(1);
        assert_eq!(cu!(ctx_get_current(&mut current)), CuResult::SUCCESS);
        assert_eq!(current, CuContext::NULL);
    })
    .join()
    .expect("the thread");
    let mut popped = CuContext::NULL;
    assert_eq!(cu!(ctx_pop_current(&mut popped)), CuResult::SUCCESS);
    assert_eq!((popped, device()), (second, Ok(0)));
    assert_eq!(
        range(on_second),
        Err(CuResult::NOT_FOUND),
        "another device's memory"
    );
    assert!(ipc_handle(on_second).is_ok(), "another device is current");
    assert_eq!(attribute(on_second, is::DEVICE_ORDINAL), Ok(1));
});

scene!(the_last_release_of_a_context_frees_its_memory, || {
    start_on(0);
    let before = gpuipc_emulated::counters::read();
    let ptr = alloc(SIZE).expect("memory");
    ipc_handle(ptr).expect("a handle");
    assert_eq!(cu!(primary_ctx_release(0)), CuResult::SUCCESS);
    let gone = CuResult::CONTEXT_IS_DESTROYED;
    assert_eq!((read(ptr), free(ptr)), (Err(gone), Err(gone)));
    let mut device = -1;
    assert_eq!(cu!(ctx_get_device(&mut device)), CuResult::SUCCESS);
    assert_eq!(device, 0, "of a context that is gone");
    assert_eq!(cu!(primary_ctx_release(0)), CuResult::INVALID_CONTEXT);
    use_device(0);
    assert_eq!(read(ptr), Err(CuResult::INVALID_VALUE));
    assert_eq!(gpuipc_emulated::counters::read(), before);
});

scene!(
    memory_runs_out,
    [("GPUIPC_EMULATED_MEMORY", "16777216")],
    || {
        start_on(0);
        let (mut free_bytes, mut total) = (0, 0);
        let ptr = alloc(10 * MIB).expect("memory");
        assert_eq!(
            cu!(mem_get_info(&mut free_bytes, &mut total)),
            CuResult::SUCCESS
        );
        assert_eq!((free_bytes, total), (6 * MIB, 16 * MIB));
        assert_eq!(alloc(7 * MIB), Err(CuResult::OUT_OF_MEMORY));
        free(ptr).expect("free");
        assert!(alloc(16 * MIB).is_ok());
    }
);

scene!(
    a_full_disk_is_out_of_memory_and_leaves_nothing,
    [("GPUIPC_EMULATED_MEMORY", "99999999999999999")],
    || {
        start_on(0);
        let before = gpuipc_emulated::counters::read();
        assert_eq!(alloc(1 << 50), Err(CuResult::OUT_OF_MEMORY));
        assert_eq!(create(1 << 50, prop(1, 0, 1)), Err(CuResult::OUT_OF_MEMORY));
        assert_eq!(gpuipc_emulated::counters::read(), before);
    }
);

scene!(many_threads_at_once_leave_nothing, || {
    start_on(0);
    let before = gpuipc_emulated::counters::read();
    let threads = (0..8_u32).map(|number| {
        std::thread::spawn(move || {
            let device = (number % 2) as i32;
            use_device(device);
            for turn in 0..50 {
                let ptr = alloc(4096 * (1 + number as usize)).expect("memory");
                write(ptr, number * 1000 + turn).expect("a write");
                let handle = create_fd(2 * MIB);
                let mapped = map_for(handle, 2 * MIB, device, 3).expect("a mapping");
                write(mapped, turn).expect("a write");
                assert_eq!(
                    (read(ptr), read(mapped)),
                    (Ok(number * 1000 + turn), Ok(turn))
                );
                ipc_handle(ptr).expect("a handle");
                unmap_all(mapped, 2 * MIB);
                release(handle).expect("release");
                free(ptr).expect("free");
            }
            assert_eq!(cu!(primary_ctx_release(device)), CuResult::SUCCESS);
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().expect("the thread");
    }
    assert_eq!(gpuipc_emulated::counters::read(), before);
});
