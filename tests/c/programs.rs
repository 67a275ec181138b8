//! Programs in C.
