//! What the stress program and the bench share: a driver by its name on the command line, and
//! numbers that a seed repeats.
#![allow(unsafe_code)]

use gpuipc::sys::CuDevice;
use gpuipc::{Driver, DriverError};

/// Which driver it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The machine's own.
    Cuda,
    /// The emulated one.
    Emulated,
}

impl Kind {
    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Emulated => "emulated",
        }
    }
}

/// The names that [`open`] takes.
pub const DRIVERS: [&str; 3] = ["auto", "cuda", "emulated"];

/// Opens a driver: `cuda`, `emulated`, or `auto`, which is `cuda` where that finds a GPU.
///
/// # Errors
/// Why it has no GPU, in words.
pub fn open(name: &str) -> Result<(Driver, Kind), String> {
    match name {
        "cuda" => Ok((real()?, Kind::Cuda)),
        "auto" => real().map_or_else(|_| emulated(), |driver| Ok((driver, Kind::Cuda))),
        _ => emulated(),
    }
}

fn real() -> Result<Driver, String> {
    has_gpu(Driver::load().map_err(|error| error.to_string())?)
}

fn emulated() -> Result<(Driver, Kind), String> {
    // SAFETY: the table must follow CUDA's contract call by call, which is what the emulated
    // driver promises of its table.
    let driver = unsafe { Driver::from_table(gpuipc_emulated::table()) };
    Ok((has_gpu(driver)?, Kind::Emulated))
}

fn has_gpu(driver: Driver) -> Result<Driver, String> {
    driver.init().map_err(|error| error.to_string())?;
    match driver.device_count() {
        Ok(1..) => Ok(driver),
        Ok(_) => Err("the driver shows no GPU to this process".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Makes the GPU's primary context this thread's current one, for as long as the process lives.
///
/// # Errors
/// The driver's.
pub fn make_current(driver: Driver, device: CuDevice) -> Result<(), DriverError> {
    let context = driver.primary_ctx_retain(device)?;
    // SAFETY: the driver returned the context just now, and this use of it is never released.
    unsafe { driver.set_current_context(Some(context)) }
}

/// Random numbers that a seed repeats (xorshift64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// One seed gives each combination of names its own numbers.
    #[must_use]
    pub fn new(seed: u64, names: &[u64]) -> Self {
        let mixed = names
            .iter()
            .fold(mix(seed), |mixed, name| mix(mixed ^ mix(*name)));
        // Zero would stay zero.
        Self(mixed.max(1))
    }

    /// Any number but 0.
    pub const fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Less than `end`, which is not 0.
    pub const fn below(&mut self, end: usize) -> usize {
        ((self.number() >> 32) % end as u64) as usize
    }

    /// From `first` to `last`.
    pub const fn between(&mut self, first: u64, last: u64) -> u64 {
        first + (self.number() >> 16) % (last - first + 1)
    }

    /// True once in so many times.
    pub const fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// The last step of splitmix64.
const fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// `len` bytes that only this seed gives.
#[must_use]
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let words = (0..len.div_ceil(8) as u64).map(|at| mix(seed ^ mix(at)));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(len);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_numbers_and_names_change_them() {
        let throws = |seed, names: &[u64]| {
            let mut dice = Dice::new(seed, names);
            (0..100).map(|_| dice.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(throws(1, &[2, 3]), throws(1, &[2, 3]));
        assert_ne!(throws(1, &[2, 3]), throws(1, &[3, 2]));
        assert_ne!(throws(1, &[2, 3]), throws(2, &[2, 3]));
        assert!(throws(0, &[]).iter().any(|throw| *throw > 500));
    }

    #[test]
    fn a_longer_pattern_begins_as_a_shorter_one() {
        assert_eq!(pattern(7, 100)[..13], pattern(7, 13));
        assert_ne!(pattern(7, 13), pattern(8, 13));
    }
}
