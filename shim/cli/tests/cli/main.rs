//! The program as its users run it, on the emulated driver.

mod demo;
mod doctor;
mod inspect;
mod nvml;
mod place;
mod share;
mod usage;
mod ranges;
