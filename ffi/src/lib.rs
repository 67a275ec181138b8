//! `libgpuipc.a` and `libgpuipc.so`: the functions of the crate `gpuipc-c` under
//! the names that C knows, and nothing else. That crate is an rlib, so that Rust
//! programs such as the fuzz target can call the same functions; it cannot be
//! one of this name: the Rust library's file is `libgpuipc.rlib`, too, and cargo warns of two.
pub use gpuipc_c::*;
