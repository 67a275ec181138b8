//! Finding a driver: what is missing is named, and nothing panics.

use gpuipc::sys::{LoadError, load};
use std::ffi::OsStr;
use std::path::PathBuf;

/// Loads a library that is no driver but harmless to load.
#[allow(unsafe_code)]
fn try_load(name: &OsStr) -> Result<gpuipc::sys::DriverTable, LoadError> {
    // SAFETY: what the tests below name is absent, no library, the C library,
    // or the emulated driver, whose symbols have CUDA's signatures.
    unsafe { load(name) }
}

/// Where cargo puts the emulated driver's library for these tests.
fn emulated_library() -> PathBuf {
    let program = std::env::current_exe().expect("the test's own path");
    program
        .parent()
        .expect("its folder")
        .join("libgpuipc_emulated.so")
}

#[test]
fn a_missing_library_is_named_with_the_cure() {
    let error = try_load(OsStr::new("/nonexistent/libcuda.so.1")).expect_err("there is none");
    assert!(matches!(error, LoadError::Library { .. }));
    let text = error.to_string();
    for words in [
        "/nonexistent/libcuda.so.1",
        "No such file",
        "GPUIPC_LIBCUDA",
    ] {
        assert!(text.contains(words), "{words} is not in: {text}");
    }
}

#[test]
fn a_library_that_is_no_driver_is_named_with_the_missing_symbol() {
    let error = try_load(OsStr::new("libc.so.6")).expect_err("no driver");
    assert!(
        matches!(
            error,
            LoadError::Symbol {
                symbol: "cuInit",
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("cuInit"), "{error}");
}

#[test]
fn a_file_that_is_no_library_is_an_error() {
    let scratch = gpuipc_tests::Scratch::new();
    let path = scratch.path().join("libcuda.so.1");
    std::fs::write(&path, b"no library").expect("a file");
    assert!(matches!(
        try_load(path.as_os_str()),
        Err(LoadError::Library { .. })
    ));
}

#[test]
fn the_emulated_library_has_every_call_of_the_list() {
    let table = try_load(emulated_library().as_os_str()).expect("the emulated driver's library");
    let debug = format!("{table:?}");
    assert!(!debug.contains("None"), "{debug}");
}

#[test]
fn every_call_has_a_version_and_no_symbol_is_listed_twice() {
    let mut symbols: Vec<&str> = gpuipc::sys::CALLS.iter().map(|call| call.symbol).collect();
    assert!(
        gpuipc::sys::CALLS
            .iter()
            .all(|call| (2000..=13000).contains(&call.cuda_version))
    );
    symbols.sort_unstable();
    let all = symbols.len();
    symbols.dedup();
    assert_eq!(symbols.len(), all);
}

/// A driver without the calls for memory created with a handle type.
#[test]
fn a_missing_optional_call_fails_where_it_is_needed_and_nowhere_else() {
    let scratch = gpuipc_tests::Scratch::new();
    let mut exporter = crate::child(&scratch);
    let (buffer, _) = exporter.alloc("vmm-fd", 1 << 21);
    let (_, vmm) = exporter.export(buffer, 0, 1 << 21);
    let (buffer, _) = exporter.alloc("cuda-malloc", 1 << 21);
    let (_, legacy) = exporter.export(buffer, 0, 1 << 21);
    let mut importer = gpuipc_tests::TestChild::start_with(crate::PROGRAM, &scratch, |command| {
        command.env(
            "GPUIPC_EMULATED_MISSING",
            "cuMemImportFromShareableHandle,cuMemMap",
        );
    });
    assert_eq!(importer.import(&legacy, "").used, "RuntimeIpc");
    let refused = importer.import_refused(&vmm, "");
    assert_eq!(
        refused.attempts,
        ["PosixFd/cuMemImportFromShareableHandle/NotSupported"]
    );
    assert!(refused.text.contains("CUDA 10.2"), "{}", refused.text);
}

#[test]
fn a_driver_of_cuda_11_4_shares_both_kinds_of_memory() {
    let scratch = gpuipc_tests::Scratch::new();
    let old = || {
        gpuipc_tests::TestChild::start_with(crate::PROGRAM, &scratch, |command| {
            command
                .env_remove("GPUIPC_EMULATED_IMEX")
                .env("GPUIPC_EMULATED_PROFILE", "driver-11.4");
        })
    };
    let (mut exporter, mut importer) = (old(), old());
    for (memory, used) in [("cuda-malloc", "RuntimeIpc"), ("vmm-fd", "PosixFd")] {
        let (buffer, _) = exporter.alloc(memory, 3 << 20);
        exporter.ok(&format!("fill {buffer} 17"));
        let (_, handle) = exporter.export(buffer, 4096, 1 << 20);
        let mem = importer.import(&handle, "");
        assert_eq!(mem.used, used);
        importer.ok(&format!("read {} 17 4096", mem.id));
    }
}
