//! What the libraries export: the functions of the headers, and nothing else
//! that could meet another library's symbol.

use crate::{include, libraries, skip, sources};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The committed list.
fn promised() -> BTreeSet<String> {
    let text = std::fs::read_to_string(sources().join("symbols.txt")).expect("it is committed");
    text.lines().map(str::to_owned).collect()
}

/// Those, and what the tests' libraries have beside them: the functions of `gpuipc_multicast.h`.
pub(crate) fn all() -> BTreeSet<String> {
    let header = include_str!("../../ffi/include/gpuipc_multicast.h");
    let declared = header.lines().filter_map(|line| line.split_once('('));
    let names = declared.filter_map(|(before, _)| before.rsplit(' ').next());
    let names = names.filter(|name| name.starts_with("gpuipc_multicast_"));
    promised()
        .into_iter()
        .chain(names.map(str::to_owned))
        .collect()
}

/// What `nm` says; `None` without it.
pub(crate) fn nm(arguments: &[&str], library: &Path) -> Option<String> {
    let output = Command::new("nm")
        .args(arguments)
        .arg(library)
        .output()
        .ok()?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The symbol of a line `address type symbol`.
pub(crate) fn symbol(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let (_, _) = (words.next()?, words.next()?);
    words.next()
}

#[test]
fn the_header_declares_every_symbol() {
    let header = std::fs::read_to_string(include().join("gpuipc.h")).expect("it is committed");
    for symbol in promised() {
        assert!(header.contains(&format!("{symbol}(")), "{symbol}");
    }
}

#[test]
fn the_shared_library_exports_the_declared_symbols_only() {
    let library = libraries().join("libgpuipc.so");
    let Some(listing) = nm(&["-D", "--defined-only"], &library) else {
        return skip("no nm");
    };
    let exported: BTreeSet<String> = listing
        .lines()
        .filter_map(symbol)
        .map(str::to_owned)
        .collect();
    assert_eq!(exported, all());
}

#[test]
fn the_static_library_defines_the_declared_symbols_only() {
    let library = libraries().join("libgpuipc.a");
    let Some(listing) = nm(&["-g", "--defined-only"], &library) else {
        return skip("no nm");
    };
    let mut ours = BTreeSet::new();
    // Members of ours are named after their crates; the rest is Rust's own.
    let mut is_ours = false;
    for line in listing.lines() {
        if let Some(member) = line.strip_suffix(':') {
            is_ours = member.starts_with("gpuipc");
        } else if let Some(symbol) = symbol(line) {
            assert!(!is_driver_call(symbol), "{symbol} belongs to libcuda");
            if is_ours && !is_rusts_own(symbol) {
                ours.insert(symbol.to_owned());
            }
        }
    }
    assert_eq!(ours, all());
}

/// A mangled name, or one for Rust's run time: they meet no other library's.
fn is_rusts_own(symbol: &str) -> bool {
    symbol.starts_with("_ZN") || symbol.starts_with("_R") || symbol.contains("rust")
}

/// `cuInit`, `cuMemAlloc_v2` and the like.
fn is_driver_call(symbol: &str) -> bool {
    symbol
        .strip_prefix("cu")
        .is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_uppercase()))
}
