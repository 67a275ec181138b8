//! The fuzz targets of gpuipc, as functions that assert.
//!
//! | module | input | compared with |
//! |---|---|---|
//! | [`decode`] | any bytes, as a handle | [`checker`] |
//! | [`round_trip`] | any [`HandleFields`](gpuipc_core::HandleFields) | [`checker`], and what comes back |
//! | [`broker_message`] | any bytes, as a request and as a reply | [`checker`] |
//! | [`parsers`] | any bytes, as a multicast message, an export table's entry, a text of /proc, settings | what the bytes say |
//! | [`registered_memory`] | any bytes, as a registered memory and as its parts | [`checker`] |
//! | [`c_calls`] | calls of the C interface, over the emulated driver | what the header promises; nothing is left |
//! | [`import`] | changes of handles of another process, over the emulated driver | what that process exports; nothing is left |
//! | [`broker_server`] | messages, descriptors, pauses and cut connections, to a running broker | what an honest client is told; nothing is left |
//! | [`broker_client`] | answers of a broker that lies | an error by the deadline; nothing is left |
//! | [`driver_calls`] | calls of the library, with driver calls that fail | a simple model of what is visible and what is held |
//!
//! [`checker`] holds the formats once more, as tables of places and rules, with nothing of gpuipc-core
//! but the plain structs that a result is told in. [`machine`] is what the targets over the emulated
//! driver share.
//!
//! Each target of a format looks at its input twice: as it is, and repaired, so that what lies behind a
//! checksum is reached by every input. The programs for libFuzzer are in `fuzz_targets`, the seeds
//! in `seeds`; `cargo test` replays all seeds, and seeds with a [`change`] too.
#![deny(unsafe_code)]

pub mod broker_client;
pub mod broker_message;
pub mod broker_server;
pub mod c_calls;
pub mod change;
pub mod checker;
pub mod count;
pub mod decode;
pub mod driver_calls;
pub mod import;
pub mod machine;
pub mod parsers;
pub mod registered_memory;
pub mod round_trip;
