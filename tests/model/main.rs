//! Several processes that do at random what processes do with shared memory, against
//! a simple model of who may see which bytes.
//!
//! They allocate and free memory of all kinds, export ranges of it or register them,
//! revoke them, import them by either GPU, also to addresses of their own, ask before what
//! will come of it, read and write through mappings, fork and are killed. `rules.rs` says what must
//! come of each import: a mapping that shows the memory's bytes, or one of a few
//! statuses. In the end everything is given back in a random order, and no process
//! may be left with anything that it had not at its start.
//!
//! What fails is made smaller by proptest and printed as a script, a readable line
//! a step; found ones stay in `found.rs`. `GPUIPC_MODEL_CASES` says how many scripts
//! are played.

mod end;
mod fails;
mod feasibility;
mod found;
mod ground;
mod importer;
mod model;
mod owner;
mod place;
mod play;
mod process;
mod rules;
mod smaller;
mod step;

use crate::ground::Ground;
use crate::model::Wrong;
use crate::step::{Case, case};
use gpuipc_tests::{on_real_gpu, skip};
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, TestCaseError, TestError, TestRunner};
use std::cell::RefCell;

/// Steps of the longest script.
const MOST_STEPS: usize = 80;
/// Scripts, if nobody says otherwise.
const CASES: u32 = 400;

fn cases() -> u32 {
    let said = |variable| std::env::var(variable).ok();
    let said = said("GPUIPC_MODEL_CASES").or_else(|| said("PROPTEST_CASES"));
    said.map_or(CASES, |text| text.parse().expect("a number of scripts"))
}

/// Plays scripts until one fails; then the text of the smallest one that does.
fn run(mut runner: TestRunner, ground: Ground, wrong: Option<Wrong>) -> Result<Ground, String> {
    let ground = RefCell::new(ground);
    let done = runner.run(&case(MOST_STEPS), |case| {
        play::play(&mut ground.borrow_mut(), &case, wrong).map_err(TestCaseError::fail)
    });
    match done {
        Ok(()) => Ok(ground.into_inner()),
        Err(TestError::Fail(why, case)) => {
            let fails = |case: &Case| play::play(&mut ground.borrow_mut(), case, wrong).err();
            let (case, why) = smaller::smallest(case, why.to_string(), fails);
            Err(format!("{why}\nthe same for found.rs:\n{case:?}"))
        }
        Err(TestError::Abort(why)) => Err(why.to_string()),
    }
}

/// Says so where the machine's own driver is used.
fn is_skipped() -> bool {
    if on_real_gpu() {
        skip("needs a fabric, and an emulated driver's faults and promises");
    }
    on_real_gpu()
}

#[test]
fn whatever_processes_do_each_sees_what_the_model_says_and_nothing_is_left() {
    if is_skipped() {
        return;
    }
    let config = ProptestConfig {
        cases: cases(),
        // `smaller.rs` does it.
        max_shrink_iters: 0,
        source_file: Some(file!()),
        // Beside this file, to be committed.
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    };
    match run(TestRunner::new(config), Ground::new(&[]), None) {
        Ok(ground) => println!("{:?}", ground.counts),
        Err(script) => panic!("{script}"),
    }
}
