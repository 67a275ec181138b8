//! Environment variables: one function reads them, folders keep their bytes.

use crate::PROGRAM;
use gpuipc_tests::{Scratch, TestChild, by_broker_alone};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const LEN: u64 = 4096;

/// All Rust files below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder)
        .expect("a folder of sources")
        .flatten()
    {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn one_function_reads_every_variable_of_ours() {
    // A list of all variables' names, and CUDA's own variable.
    const MAY: [(&str, &str); 4] = [
        ("shim/sys/src/environment.rs", "var_os(name)"),
        ("shim/cli/src/doctor/limits.rs", "vars_os()"),
        ("shim/emulated/src/config/mod.rs", "vars_os()"),
        ("shim/cli/src", "CUDA_VISIBLE_DEVICES"),
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("a workspace");
    let mut files = Vec::new();
    for folder in [
        "core/src",
        "shim/sys/src",
        "shim/src",
        "shim/emulated/src",
        "shim/cli/src",
        "ffi",
    ] {
        sources(&root.join(folder), &mut files);
    }
    let mut readers = 0;
    let mut wrong = Vec::new();
    for file in &files {
        let name = file
            .strip_prefix(root)
            .expect("below it")
            .display()
            .to_string();
        // Models for the checker, which are no part of the library.
        if name.starts_with("shim/src/model_check/") {
            continue;
        }
        let text = std::fs::read_to_string(file).expect("a source");
        let reads = |line: &&str| {
            ["env::var", "env::vars", "getenv"]
                .iter()
                .any(|read| line.contains(read))
        };
        for line in text.lines().filter(reads) {
            readers += 1;
            if !MAY
                .iter()
                .any(|(file, what)| name.starts_with(file) && line.contains(what))
            {
                wrong.push(format!("{name}: {}", line.trim()));
            }
        }
    }
    assert!(
        readers > 2 && files.len() > 100,
        "{readers} in {} files",
        files.len()
    );
    assert!(
        wrong.is_empty(),
        "read by gpuipc_sys::environment::variable instead:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn a_folder_for_sockets_keeps_its_bytes() {
    let scratch = Scratch::new();
    let folder = scratch.path().join(OsStr::from_bytes(b"\xff\xfe"));
    let mut exporter = TestChild::start_with(PROGRAM, &scratch, |command| {
        command.env("GPUIPC_SOCKET_DIR", &folder);
    });
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    exporter.export(buffer, 0, LEN);
    assert_eq!(std::fs::read_dir(&folder).expect("the folder").count(), 1);
}

#[test]
fn a_relative_folder_is_the_one_at_the_start_wherever_the_process_goes() {
    let scratch = Scratch::new();
    let start = || {
        let mut child = TestChild::start_with(PROGRAM, &scratch, |command| {
            command
                .current_dir(scratch.path())
                .env("GPUIPC_SOCKET_DIR", "sockets");
        });
        child.ok("open");
        child.ok("chdir /");
        child
    };
    let (mut exporter, mut importer) = (start(), start());
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    exporter.ok(&format!("fill {buffer} 35"));
    let (_, handle) = exporter.export(buffer, 0, LEN);
    importer.ok(&format!("refuse connect-abstract {}", libc::ECONNREFUSED));
    let mem = importer.import(&by_broker_alone(&handle), "");
    importer.ok(&format!("read {} 35 0", mem.id));
    exporter.ok("drop export 2");
    exporter.ok("drop-ipc");
    let left = std::fs::read_dir(scratch.path().join("sockets")).expect("the folder");
    assert_eq!(left.count(), 0);
}
