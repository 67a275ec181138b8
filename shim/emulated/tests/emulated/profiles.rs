//! Ready-made machines, config files, and settings that are wrong.

use crate::child::TestChild;
use crate::driver::*;
use crate::pool_calls::*;
use crate::scene;
use gpuipc_emulated::{ProcAddress, get_proc_address, table};
use gpuipc_sys::{CuResult, handle_type, location, pointer_attribute};
use std::process::Command;

const SIZE: usize = 4 * MIB;

fn device_attribute(number: u32) -> Answer<i32> {
    let mut value = -1;
    ok(cu!(device_get_attribute(&mut value, number, 0))).map(|()| value)
}

scene!(no_vmm, [("GPUIPC_EMULATED_PROFILE", "no-vmm")], || {
    start_on(0);
    for number in [102, 103, 128, 132, 119, 124, 141] {
        assert_eq!(device_attribute(number), Ok(0), "attribute {number}");
    }
    let wish = prop(location::DEVICE, 0, 1);
    assert_eq!(create(SIZE, wish), Err(CuResult::NOT_SUPPORTED));
    assert_eq!(reserve(SIZE), Err(CuResult::NOT_SUPPORTED));
    assert_eq!(import_fd(0), Err(CuResult::NOT_SUPPORTED));
    assert_eq!(create_pool(0, 1), Err(CuResult::NOT_SUPPORTED));
    let ptr = alloc(SIZE).expect("memory");
    let types = attribute(ptr, pointer_attribute::ALLOWED_HANDLE_TYPES);
    assert_eq!(types, Ok(0));
    assert_eq!(retain(ptr), Err(CuResult::NOT_SUPPORTED));
    assert_eq!(dma_buf(ptr, SIZE), Err(CuResult::NOT_SUPPORTED));
    write(ptr, 7).expect("a write");
    let handle = ipc_handle(ptr).expect("a handle");
    let mut child = TestChild::new();
    let there = child.open(handle).expect("legacy handles work");
    assert_eq!(child.read(there), Ok(7));
});

scene!(no_peer, [("GPUIPC_EMULATED_PROFILE", "no-peer")], || {
    start_on(0);
    let mut can = -1;
    assert_eq!(
        cu!(device_can_access_peer(&mut can, 0, 1)),
        CuResult::SUCCESS
    );
    assert_eq!(can, 0);
    let handle = create(SIZE, prop(location::DEVICE, 1, 1)).expect("memory");
    let refused = Err(CuResult::PEER_ACCESS_UNSUPPORTED);
    assert_eq!(map_for(handle, SIZE, 0, 3), refused.clone());
    let pool = create_pool(1, 1).expect("a pool");
    assert_eq!(pool_access(pool, 0, 3), refused.map(|_: u64| ()));
});

scene!(
    an_old_driver,
    [("GPUIPC_EMULATED_PROFILE", "driver-11.4")],
    || {
        start_on(0);
        let mut version = 0;
        assert_eq!(cu!(driver_get_version(&mut version)), CuResult::SUCCESS);
        assert_eq!(version, 11040);
        assert!(table().mem_get_handle_for_address_range.is_none());
        assert!(table().mem_pool_create.is_some() && table().mem_create.is_some());
        for call in gpuipc_sys::CALLS {
            let found = get_proc_address(call.symbol, 13000);
            let there = matches!(found, ProcAddress::Found(_));
            assert_eq!(there, call.cuda_version <= 11040, "{}", call.symbol);
        }
        for (number, answer) in [
            (102, Ok(1)),
            (119, Ok(1)),
            (124, Err(CuResult::INVALID_VALUE)),
            (128, Err(CuResult::INVALID_VALUE)),
        ] {
            assert_eq!(device_attribute(number), answer, "attribute {number}");
        }
        let ptr = alloc(SIZE).expect("memory");
        for (number, known) in [
            (pointer_attribute::RANGE_SIZE, true),
            (pointer_attribute::MEMPOOL_HANDLE, true),
            (pointer_attribute::MAPPING_SIZE, false),
            (pointer_attribute::MAPPING_BASE_ADDR, false),
        ] {
            assert_eq!(attribute(ptr, number).is_ok(), known, "attribute {number}");
        }
        // What it lacks is not asked of a newer one.
        let wish = prop(location::DEVICE, 0, handle_type::FABRIC);
        assert_eq!(create(SIZE, wish), Err(CuResult::NOT_SUPPORTED));
    }
);

scene!(
    a_limit_of_peers,
    [
        ("GPUIPC_EMULATED_GPUS", "4"),
        ("GPUIPC_EMULATED_PEER_LIMIT", "1")
    ],
    || {
        start_on(0);
        let mapped = |device: i32| {
            let handle = create(SIZE, prop(location::DEVICE, device, 1)).expect("memory");
            map_for(handle, SIZE, 0, 3)
        };
        let own = mapped(0).expect("its own memory");
        let first = mapped(1).expect("the first peer");
        mapped(1).expect("the same peer again");
        assert_eq!(mapped(2), Err(CuResult::TOO_MANY_PEERS));
        let pool = create_pool(3, 1).expect("a pool");
        assert_eq!(pool_access(pool, 0, 3), Err(CuResult::TOO_MANY_PEERS));
        let mut child = TestChild::new();
        child.ask("device 2").expect("a device");
        let ptr = child.ask(&format!("alloc {SIZE}")).expect("memory");
        let handle = gpuipc_sys::CuIpcMemHandle {
            reserved: child.ask_bytes(&format!("handle {ptr}")),
        };
        assert_eq!(ipc_open(handle, 1), Err(CuResult::TOO_MANY_PEERS));
        use_device(2);
        ipc_open(handle, 1).expect("not a peer for device 2");
        read(own).expect_err("device 2 has no access");
        set_access(first, SIZE, location::DEVICE, 0, 0).expect("taken away");
    }
);

scene!(
    another_granularity,
    [("GPUIPC_EMULATED_GRANULARITY", "64KiB,512KiB")],
    || {
        start_on(0);
        let wish = prop(location::DEVICE, 0, 1);
        for (option, answer) in [(0, 64 << 10), (1, 512 << 10)] {
            let mut bytes = 0;
            let code = cu!(mem_get_allocation_granularity(&mut bytes, &wish, option));
            assert_eq!((code, bytes), (CuResult::SUCCESS, answer));
        }
        let handle = create(192 << 10, wish).expect("three granules");
        let ptr = map_for(handle, 192 << 10, 0, 3).expect("a mapping");
        write(ptr + (128 << 10), 5).expect("a write");
        assert_eq!(create(32 << 10, wish), Err(CuResult::INVALID_VALUE));
        unmap_all(ptr, 192 << 10);
    }
);

/// Runs this test's program as a child with settings; its code and its words.
fn init_with(settings: &[(&str, &str)]) -> (CuResult, String) {
    let (own, other) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let output = Command::new(std::env::current_exe().expect("own path"))
        .args(["child::serve", "--exact", "--nocapture", "--test-threads=1"])
        .env("GPUIPC_EMULATED_TEST_CHILD", "1")
        .envs(settings.iter().copied())
        .stdin(std::os::fd::OwnedFd::from(other))
        .output();
    let output = {
        // The child of a driver that started waits for commands.
        drop(own.shutdown(std::net::Shutdown::Write));
        output.expect("the program runs")
    };
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(own), &mut line).expect("a greeting");
    let code = line.trim().strip_prefix("init ").expect("a greeting");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    (CuResult(code.parse().expect("a code")), words)
}

scene!(wrong_settings_fail_loudly, || {
    let missing = ["/nowhere", "such.conf"].join("/");
    for (name, text, word) in [
        ("PROFILE", "h100", "h200-imex"),
        ("GPUS", "many", "not a number"),
        ("PEER", "0-9", "not a pair"),
        ("MISSING", "cuMemMapp", "cuMemMapp"),
        ("FAIL", "nonsense", "SYMBOL@NTH=CODE"),
        ("DELAY", "cuMemMap@1=soon", "MILLISECONDS"),
        ("RANDOM", "1:2000", "PER_MILLE"),
        ("CONFIG", missing.as_str(), "cannot be read"),
    ] {
        let name = format!("GPUIPC_EMULATED_{name}");
        let (code, words) = init_with(&[(&name, text)]);
        assert_eq!(code, CuResult::UNKNOWN, "{name}={text}");
        assert!(
            words.contains(word) && words.contains("gpuipc-emulated"),
            "{words}"
        );
    }
});

scene!(
    a_wrong_fault_is_not_cleared_away,
    [("GPUIPC_EMULATED_FAIL", "cuMemMap@1")],
    || {
        gpuipc_emulated::faults::clear();
        assert_eq!(cu!(init(0)), CuResult::UNKNOWN);
    }
);

scene!(a_config_file, || {
    let dir = std::env::var("GPUIPC_EMULATED_DIR").expect("a scene's process");
    std::fs::create_dir_all(&dir).expect("a directory");
    let path = format!("{dir}/machine.conf");
    let text = "# three GPUs, seen in another order\n\
                profile = h200-imex\n\
                gpus = 3\n\
                visible = 2,0\n\
                uuids = 00000000000000000000000000000000, 11111111111111111111111111111111, \
                GPU-22222222-2222-2222-2222-222222222222\n\
                peer = 0-2\n";
    std::fs::write(&path, text).expect("a file");
    let mut child = TestChild::with(&[("GPUIPC_EMULATED_CONFIG", &path)]);
    assert_eq!(child.ask("devices"), Ok(2));
    assert_eq!(child.ask("uuid-byte 0"), Ok(0x22));
    assert_eq!(child.ask("uuid-byte 1"), Ok(0));
    let shared = handle_type::FABRIC;
    child
        .ask(&format!("create {SIZE} {shared}"))
        .expect("in a domain");
    let two = [
        ("GPUIPC_EMULATED_CONFIG", path.as_str()),
        ("CUDA_VISIBLE_DEVICES", "1"),
    ];
    let mut child = TestChild::with(&two);
    assert_eq!(child.ask("uuid-byte 0"), Ok(0x11));
});
