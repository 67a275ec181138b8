//! VMM memory in one process, and fd sharing.

use crate::child::TestChild;
use crate::driver::*;
use crate::scene;
use crate::scene::names;
use gpuipc_emulated::counters;
use gpuipc_sys::{
    CuMemLocation, CuResult, access, handle_type, location, memory_type, pointer_attribute as is,
};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const SIZE: usize = 4 * MIB;
const INVALID: CuResult = CuResult::INVALID_VALUE;

scene!(mapping_attributes, || {
    start_on(0);
    let handle = create_fd(SIZE);
    let ptr = map_for(handle, SIZE, 0, access::READ_WRITE).expect("a mapping");
    let expected = [
        (is::CONTEXT, 0),
        (is::MEMORY_TYPE, u64::from(memory_type::DEVICE)),
        (is::DEVICE_ORDINAL, 0),
        (is::IS_LEGACY_CUDA_IPC_CAPABLE, 0),
        (is::RANGE_START_ADDR, ptr),
        (is::RANGE_SIZE, SIZE as u64),
        (is::MAPPED, 1),
        (is::ALLOWED_HANDLE_TYPES, 1),
        (is::MEMPOOL_HANDLE, 0),
        (is::MAPPING_SIZE, SIZE as u64),
        (is::MAPPING_BASE_ADDR, ptr),
    ];
    for (attribute_number, value) in expected {
        assert_eq!(
            attribute(ptr + 65536, attribute_number),
            Ok(value),
            "attribute {attribute_number}"
        );
    }
    assert_eq!(range(ptr + 65536), Ok((ptr, SIZE)));
    assert_eq!(ipc_handle(ptr), Err(INVALID));
    assert_eq!(retain(ptr), Ok(handle));
    assert_eq!(retain(ptr + 65536), Ok(handle));
    assert_eq!(export_fabric(handle), Err(INVALID), "not asked for");
});

scene!(memory_without_a_handle_type_is_not_exported, || {
    start_on(0);
    let handle = create(SIZE, prop(location::DEVICE, 0, handle_type::NONE)).expect("memory");
    assert_eq!(export_fd(handle), Err(INVALID));
    assert_eq!(export_fabric(handle), Err(INVALID));
});

scene!(an_imported_descriptor, || {
    start_on(0);
    let handle = create_fd(SIZE);
    let own = map_for(handle, SIZE, 0, access::READ_WRITE).expect("a mapping");
    write(own, 0xc0de).expect("a write");
    let fd = export_fd(handle).expect("a descriptor");
    // SAFETY: asks for the flags of a descriptor that the test owns.
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFD) }, libc::FD_CLOEXEC);

    let (first, second) = (
        import_fd(fd).expect("import"),
        import_fd(fd).expect("import"),
    );
    assert_ne!(first, second);
    close_fd(fd);
    let imported = properties(first).expect("properties");
    assert_eq!((imported.kind, imported.requested_handle_types), (1, 0));
    assert_eq!(
        imported.location,
        CuMemLocation {
            kind: location::DEVICE,
            id: 0
        }
    );
    assert_eq!(export_fd(first), Err(INVALID));
    assert_eq!(export_fabric(first), Err(INVALID));

    let ptr = reserve(SIZE).expect("addresses");
    assert_eq!(map(ptr, SIZE / 2, 0, first), Err(CuResult::NOT_SUPPORTED));
    assert_eq!(map(ptr, SIZE * 2, 0, first), Err(CuResult::NOT_SUPPORTED));
    assert_eq!(
        map(ptr, SIZE / 2, SIZE / 2, first),
        Err(CuResult::NOT_SUPPORTED)
    );
    assert_eq!(map(ptr, SIZE, 0, first), Ok(()));
    assert_eq!(read(ptr), Err(INVALID), "no access yet");
    assert_eq!(
        set_access(ptr, SIZE, location::DEVICE, 0, access::READ_WRITE),
        Ok(())
    );
    assert_eq!(read(ptr), Ok(0xc0de));
    assert_eq!(attribute(ptr, is::ALLOWED_HANDLE_TYPES), Ok(0));
    assert_eq!(attribute(ptr, is::IS_LEGACY_CUDA_IPC_CAPABLE), Ok(0));
    assert_ne!(buffer_id(ptr), buffer_id(own));
    assert_eq!(retain(ptr), Ok(first));
    assert_eq!(ipc_handle(ptr), Err(INVALID));
    for handle in [first, first, second] {
        assert_eq!(release(handle), Ok(()));
    }
    assert_eq!(read(ptr), Ok(0xc0de), "a mapping keeps its memory");
    assert_eq!(unreserve(ptr, SIZE), Err(INVALID), "still mapped");
    assert_eq!(unmap(ptr, SIZE / 2), Err(INVALID), "a part");
    assert_eq!(unmap(ptr, SIZE), Ok(()));
    assert_eq!(unreserve(ptr, SIZE), Ok(()));
    assert_eq!(unreserve(ptr, SIZE), Err(INVALID));
});

scene!(another_process_imports_and_may_only_read, || {
    start_on(0);
    let handle = create_fd(SIZE);
    let ptr = map_for(handle, SIZE, 0, access::READ_WRITE).expect("a mapping");
    write(ptr, 0x7777).expect("a write");
    let fd = export_fd(handle).expect("a descriptor");
    let mut child = TestChild::new();
    let there = child.map_fd(fd, SIZE, access::READ).expect("a mapping");
    assert_eq!(child.read(there), Ok(0x7777));
    assert_eq!(child.ask(&format!("write {there} 1")), Err(INVALID));
    let writable = child
        .map_fd(fd, SIZE, access::READ_WRITE)
        .expect("a mapping");
    assert_eq!(child.ask(&format!("write {writable} 9")), Ok(0));
    assert_eq!(read(ptr), Ok(9));
    close_fd(fd);
    unmap_all(ptr, SIZE);
    assert_eq!(release(handle), Ok(()));
    assert_eq!(child.read(there), Ok(9), "the importer keeps it");
});

scene!(what_is_no_memory_is_not_imported, || {
    start_on(0);
    let null = std::fs::File::open("/dev/null").expect("/dev/null");
    assert_eq!(import_fd(null.as_raw_fd()), Err(CuResult::UNKNOWN));
    assert_eq!(import_fd(-1), Err(CuResult::UNKNOWN));
    assert_eq!(import_fd(9999), Err(CuResult::UNKNOWN));
    let dir = std::env::var("GPUIPC_EMULATED_DIR").expect("a scene");
    let path = format!("{dir}/noise");
    std::fs::write(&path, vec![7_u8; 100_000]).expect("a file");
    let noise = std::fs::File::open(&path).expect("a file");
    assert_eq!(
        import_fd(noise.as_raw_fd()),
        Err(CuResult::UNKNOWN),
        "the right file system, no header"
    );
    let folder = std::fs::File::open(&dir).expect("the directory");
    assert_eq!(import_fd(folder.as_raw_fd()), Err(CuResult::UNKNOWN));

    let legacy = alloc(SIZE).expect("memory");
    ipc_handle(legacy).expect("a handle");
    let named = names()
        .into_iter()
        .find(|name| name.contains('-'))
        .expect("its name");
    let named = std::fs::File::open(format!("{dir}/{named}")).expect("its file");
    assert_eq!(
        import_fd(named.as_raw_fd()),
        Err(CuResult::UNKNOWN),
        "legacy memory"
    );

    let own = export_fd(create_fd(SIZE)).expect("a descriptor");
    // SAFETY: the driver just gave this descriptor to the test.
    let mut own = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(own) });
    let copy = rustix::fs::memfd_create("copy", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd");
    std::io::copy(
        &mut own,
        &mut std::fs::File::from(copy.try_clone().expect("a descriptor")),
    )
    .expect("a copy");
    assert_eq!(
        import_fd(copy.as_raw_fd()),
        Err(CuResult::UNKNOWN),
        "a good header elsewhere"
    );
    assert!(import_fd(own.as_raw_fd()).is_ok());
    assert_eq!(
        import_fabric(gpuipc_sys::CuMemFabricHandle { data: [0x5a; 64] }),
        Err(CuResult::NOT_SUPPORTED)
    );
});

scene!(pieces_of_one_reservation, || {
    start_on(0);
    let unit = 2 * MIB;
    let base = reserve(16 * unit).expect("addresses");
    let mut at = base;
    let mut handles = Vec::new();
    for count in 1..=3 {
        let handle = create_fd(count * unit);
        assert_eq!(map(at, count * unit, 0, handle), Ok(()));
        assert_eq!(map(at, count * unit, 0, handle), Err(INVALID), "taken");
        handles.push((at, count * unit, handle));
        at += (count * unit) as u64;
    }
    assert_eq!(
        set_access(base, 6 * unit, location::DEVICE, 0, access::READ_WRITE),
        Ok(())
    );
    let mut ids = Vec::new();
    for (start, size, handle) in &handles {
        let inside = start + 100;
        assert_eq!(attribute(inside, is::RANGE_START_ADDR), Ok(base));
        assert_eq!(attribute(inside, is::RANGE_SIZE), Ok(16 * unit as u64));
        assert_eq!(attribute(inside, is::MAPPING_BASE_ADDR), Ok(*start));
        assert_eq!(attribute(inside, is::MAPPING_SIZE), Ok(*size as u64));
        assert_eq!(range(inside), Ok((*start, *size)));
        assert_eq!(retain(inside), Ok(*handle));
        ids.push(buffer_id(inside));
    }
    ids.dedup();
    assert_eq!(ids.len(), 3);
    let hole = base + 8 * unit as u64;
    assert_eq!(range(hole), Err(CuResult::NOT_FOUND));
    assert_eq!(attribute(hole, is::BUFFER_ID), Err(INVALID));
    assert_eq!(
        cu!(memset_d8(base, 3, 6 * unit)),
        CuResult::SUCCESS,
        "over the seams"
    );
    assert_eq!(read(base + unit as u64 - 2), Ok(0x0303_0303));
    assert_eq!(cu!(memset_d8(base, 3, 7 * unit)), INVALID, "into the hole");
    assert_eq!(
        set_access(base, unit, location::DEVICE, 0, access::READ),
        Ok(())
    );
    assert_eq!(
        (write(base, 1), write(base + unit as u64, 1)),
        (Err(INVALID), Ok(()))
    );
    assert_eq!(unmap(base, 6 * unit), Ok(()), "one unmap over all");
});

scene!(holes_in_a_reservation, || {
    start_on(0);
    let unit = 2 * MIB;
    let base = reserve(5 * unit).expect("addresses");
    let at = |units: usize| base + (units * unit) as u64;
    let large = create_fd(2 * unit);
    assert_eq!(map(base, unit, 0, create_fd(unit)), Ok(()));
    assert_eq!(map(at(2), 2 * unit, 0, large), Ok(()));
    let give =
        |from: u64, bytes: usize| set_access(from, bytes, location::DEVICE, 0, access::READ_WRITE);
    assert_eq!(give(base, 4 * unit), Ok(()), "over a hole");
    assert_eq!((write(base, 1), write(at(2), 2)), (Ok(()), Ok(())));
    assert_eq!(give(base, 2 * unit), Err(INVALID), "a hole at the end");
    assert_eq!(give(at(1), unit), Err(INVALID), "a hole only");
    assert_eq!(give(base, 3 * unit), Err(INVALID), "a part");
    assert_eq!(give(base, 6 * unit), Err(INVALID), "past the reservation");
    assert_eq!(unmap(at(1), unit), Ok(()), "a hole only");
    assert_eq!(unmap(base, 3 * unit), Err(INVALID), "a part");
    assert_eq!(unmap(at(3), unit), Err(INVALID), "a part at its end");
    assert_eq!((read(base), read(at(2))), (Ok(1), Ok(2)));
    assert_eq!(unmap(base, 10 * unit), Ok(()), "past the reservation");
    assert_eq!((read(base), read(at(2))), (Err(INVALID), Err(INVALID)));
    assert_eq!(unmap(base + 4096, unit), Ok(()), "nothing");
    assert_eq!(unmap(base, 0), Err(INVALID));
    assert_eq!(unreserve(base, 5 * unit), Ok(()));
    assert_eq!(unmap(base, unit), Err(INVALID), "no reservation");
});

scene!(rights_for_whoever_cannot_have_them, || {
    start_on(0);
    let ptr = map_for(create_fd(SIZE), SIZE, 0, access::READ_WRITE).expect("a mapping");
    let give = |kind: u32, id: i32| set_access(ptr, SIZE, kind, id, access::READ_WRITE);
    for device in [99, -1] {
        assert_eq!(give(location::DEVICE, device), Err(INVALID));
    }
    let no = Err(CuResult::NOT_SUPPORTED);
    assert_eq!(give(location::HOST_NUMA, 0), no, "device memory");
    assert_eq!(give(99, 0), Err(INVALID));
});

scene!(an_alias_has_its_own_buffer_id_and_the_same_handle, || {
    start_on(0);
    let handle = create_fd(SIZE);
    let first = map_for(handle, SIZE, 0, access::READ_WRITE).expect("a mapping");
    let alias = map_for(handle, SIZE, 0, access::READ_WRITE).expect("an alias");
    write(first, 5).expect("a write");
    assert_eq!(read(alias), Ok(5));
    assert_eq!((retain(first), retain(alias)), (Ok(handle), Ok(handle)));
    let id = buffer_id(alias);
    assert_ne!(id, buffer_id(first));
    assert_eq!(unmap(alias, SIZE), Ok(()));
    assert_eq!(map(alias, SIZE, 0, handle), Ok(()));
    assert_ne!(buffer_id(alias), id, "mapped anew");
});

scene!(host_numa_memory, || {
    start_on(0);
    let wish = prop(location::HOST_NUMA, 0, handle_type::POSIX_FILE_DESCRIPTOR);
    let handle = create(SIZE, wish).expect("memory");
    let ptr = map_for(handle, SIZE, 0, access::READ_WRITE).expect("a mapping");
    let rights = |ptr| {
        let places = [location::DEVICE, location::HOST_NUMA, location::HOST];
        places.map(|kind| access_of(ptr, kind, 0).expect("an answer"))
    };
    assert_eq!(rights(ptr), [3, 0, 3], "the driver's copies go by the CPU");
    assert_eq!(
        set_access(ptr, SIZE, location::HOST_NUMA, 0, access::READ_WRITE),
        Ok(())
    );
    assert_eq!(rights(ptr), [3, 3, 3]);
    // SAFETY: host memory, mapped right above with access for the CPU.
    unsafe { (ptr as *mut u32).write(0xabcd) };
    assert_eq!(read(ptr), Ok(0xabcd));
    assert_eq!(range(ptr + 64), Ok((0, SIZE)));
    assert_eq!(attribute(ptr + 64, is::RANGE_START_ADDR), Ok(ptr));
    assert_eq!(
        attribute(ptr, is::MEMORY_TYPE),
        Ok(u64::from(memory_type::HOST))
    );
    assert_eq!(attribute(ptr, is::ALLOWED_HANDLE_TYPES), Ok(1));
    assert_eq!(retain(ptr), Ok(handle));
    assert_eq!(ipc_handle(ptr), Err(INVALID));
    let fd = export_fd(handle).expect("a descriptor");
    let mut child = TestChild::new();
    let there = child
        .map_fd(fd, SIZE, access::READ_WRITE)
        .expect("a mapping");
    assert_eq!(child.read(there), Ok(0xabcd));
    unmap_all(ptr, SIZE);

    let base = reserve(SIZE).expect("addresses");
    assert_eq!(map(base, SIZE, 0, handle), Ok(()));
    assert_eq!(rights(base), [0, 0, 0]);
    assert_eq!(read(base), Err(INVALID));
    let give = |kind, flags| set_access(base, SIZE, kind, 0, flags);
    assert_eq!(give(location::HOST, access::READ_WRITE), Ok(()));
    assert_eq!(rights(base), [0, 3, 3], "the CPU is its node's");
    assert_eq!((write(base, 5), read(base)), (Ok(()), Ok(5)), "by the CPU");
    let fill = cu!(memset_d8(base, 0, 4));
    assert_eq!(fill, INVALID, "the GPU's work");
    assert_eq!(give(location::DEVICE, access::READ_WRITE), Ok(()));
    assert_eq!(cu!(memset_d8(base, 0, 4)), CuResult::SUCCESS);
    assert_eq!(give(location::HOST_NUMA, access::READ), Ok(()));
    assert_eq!(rights(base), [3, 1, 1]);
    assert_eq!((read(base), write(base, 6)), (Ok(0), Err(INVALID)));
    unmap_all(base, SIZE);
});

scene!(wrong_arguments, || {
    start_on(0);
    let wish = prop(location::DEVICE, 0, handle_type::POSIX_FILE_DESCRIPTOR);
    assert_eq!(create(0, wish), Err(INVALID));
    assert_eq!(create(3 * MIB, wish), Err(INVALID));
    assert_eq!(
        create(SIZE, prop(location::DEVICE, 7, 1)),
        Err(CuResult::INVALID_DEVICE)
    );
    assert_eq!(reserve(0), Err(INVALID));
    assert_eq!(reserve(12345), Err(INVALID));
    assert_eq!(release(0x1234), Err(INVALID));
    assert_eq!(
        cu!(mem_create(std::ptr::null_mut(), SIZE, &wish, 0)),
        INVALID
    );
    let mut bytes = 0;
    for option in [0, 1] {
        assert_eq!(
            cu!(mem_get_allocation_granularity(&mut bytes, &wish, option)),
            CuResult::SUCCESS
        );
        assert_eq!(bytes, 2 * MIB);
    }
    for odd in [prop(location::DEVICE, 7, 2), prop(99, 0, 64)] {
        let code = cu!(mem_get_allocation_granularity(&mut bytes, &odd, 0));
        assert_eq!((code, bytes), (CuResult::SUCCESS, 2 * MIB));
    }
    assert_eq!(create(SIZE, prop(location::DEVICE, 0, 2)), Err(INVALID));
    let unknown_type = create(SIZE, prop(location::DEVICE, 0, 64)).expect("let pass");
    let mut place = [0_u8; 64];
    for kind in [1, 64] {
        let to = place.as_mut_ptr().cast();
        let code = cu!(mem_export_to_shareable_handle(to, unknown_type, kind, 0));
        assert_eq!(code, INVALID);
    }
    let mut imported = 0;
    for (kind, code) in [(2, CuResult::NOT_SUPPORTED), (64, INVALID)] {
        let none = std::ptr::null_mut();
        assert_eq!(
            cu!(mem_import_from_shareable_handle(&mut imported, none, kind)),
            code
        );
    }
    let handle = create_fd(SIZE);
    let mut place = 0_u64;
    let code = cu!(mem_export_to_shareable_handle(
        (&raw mut place).cast(),
        handle,
        3,
        0
    ));
    assert_eq!(code, INVALID);
});

scene!(none_of_it_needs_a_context_and_nothing_is_left, || {
    assert_eq!(cu!(init(0)), CuResult::SUCCESS);
    let before = counters::read();
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("/proc").count();
    let open = descriptors();
    let handle = create_fd(SIZE);
    let fd = export_fd(handle).expect("a descriptor");
    let imported = import_fd(fd).expect("import");
    let ptr = map_for(imported, SIZE, 0, access::READ).expect("a mapping");
    assert_eq!(retain(ptr), Ok(imported));
    let mut flags = 0;
    let location = CuMemLocation {
        kind: location::DEVICE,
        id: 0,
    };
    assert_eq!(
        cu!(mem_get_access(&mut flags, &location, ptr)),
        CuResult::SUCCESS
    );
    assert_eq!(flags, u64::from(access::READ));
    let now = counters::read();
    assert_eq!(
        (now.handle_references, now.mappings, now.reservations),
        (3, 1, 1),
        "{now}"
    );
    close_fd(fd);
    unmap_all(ptr, SIZE);
    for handle in [imported, imported, handle] {
        assert_eq!(release(handle), Ok(()));
    }
    assert_eq!(release(handle), Err(INVALID));
    assert_eq!(counters::read(), before);
    assert_eq!(descriptors(), open);
});

scene!(
    a_limit_of_files_that_is_changed_beside_calls_stays_changed,
    || {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        use std::sync::atomic::{AtomicBool, Ordering};
        start_on(0);
        let before = getrlimit(Resource::Nofile);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Each raises the limit for a moment.
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    release(create_fd(2 * MIB)).expect("its release");
                }
            });
            let stays = (0..2000_u64).all(|round| {
                let limit = Rlimit {
                    current: Some(200 + round % 100),
                    ..before
                };
                let set = gpuipc_emulated::change_limit(|| setrlimit(Resource::Nofile, limit));
                std::thread::yield_now();
                let now = gpuipc_emulated::change_limit(|| getrlimit(Resource::Nofile));
                set.is_ok() && now.current == limit.current
            });
            is_over.store(true, Ordering::Relaxed);
            assert!(stays);
        });
    }
);
