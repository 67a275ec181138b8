//! The text of this thread's last call.

use crate::failure::Failure;
use gpuipc::Status;
use std::cell::RefCell;

thread_local! {
    /// Empty if the last call succeeded.
    static TEXT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the outcome's text, and gives its number.
pub(crate) fn record(call: &str, outcome: Result<(), Failure>) -> Status {
    let (status, text) = match outcome {
        Ok(()) => (Status::OK, String::new()),
        Err(Failure { status, text }) => {
            log::debug!(target: "gpuipc::ffi", "{call}: {} {}: {text}", status.name(), status.0);
            (status, format!("{call}: {text}"))
        }
    };
    // Fails only while the thread ends, when nobody can ask any more.
    let _ = TEXT.try_with(|last| last.replace(text));
    status
}

/// The text.
pub(crate) fn text() -> String {
    TEXT.try_with(|last| last.borrow().clone())
        .unwrap_or_default()
}
