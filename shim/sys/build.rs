//! With the feature `cuda-driver-sys` alone: makes `-lcuda`, which that crate
//! asks for, find an empty archive, so that the build needs no CUDA. None of its
//! functions is called, so nothing is missing in the result.
//!
//! Without the feature this does nothing: an empty libcuda in the search path
//! would take the place of the real one for a program that links it itself.

use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_CUDA_DRIVER_SYS").is_none() {
        return;
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // The eight bytes of an ar archive without members.
    std::fs::write(out.join("libcuda.a"), b"!<arch>\n").expect("OUT_DIR is writable");
    println!("cargo:rustc-link-search=native={}", out.display());
}
