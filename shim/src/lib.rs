//! Placeholder.
#![deny(unsafe_code)]
pub mod sys;
