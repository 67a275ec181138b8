//! Why a call failed, as C gets to know it.

use gpuipc::{Attempt, Code, DecodeError, DriverCause, Error, MemoryKind, Status};
use std::any::Any;
use std::error::Error as _;

/// The number that the call returns, and what it leaves behind.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) text: String,
    /// What was tried, and how each failed; none for most failures.
    pub(crate) attempts: Vec<Attempt>,
    /// The memory that cannot be shared.
    pub(crate) kind: Option<MemoryKind>,
    /// What the driver or the kernel answered, where one call decided.
    pub(crate) code: Code,
}

impl Failure {
    /// One that the C layer itself finds.
    pub(crate) const fn new(status: Status, text: String) -> Self {
        Self {
            status,
            text,
            attempts: Vec::new(),
            kind: None,
            code: Code::None,
        }
    }

    /// An argument must not be NULL.
    pub(crate) fn null(argument: &str) -> Self {
        Self::new(
            Status::NULL_ARGUMENT,
            format!("argument {argument} is NULL"),
        )
    }

    /// An argument has a value that it cannot have.
    pub(crate) const fn argument(text: String) -> Self {
        Self::new(Status::INVALID_ARGUMENT, text)
    }

    /// A buffer is too short.
    pub(crate) fn room(has: usize, needs: usize) -> Self {
        Self::new(
            Status::BUFFER_TOO_SMALL,
            format!("the buffer has {has} bytes, {needs} are needed"),
        )
    }

    /// An array is too short.
    pub(crate) fn elements(has: usize, needs: usize) -> Self {
        Self::new(
            Status::BUFFER_TOO_SMALL,
            format!("the array has room for {has}, {needs} are needed"),
        )
    }

    /// A panic was caught.
    pub(crate) fn panic(payload: &(dyn Any + Send)) -> Self {
        let message = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        Self::new(
            Status::PANIC,
            format!("internal error, please report it: {message}"),
        )
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Driver(error) => match error.cause {
                DriverCause::Code(code) => Code::Driver(code),
                DriverCause::Missing(version) => Code::MissingSymbol(version),
            },
            Error::Os { errno, .. } | Error::BrokerStart { errno, .. } => Code::Os(*errno),
            _ => Code::None,
        };
        let kind = match &error {
            Error::NotExportable(error) => Some(error.kind),
            _ => None,
        };
        // The text has every attempt and the driver's answers in it, and each cause once.
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(deeper) = cause {
            text = format!("{text}: {deeper}");
            cause = deeper.source();
        }
        Self {
            status: error.status(),
            text,
            attempts: error.attempts().to_vec(),
            kind,
            code,
        }
    }
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        Error::Decode(error).into()
    }
}
