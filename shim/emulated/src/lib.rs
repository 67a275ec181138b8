//! A software stand-in for the CUDA driver: files play GPU memory, and every
//! call answers as a real driver does (seen on an H200, driver 580).
//!
//! [`table`] gives the same table of function pointers that the loader fills
//! from libcuda, so that nothing above it knows the difference. What one
//! process exports another one opens, on machines without a GPU.
//!
//! Layers, bottom-up:
//!
//! * `space`, `storage`, `store`, `owner`: addresses of this process that no
//!   CPU access may touch, the file behind a piece of memory, the directory
//!   that plays the machine's GPUs, and the lock that says a process lives.
//! * `blocks`, `piece`, `state`: which address means which memory.
//! * `device`, `context`, `memory`, `copy`, `attribute`, `ipc`, `vmm`,
//!   `mapping`, `share`, `fabric`, `lifecycle`, `errors`: the calls, in safe
//!   Rust over typed arguments, a subject a file.
//! * `border`, `gate`, `table`: C's pointers become typed arguments in one
//!   place; each call first passes the fault injector and the counters.
//!
//! It runs no kernels, has no streams, events, pools or multicast, and is not
//! fast: copies go through `pread` and `pwrite`. A device address is an address
//! without CPU access; touching it faults as it would with a real GPU.
//!
//! # Settings
//!
//! Read from the environment once, at the first use in a process.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `GPUIPC_EMULATED_DIR` | the directory that plays the machine; processes that are to share memory share it | `/dev/shm/gpuipc-emulated`; `/tmp/gpuipc-emulated` where `/dev/shm` is missing or smaller than 256 MiB |
//! | `GPUIPC_EMULATED_GPUS` | GPUs in the machine | 2 |
//! | `CUDA_VISIBLE_DEVICES` | which of them this process sees, in which order; numbers or `GPU-` and the start of a UUID; the list ends at the first invalid entry | all |
//! | `GPUIPC_EMULATED_IMEX` | name of the fabric domain this process belongs to | none |
//! | `GPUIPC_EMULATED_PEER` | `none`: no GPU reaches another one's memory | all do |
//! | `GPUIPC_EMULATED_MEMORY` | bytes that each GPU claims to have | 139 GiB |
//! | `GPUIPC_EMULATED_MISSING` | symbols that this driver lacks, with commas | none |
//! | `GPUIPC_EMULATED_FAIL` | calls that fail: see [`faults`] | none |

#![deny(unsafe_code)]

mod attribute;
mod blocks;
mod border;
mod config;
mod context;
mod copy;
pub mod counters;
mod device;
mod errors;
mod fabric;
pub mod faults;
mod gate;
mod ipc;
mod lifecycle;
mod mapping;
mod memory;
mod owner;
mod piece;
mod share;
mod space;
mod state;
mod storage;
mod store;
mod table;
mod vmm;

pub use table::{ProcAddress, get_proc_address, table};

use gpuipc::sys::CuResult;

/// What a call answers: nothing, or the code of its failure.
type Answer<T = ()> = Result<T, CuResult>;
