//! Scripts that once failed.
