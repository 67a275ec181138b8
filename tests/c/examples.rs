//! The examples of `ffi/examples` run as their users run them, and what
//! `gpuipc.py` says is what the header says.

use crate::compiler::{Compiler, Language, Library};
use crate::programs::{Folders, emulated, exists, output_in_time};
use crate::{include, libraries, skip};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) fn ffi() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ffi")
}

/// What the example wrote; it must succeed.
pub(crate) fn succeeded(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{}\n{text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

fn compiled_example(language: Language, source: &str) {
    let Some(compiler) = Compiler::find(language) else {
        return skip(language.missing());
    };
    let folders = Folders::new();
    let source = ffi().join("examples").join(source);
    let program = compiler.program(&source, Library::Static, &folders.made, &[]);
    let mut command = Command::new(program);
    emulated(&mut command, &folders);
    let text = succeeded(&output_in_time(&mut command));
    assert!(text.contains("exporter: \"hello, exporter\""), "{text}");
    assert!(text.contains("importer: \"hello, importer\""), "{text}");
}

#[test]
fn the_c_example_runs() {
    compiled_example(Language::C, "two_processes.c");
}

#[test]
fn the_cpp_example_runs() {
    compiled_example(Language::Cpp, "two_processes.cpp");
}

/// A Python program on the emulated driver; `None` without Python.
fn python(folders: &Folders, arguments: &[&Path]) -> Option<Output> {
    if !exists("python3") {
        skip("python3 not installed");
        return None;
    }
    let mut command = Command::new("python3");
    emulated(&mut command, folders);
    command
        .args(["-B", "-W", "error"])
        .args(arguments)
        .env("PYTHONPATH", ffi().join("python"))
        .env("GPUIPC_LIBRARY", libraries().join("libgpuipc.so"));
    Some(output_in_time(&mut command))
}

#[test]
fn the_python_example_runs() {
    let folders = Folders::new();
    let Some(output) = python(&folders, &[&ffi().join("examples/two_processes.py")]) else {
        return;
    };
    let text = succeeded(&output);
    assert!(text.contains("exporter: b'hello, exporter'"), "{text}");
    assert!(text.contains("by POSIX_FD"), "{text}");
}

#[test]
fn the_python_module_is_the_header_and_keeps_its_promises() {
    let folders = Folders::new();
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/check_python.py");
    let Some(output) = python(
        &folders,
        &[
            &check,
            &include().join("gpuipc.h"),
            &crate::sources().join("abi.txt"),
        ],
    ) else {
        return;
    };
    let text = succeeded(&output);
    assert!(text.ends_with("checked\n"), "{text}");
}

#[test]
fn a_python_exporter_with_a_log_callback_ends_while_peers_import() {
    let folders = Folders::new();
    let check = crate::sources().join("check_python_exit.py");
    let Some(output) = python(&folders, &[&check]) else {
        return;
    };
    assert!(succeeded(&output).ends_with("ended\n"));
}
