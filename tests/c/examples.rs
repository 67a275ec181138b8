//! The examples of `ffi/examples` run as their users run them, and what
//! `gpuipc.py` says is what the header says.

use crate::compiler::{Compiler, Language, Library, NATIVE_LIBRARIES};
use crate::programs::{Folders, emulated, exists};
use crate::{include, libraries, skip};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn ffi() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ffi")
}

/// What the example wrote; it must succeed.
fn succeeded(output: &Output) -> String {
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
    let text = succeeded(&command.output().expect("the example can be started"));
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
    Some(command.output().expect("python3 can be started"))
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

/// A program that runs its arguments as on another host: with another boot id.
/// `None` where that needs a right that this process lacks.
fn other_host(folder: &Path) -> Option<PathBuf> {
    let boot_id = folder.join("boot_id");
    std::fs::write(&boot_id, "00000000-1111-2222-3333-444444444444\n").expect("a file");
    let script = folder.join("other-host");
    let text = format!(
        "#!/bin/sh\nexec unshare --mount sh -c 'mount --bind {} /proc/sys/kernel/random/boot_id && \
         exec \"$@\"' sh \"$@\"\n",
        boot_id.display()
    );
    std::fs::write(&script, text).expect("a file");
    let mut sh = Command::new("sh");
    let seen = sh
        .arg(&script)
        .args(["cat", "/proc/sys/kernel/random/boot_id"])
        .output();
    let works = seen.is_ok_and(|output| output.stdout.starts_with(b"00000000-1111"));
    works.then_some(script)
}

#[test]
fn four_mpi_ranks_on_two_hosts_map_each_others_memory() {
    if !exists("mpicc") || !exists("mpirun") {
        return skip("OpenMPI (mpicc, mpirun) not installed");
    }
    let folders = Folders::new();
    let program = folders.made.join("allgather_mpi");
    let made = Command::new("mpicc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(include())
        .arg(ffi().join("examples/allgather_mpi.c"))
        .arg("-o")
        .arg(&program)
        .arg(libraries().join("libgpuipc.a"))
        .args(NATIVE_LIBRARIES)
        .output();
    succeeded(&made.expect("mpicc was found"));
    let Some(other_host) = other_host(&folders.made) else {
        return skip("another boot id needs a mount namespace (root)");
    };
    let mut command = Command::new("mpirun");
    emulated(&mut command, &folders);
    let output = command
        .args(["--oversubscribe", "-n", "2"])
        .arg(&program)
        .args([":", "-n", "2", "sh"])
        .arg(&other_host)
        .arg(&program)
        .env("GPUIPC_EMULATED_PROFILE", "h200-imex")
        // What mpirun asks of root, and what it must not look for here.
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_plm_rsh_agent", "false")
        .env("OMPI_MCA_btl", "self,tcp")
        .output();
    let text = succeeded(&output.expect("mpirun was found"));
    for rank in 0..4 {
        for other in (0..4).filter(|other| *other != rank) {
            let by = if rank / 2 == other / 2 {
                "PosixFd"
            } else {
                "Fabric"
            };
            let line = format!("rank {rank} mapped rank {other} by {by}");
            assert!(text.contains(&line), "no \"{line}\" in\n{text}");
        }
    }
}
