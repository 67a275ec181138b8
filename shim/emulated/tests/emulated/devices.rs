//! Devices, what a process sees of them, and what the driver lacks.

use crate::child::TestChild;
use crate::driver::*;
use crate::scene;
use gpuipc_sys::{CuResult, CuUuid, access};

const SIZE: usize = 4 * MIB;

fn uuid(device: i32) -> CuUuid {
    let mut uuid = CuUuid::default();
    assert_eq!(
        cu!(device_get_uuid_v2(&mut uuid, device)),
        CuResult::SUCCESS
    );
    uuid
}

scene!(attributes, || {
    start_on(0);
    let expected = [
        (41, 1),
        (102, 1),
        (103, 1),
        (128, 1),
        (132, 1),
        (124, 1),
        (125, 1),
        (115, 1),
        (119, 9),
    ];
    for (number, value) in expected.into_iter().chain([(134, 0), (141, 1), (20, 0)]) {
        let mut answer = -1;
        assert_eq!(
            cu!(device_get_attribute(&mut answer, number, 0)),
            CuResult::SUCCESS
        );
        assert_eq!(answer, value, "attribute {number}");
    }
    let mut count = 0;
    assert_eq!(cu!(device_get_count(&mut count)), CuResult::SUCCESS);
    assert_eq!(count, 2);
    let mut device = -1;
    assert_eq!(cu!(device_get(&mut device, 2)), CuResult::INVALID_DEVICE);
    let mut name = [0x7f; 9];
    assert_eq!(
        cu!(device_get_name(name.as_mut_ptr(), 9, 1)),
        CuResult::SUCCESS
    );
    assert_eq!(
        name.map(|byte| byte as u8),
        *b"Emulated\0",
        "cut to its room"
    );
    let mut can = -1;
    assert_eq!(
        cu!(device_can_access_peer(&mut can, 1, 0)),
        CuResult::SUCCESS
    );
    assert_eq!(can, 1);
    assert_ne!(uuid(0), uuid(1));
});

scene!(no_visible_device, [("CUDA_VISIBLE_DEVICES", "")], || {
    assert_eq!(cu!(init(0)), CuResult::NO_DEVICE);
    assert_eq!(alloc(4096), Err(CuResult::NOT_INITIALIZED));
});

scene!(an_importer_with_a_hidden_device, || {
    start_on(0);
    let handle = create_fd(SIZE);
    let ptr = map_for(handle, SIZE, 0, access::READ_WRITE).expect("a mapping");
    write(ptr, 0xabcd).expect("a write");
    let fd = export_fd(handle).expect("a descriptor");
    for (visible, expected) in [("1", -2_i64), ("1,0", 1), ("0,1", 0), ("0", 0)] {
        let mut child = TestChild::with(&[("CUDA_VISIBLE_DEVICES", visible)]);
        let there = child.import_fd(fd).expect("import");
        assert_eq!(
            child.ask(&format!("location {there}")),
            Ok(expected as u64),
            "visible {visible}"
        );
        let there = child
            .ask(&format!("map {there} {SIZE} 3"))
            .expect("a mapping");
        assert_eq!(child.read(there), Ok(0xabcd));
    }
    let mut lonely = TestChild::with(&[
        ("CUDA_VISIBLE_DEVICES", "1"),
        ("GPUIPC_EMULATED_PEER", "none"),
    ]);
    assert_eq!(
        lonely.map_fd(fd, SIZE, 3),
        Err(CuResult::PEER_ACCESS_UNSUPPORTED)
    );
});

scene!(without_peers, [("GPUIPC_EMULATED_PEER", "none")], || {
    start_on(0);
    let mut can = -1;
    assert_eq!(
        cu!(device_can_access_peer(&mut can, 0, 1)),
        CuResult::SUCCESS
    );
    assert_eq!(can, 0);
    let handle = create_fd(SIZE);
    assert_eq!(
        map_for(handle, SIZE, 1, 3),
        Err(CuResult::PEER_ACCESS_UNSUPPORTED)
    );
    assert!(map_for(handle, SIZE, 0, 3).is_ok());
});

scene!(
    a_gpu_seen_twice,
    [("CUDA_VISIBLE_DEVICES", "1,0,1")],
    || {
        assert_eq!(cu!(init(0)), CuResult::INVALID_DEVICE);
    }
);

scene!(access_counts_by_the_current_device, || {
    start_on(0);
    let handle = create_fd(SIZE);
    let ptr = map_for(handle, SIZE, 1, access::READ_WRITE).expect("a mapping");
    assert_eq!(
        read(ptr),
        Err(CuResult::INVALID_VALUE),
        "only device 1 has access"
    );
    use_device(1);
    assert_eq!(read(ptr), Ok(0));
});

scene!(
    missing_symbols,
    [("GPUIPC_EMULATED_MISSING", "cuMemCreate, cuDeviceGetUuid_v2")],
    || {
        use gpuipc_emulated::{ProcAddress, get_proc_address};
        let table = gpuipc_emulated::table();
        assert!(table.mem_create.is_none() && table.device_get_uuid_v2.is_none());
        assert!(table.mem_map.is_some() && table.device_get_uuid.is_some());
        assert_eq!(
            get_proc_address("cuMemCreate", 13000),
            ProcAddress::NotFound
        );
    }
);

scene!(proc_addresses, || {
    use gpuipc_emulated::{ProcAddress, get_proc_address};
    let table = gpuipc_emulated::table();
    let of = |entry: Option<unsafe extern "C" fn(*mut CuUuid, i32) -> CuResult>| {
        ProcAddress::Found(entry.expect("an entry") as *const std::ffi::c_void)
    };
    assert_eq!(
        get_proc_address("cuDeviceGetUuid", 13000),
        of(table.device_get_uuid_v2)
    );
    assert_eq!(
        get_proc_address("cuDeviceGetUuid", 11000),
        of(table.device_get_uuid)
    );
    assert_eq!(
        get_proc_address("cuMemCreate", 9000),
        ProcAddress::NewerVersion
    );
    assert_eq!(get_proc_address("cuNothing", 13000), ProcAddress::NotFound);
    assert!(matches!(
        get_proc_address("cuMemAlloc", 13000),
        ProcAddress::Found(_)
    ));
});
