//! Multicast objects, by CUDA's documentation. Two GPUs of one process are two
//! members here; members in processes of their own are in the tests above the
//! library.

use crate::driver::*;
use crate::scene;
use crate::scene::names;
use gpuipc_emulated::multicast::sum_u32;
use gpuipc_sys::{
    CuMulticastObjectProp, CuResult, access, handle_type, location, multicast_granularity,
};
use std::time::Duration;

const SIZE: usize = 4 * MIB;
const PART: usize = 2 * MIB;
const INVALID: Answer = Err(CuResult::INVALID_VALUE);

fn wanted(num_devices: u32, size: usize) -> CuMulticastObjectProp {
    CuMulticastObjectProp {
        num_devices,
        size,
        handle_types: handle_type::POSIX_FILE_DESCRIPTOR.into(),
        flags: 0,
    }
}

fn create_object(prop: CuMulticastObjectProp) -> Answer<u64> {
    let mut handle = 0;
    ok(cu!(multicast_create(&mut handle, &prop))).map(|()| handle)
}

fn add(object: u64, device: i32) -> Answer {
    ok(cu!(multicast_add_device(object, device)))
}

fn bind(object: u64, offset: usize, memory: u64, memory_offset: usize, size: usize) -> Answer {
    ok(cu!(multicast_bind_mem(
        object,
        offset,
        memory,
        memory_offset,
        size,
        0
    )))
}

fn unbind(object: u64, device: i32, offset: usize, size: usize) -> Answer {
    ok(cu!(multicast_unbind(object, device, offset, size)))
}

fn memory_on(device: i32, size: usize) -> u64 {
    let types = handle_type::POSIX_FILE_DESCRIPTOR;
    create(size, prop(location::DEVICE, device, types)).expect("memory")
}

/// An object with both GPUs, and memory of each.
fn team() -> (u64, [u64; 2]) {
    let object = create_object(wanted(2, SIZE)).expect("an object");
    assert_eq!((add(object, 0), add(object, 1)), (Ok(()), Ok(())));
    (object, [memory_on(0, SIZE), memory_on(1, SIZE)])
}

scene!(a_write_reaches_every_member_and_a_reduction_sums, || {
    start_on(0);
    let (object, memories) = team();
    let bound = memories.map(|memory| bind(object, 0, memory, 0, SIZE));
    assert_eq!(bound, [Ok(()); 2]);
    let ptr = map_for(object, SIZE, 0, access::READ_WRITE).expect("a mapping");
    let plain =
        [0, 1].map(|at| map_for(memories[at], SIZE, 0, access::READ_WRITE).expect("memory"));
    let there = (PART + 8) as u64;
    write(ptr + there, 7).expect("a write");
    assert_eq!(plain.map(|plain| read(plain + there)), [Ok(7); 2]);
    write(plain[0] + there, 30).expect("a write");
    write(plain[1] + there + 4, 4).expect("a write");
    assert_eq!(sum_u32(ptr + there, 2), Ok(vec![37, 4]));
    assert_eq!(read(ptr + there), Err(CuResult::INVALID_VALUE));
    assert_eq!(cu!(memset_d8(ptr, 1, SIZE)), CuResult::SUCCESS);
    assert_eq!(sum_u32(ptr, 1), Ok(vec![0x0202_0202]));
    assert_eq!(
        cu!(memcpy(ptr, plain[1] + there, 8)),
        CuResult::SUCCESS,
        "a copy from memory is a write to all"
    );
});

scene!(bytes_that_a_member_has_not_bound_are_nowhere, || {
    start_on(0);
    let (object, [first, second]) = team();
    let ptr = map_for(object, SIZE, 0, access::READ_WRITE).expect("a mapping");
    assert_eq!(bind(object, 0, first, PART, PART), Ok(()));
    assert_eq!(write(ptr, 1), INVALID, "the second has bound nothing");
    assert_eq!(bind(object, 0, second, 0, SIZE), Ok(()));
    assert_eq!(write(ptr, 1), Ok(()));
    assert_eq!(
        write(ptr + PART as u64, 1),
        INVALID,
        "the first ends before"
    );
    assert_eq!(bind(object, PART, first, 0, PART), Ok(()));
    assert_eq!(
        write(ptr + PART as u64 - 2, 0x0102_0304),
        Ok(()),
        "over the seam"
    );
    assert_eq!(unbind(object, 1, 0, SIZE), Ok(()));
    assert_eq!(write(ptr, 1), INVALID);
});

scene!(binding_and_mapping_wait_until_all_were_added, || {
    start_on(0);
    let object = create_object(wanted(2, SIZE)).expect("an object");
    let memory = memory_on(0, SIZE);
    add(object, 0).expect("the first");
    let binding = std::thread::spawn(move || bind(object, 0, memory, 0, SIZE));
    let mapping = std::thread::spawn(move || map_for(object, SIZE, 0, access::READ_WRITE));
    std::thread::sleep(Duration::from_millis(100));
    assert!(!binding.is_finished() && !mapping.is_finished());
    add(object, 1).expect("the second");
    assert_eq!(binding.join().expect("no panic"), Ok(()));
    assert!(mapping.join().expect("no panic").is_ok());
});

scene!(each_gpu_is_a_member_once_and_for_good, || {
    start_on(0);
    let object = create_object(wanted(1, SIZE)).expect("an object");
    assert_eq!(add(object, 2), Err(CuResult::INVALID_DEVICE));
    assert_eq!(add(object, 0), Ok(()));
    assert_eq!((add(object, 0), add(object, 1)), (INVALID, INVALID));
    let other = memory_on(1, SIZE);
    assert_eq!(
        bind(object, 0, other, 0, SIZE),
        Err(CuResult::INVALID_DEVICE)
    );
});

scene!(what_is_not_whole_or_not_there_is_refused, || {
    start_on(0);
    for prop in [
        wanted(0, SIZE),
        wanted(65, SIZE),
        wanted(2, 0),
        wanted(2, MIB),
        CuMulticastObjectProp {
            flags: 1,
            ..wanted(2, SIZE)
        },
        CuMulticastObjectProp {
            handle_types: 2,
            ..wanted(2, SIZE)
        },
    ] {
        assert_eq!(
            create_object(prop),
            Err(CuResult::INVALID_VALUE),
            "{prop:?}"
        );
    }
    let fabric = CuMulticastObjectProp {
        handle_types: handle_type::FABRIC.into(),
        ..wanted(2, SIZE)
    };
    assert_eq!(create_object(fabric), Err(CuResult::NOT_PERMITTED));
    let (object, [memory, _]) = team();
    for (offset, memory_offset, size) in [
        (MIB, 0, PART),
        (0, MIB, PART),
        (0, 0, MIB),
        (0, 0, 0),
        (PART, 0, SIZE),
        (0, PART, SIZE),
        (usize::MAX - PART + 1, 0, PART),
    ] {
        assert_eq!(bind(object, offset, memory, memory_offset, size), INVALID);
    }
    let plain = create(SIZE, prop(location::DEVICE, 0, handle_type::NONE)).expect("memory");
    assert_eq!(bind(object, 0, plain, 0, SIZE), INVALID, "not shareable");
    assert_eq!(bind(memory, 0, memory, 0, SIZE), INVALID, "no object");
    assert_eq!(add(memory, 0), INVALID, "no object");
    assert_eq!(bind(object, 0, memory, 0, PART), Ok(()));
    assert_eq!(bind(object, 0, memory, PART, PART), INVALID, "taken");
    for (device, offset, size) in [(1, 0, PART), (0, PART, PART), (0, 0, SIZE)] {
        assert_eq!(unbind(object, device, offset, size), INVALID);
    }
    assert_eq!(unbind(object, 0, 0, PART), Ok(()));
    assert_eq!(unbind(object, 0, 0, PART), INVALID, "twice");
    let ptr = reserve(SIZE).expect("addresses");
    for (size, offset) in [(PART, 0), (PART, PART)] {
        assert_eq!(map(ptr, size, offset, object), Err(CuResult::NOT_SUPPORTED));
    }
    assert!(properties(object).is_err());
});

scene!(memory_is_bound_by_its_address_too, || {
    start_on(0);
    let (object, [first, second]) = team();
    let ptr = map_for(first, SIZE, 0, access::READ_WRITE).expect("memory");
    release(first).expect("the mapping keeps it");
    let by_address = |ptr: u64, size| ok(cu!(multicast_bind_addr(object, 0, ptr, size, 0)));
    assert_eq!(by_address(ptr + MIB as u64, PART), INVALID);
    assert_eq!(by_address(ptr + PART as u64, SIZE), INVALID);
    assert_eq!(by_address(alloc(SIZE).expect("memory"), PART), INVALID);
    assert_eq!(by_address(ptr + PART as u64, PART), Ok(()));
    assert_eq!(bind(object, 0, second, 0, PART), Ok(()));
    let all = map_for(object, SIZE, 0, access::READ_WRITE).expect("a mapping");
    write(all, 9).expect("a write");
    assert_eq!(read(ptr + PART as u64), Ok(9));
});

scene!(a_binding_holds_no_reference_to_the_memory, || {
    start_on(0);
    let (object, [first, second]) = team();
    assert_eq!(bind(object, 0, first, 0, SIZE), Ok(()));
    assert_eq!(bind(object, 0, second, 0, SIZE), Ok(()));
    let ptr = map_for(object, SIZE, 0, access::READ_WRITE).expect("a mapping");
    assert_eq!(write(ptr, 1), Ok(()));
    release(second).expect("the last reference");
    assert_eq!(write(ptr, 1), INVALID);
});

scene!(
    an_imported_object_lives_on_without_its_creators_handle,
    || {
        start_on(0);
        let (object, [first, second]) = team();
        let fd = export_fd(object).expect("a descriptor");
        let imported = import_fd(fd).expect("an import");
        assert!(export_fd(imported).is_err(), "as imported memory");
        close_fd(fd);
        release(object).expect("the creator's reference");
        assert_eq!(bind(imported, 0, first, 0, SIZE), Ok(()));
        assert_eq!(bind(imported, 0, second, 0, SIZE), Ok(()));
        let ptr = map_for(imported, SIZE, 0, access::READ_WRITE).expect("a mapping");
        release(imported).expect("the mapping keeps it");
        assert_eq!(write(ptr, 1), Ok(()));
    }
);

scene!(
    without_a_free_slot_a_first_binding_is_out_of_memory,
    [("GPUIPC_EMULATED_MULTICAST_SLOTS", "2")],
    || {
        start_on(0);
        let before = names();
        let teams: Vec<_> = (0..3).map(|_| team()).collect();
        let bind = |nth: usize| bind(teams[nth].0, 0, teams[nth].1[0], 0, SIZE);
        assert_eq!((bind(0), bind(1)), (Ok(()), Ok(())));
        assert_eq!(bind(2), Err(CuResult::OUT_OF_MEMORY));
        assert_eq!(unbind(teams[0].0, 0, 0, SIZE), Ok(()));
        assert_eq!(bind(2), Err(CuResult::OUT_OF_MEMORY), "the object keeps it");
        release(teams[0].0).expect("the last reference");
        assert_eq!(bind(2), Ok(()));
        for (object, memories) in &teams[1..] {
            release(*object).expect("an object");
            for memory in memories {
                release(*memory).expect("memory");
            }
        }
        for memory in teams[0].1 {
            release(memory).expect("memory");
        }
        assert_eq!(names(), before);
        assert_eq!(gpuipc_emulated::counters::read().files_open, 0);
    }
);

scene!(a_thousand_rounds_leave_nothing, || {
    start_on(0);
    let round = || {
        let (object, memories) = team();
        for memory in memories {
            bind(object, 0, memory, 0, SIZE).expect("a binding");
        }
        let counted = gpuipc_emulated::counters::read();
        assert_eq!(
            (counted.multicast_objects, counted.multicast_bindings),
            (1, 2)
        );
        let ptr = map_for(object, SIZE, 0, access::READ_WRITE).expect("a mapping");
        write(ptr, 1).expect("a write");
        unmap_all(ptr, SIZE);
        for (device, memory) in [(0, memories[0]), (1, memories[1])] {
            unbind(object, device, 0, SIZE).expect("bound");
            release(memory).expect("memory");
        }
        release(object).expect("an object");
    };
    round();
    let before = (gpuipc_emulated::counters::read(), names());
    for _ in 0..1000 {
        round();
    }
    assert_eq!((gpuipc_emulated::counters::read(), names()), before);
});

scene!(
    granularities_are_settings,
    [("GPUIPC_EMULATED_MULTICAST_GRANULARITY", "2MiB,8MiB")],
    || {
        start_on(0);
        let ask = |option| {
            let mut bytes = 0;
            ok(cu!(multicast_get_granularity(
                &mut bytes,
                &wanted(2, SIZE),
                option
            )))
            .map(|()| bytes)
        };
        assert_eq!(ask(multicast_granularity::MINIMUM), Ok(2 * MIB));
        assert_eq!(ask(multicast_granularity::RECOMMENDED), Ok(8 * MIB));
        assert_eq!(ask(2), Err(CuResult::INVALID_VALUE));
    }
);

scene!(
    a_machine_without_multicast_refuses_every_call,
    [("GPUIPC_EMULATED_ATTRIBUTES", "132=0")],
    || {
        start_on(0);
        let none = CuResult::NOT_SUPPORTED;
        assert_eq!(create_object(wanted(2, SIZE)), Err(none));
        assert_eq!(add(1, 0), Err(none));
        assert_eq!(unbind(1, 0, 0, SIZE), Err(none));
    }
);

scene!(
    an_older_driver_lacks_the_calls_and_says_that_it_is_emulated,
    [("GPUIPC_EMULATED_DRIVER_VERSION", "12000")],
    || {
        let table = gpuipc_emulated::table();
        assert!(table.multicast_create.is_none() && table.multicast_unbind.is_none());
        let mut version = 0;
        assert_eq!(cu!(emulated_driver(&mut version)), CuResult::SUCCESS);
        assert_eq!(version, gpuipc_sys::EMULATED_DRIVER_VERSION);
    }
);
