//! The model test itself can fail: with a wrong rule or a broken driver it finds a
//! script, and makes it as short as it can be.

use crate::ground::Ground;
use crate::model::Wrong;
use crate::{is_skipped, run};
use proptest::prelude::ProptestConfig;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use std::time::Duration;

/// The smallest script that fails, up to its end, and what was expected and came.
fn found(wrong: Option<Wrong>, faults: &[&str]) -> (Vec<String>, String) {
    let config = ProptestConfig {
        cases: 500,
        max_shrink_iters: 0,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let runner = TestRunner::new_with_rng(config, rng);
    let mut ground = Ground::new(faults);
    // What is left here stays, and is looked at many times.
    ground.patience = Duration::from_millis(50);
    let text = match run(runner, ground, wrong) {
        Ok(_) => panic!("nothing was found with {wrong:?} and {faults:?}"),
        Err(text) => text,
    };
    let lines = text.lines().map(str::trim);
    let script = lines
        .filter(|line| line.starts_with('P') && line[2..].starts_with(": "))
        .map(str::to_owned)
        .collect();
    (script, text)
}

/// Whether the steps of a script are these, by the words behind the process.
fn is(script: &[String], steps: &[&str]) -> bool {
    let does = |(line, step): (&String, &&str)| line[4..].starts_with(step);
    script.len() == steps.len() && script.iter().zip(steps).all(does)
}

#[test]
fn a_dropped_export_that_should_serve_is_found_in_four_steps() {
    if is_skipped() {
        return;
    }
    let (script, text) = found(Some(Wrong::RevokedExportsServe), &[]);
    let steps = ["alloc", "export B1", "drop O1", "import O1"];
    assert!(is(&script, &steps), "{text}");
    assert!(text.contains("expected: mapped by"), "{text}");
    assert!(text.contains("came: err EXPORT_REVOKED"), "{text}");
}

#[test]
fn freed_memory_that_should_serve_is_found_in_four_steps() {
    if is_skipped() {
        return;
    }
    let (script, text) = found(Some(Wrong::FreedMemoryServes), &[]);
    let steps = ["alloc cuda-malloc", "export B1", "free B1", "import O1"];
    assert!(is(&script, &steps), "{text}");
    assert!(text.contains("StaleMemory"), "{text}");
}

#[test]
fn a_write_that_nobody_should_see_is_found_in_four_steps() {
    if is_skipped() {
        return;
    }
    let (script, text) = found(Some(Wrong::WritesStayPrivate), &[]);
    let steps = ["alloc", "export B1", "import O1", "write M1"];
    assert!(is(&script, &steps), "{text}");
    assert!(text.contains("expected: in B1, byte"), "{text}");
}

#[test]
fn a_driver_that_imports_nothing_is_found_in_three_steps() {
    if is_skipped() {
        return;
    }
    let fault = "fail cuMemImportFromShareableHandle 1 999 1000000";
    let (script, text) = found(None, &[fault]);
    assert!(
        is(&script, &["alloc vmm-fd", "export B1", "import O1"]),
        "{text}"
    );
    assert!(text.contains("cuMemImportFromShareableHandle"), "{text}");
}

#[test]
fn a_driver_that_unmaps_nothing_is_found_by_what_is_left() {
    if is_skipped() {
        return;
    }
    let (script, text) = found(None, &["fail cuMemUnmap 1 999 1000000"]);
    assert!(is(&script[..1], &["alloc vmm-fd"]), "{text}");
    let last = script.last().expect("a line");
    assert!(last.ends_with("has what it had at the start"), "{text}");
    assert!(
        text.contains("mappings 0") && text.contains("mappings 1"),
        "{text}"
    );
}
