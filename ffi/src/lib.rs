//! The C interface: `libgpuipc.a`, `libgpuipc.so` and `include/gpuipc.h`.
//!
//! Layers, bottom-up:
//!
//! * `status`, `values`, `version`: the numbers of the header. Fixed forever.
//! * `failure`, `last_error`: what a failed call leaves behind: a number, and
//!   a text for the thread that made the call.
//! * `logger`: log lines on stderr, for hosts that have no logger of Rust's `log`.
//! * `objects`, `options`: what C holds, and C's options as the library's.
//! * [`border`]: the functions that C calls. NULL, buffers and panics are dealt
//!   with there, and only there; all other files are safe Rust.
//!
//! Nothing here decides how memory is shared: that is the crate `gpuipc`. The
//! header is made from these files and committed; a test compares the two.
#![deny(unsafe_code)]

pub mod border;
mod failure;
mod last_error;
mod logger;
pub mod objects;
pub mod options;
pub mod status;
pub mod values;
pub mod version;
