//! Descriptors between processes: both sides of the broker, descriptors by number, and
//! the export table that lists the exported ones.

pub(crate) mod broker;
pub(crate) mod export_table;
pub(crate) mod pidfd;
