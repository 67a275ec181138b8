//! Descriptors from process to process: the broker on either side, a process's
//! descriptors by their number, and the table that says which of them are exported.

pub(crate) mod broker;
pub(crate) mod export_table;
pub(crate) mod pidfd;
