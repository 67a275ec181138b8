//! The program as its users run it, on the emulated driver.

mod demo;
mod doctor;
mod inspect;
mod nvml;
mod place;
mod ranges;
mod share;
mod usage;
