//! Why bytes are no registered memory, and why one cannot be written.

use crate::error::DecodeError;
use crate::registered::REGISTERED_VERSION;
use core::error::Error;
use core::fmt;

/// Why bytes are not a usable [`RegisteredMemoryRef`](crate::RegisteredMemoryRef), or why fields
/// make none.
///
/// The causes come in the order in which they are looked for, but for [`Field`](Self::Field), so
/// the first that holds is given. Of the fields the versions come before [`Newer`](Self::Newer)
/// and the counts before the whole length.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisteredError {
    /// The header is not all there, or the bytes are not as many as it says.
    Length {
        /// Bytes given.
        got: usize,
        /// Bytes of the header, or of the whole.
        wanted: usize,
    },
    /// The bytes do not start with `GIPM`.
    Magic {
        /// The first four bytes, as a little-endian number.
        got: u32,
    },
    /// The writer says that this version of the crate cannot use the bytes.
    Newer {
        /// The version of the format that the writer has.
        version: u8,
        /// The oldest version that may read it.
        min_reader: u8,
    },
    /// The header or a transport changed on its way.
    Checksum {
        /// The checksum inside the header.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// A field of the header has a value that the format does not allow.
    Field {
        /// The field's name in the format.
        field: &'static str,
        /// Its value. For bytes that must be zero: where in the header the first other one is.
        value: u64,
        /// What the format asks for.
        rule: &'static str,
    },
    /// A field of a transport has a value that the format does not allow.
    Transport {
        /// The transport's place, from 0.
        index: usize,
        /// The field's name in the format.
        field: &'static str,
        /// Its value. For bytes that must be zero: where in the transport the first other one is.
        value: u64,
        /// What the format asks for.
        rule: &'static str,
    },
    /// A handle is none, or not one of this memory.
    Handle {
        /// The handle's place, from 0.
        index: usize,
        /// What is wrong with it. For a name that is not the memory's: where in the handle the
        /// first different byte is. Also the error's [`source`](Error::source).
        error: DecodeError,
    },
}

impl fmt::Display for RegisteredError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { got, wanted } => write!(
                f,
                "length is {got} bytes, not {wanted}: \
                 pass on all of the owner's bytes, and no others"
            ),
            Self::Magic { got } => write!(
                f,
                "magic is {got:#010x}, not \"GIPM\": these bytes are no registered memory, \
                 check where they come from"
            ),
            Self::Newer {
                version,
                min_reader,
            } => write!(
                f,
                "version is {version}, for readers of version {min_reader} or newer, \
                 and this is version {REGISTERED_VERSION}: update gpuipc in the reader"
            ),
            Self::Checksum { stored, computed } => write!(
                f,
                "checksum is {stored:#010x}, the bytes give {computed:#010x}: \
                 the registered memory was damaged on its way, pass on its bytes unchanged"
            ),
            Self::Field { field, value, rule } => write!(
                f,
                "{field} is {value} ({value:#x}), but {rule}: \
                 correct the program that made this registered memory"
            ),
            Self::Transport {
                index,
                field,
                value,
                rule,
            } => write!(
                f,
                "{field} of transport {index} is {value} ({value:#x}), but {rule}: \
                 correct the program that made this registered memory"
            ),
            Self::Handle { index, .. } => {
                write!(f, "handle {index} of the registered memory is refused")
            }
        }
    }
}

impl Error for RegisteredError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Handle { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// Why a registered memory cannot be written. The buffer is as it was.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// The caller's buffer is too short.
    Buffer {
        /// Bytes that the buffer has.
        got: usize,
        /// Bytes that are to be written.
        needed: usize,
    },
    /// The content breaks a rule; also the error's [`source`](Error::source).
    Content(RegisteredError),
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buffer { got, needed } => write!(
                f,
                "the buffer has {got} bytes, this registered memory needs {needed}: pass a longer one"
            ),
            Self::Content(_) => f.write_str("the content makes no registered memory"),
        }
    }
}

impl Error for EncodeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Buffer { .. } => None,
            Self::Content(error) => Some(error),
        }
    }
}

impl From<RegisteredError> for EncodeError {
    fn from(error: RegisteredError) -> Self {
        Self::Content(error)
    }
}
