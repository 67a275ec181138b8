//! The plain-bytes part of gpuipc: what crosses a process border, and nothing else.
//!
//! An exporter describes GPU memory in a [`GpuIpcMemHandle`] of 384 bytes, ships these bytes by any
//! means, and an importer decodes them. File descriptors cannot travel inside bytes, so the
//! exporter also runs a small server, the *broker*, which speaks the [`Request`]s and [`Reply`]s
//! of this crate.
//!
//! A runtime that ships whole buffers writes a [`RegisteredMemoryRef`]: the handles of all segments,
//! and what its other transports need.
//!
//! The layers, bottom-up:
//!
//! | module | what it is | what it does not do |
//! |---|---|---|
//! | `layout` | the macro in whose tables every field of every format stands once | judge a value |
//! | `check` | what the rules of all formats share | know a format |
//! | `identity`, `token`, `types` | names, secrets, ways of sharing | know where they lie in a handle |
//! | `slot`, `ticket` | the 64-byte lines that hold what the driver or the broker needs; the export table's entry | know which slot is in use |
//! | `handle` | the handle, its plain form, its accessors | exist with wrong content |
//! | `same_allocation` | whether two handles are of one allocation | know who asks, and why |
//! | `rules` | every rule that a handle must keep, in one list | know about bytes on the wire |
//! | `registered` | a buffer of a runtime: its handles and other transports | know what a transport means |
//! | `message` | the broker's messages | send, receive, wait |
//! | `multicast`, a feature | what the members of a multicast object tell each other | know what a stage or a fault means |
//! | `status` | the status numbers that the C interface gives | know errors of other crates |
//!
//! Things that no layer does: allocate, call the driver, call the operating system, panic on bytes
//! from outside. Decoding is total: any bytes give a value that keeps all rules, or one error that
//! names the field and the value.
//!
//! All numbers on the wire are little-endian, and the handle in memory is its wire form. Machines
//! with another byte order are refused at compile time.
#![no_std]
#![deny(unsafe_code)]
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::std_instead_of_core
)]

#[cfg(target_endian = "big")]
compile_error!("gpuipc handles are little-endian in memory and on the wire");

#[cfg(test)]
extern crate std;

mod check;
mod checksum;
mod error;
mod handle;
mod identity;
mod layout;
mod message;
#[cfg(feature = "multicast")]
mod multicast;
mod registered;
mod rules;
mod same_allocation;
mod slot;
mod status;
mod ticket;
mod token;
mod types;

pub use checksum::checksum_of;
pub use error::{DecodeError, MessageError};
pub use handle::{GpuIpcMemHandle, HandleFields, SharedRange};
pub use identity::{ClusterUuid, DeviceUuid, Endpoint, HostId, ProcessId};
pub use layout::{
    FORMAT_VERSION, HANDLE_BYTES, REGISTERED_HEADER_BYTES, REPLY_BYTES, REQUEST_BYTES, SLOT_BYTES,
    TABLE_ENTRY_BYTES, TRANSPORT_BYTES, TRANSPORT_DATA_BYTES,
};
pub use message::{Reply, ReplyStatus, Request, RequestKind};
#[cfg(feature = "multicast")]
pub use multicast::{MULTICAST_MESSAGE_BYTES, MulticastMessage};
pub use registered::{
    EncodeError, MAX_HANDLES, MAX_TRANSPORTS, REGISTERED_VERSION, RegisteredError,
    RegisteredFields, RegisteredMemoryRef, TransportInfo, registered_len,
};
pub use status::Status;
pub use ticket::{TableEntry, TablePlace, Ticket};
pub use token::Token;
pub use types::{Attributes, HandleType, TypeFlags, TypeList};
