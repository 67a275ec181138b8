//! The fault matrix: every driver call and every system call on the way of an
//! export and an import is made to fail, at every use and with every code that
//! it may give, and what must hold after each failure is checked.
//!
//! Nothing is listed by hand but the codes: an operation is run once without
//! faults, the driver calls that it used are counted, and each of their uses is
//! made to fail in a run of its own. So a call that the library begins to use
//! is in the matrix at once.
//!
//! | after | must hold |
//! |---|---|
//! | any failure | an answer in time; the process lives; either the right bytes by some type, or an error that says what failed |
//! | a call that does something | nothing is left behind; the caller's current context is as it was; the next try works |
//! | a call that undoes something | the caller is not told of it; no more is left behind than that; the next try works |
//!
//! `GPUIPC_TEST_LONG` runs every cell. Otherwise a call gets all codes at its first
//! use in an operation with an order of types; later uses, failing undos beside
//! the default order, and other ways of sharing the same (at a place, for more
//! devices, on demand, beside other memory of the pool) get three codes each;
//! and another current context gets one.

mod cells;
mod codes;
mod driver;
mod stage;
mod system;

/// The helper program.
const PROGRAM: &str = env!("CARGO_BIN_EXE_child");

/// Whether there is time for everything.
fn is_long() -> bool {
    std::env::var_os("GPUIPC_TEST_LONG").is_some()
}
