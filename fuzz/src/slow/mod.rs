//! The formats once more, from their tables: to be compared with gpuipc-core, never to be used.

pub mod handle;
pub mod message;
pub mod registered;

/// The little-endian number in the `size` bytes at `at`.
fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let mut number = 0;
    for place in (at..at + size).rev() {
        number = number * 256 + u64::from(bytes[place]);
    }
    number
}

/// The 16 bytes at `at`.
fn name(bytes: &[u8], at: usize) -> [u8; 16] {
    std::array::from_fn(|place| bytes[at + place])
}

/// Writes a little-endian number into the `size` bytes at `at`.
fn put(bytes: &mut [u8], at: usize, size: usize, mut number: u64) {
    for byte in &mut bytes[at..at + size] {
        *byte = number.to_le_bytes()[0];
        number /= 256;
    }
    assert_eq!(number, 0, "the number fits its field");
}

/// The place of the first byte of `from..to` that is not zero.
fn first_not_zero(bytes: &[u8], from: usize, to: usize) -> Option<u64> {
    let mut places = from..to;
    places
        .find(|place| bytes[*place] != 0)
        .map(|place| place as u64)
}

/// CRC-32C, bit by bit, over the parts one after the other.
pub fn crc_32c(parts: &[&[u8]]) -> u32 {
    // Without a comparison a bit: libFuzzer would trace each, which takes most of a run's time.
    let shifted = |sum: u32| (sum >> 1) ^ (0x82f6_3b78 * (sum & 1));
    let mut sum = u32::MAX;
    for byte in parts.concat() {
        sum ^= u32::from(byte);
        sum = shifted(shifted(shifted(shifted(sum))));
        sum = shifted(shifted(shifted(shifted(sum))));
    }
    !sum
}

/// A rule that bytes or fields break: the field's name, and the value that an error tells. Where
/// bytes must be zero this is the place of the first that is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The field's name in the format.
    pub field: &'static str,
    /// Its value, or a place.
    pub value: u64,
}

/// All rules that were found broken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllBroken(pub Vec<Broken>);

impl AllBroken {
    fn unless(&mut self, holds: bool, field: &'static str, value: u64) {
        if !holds {
            self.0.push(Broken { field, value });
        }
    }

    fn unless_zero(&mut self, bytes: &[u8], from: usize, to: usize, field: &'static str) {
        if let Some(value) = first_not_zero(bytes, from, to) {
            self.0.push(Broken { field, value });
        }
    }

    /// Whether an error that names this field and value tells the truth.
    pub fn has(&self, field: &str, value: u64) -> bool {
        self.0
            .iter()
            .any(|broken| broken.field == field && broken.value == value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slow_checksum_gives_the_published_check_value() {
        assert_eq!(crc_32c(&[b"1234", b"56789"]), 0xe306_9283);
    }
}
