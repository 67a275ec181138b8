//! The statuses' names for the preprocessor, and their texts for C.
//!
//! The numbers are [`gpuipc::Status`]'s, where each is explained and the rules
//! for new and retired ones stand. A test compares the header with that list.

use gpuipc::Status;
use std::ffi::{CStr, CString};
use std::sync::LazyLock;

/// The outcome of a call: `GPUIPC_OK`, or one number a cause. A newer library may
/// return numbers that are not here.
pub type CStatus = u32;

/// The call did what it says.
pub const GPUIPC_OK: u32 = 0;

/// A pointer that must not be NULL is NULL.
pub const GPUIPC_NULL_ARGUMENT: u32 = 1;
/// An argument has a value that the call does not allow.
pub const GPUIPC_INVALID_ARGUMENT: u32 = 2;
/// The caller's buffer cannot hold the result.
pub const GPUIPC_BUFFER_TOO_SMALL: u32 = 3;
/// The library was used before a fork, and is used again in the child.
pub const GPUIPC_FORKED: u32 = 4;
/// An internal error was caught before it could reach the caller.
pub const GPUIPC_PANIC: u32 = 5;
/// An environment variable has a value that it cannot have.
pub const GPUIPC_INVALID_SETTING: u32 = 6;
/// A system call failed.
pub const GPUIPC_SYSTEM_CALL: u32 = 7;
/// The call was made from inside a callback, on its thread. Nothing was done.
pub const GPUIPC_IN_CALLBACK: u32 = 8;

/// The bytes are more or fewer than a handle's.
pub const GPUIPC_HANDLE_LENGTH: u32 = 20;
/// The bytes are no handle.
pub const GPUIPC_HANDLE_MAGIC: u32 = 21;
/// The handle is from a newer version that this one cannot read.
pub const GPUIPC_HANDLE_NEWER: u32 = 22;
/// The handle's bytes changed on their way.
pub const GPUIPC_HANDLE_DAMAGED: u32 = 23;
/// A field of the handle has a value that the format does not allow.
pub const GPUIPC_HANDLE_FIELD: u32 = 24;
/// The bytes are no registered memory, or what is to be registered breaks a rule of its form.
pub const GPUIPC_REGISTERED_MEMORY: u32 = 25;

/// The driver's library cannot be loaded.
pub const GPUIPC_DRIVER_LIBRARY: u32 = 40;
/// The driver's library lacks a call that is needed.
pub const GPUIPC_DRIVER_SYMBOL: u32 = 41;
/// A call of the driver failed.
pub const GPUIPC_DRIVER_CALL: u32 = 42;
/// There is no device, or not the one that was asked for.
pub const GPUIPC_NO_DEVICE: u32 = 43;

/// The memory cannot be shared.
pub const GPUIPC_NOT_EXPORTABLE: u32 = 60;
/// The server that answers importers cannot be started.
pub const GPUIPC_BROKER_START: u32 = 61;

/// The process that exported the memory is gone.
pub const GPUIPC_EXPORTER_GONE: u32 = 80;
/// The exporter has revoked the export.
pub const GPUIPC_EXPORT_REVOKED: u32 = 81;
/// The deadline passed.
pub const GPUIPC_TIMED_OUT: u32 = 82;
/// Every type of sharing was tried, and none worked.
pub const GPUIPC_NO_TYPE_WORKED: u32 = 83;
/// The memory is another host's, and no type of the handle reaches it.
pub const GPUIPC_OTHER_HOST: u32 = 84;
/// The driver, the device or this version of the library lacks what this needs.
pub const GPUIPC_UNSUPPORTED: u32 = 85;
/// The caller's cancel flag was set.
pub const GPUIPC_CANCELLED: u32 = 86;
/// The handles are not the segments of one range.
pub const GPUIPC_NOT_ONE_RANGE: u32 = 87;

/// A multicast object cannot be had or used here.
pub const GPUIPC_MULTICAST_UNAVAILABLE: u32 = 100;
/// A member of a multicast team failed, is gone, or is out of step.
pub const GPUIPC_MULTICAST_TEAM: u32 = 101;

/// All statuses are below; the tests see to it.
const END: u32 = 128;

struct Texts {
    name: CString,
    text: CString,
}

/// By number; the last entry is for the numbers beyond.
static TEXTS: LazyLock<Vec<Texts>> =
    LazyLock::new(|| (0..=END).map(Status).map(Texts::of).collect());

impl Texts {
    fn of(status: Status) -> Self {
        Self {
            name: c_string(status.name()),
            text: c_string(status.text()),
        }
    }

    fn get(status: Status) -> &'static Self {
        let index = usize::try_from(status.0.min(END)).unwrap_or_default();
        &TEXTS[index]
    }
}

/// The text up to its first NUL, which ours do not have.
fn c_string(text: &str) -> CString {
    let text = text.split('\0').next().unwrap_or_default();
    CString::new(text).unwrap_or_default()
}

/// The status in one sentence.
pub(crate) fn text(status: Status) -> &'static CStr {
    &Texts::get(status).text
}

/// The constant's name without `GPUIPC_`.
pub(crate) fn name(status: Status) -> &'static CStr {
    &Texts::get(status).name
}

#[cfg(test)]
mod tests {
    use super::{END, name, text};
    use gpuipc::Status;

    #[test]
    fn every_number_has_its_texts() {
        for status in (0..END + 100).map(Status) {
            assert_eq!(name(status).to_str(), Ok(status.name()));
            assert_eq!(text(status).to_str(), Ok(status.text()));
        }
        assert_eq!(name(Status(u32::MAX)).to_str(), Ok("UNKNOWN"));
    }

    #[test]
    fn no_status_is_beyond_the_table() {
        for status in (END..END + 10_000).map(Status) {
            assert_eq!(status.name(), "UNKNOWN");
        }
    }
}
