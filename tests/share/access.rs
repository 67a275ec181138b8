//! Who gets access: devices by number or UUID, more than one, none that cannot
//! reach the memory.

use crate::{PROGRAM, Pair};
use gpuipc_core::{Attributes, GpuIpcMemHandle};
use gpuipc_tests::{Scratch, TestChild, lacks_a_second_gpu, on_real_gpu, skip, to_hex};

const LEN: u64 = 2 << 20;

/// A child with settings of the emulated driver.
fn with(scratch: &Scratch, settings: &[(&str, &str)]) -> TestChild {
    TestChild::start_with(PROGRAM, scratch, |command| {
        for (name, value) in settings {
            command.env(name, value);
        }
    })
}

/// Memory of each kind that GPU 0 holds, with the type by which it goes.
const KINDS: [(&str, &str); 3] = [
    ("vmm-fd", "PosixFd"),
    ("cuda-malloc", "RuntimeIpc"),
    ("pool", "PosixFd"),
];

fn shared(exporter: &mut TestChild, memory: &str) -> GpuIpcMemHandle {
    let (buffer, _) = exporter.alloc(memory, LEN);
    exporter.ok(&format!("fill {buffer} 81"));
    exporter.export(buffer, 0, LEN).1
}

#[test]
fn a_device_is_named_by_uuid_whatever_its_number() {
    if lacks_a_second_gpu() {
        return;
    }
    let scratch = Scratch::new();
    let mut exporter = with(&scratch, &[]);
    let mut importer = with(&scratch, &[("CUDA_VISIBLE_DEVICES", "1,0")]);
    for (memory, used) in KINDS {
        let handle = shared(&mut exporter, memory);
        let own = to_hex(&handle.device_uuid().0);
        // The exporter's GPU 0 is the importer's GPU 1.
        for device in [own.as_str(), "1", "0"] {
            let mem = importer.import(&handle, &format!("device={device}"));
            assert_eq!(mem.used, used, "{memory} on {device}");
            importer.ok(&format!("read {} 81 0", mem.id));
            let where_ = importer.ok(&format!("device-of {}", mem.id));
            let expected = if device == "0" { "0" } else { "1" };
            assert_eq!(where_, expected, "{memory} on {device}");
            importer.ok(&format!("drop mapping {}", mem.id));
        }
    }
}

#[test]
fn a_uuid_that_nobody_sees_is_named_in_the_error() {
    let mut pair = Pair::new();
    let handle = shared(&mut pair.exporter, "vmm-fd");
    for options in ["device", "more"] {
        let refused = pair
            .importer
            .import_refused(&handle, &format!("{options}={}", "ab".repeat(16)));
        assert_eq!(refused.status, "NO_DEVICE");
        assert!(
            refused.text.contains("GPU-abababab-abab-"),
            "{}",
            refused.text
        );
    }
}

#[test]
fn the_importers_device_and_context_stay_as_they_were() {
    if lacks_a_second_gpu() {
        return;
    }
    let scratch = Scratch::new();
    let mut exporter = with(&scratch, &[]);
    let mut importer = with(&scratch, &[("CUDA_VISIBLE_DEVICES", "1,0")]);
    importer.ok("context 1");
    let before = importer.ok("current");
    for (memory, _) in KINDS {
        let handle = shared(&mut exporter, memory);
        let mem = importer.import(&handle, "device=0 ");
        assert_eq!(importer.ok("current"), before);
        importer.ok(&format!("read {} 81 0", mem.id));
        importer.ok(&format!("drop mapping {}", mem.id));
        assert_eq!(importer.ok("current"), before);
    }
}

#[test]
fn access_devices_get_access_where_the_type_can() {
    if lacks_a_second_gpu() {
        return;
    }
    let mut pair = Pair::new();
    let before = pair.importer.state();
    for memory in ["vmm-fd", "pool", "host-numa"] {
        let handle = shared(&mut pair.exporter, memory);
        let mem = pair.importer.import(&handle, "device=0 more=1,0,1");
        for device in ["0", "1"] {
            pair.importer.ok(&format!("context {device}"));
            pair.importer.ok(&format!("read {} 81 0", mem.id));
            let access = pair.importer.ok(&format!("access {} {device}", mem.id));
            let is_pooled = handle.attributes().contains(Attributes::MEM_POOL);
            // Of a pool it is the pool that has the rights.
            assert_eq!(
                access,
                if is_pooled { "0" } else { "3" },
                "{memory} {device}"
            );
        }
        pair.importer.ok("context none");
        pair.importer.ok(&format!("drop mapping {}", mem.id));
    }
    let _ = before;
    let handle = shared(&mut pair.exporter, "cuda-malloc");
    let refused = pair.importer.import_refused(&handle, "device=0 more=1");
    assert_eq!(refused.attempts, ["RuntimeIpc/select/OneDeviceOnly"]);
    // Itself is not one more.
    pair.importer.import(&handle, "device=0 more=0");
}

#[test]
fn gpus_that_are_no_peers_are_named() {
    if on_real_gpu() {
        return skip("needs GPUs that are no peers");
    }
    let scratch = Scratch::new();
    let no_peer = [("GPUIPC_EMULATED_PROFILE", "no-peer")];
    let (mut exporter, mut importer) = (with(&scratch, &no_peer), with(&scratch, &no_peer));
    let uuids: Vec<String> = importer.ok("uuids").split(' ').map(str::to_owned).collect();
    for (memory, used) in KINDS {
        let handle = shared(&mut exporter, memory);
        let warm = importer.import(&handle, "device=0");
        importer.ok(&format!("drop mapping {}", warm.id));
        let before = importer.state();
        let refused = importer.import_refused(&handle, "device=1");
        assert!(
            refused.attempts[0].starts_with(used)
                && refused.attempts[0].ends_with("PeerUnsupported"),
            "{refused:?}"
        );
        let words = format!("from {} to {}", uuids[1], uuids[0]);
        assert!(refused.text.contains(&words), "{}", refused.text);
        importer.returns_to(&before);
        // And where the first device could, but one more cannot: nothing.
        if used == "PosixFd" {
            let refused = importer.import_refused(&handle, "device=0 more=1");
            assert!(refused.text.contains(&words), "{}", refused.text);
            importer.returns_to(&before);
        }
    }
}

#[test]
fn a_gpu_that_is_hidden_and_out_of_reach_is_named() {
    if on_real_gpu() {
        return skip("needs GPUs that are no peers");
    }
    let scratch = Scratch::new();
    let mut exporter = with(&scratch, &[("GPUIPC_EMULATED_PROFILE", "no-peer")]);
    let mut importer = with(
        &scratch,
        &[
            ("GPUIPC_EMULATED_PROFILE", "no-peer"),
            ("CUDA_VISIBLE_DEVICES", "1"),
        ],
    );
    for (memory, _) in KINDS {
        let handle = shared(&mut exporter, memory);
        let before = importer.state();
        let refused = importer.import_refused(&handle, "");
        assert!(
            refused.attempts[0].ends_with("DeviceNotVisible"),
            "{refused:?}"
        );
        let uuid = handle.device_uuid().to_string();
        assert!(refused.text.contains(&uuid), "{}", refused.text);
        assert!(refused.text.contains("CUDA_VISIBLE_DEVICES"));
        let _ = before;
    }
}

#[test]
fn a_hidden_gpu_that_can_be_reached_is_no_obstacle() {
    if lacks_a_second_gpu() {
        return;
    }
    let scratch = Scratch::new();
    let mut exporter = with(&scratch, &[]);
    let mut importer = with(&scratch, &[("CUDA_VISIBLE_DEVICES", "1")]);
    for (memory, used) in KINDS {
        let handle = shared(&mut exporter, memory);
        let mem = importer.import(&handle, "");
        assert_eq!(mem.used, used);
        importer.ok(&format!("read {} 81 0", mem.id));
    }
}

#[test]
fn exhausted_peers_lead_to_the_next_type_and_work_again_after_a_drop() {
    if on_real_gpu() {
        return skip("needs a limit of peers");
    }
    let scratch = Scratch::new();
    let settings = [
        ("GPUIPC_EMULATED_GPUS", "4"),
        ("GPUIPC_EMULATED_PEER_LIMIT", "2"),
    ];
    let mut importer = with(&scratch, &settings);
    let mut handles = Vec::new();
    let mut exporters = Vec::new();
    for gpu in 1..4 {
        let gpu = gpu.to_string();
        let mut exporter = with(
            &scratch,
            &[settings[0], settings[1], ("CUDA_VISIBLE_DEVICES", &gpu)],
        );
        handles.push(gpuipc_tests::all_types(&mut exporter, LEN, 0, LEN));
        exporters.push(exporter);
    }
    let first = importer.import(&handles[0], "device=0");
    let second = importer.import(&handles[1], "device=0");
    let refused = importer.import_refused(&handles[2], "device=0");
    assert_eq!(
        refused.attempts,
        [
            "PosixFd/cuMemSetAccess/TooManyPeers",
            "Fabric/cuMemSetAccess/TooManyPeers",
            "RuntimeIpc/cuIpcOpenMemHandle/TooManyPeers",
        ]
    );
    importer.ok(&format!("drop mapping {}", first.id));
    let third = importer.import(&handles[2], "device=0");
    assert_eq!(third.used, "PosixFd");
    importer.ok(&format!("read {} {} 0", third.id, gpuipc_tests::VMM_SEED));
    importer.ok(&format!("read {} {} 0", second.id, gpuipc_tests::VMM_SEED));
}
