//! The functions of the C interface. The crate `gpuipc-ffi` makes `libgpuipc.a`
//! and `libgpuipc.so` of them; `include/gpuipc.h` is made from these files.
//!
//! Layers, bottom-up:
//!
//! * `status`, `values`, `reasons`, `kinds`, `version`: the numbers of the header.
//!   Fixed forever.
//! * `failure`, `last_error`, `attempts`: what a failed call leaves behind: a
//!   number, and for the thread that made the call a text and structs.
//! * `callback`: what the library's callers may do while it calls them.
//! * `logger`: log lines, for hosts that have no logger of Rust's `log`.
//! * `objects`, `options`: what C holds, and C's options as the library's.
//! * [`calls`]: the functions that C calls. NULL, buffers and panics are dealt
//!   with there, and only there; all other files are safe Rust.
//!
//! Nothing here decides how memory is shared: that is the crate `gpuipc`. The
//! header is committed; a test compares it with these files.
#![deny(unsafe_code)]

// The numbers first, in the order in which the header has them.
pub mod version;

pub mod status;

pub mod values;

pub mod kinds;

pub mod reasons;

pub mod attempts;
mod callback;
pub mod calls;
mod failure;
mod last_error;
mod logger;
pub mod objects;
pub mod options;
