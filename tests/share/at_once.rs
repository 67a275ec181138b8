//! Eight threads of one process on the same handles.

use crate::{Pair, end_race};
use gpuipc_core::GpuIpcMemHandle;
use gpuipc_tests::{TestChild, to_hex};

const LEN: u64 = 2 << 20;
const THREADS: u64 = 8;
const SEED: u64 = 61;

/// The driver calls that map and unmap, by type.
const CALLS: [(&str, [&str; 2]); 2] = [
    ("vmm-fd", ["cuMemMap", "cuMemUnmap"]),
    (
        "cuda-malloc",
        ["cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle"],
    ),
];

/// Two processes that keep a context, as applications do: a real driver takes much longer to
/// make one than for all else here.
fn pair() -> Pair {
    let mut pair = Pair::new();
    for child in [&mut pair.exporter, &mut pair.importer] {
        child.ok("context 0");
        child.ok("context none");
    }
    pair
}

/// How often all threads import; a hundred times as often when `GPUIPC_TEST_LONG` is set.
fn rounds() -> u64 {
    if std::env::var_os("GPUIPC_TEST_LONG").is_some() {
        20_000
    } else if gpuipc_tests::on_real_gpu() {
        // A real driver maps one after the other, whatever process asks.
        50
    } else {
        200
    }
}

/// How long a race lasts at least, in milliseconds.
fn milliseconds() -> u64 {
    if gpuipc_tests::on_real_gpu() {
        20_000
    } else {
        rounds() * 10
    }
}

fn calls(child: &mut TestChild, symbols: [&str; 2]) -> [u64; 2] {
    symbols.map(|symbol| {
        let count = child.ok(&format!("calls {symbol}"));
        count.parse().expect("a number")
    })
}

/// Ranges of an allocation: the whole, its begin, its end, and some of the middle.
fn ranges(exporter: &mut TestChild, buffer: u32) -> Vec<GpuIpcMemHandle> {
    [(0, LEN), (0, 1), (LEN - 100, 100), (4097, 9000)]
        .map(|(offset, len)| exporter.export(buffer, offset, len).1)
        .into()
}

fn words(ranges: &[GpuIpcMemHandle]) -> String {
    let words: Vec<String> = ranges
        .iter()
        .map(|handle| to_hex(&handle.encode()))
        .collect();
    words.join("/")
}

/// Maps and reads once, so that what stays in a process is there.
fn warm(importer: &mut TestChild, handle: &GpuIpcMemHandle) -> String {
    let warm = importer.import(handle, "");
    importer.ok(&format!("read {} {SEED} 0", warm.id));
    importer.ok(&format!("drop mapping {}", warm.id));
    importer.state()
}

/// A round is one mapping, whoever made it, and one unmapping.
fn one_mapping_a_round(importer: &mut TestChild, ranges: &[GpuIpcMemHandle], symbols: [&str; 2]) {
    let before = calls(importer, symbols);
    let line = format!("at-once {THREADS} {} {SEED} {}", rounds(), words(ranges));
    assert_eq!(importer.ok_after_long(&line), "1 1");
    let made = before.map(|before| before + rounds());
    assert_eq!(calls(importer, symbols), made, "{symbols:?}");
}

#[test]
fn threads_that_import_ranges_of_an_allocation_at_once_make_one_mapping() {
    for (memory, symbols) in CALLS {
        let mut pair = pair();
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        pair.exporter.ok(&format!("fill {buffer} {SEED}"));
        let ranges = ranges(&mut pair.exporter, buffer);
        let before = warm(&mut pair.importer, &ranges[0]);
        one_mapping_a_round(&mut pair.importer, &ranges[..1], symbols);
        one_mapping_a_round(&mut pair.importer, &ranges, symbols);
        pair.importer.returns_to(&before);
    }
}

#[test]
fn an_exporter_that_exports_and_drops_the_same_memory_disturbs_no_thread() {
    for (memory, symbols) in CALLS {
        let mut pair = pair();
        let file = pair.scratch.path().join("handle");
        let file = file.to_str().expect("a plain path");
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        let (decoy, _) = pair.exporter.alloc("vmm-fd", LEN);
        pair.exporter.ok(&format!("fill {buffer} {SEED}"));
        // Kept: what comes and goes is another export of the same allocation.
        let ranges = ranges(&mut pair.exporter, buffer);
        let before = warm(&mut pair.importer, &ranges[0]);
        let exporter = pair.exporter.state();
        let churn = format!("churn {file} {buffer} {decoy}");
        pair.exporter.send(&churn);
        one_mapping_a_round(&mut pair.importer, &ranges, symbols);
        end_race(file);
        assert!(pair.exporter.answer(&churn).starts_with("ok "));
        pair.importer.returns_to(&before);
        pair.exporter.returns_to(&exporter);
    }
}

#[test]
fn threads_that_import_what_is_revoked_and_exported_anew_see_the_bytes_or_a_refusal() {
    for memory in ["vmm-fd", "cuda-malloc"] {
        let mut pair = pair();
        let file = pair.scratch.path().join("handle");
        let file = file.to_str().expect("a plain path");
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        let (decoy, _) = pair.exporter.alloc("vmm-fd", LEN);
        pair.exporter.ok(&format!("fill {buffer} {SEED}"));
        let (export, handle) = pair.exporter.export(buffer, 0, LEN);
        let before = warm(&mut pair.importer, &handle);
        pair.exporter.ok(&format!("drop export {export}"));
        let exporter = pair.exporter.state();
        let churn = format!("churn {file} {buffer} {decoy}");
        pair.exporter.send(&churn);
        let chase = format!("chase-at-once {THREADS} {file} {SEED} {} 1", milliseconds());
        let answer = pair.importer.ok_after_long(&chase);
        let counts: Vec<u64> = answer
            .split(' ')
            .map(|count| count.parse().expect("a number"))
            .collect();
        println!("{memory}: right and refused: {counts:?}");
        assert!(counts.iter().all(|count| *count > 0), "no race: {answer}");
        end_race(file);
        assert!(pair.exporter.answer(&churn).starts_with("ok "));
        pair.importer.returns_to(&before);
        pair.exporter.returns_to(&exporter);
    }
}

#[test]
fn threads_that_import_a_range_of_several_allocations_have_a_mapping_each() {
    let mut pair = pair();
    let (buffer, _) = pair.exporter.alloc("segments", 2 * LEN);
    pair.exporter.ok(&format!("fill {buffer} {SEED}"));
    let (_, handles) = pair.exporter.export_all(buffer, LEN - 2000, 4000, "");
    let pieces: Vec<String> = handles
        .iter()
        .map(|piece| to_hex(&piece.encode()))
        .collect();
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let before = warm(&mut pair.importer, &handle);
    let symbols = ["cuMemMap", "cuMemUnmap"];
    let [mapped, unmapped] = calls(&mut pair.importer, symbols);
    let rounds = rounds();
    let line = format!("at-once {THREADS} {rounds} {SEED} {}", pieces.join(","));
    assert_eq!(
        pair.importer.ok_after_long(&line),
        format!("{THREADS} {THREADS}")
    );
    let maps = rounds * THREADS * pieces.len() as u64;
    // One call unmaps the whole range.
    let unmaps = rounds * THREADS;
    let now = calls(&mut pair.importer, symbols);
    assert_eq!(now, [mapped + maps, unmapped + unmaps]);
    pair.importer.returns_to(&before);
}

#[test]
fn threads_that_import_memory_of_a_pool_at_once_have_it_at_one_address() {
    let mut pair = pair();
    let (buffer, _) = pair.exporter.alloc("pool", LEN);
    pair.exporter.ok(&format!("fill {buffer} {SEED}"));
    let ranges = ranges(&mut pair.exporter, buffer);
    let before = warm(&mut pair.importer, &ranges[0]);
    let symbols = [
        "cuMemPoolImportFromShareableHandle",
        "cuMemPoolImportPointer",
    ];
    let [pools, pointers] = calls(&mut pair.importer, symbols);
    let line = format!("at-once {THREADS} {} {SEED} {}", rounds(), words(&ranges));
    assert_eq!(pair.importer.ok_after_long(&line), "1 1");
    // The pool once a round; each asks for its pointer, which the driver counts.
    let now = calls(&mut pair.importer, symbols);
    assert_eq!(now, [pools + rounds(), pointers + rounds() * THREADS]);
    pair.importer.returns_to(&before);
}
