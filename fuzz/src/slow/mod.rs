//! The formats once more, from their tables: to be compared with gpuipc-core, never to be used.

pub mod handle;
pub mod message;
pub mod registered;

/// The little-endian number in the `size` bytes at `at`.
#[inline]
fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let bytes = bytes[at..at + size].iter().rev();
    bytes.fold(0, |number, byte| number * 256 + u64::from(*byte))
}

/// The 16 bytes at `at`.
fn name(bytes: &[u8], at: usize) -> [u8; 16] {
    *bytes[at..].first_chunk().expect("16 bytes")
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
#[inline]
fn first_not_zero(bytes: &[u8], from: usize, to: usize) -> Option<u64> {
    // Looked at together first: libFuzzer traces each comparison, and mostly all are zero.
    if bytes[from..to].iter().fold(0, |all, byte| all | byte) == 0 {
        return None;
    }
    let mut places = from..to;
    places
        .find(|place| bytes[*place] != 0)
        .map(|place| place as u64)
}

/// CRC-32C over the parts one after the other.
pub fn crc_32c(parts: &[&[u8]]) -> u32 {
    !parts.iter().fold(u32::MAX, |sum, part| with(sum, part))
}

/// The sum with these bytes too: 64 a step, then 8, then bit by bit.
fn with(mut sum: u32, bytes: &[u8]) -> u32 {
    let (steps, rest) = bytes.as_chunks::<64>();
    // Unrolled, as libFuzzer traces the comparison that ends a loop.
    for step in steps {
        for eight in step.as_chunks().0 {
            sum = with_8_bytes(sum, *eight);
        }
    }
    let (steps, rest) = rest.as_chunks();
    for eight in steps {
        sum = with_8_bytes(sum, *eight);
    }
    by_bits(sum, rest)
}

fn with_8_bytes(sum: u32, bytes: [u8; 8]) -> u32 {
    let word = u64::from_le_bytes(bytes) ^ u64::from(sum);
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes().map(usize::from);
    let t = &BEHIND;
    t[7][a] ^ t[6][b] ^ t[5][c] ^ t[4][d] ^ t[3][e] ^ t[2][f] ^ t[1][g] ^ t[0][h]
}

/// What a byte makes of the sum with so many zero bytes behind it.
static BEHIND: [[u32; 256]; 8] = behind();

const fn behind() -> [[u32; 256]; 8] {
    let mut table = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u32;
        let mut zeros = 0;
        while zeros < 8 {
            sum = with_8_bits(sum);
            table[zeros][byte] = sum;
            zeros += 1;
        }
        byte += 1;
    }
    table
}

/// The sum with these bytes too: the definition.
fn by_bits(mut sum: u32, bytes: &[u8]) -> u32 {
    for byte in bytes {
        sum = with_8_bits(sum ^ u32::from(*byte));
    }
    sum
}

/// The sum, 8 bits on.
const fn with_8_bits(mut sum: u32) -> u32 {
    let mut bit = 0;
    while bit < 8 {
        // Without a comparison of the bit: libFuzzer would trace each, which takes most of a run's time.
        sum = (sum >> 1) ^ (0x82f6_3b78 * (sum & 1));
        bit += 1;
    }
    sum
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

    #[inline]
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
    use crate::change::Random;

    #[test]
    fn the_slow_checksum_gives_the_published_check_value() {
        assert_eq!(crc_32c(&[b"1234", b"56789"]), 0xe306_9283);
    }

    #[test]
    fn eight_bytes_a_step_give_what_single_bits_give() {
        let mut random = Random(32);
        for len in 0..1000 {
            let bytes: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
            let (start, end) = bytes.split_at(random.below(len + 1));
            assert_eq!(crc_32c(&[start, end]), !by_bits(u32::MAX, &bytes));
        }
    }
}
