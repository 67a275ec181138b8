//! Which host this is: the kernel's boot id, `GPUIPC_HOST_ID`, or nothing.

use crate::{PROGRAM, after, can_unshare};
use gpuipc_tests::{Scratch, TestChild};
use std::process::Command;

const LEN: u64 = 4096;

/// A boot id of one's own, as gVisor and systemd-nspawn give to each container.
const OTHER_BOOT: &str = "echo 11111111-2222-3333-4444-555555555555 >boot_id \
     && mount --bind boot_id /proc/sys/kernel/random/boot_id";

fn child(scratch: &Scratch, change: impl FnOnce(&mut Command)) -> TestChild {
    TestChild::start_with(PROGRAM, scratch, change)
}

/// A child that sees another boot id than the test does.
fn in_container(scratch: &Scratch, host: &str) -> TestChild {
    TestChild::start_with("unshare", scratch, |command| {
        command
            .env("GPUIPC_HOST_ID", host)
            .current_dir(scratch.path());
        after(command, &["--mount"], OTHER_BOOT);
    })
}

fn can_have_a_boot_id() -> bool {
    let line = "mount --bind /dev/null /proc/sys/kernel/random/boot_id";
    can_unshare(&["--mount"], line)
}

#[test]
fn another_boot_id_is_another_host_until_both_say_which_it_is() {
    if !can_have_a_boot_id() {
        return;
    }
    for memory in ["vmm-fd", "cuda-malloc"] {
        let scratch = Scratch::new();
        let mut exporter = child(&scratch, |_| {});
        let (buffer, _) = exporter.alloc(memory, LEN);
        exporter.ok(&format!("fill {buffer} 31"));
        let (_, handle) = exporter.export(buffer, 0, LEN);
        let refused = in_container(&scratch, "").import_refused(&handle, "");
        assert_eq!(refused.status, "OTHER_HOST");
        for said in [
            "on another host, or in a container with a boot id of its own",
            "GPUIPC_HOST_ID",
        ] {
            assert!(refused.text.contains(said), "{}", refused.text);
        }
        // One side alone is another host than the other.
        in_container(&scratch, "node-17").import_refused(&handle, "");
        let mut exporter = child(&scratch, |command| {
            command.env("GPUIPC_HOST_ID", "node-17");
        });
        let (buffer, _) = exporter.alloc(memory, LEN);
        exporter.ok(&format!("fill {buffer} 32"));
        let (_, handle) = exporter.export(buffer, 0, LEN);
        let mut importer = in_container(&scratch, "node-17");
        let mem = importer.import(&handle, "");
        importer.ok(&format!("read {} 32 0", mem.id));
        in_container(&scratch, "node-18").import_refused(&handle, "");
    }
}

#[test]
fn a_host_id_that_is_no_name_is_refused_by_name() {
    let scratch = Scratch::new();
    let zeros = "00000000-0000-0000-0000-000000000000";
    let mut child = child(&scratch, |command| {
        command.env("GPUIPC_HOST_ID", zeros);
    });
    let refused = child.err("open");
    assert_eq!(refused.status, "INVALID_SETTING");
    assert!(
        refused.text.contains("GPUIPC_HOST_ID") && refused.text.contains(zeros),
        "{}",
        refused.text
    );
}

#[test]
fn the_host_s_number_and_its_name_in_handles_are_what_the_variable_says() {
    let scratch = Scratch::new();
    let number = "0123456789abcdef0123456789abcdef";
    let mut child = child(&scratch, |command| {
        command.env("GPUIPC_HOST_ID", number);
    });
    let (buffer, _) = child.alloc("vmm-fd", LEN);
    let (_, handle) = child.export(buffer, 0, LEN);
    assert_eq!(handle.host_id().to_string(), number);
}
