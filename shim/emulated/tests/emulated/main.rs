//! What the emulated driver answers, held against what an H200 answered
//! (driver 580). Every test runs in processes of its own, since a driver's
//! state and settings are a process's.

mod at_once;
mod child;
mod devices;
mod driver;
mod fabric;
mod faults;
mod legacy;
mod lifetimes;
mod memory;
mod multicast;
mod pool_calls;
mod pools;
mod profiles;
mod scene;
mod streams;
mod views;
mod vmm;
mod wrap;
