//! Contexts: none is needed, and the caller's stays as it was.

use crate::{Pair, child};

const LEN: u64 = 2 << 20;

#[test]
fn nothing_needs_a_current_context() {
    for memory in gpuipc_tests::memories() {
        let mut pair = Pair::new();
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        assert_eq!(pair.exporter.ok("current"), "NoneNone");
        pair.exporter.ok(&format!("fill {buffer} 4"));
        let (export, handle) = pair.exporter.export(buffer, 0, LEN);
        let mem = pair.importer.import(&handle, "");
        pair.importer.ok(&format!("read {} 4 0", mem.id));
        pair.importer.ok(&format!("drop mapping {}", mem.id));
        pair.exporter.ok(&format!("drop export {export}"));
        assert_eq!(pair.exporter.ok("current"), "NoneNone");
        assert_eq!(pair.importer.ok("current"), "NoneNone");
    }
}

#[test]
fn the_caller_s_context_is_as_it_was_on_every_path() {
    for memory in gpuipc_tests::memories() {
        let mut pair = Pair::new();
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        pair.exporter.ok(&format!("fill {buffer} 5"));
        pair.exporter.ok("context 1");
        let current = pair.exporter.ok("current");
        let (export, handle) = pair.exporter.export(buffer, 0, LEN);
        assert_eq!(pair.exporter.ok("current"), current);
        for (context, device) in [("0", "device=1"), ("1", "device=0"), ("1", "")] {
            let mut importer = child(&pair.scratch);
            importer.ok(&format!("context {context}"));
            let current = importer.ok("current");
            let mem = importer.import(&handle, device);
            assert_eq!(importer.ok("current"), current);
            importer.ok(&format!("read {} 5 0", mem.id));
            importer.ok(&format!("drop mapping {}", mem.id));
            assert_eq!(importer.ok("current"), current);
            importer.ok("fail cuMemSetAccess 1 217 9");
            importer.ok("fail cuPointerGetAttribute 1 999 9");
            importer.import_refused(&handle, device);
            assert_eq!(importer.ok("current"), current);
        }
        pair.exporter.ok(&format!("drop export {export}"));
        assert_eq!(pair.exporter.ok("current"), current);
    }
}

#[test]
fn memory_of_another_gpu_is_mapped_on_the_one_that_is_asked_for() {
    let mut pair = Pair::new();
    for memory in ["cuda-malloc", "vmm-fd"] {
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        pair.exporter.ok(&format!("fill {buffer} 6"));
        let (_, handle) = pair.exporter.export(buffer, 0, LEN);
        let mem = pair.importer.import(&handle, "device=1");
        pair.importer.ok(&format!("read {} 6 0", mem.id));
    }
}

#[test]
fn gpus_in_another_order_are_told_by_their_uuid() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    pair.exporter.ok(&format!("fill {buffer} 6"));
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    for visible in ["1,0", "1"] {
        let mut importer =
            gpuipc_tests::TestChild::start_with(crate::PROGRAM, &pair.scratch, |command| {
                command.env("CUDA_VISIBLE_DEVICES", visible);
            });
        let mem = importer.import(&handle, "");
        importer.ok(&format!("read {} 6 0", mem.id));
    }
}
