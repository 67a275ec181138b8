//! What this thread's last call left behind.

use crate::failure::Failure;
use gpuipc::Status;
use std::cell::RefCell;

thread_local! {
    /// `None` if the last call succeeded.
    static LAST: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

/// Keeps the outcome, and gives its number.
pub(crate) fn record(call: &str, outcome: Result<(), Failure>) -> Status {
    let failure = outcome.err().map(|failure| {
        let status = failure.status;
        log::debug!(target: "gpuipc::ffi", "{call}: {} {}: {}", status.name(), status.0, failure.text);
        Failure {
            text: format!("{call}: {}", failure.text),
            ..failure
        }
    });
    let status = failure
        .as_ref()
        .map_or(Status::OK, |failure| failure.status);
    // Fails only while the thread ends, when nobody can ask any more.
    let _ = LAST.try_with(|last| last.replace(failure));
    status
}

/// The failure, if the last call was one.
pub(crate) fn get() -> Option<Failure> {
    LAST.try_with(|last| last.borrow().clone()).ok().flatten()
}

/// Its text, else an empty one.
pub(crate) fn text() -> String {
    get().map_or_else(String::new, |failure| failure.text)
}
