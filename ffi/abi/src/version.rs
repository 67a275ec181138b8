//! The version, at compile time for the preprocessor and at run time.

/// The version that the header belongs to: major part.
pub const GPUIPC_VERSION_MAJOR: u32 = 0;
/// The version that the header belongs to: minor part.
pub const GPUIPC_VERSION_MINOR: u32 = 1;
/// The version that the header belongs to: patch part.
pub const GPUIPC_VERSION_PATCH: u32 = 0;
/// The version that the header belongs to, as `gpuipc_version` gives the
/// library's: 1002003 for 1.2.3.
pub const GPUIPC_VERSION: u32 =
    GPUIPC_VERSION_MAJOR * 1000000 + GPUIPC_VERSION_MINOR * 1000 + GPUIPC_VERSION_PATCH;
/// The number of the binary interface, which is the number in the shared library's
/// SONAME (`libgpuipc.so.1`, of the library that `ffi/install` makes; cargo's has none). Raised only when something is removed or changed: see
/// above.
pub const GPUIPC_ABI_VERSION: u32 = 1;

const _: () = assert!(
    number(env!("CARGO_PKG_VERSION_MAJOR")) == GPUIPC_VERSION_MAJOR
        && number(env!("CARGO_PKG_VERSION_MINOR")) == GPUIPC_VERSION_MINOR
        && number(env!("CARGO_PKG_VERSION_PATCH")) == GPUIPC_VERSION_PATCH,
    "the header has the version of the workspace"
);

const fn number(text: &str) -> u32 {
    match u32::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("cargo's versions are numbers"),
    }
}
