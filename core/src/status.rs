//! The numbers that the C interface returns.
//!
//! Never renumbered. A number that is no longer given stays here as a comment, so that it is never
//! used for something else. The groups have gaps for what comes.

use crate::error::DecodeError;
use core::fmt;

/// The outcome of a call of the C interface: 0, or one number a cause.
///
/// A struct and not an enum, since a number of a newer library must be a valid value too.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(pub u32);

impl Status {
    /// The call did what it says.
    pub const OK: Self = Self(0);

    // 1 to 19: how the library is used.

    /// A pointer that must not be NULL is NULL.
    pub const NULL_ARGUMENT: Self = Self(1);
    /// An argument has a value that the call does not allow.
    pub const INVALID_ARGUMENT: Self = Self(2);
    /// The caller's buffer cannot hold the result.
    pub const BUFFER_TOO_SMALL: Self = Self(3);
    /// The object was made before a fork, and is used in the child.
    pub const FORKED: Self = Self(4);
    /// An internal error was caught before it could reach the caller.
    pub const PANIC: Self = Self(5);
    /// An environment variable has a value that it cannot have.
    pub const INVALID_SETTING: Self = Self(6);
    /// A system call failed.
    pub const SYSTEM_CALL: Self = Self(7);
    /// A callback called the library back.
    pub const IN_CALLBACK: Self = Self(8);

    // 20 to 39: the bytes of a handle.

    /// The bytes are more or fewer than a handle's.
    pub const HANDLE_LENGTH: Self = Self(20);
    /// The bytes are no handle.
    pub const HANDLE_MAGIC: Self = Self(21);
    /// The handle is from a newer version that this one cannot read.
    pub const HANDLE_NEWER: Self = Self(22);
    /// The handle's bytes changed on their way.
    pub const HANDLE_DAMAGED: Self = Self(23);
    /// A field of the handle has a value that the format does not allow.
    pub const HANDLE_FIELD: Self = Self(24);

    /// The bytes are no registered memory, or what is to be registered breaks a rule of its form.
    pub const REGISTERED_MEMORY: Self = Self(25);

    // 40 to 59: the driver.

    /// The driver's library cannot be loaded.
    pub const DRIVER_LIBRARY: Self = Self(40);
    /// The driver's library lacks a call that is needed.
    pub const DRIVER_SYMBOL: Self = Self(41);
    /// A call of the driver failed.
    pub const DRIVER_CALL: Self = Self(42);
    /// There is no device, or not the one that was asked for.
    pub const NO_DEVICE: Self = Self(43);

    // 60 to 79: export.

    /// The memory cannot be shared.
    pub const NOT_EXPORTABLE: Self = Self(60);
    /// The server that answers importers cannot be started.
    pub const BROKER_START: Self = Self(61);

    // 80 to 99: import.

    /// The process that exported the memory is gone.
    pub const EXPORTER_GONE: Self = Self(80);
    /// The exporter has revoked the export.
    pub const EXPORT_REVOKED: Self = Self(81);
    /// The deadline passed.
    pub const TIMED_OUT: Self = Self(82);
    /// Every type of sharing was tried, and none worked.
    pub const NO_TYPE_WORKED: Self = Self(83);
    /// The memory is another host's, and no type of the handle reaches it.
    pub const OTHER_HOST: Self = Self(84);
    /// The driver or the device lacks what this needs.
    pub const UNSUPPORTED: Self = Self(85);
    /// The caller's cancel flag was set.
    pub const CANCELLED: Self = Self(86);
    /// The handles are not the segments of one range.
    pub const NOT_ONE_RANGE: Self = Self(87);

    // 100 to 119: multicast.

    /// A multicast object cannot be had or used here.
    pub const MULTICAST_UNAVAILABLE: Self = Self(100);
    /// A member of a multicast team failed, is gone, or is out of step.
    pub const MULTICAST_TEAM: Self = Self(101);

    /// The status in one sentence, for people.
    pub const fn text(self) -> &'static str {
        self.words().1
    }

    /// The constant's name, for programs and logs; `UNKNOWN` for a number without one.
    pub const fn name(self) -> &'static str {
        self.words().0
    }

    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::OK => ("OK", "success"),
            Self::NULL_ARGUMENT => ("NULL_ARGUMENT", "a required pointer argument is NULL"),
            Self::INVALID_ARGUMENT => (
                "INVALID_ARGUMENT",
                "an argument has a value that is not allowed",
            ),
            Self::BUFFER_TOO_SMALL => {
                ("BUFFER_TOO_SMALL", "the buffer is too small for the result")
            }
            Self::FORKED => (
                "FORKED",
                "the object belongs to the parent process and cannot be used after fork",
            ),
            Self::PANIC => ("PANIC", "internal error in gpuipc"),
            Self::INVALID_SETTING => (
                "INVALID_SETTING",
                "an environment variable has a value that is not allowed",
            ),
            Self::SYSTEM_CALL => ("SYSTEM_CALL", "a system call failed"),
            Self::IN_CALLBACK => (
                "IN_CALLBACK",
                "the call was made from inside a callback of the library's",
            ),
            Self::HANDLE_LENGTH => (
                "HANDLE_LENGTH",
                "the handle does not have the right number of bytes",
            ),
            Self::HANDLE_MAGIC => ("HANDLE_MAGIC", "the bytes are not a gpuipc handle"),
            Self::HANDLE_NEWER => ("HANDLE_NEWER", "the handle was written by a newer gpuipc"),
            Self::HANDLE_DAMAGED => ("HANDLE_DAMAGED", "the handle was damaged on its way"),
            Self::HANDLE_FIELD => (
                "HANDLE_FIELD",
                "a field of the handle has a value that is not allowed",
            ),
            Self::REGISTERED_MEMORY => (
                "REGISTERED_MEMORY",
                "the bytes are no registered memory, or it breaks a rule of its form",
            ),
            Self::DRIVER_LIBRARY => ("DRIVER_LIBRARY", "the CUDA driver library cannot be loaded"),
            Self::DRIVER_SYMBOL => (
                "DRIVER_SYMBOL",
                "the CUDA driver is too old: a call is missing",
            ),
            Self::DRIVER_CALL => ("DRIVER_CALL", "a call of the CUDA driver failed"),
            Self::NO_DEVICE => ("NO_DEVICE", "there is no such device"),
            Self::NOT_EXPORTABLE => ("NOT_EXPORTABLE", "this memory cannot be shared"),
            Self::BROKER_START => ("BROKER_START", "the server for importers cannot be started"),
            Self::EXPORTER_GONE => ("EXPORTER_GONE", "the exporting process is gone"),
            Self::EXPORT_REVOKED => (
                "EXPORT_REVOKED",
                "the exporter no longer exports this memory",
            ),
            Self::TIMED_OUT => ("TIMED_OUT", "the deadline passed"),
            Self::NO_TYPE_WORKED => ("NO_TYPE_WORKED", "no type worked"),
            Self::OTHER_HOST => (
                "OTHER_HOST",
                "the memory is on another host and cannot be reached from here",
            ),
            Self::UNSUPPORTED => (
                "UNSUPPORTED",
                "the driver or the device does not support this",
            ),
            Self::CANCELLED => ("CANCELLED", "the caller cancelled the import"),
            Self::NOT_ONE_RANGE => (
                "NOT_ONE_RANGE",
                "the handles are not the segments of one range",
            ),
            Self::MULTICAST_UNAVAILABLE => (
                "MULTICAST_UNAVAILABLE",
                "multicast cannot be had or used here",
            ),
            Self::MULTICAST_TEAM => (
                "MULTICAST_TEAM",
                "a member of the multicast team failed or is gone",
            ),
            _ => ("UNKNOWN", "unknown status"),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} {})", self.text(), self.name(), self.0)
    }
}

impl From<&DecodeError> for Status {
    fn from(error: &DecodeError) -> Self {
        match error {
            DecodeError::Length { .. } => Self::HANDLE_LENGTH,
            DecodeError::Magic { .. } => Self::HANDLE_MAGIC,
            DecodeError::Newer { .. } => Self::HANDLE_NEWER,
            DecodeError::Checksum { .. } => Self::HANDLE_DAMAGED,
            DecodeError::Field { .. } => Self::HANDLE_FIELD,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, vec::Vec};

    #[test]
    fn every_number_has_its_own_name_and_text() {
        let mut names = BTreeSet::new();
        let mut texts = BTreeSet::new();
        let known: Vec<Status> = (0..1000)
            .map(Status)
            .filter(|s| s.name() != "UNKNOWN")
            .collect();
        assert_eq!(known.len(), 31);
        for status in known {
            assert!(names.insert(status.name()), "{status}");
            assert!(texts.insert(status.text()), "{status}");
        }
    }

    #[test]
    fn an_unknown_number_is_a_value_too() {
        assert_eq!(Status(4711).name(), "UNKNOWN");
        assert_eq!(Status(4711).text(), "unknown status");
    }

    #[test]
    fn its_text_has_the_name_and_the_number() {
        let status = Status::FORKED;
        let text = std::format!("{status}");
        assert_eq!(text, std::format!("{} (FORKED 4)", status.text()));
    }
}
