//! Memory of pools: the pool travels once, its pointers each.

use crate::{PROGRAM, Pair, child};
use gpuipc_core::{GpuIpcMemHandle, Ticket, Token};
use gpuipc_tests::{Scratch, TestChild, forge, on_real_gpu, skip};

const LEN: u64 = 3 << 20;

#[test]
fn memory_of_a_pool_goes_by_the_pools_descriptor() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("pool", LEN);
    pair.exporter.ok(&format!("fill {buffer} 51"));
    let (_, handle) = pair.exporter.export(buffer, 777, 1000);
    assert!(handle.pool_pointer().is_some() && handle.pool_id() != 0);
    let mem = pair.importer.import(&handle, "");
    assert_eq!(
        (mem.used.as_str(), mem.liveness.as_str(), mem.len),
        ("PosixFd", "MemoryUnchanged", 1000)
    );
    pair.importer.ok(&format!("read {} 51 777", mem.id));
    pair.importer.ok(&format!("write {} 52", mem.id));
    pair.exporter.ok(&format!("check {buffer} 51 0 777"));
    pair.exporter
        .ok(&format!("check {buffer} 51 1777 {}", LEN - 1777));
}

#[test]
fn a_pool_is_exported_once_and_imported_once_by_each_token() {
    let mut pair = Pair::new();
    let (pool, (a, b)) = two_in_a_pool(&mut pair.exporter);
    let (_, first) = pair.exporter.export(a, 0, LEN);
    let (_, second) = pair.exporter.export(b, 0, LEN);
    assert_eq!(first.pool_id(), second.pool_id());
    assert_eq!(
        pair.exporter.ok("calls cuMemPoolExportToShareableHandle"),
        "1"
    );
    let one = pair.importer.import(&first, "");
    let two = pair.importer.import(&second, "");
    let again = pair.importer.import(&first, "");
    assert_eq!(one.ptr, again.ptr);
    assert_eq!(
        pair.importer.ok("calls cuMemPoolImportFromShareableHandle"),
        "2"
    );
    // Each lives as long as its last user.
    pair.importer.ok(&format!("drop mapping {}", one.id));
    pair.importer.ok(&format!("read {} 53 0", again.id));
    pair.importer.ok(&format!("drop mapping {}", again.id));
    pair.importer.ok(&format!("read {} 54 0", two.id));
    let _ = pool;
}

/// Two allocations of one pool, filled with the patterns 53 and 54.
fn two_in_a_pool(exporter: &mut TestChild) -> (u32, (u32, u32)) {
    let (a, _) = exporter.alloc("pool", LEN);
    let answer = exporter.ok(&format!("alloc-beside {a} {LEN}"));
    let (b, _) = answer.split_once(' ').expect("two words");
    let b = b.parse().expect("a number");
    exporter.ok(&format!("fill {a} 53"));
    exporter.ok(&format!("fill {b} 54"));
    (a, (a, b))
}

#[test]
fn a_stale_pointer_is_found_before_anything_reads_it() {
    let scratch = Scratch::new();
    let start = || {
        TestChild::start_with(PROGRAM, &scratch, |command| {
            // Reading a freed pointer ends the context here, as it can on a GPU.
            command.env("GPUIPC_EMULATED_STALE_POOL", "fatal");
        })
    };
    let (mut exporter, mut importer) = (start(), start());
    let (pool, (a, b)) = two_in_a_pool(&mut exporter);
    let (_, handle) = exporter.export(a, 0, LEN);
    let (_, live) = exporter.export(b, 0, LEN);
    let mem = importer.import(&live, "");
    let before = importer.state();
    exporter.ok(&format!("free {a}"));
    let refused = importer.import_refused(&handle, "");
    assert_eq!(
        refused.attempts,
        ["PosixFd/liveness/StaleMemory"],
        "{}",
        refused.text
    );
    importer.returns_to(&before);
    // The context lives, and so does the pool's other memory.
    importer.ok(&format!("read {} 54 0", mem.id));
    let _ = pool;
}

#[test]
fn a_stale_pointer_does_not_take_what_came_to_lie_in_its_place() {
    let mut pair = Pair::new();
    let (keeper, _) = pair.exporter.alloc("pool", LEN);
    let beside = |exporter: &mut TestChild| -> u32 {
        let answer = exporter.ok(&format!("alloc-beside {keeper} {LEN}"));
        let (id, _) = answer.split_once(' ').expect("two words");
        id.parse().expect("a number")
    };
    let old = beside(&mut pair.exporter);
    let (_, stale) = pair.exporter.export(old, 0, LEN);
    pair.exporter.ok(&format!("free {old}"));
    let new = beside(&mut pair.exporter);
    pair.exporter.ok(&format!("fill {new} 55"));
    let (_, handle) = pair.exporter.export(new, 0, LEN);
    let mem = pair.importer.import(&handle, "");
    pair.importer.import_refused(&stale, "");
    // The driver gives a stale pointer the address of the new memory: giving that
    // back must not end the new mapping.
    pair.importer.ok(&format!("read {} 55 0", mem.id));
}

/// A handle with the pointer of another one, and a token that the forger has.
fn with_the_pointer_of(
    handle: &GpuIpcMemHandle,
    other: &GpuIpcMemHandle,
    ticket: Ticket,
) -> GpuIpcMemHandle {
    forge(handle, |fields| {
        fields.pool_pointer = other.pool_pointer().copied();
        fields.ticket = Some(ticket);
    })
}

#[test]
fn a_token_that_was_not_proven_opens_no_pool_that_is_mapped_already() {
    for is_silent in [false, true] {
        let mut pair = Pair::new();
        let (_, (a, b)) = two_in_a_pool(&mut pair.exporter);
        let (vmm, _) = pair.exporter.alloc("vmm-fd", LEN);
        let (_, honest) = pair.exporter.export(a, 0, LEN);
        let (_, secret) = pair.exporter.export(b, 0, LEN);
        let (_, of_vmm) = pair.exporter.export(vmm, 0, LEN);
        let mem = pair.importer.import(&honest, "");
        let ticket = honest.ticket().expect("a ticket");
        let made_up = Ticket {
            token: Token::new([7; 16]),
            ..ticket
        };
        let forged = with_the_pointer_of(&honest, &secret, made_up);
        // A token of the same exporter, which is good for other memory.
        let mut elsewhere = with_the_pointer_of(&honest, &secret, of_vmm.ticket().expect("one"));
        elsewhere = forge(&elsewhere, |fields| {
            fields.allocation_id = of_vmm.allocation_id();
        });
        if is_silent {
            pair.exporter.stop();
        }
        let before = pair.importer.state();
        for forged in [forged, elsewhere] {
            let refused = pair.importer.import_refused(&forged, "timeout=200");
            for attempt in &refused.attempts {
                assert!(!attempt.contains("liveness"), "{attempt} comes too late");
            }
            pair.importer.returns_to(&before);
        }
        // Who has the token needs no answer while the pool is in use.
        if is_silent {
            let again = pair.importer.import(&honest, "timeout=200");
            assert_eq!(again.liveness, "ExportLives");
        }
        pair.importer.ok(&format!("read {} 53 0", mem.id));
    }
}

#[test]
fn each_importer_of_a_pool_has_its_own_deadline_and_cancel_flag() {
    let mut pair = Pair::new();
    let (_, (a, b)) = two_in_a_pool(&mut pair.exporter);
    // No number, so that the broker alone can answer.
    let handles = [a, b].map(|buffer| {
        let (_, handle) = pair.exporter.export(buffer, 0, LEN);
        let handle = forge(&handle, |fields| {
            if let Some(ticket) = &mut fields.ticket {
                (ticket.fd, ticket.table) = (None, None);
            }
        });
        gpuipc_tests::to_hex(&handle.encode())
    });
    pair.exporter.stop();
    let [a, b] = handles;
    let answer = pair.importer.ok(&format!(
        "import-each {a}:timeout=4000 {a}:timeout=200 {b}:timeout=200 {a}:cancel=300"
    ));
    let ended: Vec<(&str, u128)> = answer
        .split(' ')
        .map(|word| {
            let (status, after) = word.split_once(':').expect("two parts");
            (status, after.parse().expect("milliseconds"))
        })
        .collect();
    for (at, (status, after)) in ended.iter().enumerate() {
        let wanted = ["TIMED_OUT", "TIMED_OUT", "TIMED_OUT", "CANCELLED"][at];
        assert_eq!(*status, wanted, "{answer}");
        assert!(at == 0 || *after < 2000, "{answer}");
    }
}

#[test]
fn the_importers_free_is_not_the_owners() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("pool", LEN);
    pair.exporter.ok(&format!("fill {buffer} 56"));
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    for _ in 0..3 {
        let mem = pair.importer.import(&handle, "");
        pair.importer.ok(&format!("read {} 56 0", mem.id));
        pair.importer.ok(&format!("drop mapping {}", mem.id));
    }
    pair.exporter.ok(&format!("check {buffer} 56 0 {LEN}"));
}

#[test]
fn every_fault_in_a_pools_import_is_undone() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("pool", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let warm = pair.importer.import(&handle, "");
    pair.importer.ok(&format!("drop mapping {}", warm.id));
    let before = pair.importer.state();
    for (call, code, attempt) in [
        (
            "cuMemPoolImportFromShareableHandle",
            999,
            "cuMemPoolImportFromShareableHandle/NotCudaDescriptor",
        ),
        (
            "cuMemPoolSetAccess",
            217,
            "cuMemPoolSetAccess/PeerUnsupported",
        ),
        (
            "cuMemPoolImportPointer",
            1,
            "cuMemPoolImportPointer/StaleMemory",
        ),
        ("cuDevicePrimaryCtxRetain", 2, "context/OutOfMemory"),
        ("cuPointerGetAttribute", 999, "compare/Driver"),
    ] {
        pair.importer.ok(&format!("fail {call} 1 {code} 1"));
        let refused = pair.importer.import_refused(&handle, "");
        pair.importer.ok("no-faults");
        assert_eq!(refused.attempts, [format!("PosixFd/{attempt}")]);
        pair.importer.returns_to(&before);
    }
    let mem = pair.importer.import(&handle, "");
    pair.importer.ok(&format!("drop mapping {}", mem.id));
    pair.importer.returns_to(&before);
}

#[test]
fn an_allocation_that_is_not_waited_for_is_given_back() {
    let mut pair = Pair::new();
    let (keeper, _) = pair.exporter.alloc("pool", LEN);
    let before = pair.exporter.state();
    for line in ["alloc pool 4096", &*format!("alloc-beside {keeper} 4096")] {
        pair.exporter.ok("fail cuStreamSynchronize 1 719 1");
        let refused = pair.exporter.err(line);
        assert!(refused.text.contains("(719)"), "{}", refused.text);
        pair.exporter.returns_to(&before);
    }
}

#[test]
fn importers_that_come_while_the_last_one_leaves_find_the_pool() {
    let mut pair = Pair::new();
    let (_, (a, b)) = two_in_a_pool(&mut pair.exporter);
    let handles = [a, b].map(|buffer| pair.exporter.export(buffer, 0, LEN).1);
    let mut importer = TestChild::start_with(PROGRAM, &pair.scratch, |command| {
        // Long enough for others to come in the middle of it.
        command.env("GPUIPC_EMULATED_DELAY", "cuMemPoolDestroy@*=3");
    });
    let warm = importer.import(&handles[0], "");
    importer.ok(&format!("drop mapping {}", warm.id));
    let before = importer.state();
    let words = handles.map(|handle| gpuipc_tests::to_hex(&handle.encode()));
    importer.ok(&format!("threads 4 50 53 {}", words[0]));
    importer.ok(&format!("threads 4 50 54 {}", words[1]));
    importer.returns_to(&before);
}

#[test]
fn a_pool_of_which_the_driver_did_not_tell_once_is_not_exported_again_and_again() {
    let mut pair = Pair::new();
    let (_, (a, b)) = two_in_a_pool(&mut pair.exporter);
    let (_, first) = pair.exporter.export(a, 0, LEN);
    let exports = "calls cuMemPoolExportToShareableHandle";
    // The questions about the allocation come first, then those about the pool.
    for nth in 1..=11 {
        pair.exporter
            .ok(&format!("fail cuPointerGetAttribute {nth} 999 1"));
        let answer = pair.exporter.ask(&format!("export {b} 0 {LEN}"));
        pair.exporter.ok("no-faults");
        if let Some(rest) = answer.strip_prefix("ok ") {
            let export = rest.split(' ').next().expect("a number");
            pair.exporter.ok(&format!("drop export {export}"));
        }
    }
    let before = pair.exporter.ok(exports);
    assert!(before != "1", "no question about the pool failed");
    let (_, second) = pair.exporter.export(b, 0, LEN);
    assert_eq!(pair.exporter.ok(exports), before);
    assert_eq!(first.pool_id(), second.pool_id());
}

#[test]
fn what_a_pool_cannot_do_is_said_before_anything_is_done() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("pool", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let answer = pair.importer.ok(&format!("reserve {}", 4 << 20));
    let place = answer.split(' ').next().expect("a number").to_owned();
    for (options, reason) in [
        ("read-only", "CannotBeReadOnly"),
        (&*format!("place={place}+0"), "CannotBePlaced"),
    ] {
        let refused = pair.importer.import_refused(&handle, options);
        assert_eq!(refused.attempts, [format!("PosixFd/select/{reason}")]);
    }
}

#[test]
fn a_pool_of_the_fabric_goes_by_fabric() {
    if on_real_gpu() {
        return skip("needs a fabric");
    }
    let mut pair = Pair::new();
    let answer = pair.exporter.ok("export-odd pool-fabric");
    let (_, hex) = answer.split_once(' ').expect("two words");
    let handle = gpuipc_tests::handle_of(hex);
    let before = pair.importer.state();
    for (types, used) in [("", "PosixFd"), ("types=Fabric", "Fabric")] {
        let mem = pair.importer.import(&handle, types);
        assert_eq!(mem.used, used);
        pair.importer.ok(&format!("drop mapping {}", mem.id));
    }
    pair.importer.returns_to(&before);
    // On another host it is the only way, and nobody there can be asked.
    let foreign = forge(&handle, |fields| fields.host_id.0[0] ^= 1);
    let mem = pair.importer.import(&foreign, "");
    assert_eq!(
        (mem.used.as_str(), mem.liveness.as_str()),
        ("Fabric", "Unknown")
    );
    let refused = pair.importer.import_refused(&foreign, "live");
    assert!(
        refused
            .attempts
            .contains(&"Fabric/liveness/LivenessUnknown".to_owned()),
        "{refused:?}"
    );
}

#[test]
fn rounds_of_pool_memory_leave_nothing_behind() {
    crate::round_trip::a_hundred_rounds_of("pool");
}

#[test]
fn importers_on_many_threads_share_one_pool() {
    let mut pair = Pair::new();
    let (_, (a, b)) = two_in_a_pool(&mut pair.exporter);
    let (_, first) = pair.exporter.export(a, 0, LEN);
    let (_, second) = pair.exporter.export(b, 0, LEN);
    let warm = pair.importer.import(&first, "");
    pair.importer.ok(&format!("drop mapping {}", warm.id));
    let before = pair.importer.state();
    let words = [&first, &second].map(|handle| gpuipc_tests::to_hex(&handle.encode()));
    pair.importer.ok(&format!("threads 8 25 53 {}", words[0]));
    pair.importer.ok(&format!("threads 8 25 54 {}", words[1]));
    pair.importer.returns_to(&before);
    let mut another = child(&pair.scratch);
    another.ok(&format!("threads 4 10 53 {}", words[0]));
}
