//! Why a call failed, as C gets to know it.

use gpuipc::{DecodeError, Error, Status};
use std::any::Any;

/// The number that the call returns, and the text that it leaves.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) text: String,
}

impl Failure {
    /// An argument must not be NULL.
    pub(crate) fn null(argument: &str) -> Self {
        Self {
            status: Status::NULL_ARGUMENT,
            text: format!("argument {argument} is NULL"),
        }
    }

    /// An argument has a value that it cannot have.
    pub(crate) fn argument(text: String) -> Self {
        Self {
            status: Status::INVALID_ARGUMENT,
            text,
        }
    }

    /// A buffer is too short.
    pub(crate) fn room(has: usize, needs: usize) -> Self {
        Self {
            status: Status::BUFFER_TOO_SMALL,
            text: format!("the buffer has {has} bytes, {needs} are needed"),
        }
    }

    /// A panic was caught.
    pub(crate) fn panic(payload: &(dyn Any + Send)) -> Self {
        let message = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        Self {
            status: Status::PANIC,
            text: format!("internal error, please report it: {message}"),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        // The text has every attempt and the driver's answers in it.
        Self {
            status: error.status(),
            text: error.to_string(),
        }
    }
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        Error::Decode(error).into()
    }
}
