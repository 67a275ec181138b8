//! The C interface, seen from C: the committed header, the layouts, programs
//! linked with libgpuipc.a and libgpuipc.so, and the libraries' symbols.
//!
//! Cargo puts both libraries and the emulated driver beside this test binary.
//! Where there is no C compiler, each test that needs one prints `SKIP`.

mod abi;
mod compiler;
mod cuda_header;
mod embed;
mod examples;
mod header;
mod mpi;
mod programs;
mod rights;
mod symbols;

use gpuipc_tests::skip;
use std::path::{Path, PathBuf};

/// The folder of the C sources.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("c")
}

/// The folder of `gpuipc.h`.
fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ffi/include")
}

/// The folder of libgpuipc.a, libgpuipc.so and libgpuipc_emulated.so.
fn libraries() -> PathBuf {
    let binary = std::env::current_exe().expect("a test binary has a path");
    binary.parent().expect("a file has a folder").to_owned()
}
