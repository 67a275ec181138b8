//! The export table's file in memory: what the kernel adds to its seals.

use crate::{PROGRAM, after, can_unshare};
use gpuipc_tests::{Scratch, TestChild, out_of_reach};

const LEN: u64 = 4096;

#[test]
fn descriptors_come_by_number_whatever_memfd_noexec_says() {
    // The setting is a pid namespace's own, and can only be raised.
    let unshared = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    for setting in 0..=2 {
        let raise = format!("echo {setting} >/proc/sys/vm/memfd_noexec");
        if !can_unshare(&unshared, &raise) {
            return;
        }
        let scratch = Scratch::new();
        let mut exporter = TestChild::start_with("unshare", &scratch, |command| {
            after(command, &unshared, &raise);
        });
        let (buffer, _) = exporter.alloc("vmm-fd", LEN);
        exporter.ok(&format!("fill {buffer} 33"));
        let (_, handle) = exporter.export(buffer, 0, LEN);
        let pid = exporter.pid();
        let children = format!("/proc/{pid}/task/{pid}/children");
        let inside = std::fs::read_to_string(children).expect("its only child");
        let mut importer = TestChild::start_with("nsenter", &scratch, |command| {
            command.args(["--target", inside.trim(), "--pid", "--mount", PROGRAM]);
        });
        let mem = importer.import(&out_of_reach(&handle), "");
        importer.ok(&format!("read {} 33 0", mem.id));
        // Legacy memory whose broker is out of reach is not called revoked.
        let (buffer, _) = exporter.alloc("cuda-malloc", LEN);
        let (_, handle) = exporter.export(buffer, 0, LEN);
        let mem = importer.import(&out_of_reach(&handle), "");
        assert_eq!(mem.liveness, "ExportLives", "vm.memfd_noexec={setting}");
    }
}
