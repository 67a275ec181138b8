//! Why bytes are not a handle or a message. A variant a cause; none carries bytes of a secret.

use crate::layout::{FORMAT_VERSION, HANDLE_BYTES, REQUEST_BYTES};
use core::error::Error;
use core::fmt;

/// Why bytes are not a usable handle, or why fields make none.
///
/// The causes come in the order in which they are looked for, so the first that holds is given.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// A handle is exactly 384 bytes.
    Length {
        /// Bytes given.
        got: usize,
    },
    /// The bytes do not start with `GIPC`.
    Magic {
        /// The first four bytes, as a little-endian number.
        got: u32,
    },
    /// The writer says that this version of the crate cannot use the handle.
    Newer {
        /// The version of the format that the writer has.
        version: u8,
        /// The oldest version that may read it.
        min_reader: u8,
    },
    /// The bytes changed on their way.
    Checksum {
        /// The checksum inside the handle.
        stored: u32,
        /// The checksum of its bytes.
        computed: u32,
    },
    /// A field has a value that the format does not allow.
    Field {
        /// The field's name in the format.
        field: &'static str,
        /// Its value; negative numbers as the bits that they have on the wire. For bytes that
        /// must be zero: where in the handle the first other one is.
        value: u64,
        /// What the format asks for.
        rule: &'static str,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { got } => write!(
                f,
                "length is {got} bytes, a handle has exactly {HANDLE_BYTES}: \
                 pass on all of the exporter's bytes"
            ),
            Self::Magic { got } => write!(
                f,
                "magic is {got:#010x}, not \"GIPC\": these bytes are no gpuipc handle, \
                 check where they come from"
            ),
            Self::Newer {
                version,
                min_reader,
            } => write!(
                f,
                "version is {version}, for readers of version {min_reader} or newer, \
                 and this is version {FORMAT_VERSION}: update gpuipc in the importer"
            ),
            Self::Checksum { stored, computed } => write!(
                f,
                "checksum is {stored:#010x}, the bytes give {computed:#010x}: \
                 the handle was damaged on its way, pass on its bytes unchanged"
            ),
            Self::Field { field, value, rule } => write!(
                f,
                "{field} is {value} ({value:#x}), but {rule}: \
                 correct the program that made this handle"
            ),
        }
    }
}

impl Error for DecodeError {}

/// Why bytes are not a broker's message.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// A message is exactly 64 bytes.
    Length {
        /// Bytes given.
        got: usize,
    },
    /// The bytes do not start with the message's four letters.
    Magic {
        /// The first four bytes, as a little-endian number.
        got: u32,
    },
    /// The sender speaks another version.
    Version {
        /// The sender's version.
        got: u8,
    },
    /// A field has a value that the format does not allow.
    Field {
        /// The field's name in the format.
        field: &'static str,
        /// Its value. For bytes that must be zero: where in the message the first other one is.
        value: u64,
        /// What the format asks for.
        rule: &'static str,
    },
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { got } => write!(
                f,
                "length is {got} bytes, a message has exactly {REQUEST_BYTES}: \
                 the other side is no gpuipc"
            ),
            Self::Magic { got } => write!(
                f,
                "magic is {got:#010x}, not this message's: the other side is no gpuipc"
            ),
            Self::Version { got } => write!(
                f,
                "message version is {got}, this is {}: use the same gpuipc on both sides",
                crate::message::MESSAGE_VERSION
            ),
            Self::Field { field, value, rule } => write!(
                f,
                "{field} is {value} ({value:#x}), but {rule}: \
                 correct the program that sent this message"
            ),
        }
    }
}

impl Error for MessageError {}
