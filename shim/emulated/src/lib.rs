//! A software stand-in for the CUDA driver: files play GPU memory, and every
//! call answers as a real driver does (seen on an H200, driver 580).
//!
//! [`table`] gives the same table of function pointers that the loader fills
//! from libcuda, so that nothing above it knows the difference. What one
//! process exports another one opens, on machines without a GPU.
//!
//! Layers, bottom-up:
//!
//! * `config`: what the machine is like.
//! * `space`, `header`, `storage`, `store`, `owner`: addresses of this process
//!   that no CPU access may touch, the file behind a piece of memory, the
//!   directory that plays the machine's GPUs, and the lock that says a process
//!   lives.
//! * `blocks`, `piece`, `physical`, `pool_file`, `pools`, `peers`, `state`: which
//!   address means which memory, and who reaches it.
//! * `device`, `context`, `stream`, `capture`, `memory`, `copy`, `attribute`,
//!   `ipc`, `vmm`, `mapping`, `share`, `pool`, `pool_share`, `fabric`, `dma_buf`,
//!   `lifecycle`, `errors`: the calls, in safe Rust over typed arguments, a
//!   subject a file.
//! * `multicast_store`, `multicast_table`, `multicast_reach`, [`multicast`]: what
//!   the members of a multicast object share, and the calls.
//! * `args`, `gate`, `table`, [`faults`]: C's pointers become typed arguments
//!   in one place; each call first passes the fault injector.
//!
//! It runs no kernels, has no events, and is not fast: copies go
//! through `pread` and `pwrite`. Work on a stream is done when its call returns;
//! a captured graph is empty. A device address is an address without CPU access;
//! touching it faults as it would with a real GPU.
//!
//! # Settings
//!
//! They are a process's own, read once, at its first use of the driver: first a
//! profile, then a file over it (`setting = value` lines, `#` starts a comment),
//! then variables over both. A variable's name is `GPUIPC_EMULATED_` and the
//! setting in capitals, e.g. `GPUIPC_EMULATED_GPUS=4`. A setting, profile or value
//! that does not exist makes `cuInit` fail with `CUDA_ERROR_UNKNOWN` and a line
//! on standard error.
//!
//! | setting | meaning | default |
//! |---|---|---|
//! | `config` | (variable only) the file | none |
//! | `profile` | a ready-made machine, see below | `h200` |
//! | `dir` | the directory that plays the machine; processes that are to share memory share it | `/dev/shm/gpuipc-emulated`; `/tmp/gpuipc-emulated` where `/dev/shm` is missing or smaller than 256 MiB |
//! | `gpus` | GPUs in the machine | 2 |
//! | `uuids` | the UUID of each, with commas | made from their numbers |
//! | `visible` | which of them this process sees, in which order, as `CUDA_VISIBLE_DEVICES`, which goes before it: numbers or `GPU-` and the start of a UUID; the list ends at the first invalid entry; with a GPU that is there twice `cuInit` fails with `CUDA_ERROR_INVALID_DEVICE` | all |
//! | `peer` | which GPUs reach each other's memory: `all`, `none`, or pairs such as `0-1,2-3` | `all` |
//! | `peer_limit` | how many other GPUs' memory one device may reach at the same time; one more is `CUDA_ERROR_TOO_MANY_PEERS` | `none` |
//! | `imex` | name of the fabric domain this process belongs to, or `none` | `none` |
//! | `memory` | bytes that each GPU claims to have (also `KiB`, `MiB`, `GiB`) | `139GiB` |
//! | `room` | when memory takes room in the directory: `taken` at once, so that no write fails for want of it, or `on-write`, for tests with more memory than there is | `taken` |
//! | `attributes` | device attributes that differ, `NUMBER=VALUE` with commas; the value `none` is one that the driver does not know | an H200's |
//! | `granularity` | of VMM memory: the least one, or that and the recommended one with a comma | `2MiB` |
//! | `multicast_granularity` | of multicast objects: the least one, or that and the recommended one with a comma | `2MiB` |
//! | `multicast_slots` | how many multicast objects of the machine may have bindings at the same time, or `none` | 128 |
//! | `driver_version` | in CUDA's form; newer calls and attributes are missing | `13000` |
//! | `missing` | more symbols that this driver lacks, with commas | none |
//! | `stale_pool` | what reading a freed pointer of a pool does in an importer: `old` bytes, or `fatal`, `CUDA_ERROR_LAUNCH_FAILED` for the rest of the context's life | `old` |
//! | `fail`, `delay`, `random` | calls that fail or take longer: see [`faults`] | none |
//!
//! | profile | machine |
//! |---|---|
//! | `h200` | two GPUs that reach each other, CUDA 13.0, no IMEX service |
//! | `h200-imex` | the same in the fabric domain `A` |
//! | `no-vmm` | as a virtual GPU or WSL2: no VMM calls (`CUDA_ERROR_NOT_SUPPORTED`), no shareable pools, no dma-buf; legacy handles work |
//! | `no-peer` | as parts of a GPU (MIG) or confidential computing: no GPU reaches another one |
//! | `driver-11.4` | CUDA 11.4: no fabric, no dma-buf, no `MAPPING_*` attributes |
//!
//! What a device lacks by its attributes its calls refuse, so that
//! `attributes = 115=0` is a machine without pools. Of two machines with an H200
//! one said that it has multicast and the other one that it has not: the latter
//! is `attributes = 132=0`.
//!
//! # Where it is harder than a real driver
//!
//! Calls about one allocation that the real driver does not always survive if they
//! meet in two threads end the process here whenever they meet: `cuMemUnmap` beside
//! `cuMemRelease`, `cuMemRetainAllocationHandle` or another `cuMemUnmap`. An open of a
//! legacy handle that meets its first open or its last close is
//! `CUDA_ERROR_ALREADY_MAPPED`, which the real driver answers now and then where
//! threads open and close the same memory; what must meet there was not seen.
//!
//! # Where it is kinder than a real driver, or guesses
//!
//! A handle that was never given out is `CUDA_ERROR_INVALID_VALUE` here and may
//! crash with a real driver. A real driver maps past the end of a reservation,
//! over whatever lies there; this one refuses. A stale legacy handle opens new
//! memory in a block of the same size; of other sizes only half was tried on real
//! hardware, which was refused. Of a pool, the last eight freed pointers that were
//! exported keep their bytes until their place is written anew; older ones read as
//! zeros. A pool that was imported twice ends with one `cuMemPoolDestroy`, as a
//! pointer that was imported twice does with one `cuMemFree`; only the latter was
//! seen. Of a pool on a host node only `cuMemPoolCreate` and `cuMemPoolDestroy` are
//! played; a pool with fabric handles is made everywhere, and its export is refused
//! as VMM memory is. Imported host memory that only the GPU has rights to
//! is not shown to the CPU, though the driver says that the CPU has them, too; a
//! copy to memory that the CPU may only read crashes a real process and is
//! `CUDA_ERROR_INVALID_VALUE` here. The captures refuse
//! `cuMemAlloc`, `cuMemFree` and their host siblings; of these only `cuMemAlloc`
//! was seen on real hardware. Profiles other than `h200` follow CUDA's
//! documentation, not a measurement. Neither was any `cuMulticast*` call compared
//! with a real driver: see [`multicast`].

#![deny(unsafe_code)]

mod args;
mod at_once;
mod attribute;
mod blocks;
mod capture;
mod config;
mod context;
mod copy;
pub mod counters;
mod device;
mod dma_buf;
mod errors;
mod fabric;
pub mod faults;
mod gate;
mod header;
mod ipc;
mod lifecycle;
mod mapping;
mod memory;
pub mod multicast;
mod multicast_reach;
mod multicast_store;
mod multicast_table;
mod owner;
mod peers;
mod physical;
mod piece;
mod pool;
mod pool_file;
mod pool_share;
mod pools;
mod share;
mod shelf;
mod space;
mod state;
mod storage;
mod store;
mod stream;
mod table;
mod vmm;

pub use shelf::change_limit;
pub use table::{ProcAddress, get_proc_address, table};

use gpuipc_sys::CuResult;

/// What a call answers: nothing, or the code of its failure.
type Answer<T = ()> = Result<T, CuResult>;
