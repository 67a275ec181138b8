//! The static library inside others: in plugins of one process, hidden, and with
//! nothing that runs before it is called.

use crate::compiler::{Compiler, Language};
use crate::programs::{Folders, emulated, output_in_time};
use crate::symbols::{nm, symbol};
use crate::{libraries, skip, sources};
use std::collections::BTreeSet;
use std::process::Command;

/// What a plugin with the library in it is linked with, beside the library's line.
const HIDDEN: &str = "-Wl,--exclude-libs,libgpuipc.a";

#[test]
fn a_plugin_exports_nothing_of_the_library() {
    let Some(compiler) = Compiler::find(Language::C) else {
        return skip(Language::C.missing());
    };
    let folders = Folders::new();
    let plugin = compiler.plugin(&sources().join("plugin.c"), &folders.made, &[HIDDEN]);
    let Some(listing) = nm(&["-D", "--defined-only"], &plugin) else {
        return skip("no nm");
    };
    let exported: BTreeSet<&str> = listing.lines().filter_map(symbol).collect();
    let own = [
        "plugin_open",
        "plugin_export",
        "plugin_read",
        "plugin_close",
    ];
    assert_eq!(exported, BTreeSet::from(own));
    let header = include_str!("../../ffi/include/gpuipc.h");
    assert!(header.contains(HIDDEN), "the header documents {HIDDEN}");
}

#[test]
fn two_plugins_of_one_process_share_and_stay_loaded_while_they_must() {
    let Some(compiler) = Compiler::find(Language::C) else {
        return skip(Language::C.missing());
    };
    let folders = Folders::new();
    for flags in [&[HIDDEN][..], &[]] {
        let plugin = compiler.plugin(&sources().join("plugin.c"), &folders.made, flags);
        let copy = folders.made.join("copy-of-it.so");
        std::fs::copy(&plugin, &copy).expect("a copy");
        let host = compiler.plain_program(&sources().join("host.c"), &folders.made);
        let mut command = Command::new(host);
        emulated(&mut command, &folders);
        let output = output_in_time(command.arg(&plugin).arg(&copy));
        // The library writes nothing: neither here nor there.
        assert!(
            output.status.success() && output.stdout == b"hosted\n" && output.stderr.is_empty(),
            "{}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn two_cpp_libraries_of_one_process_use_their_own_copies() {
    let (Some(c), Some(cpp)) = (Compiler::find(Language::C), Compiler::find(Language::Cpp)) else {
        return skip(Language::Cpp.missing());
    };
    for optimized in ["-O0", "-O2"] {
        let folders = Folders::new();
        let made = ["one", "two"].map(|name| {
            let source = folders.made.join(format!("{name}.cpp"));
            std::fs::write(&source, "#include \"hidden.cpp\"\n").expect("a file");
            let (name, include) = (format!("-DNAME={name}"), sources());
            let include = format!("-I{}", include.display());
            cpp.plugin(
                &source,
                &folders.made,
                &[HIDDEN, optimized, &name, &include],
            )
        });
        for library in &made {
            let Some(listing) = nm(&["-D", "--defined-only"], library) else {
                return skip("no nm");
            };
            // The functions and types of both headers; std's templates are std's.
            let is_ours = |symbol: &&str| {
                let name = symbol.trim_start_matches("_Z");
                let scope = name.trim_start_matches(['T', 'I', 'V', 'S', 'Z', 'G', 'N', 'K']);
                scope.starts_with("gpuipc")
                    || scope.starts_with("8gpuipcxx")
                    || name.contains("_free")
            };
            let symbols = listing.lines().filter_map(symbol);
            let shown: Vec<&str> = symbols.filter(is_ours).collect();
            assert!(shown.is_empty(), "{optimized}: {shown:?}");
        }
        let libraries = made.each_ref().map(|path| path.as_path());
        let program = c.linked_program(&sources().join("two_hidden.c"), &folders.made, &libraries);
        let mut command = Command::new(program);
        emulated(&mut command, &folders);
        let output = output_in_time(&mut command);
        assert!(
            output.status.success(),
            "{optimized}: {}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn nothing_of_the_library_runs_when_it_is_loaded() {
    let library = libraries().join("libgpuipc.a");
    let output = Command::new("readelf")
        .args(["--section-headers", "--wide"])
        .arg(library)
        .output();
    let Ok(output) = output else {
        return skip("no readelf");
    };
    let listing = String::from_utf8_lossy(&output.stdout);
    // Constructors are in such sections. Rust's own one notes argc and argv.
    let is_constructor = |line: &str| line.contains(" .init_array") || line.contains(" .ctors");
    let (mut ours, mut of_rust, mut is_ours) = (0, 0, false);
    for line in listing.lines() {
        if let Some(member) = line.strip_prefix("File: ") {
            is_ours = member.contains("(gpuipc");
            ours += usize::from(is_ours);
        } else if is_constructor(line) {
            assert!(!is_ours, "a constructor of ours: {line}");
            of_rust += 1;
        }
    }
    assert!(ours > 3, "the members are understood");
    assert!(of_rust <= 2, "{of_rust} constructors that are not ours");
}
