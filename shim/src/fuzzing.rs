//! Parsers of bytes and text from outside, for the fuzz targets only.

use crate::error::Error;
use crate::options::{Settings, Trust};
use gpuipc_core::{HandleType, TablePlace, Ticket};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// A member's message, decoded and encoded again.
#[cfg(feature = "multicast")]
pub fn multicast_message(
    bytes: &[u8; gpuipc_core::MULTICAST_MESSAGE_BYTES],
) -> Option<[u8; gpuipc_core::MULTICAST_MESSAGE_BYTES]> {
    crate::multicast::decoded(bytes)
}

/// Who made the export table, if it says that the ticket's export lives.
///
/// # Errors
/// What the system calls give.
pub fn maker_of_entry(
    table: &OwnedFd,
    ticket: &Ticket,
    allocation_id: u64,
    entry: &TablePlace,
) -> rustix::io::Result<Option<u32>> {
    crate::fd::export_table::maker_of_entry(table, ticket, allocation_id, entry)
}

/// A number in a text of /proc: in the line that starts with `name`, the word at `at`.
pub fn word_of_proc(text: &str, name: &str, at: usize) -> Option<u32> {
    crate::fd::pidfd::word(text, name, at)
}

/// Types, timeout and trust of the environment's variables with these values.
///
/// # Errors
/// [`Error::Setting`].
pub fn settings(
    value_of: impl Fn(&str) -> Option<std::ffi::OsString>,
) -> Result<(Vec<HandleType>, Duration, Trust), Error> {
    let settings = Settings::parse(value_of)?;
    Ok((settings.types.to_vec(), settings.timeout, settings.trust))
}
