//! Memory pools and what they share.

use crate::child::{TestChild, hex};
use crate::driver::*;
use crate::pool_calls::*;
use crate::scene;
use gpuipc_emulated::counters;
use gpuipc_sys::{
    CuMemLocation, CuMemPool, CuMemPoolProps, CuMemPoolPtrExportData, CuResult, handle_type,
    location, pointer_attribute,
};
use std::os::fd::BorrowedFd;

const SIZE: usize = 4 * MIB;
const FD: u32 = handle_type::POSIX_FILE_DESCRIPTOR;

/// A pool with one pointer in it that holds `value`, exported.
fn exported(value: u32) -> (CuMemPool, u64, i32, CuMemPoolPtrExportData) {
    let pool = create_pool(0, FD).expect("a pool");
    let ptr = alloc_from(pool, SIZE).expect("memory");
    write(ptr, value).expect("a write");
    let fd = export_pool(pool).expect("a descriptor");
    let data = export_pointer(ptr).expect("its bytes");
    (pool, ptr, fd, data)
}

impl TestChild {
    fn import_pool(&mut self, fd: i32) -> Answer<u64> {
        self.ask(&format!("pool {} {fd}", std::process::id()))
    }

    fn import_pointer(&mut self, pool: u64, data: &CuMemPoolPtrExportData) -> Answer<u64> {
        self.ask(&format!("pool-pointer {pool} {}", hex(&data.reserved)))
    }
}

scene!(what_a_pool_gives, || {
    start_on(0);
    let shared = create_pool(0, FD).expect("a pool");
    let default = default_pool(0).expect("there is one");
    assert_eq!(default_pool(0), Ok(default));
    assert_ne!(default_pool(1), Ok(default));
    let own = alloc_from(shared, 3 * MIB).expect("memory");
    let other = alloc_async(3 * MIB).expect("memory");
    for (ptr, types, pool) in [(own, FD, shared), (other, 0, default)] {
        let answer = |number| attribute(ptr + 4096, number).expect("an answer");
        assert_eq!(answer(pointer_attribute::MEMORY_TYPE), 2);
        assert_eq!(answer(pointer_attribute::CONTEXT), 0);
        assert_eq!(answer(pointer_attribute::IS_LEGACY_CUDA_IPC_CAPABLE), 0);
        assert_eq!(answer(pointer_attribute::RANGE_START_ADDR), ptr);
        assert_eq!(answer(pointer_attribute::RANGE_SIZE), 3 << 20);
        assert_eq!(answer(pointer_attribute::MAPPING_BASE_ADDR), ptr);
        assert_eq!(answer(pointer_attribute::MAPPING_SIZE), 32 << 20);
        let allowed = answer(pointer_attribute::ALLOWED_HANDLE_TYPES);
        assert_eq!(allowed, u64::from(types));
        assert_eq!(answer(pointer_attribute::MEMPOOL_HANDLE), pool.0 as u64);
        assert_eq!(range(ptr + 4096), Ok((ptr, 3 * MIB)));
        assert_eq!(ipc_handle(ptr), Err(CuResult::INVALID_VALUE));
        assert_eq!(retain(ptr), Err(CuResult::INVALID_VALUE));
    }
    let beside = alloc_from(shared, 100).expect("memory");
    let mapping = attribute(beside, pointer_attribute::MAPPING_BASE_ADDR);
    assert_eq!(mapping, Ok(own), "side by side in one block");
    assert_eq!(beside - own, 3 << 20);
    write(beside, 7).expect("a write");
    write(own + (3 << 20) - 4, 8).expect("the last word");
    assert_eq!((read(beside), read(own)), (Ok(7), Ok(0)));
});

scene!(which_pools_are_exported, || {
    start_on(0);
    let default = default_pool(0).expect("there is one");
    assert_eq!(export_pool(default), Err(CuResult::INVALID_VALUE));
    assert_eq!(destroy_pool(default), Err(CuResult::INVALID_VALUE));
    let private = create_pool(0, 0).expect("a pool");
    assert_eq!(export_pool(private), Err(CuResult::INVALID_VALUE));
    let fabric = create_pool(0, FD | handle_type::FABRIC).expect("a pool");
    let refused = export_pool_fabric(fabric).map(|_| ());
    assert_eq!(refused, Err(CuResult::NOT_PERMITTED), "no fabric here");
    assert_eq!(create_pool(0, 2), Err(CuResult::INVALID_VALUE));
    assert_eq!(create_pool(2, FD), Err(CuResult::INVALID_VALUE));
    let shared = create_pool(0, FD).expect("a pool");
    let ptr = alloc_from(shared, SIZE).expect("memory");
    assert_eq!(
        export_pointer(ptr),
        Err(CuResult::INVALID_VALUE),
        "the pool comes first"
    );
    let fd = export_pool(shared).expect("a descriptor");
    // SAFETY: the driver just gave this descriptor to the test, which closes it
    // below.
    let flags = rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(fd) });
    assert_eq!(flags, Ok(rustix::io::FdFlags::empty()), "open on exec");
    close_fd(fd);
    export_pointer(ptr).expect("now it works");
    assert_eq!(export_pointer(ptr + 4), Err(CuResult::INVALID_VALUE));
    let plain = alloc(SIZE).expect("memory");
    assert_eq!(export_pointer(plain), Err(CuResult::INVALID_VALUE));
});

scene!(a_host_nodes_pool_is_made_and_destroyed_only, || {
    start_on(0);
    let at = |kind, id| {
        create_pool_as(CuMemPoolProps {
            kind: 1,
            handle_types: FD,
            location: CuMemLocation { kind, id },
            ..CuMemPoolProps::default()
        })
    };
    let pool = at(location::HOST_NUMA, 0).expect("a pool");
    assert_eq!(alloc_from(pool, SIZE), Err(CuResult::NOT_SUPPORTED));
    assert_eq!(export_pool(pool), Err(CuResult::NOT_SUPPORTED));
    destroy_pool(pool).expect("destroy");
    for (kind, id) in [(location::HOST_NUMA, 1), (location::HOST, 0)] {
        assert_eq!(at(kind, id), Err(CuResult::INVALID_VALUE));
    }
});

scene!(another_process_imports_pool_and_pointer, || {
    start_on(0);
    let (pool, ptr, fd, data) = exported(0x1111);
    let mut child = TestChild::new();
    let there = child.import_pool(fd).expect("a pool");
    let first = child.import_pointer(there, &data).expect("a pointer");
    assert_eq!(
        child.import_pointer(there, &data),
        Ok(first),
        "the same again"
    );
    assert_eq!(child.read(first), Ok(0x1111));
    child
        .ask(&format!("write {first} {}", 0x2222))
        .expect("a write");
    assert_eq!(read(ptr), Ok(0x2222));
    for (number, value) in [
        (pointer_attribute::ALLOWED_HANDLE_TYPES, 0),
        (pointer_attribute::MEMPOOL_HANDLE, there),
        (pointer_attribute::MAPPING_SIZE, 32 << 20),
    ] {
        assert_eq!(child.ask(&format!("attribute {first} {number}")), Ok(value));
    }
    let more = child.ask(&format!("pool-alloc {there} {SIZE}"));
    assert_eq!(
        more,
        Err(CuResult::INVALID_VALUE),
        "nothing new from an imported pool"
    );
    assert_eq!(child.import_pool(fd), Ok(there), "the same again");
    let destroy = format!("pool-destroy {there}");
    let in_use = child.ask(&destroy);
    assert_eq!(in_use, Err(CuResult::INVALID_VALUE), "a pointer is in use");
    let end = format!("free {first}");
    assert_eq!(child.ask(&end), Ok(0), "one free for both imports");
    assert_eq!(child.read(first), Err(CuResult::INVALID_VALUE));
    assert_eq!(child.ask(&end), Err(CuResult::INVALID_VALUE));
    assert_eq!(child.import_pointer(there, &data), Ok(first), "anew");
    assert_eq!(child.read(first), Ok(0x2222));
    assert_eq!(child.ask(&end), Ok(0));
    assert_eq!(child.ask(&destroy), Ok(0), "one end for both imports");
    assert_eq!(child.ask("pools"), Ok(0));
    free(ptr).expect("free");
    destroy_pool(pool).expect("destroy");
});

scene!(the_same_process_imports_too_and_nothing_is_left, || {
    start_on(0);
    default_pool(0).expect("the default pool stays");
    let before = counters::read();
    let (pool, ptr, fd, data) = exported(0x3333);
    let imported = import_pool(fd).expect("a pool");
    let again = import_pointer(imported, data).expect("a pointer");
    assert_ne!(again, ptr);
    assert_eq!(read(again), Ok(0x3333));
    let private = alloc_async(SIZE).expect("memory");
    let now = counters::read();
    assert_eq!((now.pools, now.imported_pools), (1, 1));
    assert_eq!((now.pool_allocations, now.pool_imports), (2, 1));
    free_async(private).expect("free");
    free_async(again).expect("free");
    assert_eq!(free_async(again), Err(CuResult::INVALID_VALUE));
    destroy_pool(imported).expect("destroy");
    destroy_pool(pool).expect("destroy");
    assert_eq!(alloc_from(pool, SIZE), Err(CuResult::INVALID_VALUE));
    assert_eq!(read(ptr), Ok(0x3333), "memory outlives its pool's handle");
    assert_eq!(counters::read().pools, 1);
    free(ptr).expect("free");
    close_fd(fd);
    assert_eq!(counters::read(), before);
});

scene!(imported_pointers_lie_as_their_originals, || {
    start_on(0);
    let (pool, ptr, fd, data) = exported(1);
    let imported = import_pool(fd).expect("a pool");
    let first = import_pointer(imported, data).expect("a pointer");
    let more = [4096, SIZE, 100].map(|bytes| alloc_from(pool, bytes).expect("memory"));
    for own in more.into_iter().rev() {
        let data = export_pointer(own).expect("its bytes");
        let there = import_pointer(imported, data).expect("a pointer");
        assert_eq!(there - first, own - ptr);
        write(own, 7).expect("a write");
        assert_eq!(read(there), Ok(7));
        free(there).expect("free");
    }
    assert_eq!(read(first), Ok(1));
});

scene!(a_freed_pointer_imports_and_reads_what_lies_there, || {
    start_on(0);
    let (pool, ptr, fd, data) = exported(0x1111);
    let others = [(); 8].map(|()| alloc_from(pool, 4096).expect("memory"));
    let imported = import_pool(fd).expect("a pool");
    free(ptr).expect("free");
    let stale = import_pointer(imported, data).expect("success");
    assert_eq!(read(stale), Ok(0x1111), "old bytes");
    let half = alloc_from(pool, SIZE / 2);
    assert_eq!(half, Ok(ptr), "the address comes back");
    write(ptr, 0x2222).expect("a write");
    assert_eq!(read(stale), Ok(0x2222), "the new memory");
    let new = export_pointer(ptr).expect("its bytes");
    assert_ne!(new, data);
    assert_eq!(import_pointer(imported, new), Ok(stale));
    let size = attribute(stale, pointer_attribute::RANGE_SIZE);
    assert_eq!(size, Ok(SIZE as u64), "as it was imported");
    // Old bytes are not kept for ever.
    free(ptr).expect("free");
    for other in others {
        assert_eq!(read(stale), Ok(0x2222));
        export_pointer(other).expect("its bytes");
        free(other).expect("free");
    }
    assert_eq!(read(stale), Ok(0));
});

scene!(
    a_freed_pointer_may_end_the_context,
    [("GPUIPC_EMULATED_STALE_POOL", "fatal")],
    || {
        start_on(0);
        let (_, ptr, fd, data) = exported(0x1111);
        let imported = import_pool(fd).expect("a pool");
        let there = import_pointer(imported, data).expect("a pointer");
        assert_eq!(read(there), Ok(0x1111));
        free(ptr).expect("free");
        assert_eq!(read(there), Err(CuResult::LAUNCH_FAILED), "a first read");
        assert_eq!(alloc(4096), Err(CuResult::LAUNCH_FAILED));
        assert_eq!(free(there), Err(CuResult::LAUNCH_FAILED));
        use_device(1);
        alloc(4096).expect("another device's context lives");
    }
);

scene!(other_devices_need_access, || {
    start_on(0);
    let (_, ptr, fd, data) = exported(0x4444);
    let imported = import_pool(fd).expect("a pool");
    let there = import_pointer(imported, data).expect("a pointer");
    use_device(1);
    for (pool, ptr) in [(CuMemPool::NULL, ptr), (imported, there)] {
        let pool = if pool == CuMemPool::NULL {
            CuMemPool(attribute(ptr, pointer_attribute::MEMPOOL_HANDLE).expect("a pool") as usize)
        } else {
            pool
        };
        assert_eq!(read(ptr), Err(CuResult::INVALID_VALUE));
        assert_eq!(
            (pool_access_of(pool, 0), pool_access_of(pool, 1)),
            (Ok(3), Ok(0))
        );
        assert_eq!(range(ptr), Err(CuResult::NOT_FOUND));
        assert_eq!(
            pool_access(pool, 1, 1),
            Err(CuResult::NOT_SUPPORTED),
            "read-only"
        );
        assert_eq!(read(ptr), Err(CuResult::INVALID_VALUE));
        pool_access(pool, 1, 3).expect("access");
        assert_eq!(read(ptr), Ok(0x4444));
        write(ptr, 0x4444).expect("a write");
        assert_eq!(range(ptr), Ok((ptr, SIZE)));
        assert_eq!(
            pool_access(pool, 0, 0),
            Err(CuResult::INVALID_DEVICE),
            "its own device"
        );
        assert_eq!(pool_access(pool, 2, 3), Err(CuResult::INVALID_DEVICE));
        assert_eq!(pool_access_of(pool, 2), Err(CuResult::INVALID_VALUE));
        assert_eq!(
            access_of(ptr, location::DEVICE, 0),
            Ok(0),
            "the pool's matter"
        );
    }
});

scene!(importers_with_another_view, || {
    start_on(0);
    let (_, _, fd, data) = exported(0x5555);
    for (visible, answer) in [
        ("1", Ok(0x5555)),
        ("1,0", Err(CuResult::INVALID_VALUE)),
        ("0", Ok(0x5555)),
    ] {
        let mut child = TestChild::with(&[("CUDA_VISIBLE_DEVICES", visible)]);
        let pool = child.import_pool(fd).expect("a pool");
        let there = child.import_pointer(pool, &data).expect("a pointer");
        assert_eq!(child.read(there), answer, "{visible}");
    }
    let apart = [
        ("CUDA_VISIBLE_DEVICES", "1"),
        ("GPUIPC_EMULATED_PEER", "none"),
    ];
    let mut child = TestChild::with(&apart);
    let pool = child.import_pool(fd).expect("a pool");
    let there = child.import_pointer(pool, &data).expect("a pointer");
    assert_eq!(child.read(there), Err(CuResult::INVALID_VALUE));
});

scene!(wrong_arguments, || {
    start_on(0);
    let (pool, ptr, fd, data) = exported(1);
    let imported = import_pool(fd).expect("a pool");
    let (_, _, other_fd, other) = exported(2);
    assert_eq!(
        import_pointer(imported, other),
        Err(CuResult::INVALID_VALUE)
    );
    assert_eq!(
        import_pointer(pool, data),
        Err(CuResult::INVALID_VALUE),
        "not imported"
    );
    let garbage = CuMemPoolPtrExportData {
        reserved: [0x5a; 64],
    };
    assert_eq!(
        import_pointer(imported, garbage),
        Err(CuResult::INVALID_VALUE)
    );
    assert_eq!(export_pool(imported), Err(CuResult::INVALID_VALUE));
    let vmm = export_fd(create_fd(SIZE)).expect("a descriptor");
    assert_eq!(import_pool(vmm), Err(CuResult::UNKNOWN));
    assert_eq!(import_fd(other_fd), Err(CuResult::UNKNOWN));
    assert_eq!(import_pool(-1), Err(CuResult::UNKNOWN));
    assert_eq!(alloc_from(pool, 0), Ok(0), "nothing");
    assert_eq!(alloc_from(CuMemPool(1), SIZE), Err(CuResult::INVALID_VALUE));
    assert_eq!(destroy_pool(CuMemPool::NULL), Err(CuResult::INVALID_VALUE));
    assert_eq!(free(ptr + 4), Err(CuResult::INVALID_VALUE));
    let limited = create_pool_as(CuMemPoolProps {
        kind: 1,
        location: prop(1, 0, 0).location,
        max_size: SIZE,
        ..CuMemPoolProps::default()
    })
    .expect("a pool");
    let first = alloc_from(limited, SIZE).expect("memory");
    assert_eq!(alloc_from(limited, 1), Err(CuResult::OUT_OF_MEMORY));
    free(first).expect("free");
    alloc_from(limited, 1).expect("room again");
    assert_eq!(
        cu!(ctx_set_current(gpuipc_sys::CuContext::NULL)),
        CuResult::SUCCESS
    );
    assert_eq!(alloc_from(pool, SIZE), Err(CuResult::INVALID_CONTEXT));
    assert_eq!(free_async(ptr), Err(CuResult::INVALID_CONTEXT));
});

scene!(
    a_pool_of_a_fabric_domain,
    [("GPUIPC_EMULATED_PROFILE", "h200-imex")],
    || {
        start_on(0);
        let before = counters::read();
        let pool = create_pool(0, FD | handle_type::FABRIC).expect("a pool");
        let ptr = alloc_from(pool, SIZE).expect("memory");
        write(ptr, 0x6666).expect("a write");
        let handle = export_pool_fabric(pool).expect("a handle");
        let data = export_pointer(ptr).expect("its bytes");
        let imported = import_pool_fabric(handle).expect("a pool");
        let there = import_pointer(imported, data).expect("a pointer");
        assert_eq!(read(there), Ok(0x6666));
        assert_eq!(
            import_fabric(handle),
            Err(CuResult::NOT_SUPPORTED),
            "no VMM memory"
        );
        let mut child = TestChild::with(&[("GPUIPC_EMULATED_IMEX", "B")]);
        assert_eq!(child.import_fabric(handle), Err(CuResult::NOT_SUPPORTED));
        free(there).expect("free");
        destroy_pool(imported).expect("destroy");
        free(ptr).expect("free");
        destroy_pool(pool).expect("destroy");
        assert_eq!(import_pool_fabric(handle), Err(CuResult::NOT_SUPPORTED));
        assert_eq!(counters::read(), before);
    }
);

scene!(a_dma_buf_is_of_gpu_memory_and_no_handle_to_import, || {
    start_on(0);
    let plain = alloc(3 * MIB).expect("memory");
    let vmm = map_for(create_fd(SIZE), SIZE, 0, 3).expect("a mapping");
    let pooled = alloc_async(3 * MIB).expect("memory");
    for ptr in [plain, vmm, pooled] {
        let fd = dma_buf(ptr, 3 * MIB).expect("a descriptor");
        assert_eq!(import_fd(fd), Err(CuResult::UNKNOWN));
        close_fd(fd);
        assert_eq!(
            dma_buf(ptr, 100),
            Err(CuResult::INVALID_VALUE),
            "whole pages"
        );
        assert_eq!(dma_buf(ptr, 64 * MIB), Err(CuResult::INVALID_VALUE));
    }
    let mut host = std::ptr::null_mut();
    assert_eq!(cu!(mem_host_alloc(&mut host, SIZE, 0)), CuResult::SUCCESS);
    assert_eq!(dma_buf(host as u64, SIZE), Err(CuResult::INVALID_VALUE));
});
