//! Every seed goes through its target, as a fuzz run would begin.

use super::{DECODE, TARGETS};
use gpuipc_fuzz::count::past_the_checksum;
use gpuipc_fuzz::decode::{self, NEIGHBOURS};
use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::Path;

#[test]
fn every_seed_of_every_target_passes() {
    let mut failed = Vec::new();
    for target in TARGETS {
        for (name, bytes) in target.seeds() {
            if catch_unwind(|| (target.run)(&bytes)).is_err() {
                failed.push(format!("{}/{name}", target.name));
            }
        }
    }
    assert!(failed.is_empty(), "failed: {failed:?}");
}

#[test]
fn handles_around_every_seed_are_judged_alike_and_keep_their_secrets() {
    let before = past_the_checksum();
    let seeds = DECODE.seeds();
    for (_, bytes) in &seeds {
        decode::around(bytes, 1);
    }
    // Other tests of this process count, too.
    let counted = past_the_checksum() - before;
    assert!(counted >= (seeds.len() * NEIGHBOURS) as u64);
}

/// The names in a folder of this crate, without their ending.
fn names(folder: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = std::fs::read_dir(folder).unwrap();
    files
        .map(|file| {
            let path = file.unwrap().path();
            path.file_stem().unwrap().to_str().unwrap().to_owned()
        })
        .collect()
}

#[test]
fn every_target_has_seeds_a_dictionary_and_a_program() {
    let targets: BTreeSet<String> = TARGETS.map(|target| target.name.to_owned()).into();
    assert_eq!(names("seeds"), targets);
    assert_eq!(names("dictionaries"), targets);
    assert_eq!(names("fuzz_targets"), targets);
}
