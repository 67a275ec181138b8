//! The program as its users run it, on the emulated driver.

mod demo;
mod inspect;
mod place;
mod share;
mod usage;
