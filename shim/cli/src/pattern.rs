//! Bytes that both sides can compute from the handles alone.
//!
//! Byte `i` of a pattern is byte `i % 8` of the `i / 8`-th number of splitmix64
//! from a seed. The exporter's seed is the handle's checksum, which covers the
//! exporter's random id, the token and the range's number, so that no two
//! exports look alike; of several handles, in whatever order, it is what their
//! checksums differ in. An importer answers with the seed's complement.

use crate::output::Failure;
use gpuipc::{Buffer, GpuIpcMem, GpuIpcMemHandle};
use std::fmt;

/// Copies and comparisons are made in pieces of this many bytes.
const CHUNK: usize = 8 << 20;

/// What an exporter writes.
pub(crate) fn exported_seed(handles: &[GpuIpcMemHandle]) -> u64 {
    let checksums = handles.iter().map(|handle| u64::from(handle.checksum()));
    checksums.fold(0, |seed, checksum| seed ^ checksum)
}

/// What an importer answers.
pub(crate) fn answer_seed(handles: &[GpuIpcMemHandle]) -> u64 {
    !exported_seed(handles)
}

/// Memory that can be read.
pub(crate) trait Source {
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), gpuipc::Error>;
}

/// Memory that can be written.
pub(crate) trait Sink {
    fn write(&self, offset: usize, from: &[u8]) -> Result<(), gpuipc::Error>;
}

impl Source for Buffer {
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), gpuipc::Error> {
        self.read(offset, to)
    }
}

impl Sink for Buffer {
    fn write(&self, offset: usize, from: &[u8]) -> Result<(), gpuipc::Error> {
        self.write(offset, from)
    }
}

impl Source for GpuIpcMem {
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), gpuipc::Error> {
        self.read(offset, to)
    }
}

impl Sink for GpuIpcMem {
    fn write(&self, offset: usize, from: &[u8]) -> Result<(), gpuipc::Error> {
        self.write(offset, from)
    }
}

/// The first byte that is not the pattern's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    at: usize,
    found: u8,
    expected: u8,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "byte {} is {:#04x}, not {:#04x}",
            self.at, self.found, self.expected
        )
    }
}

/// The pattern's bytes from `from` on, which is a multiple of 8.
fn fill(seed: u64, from: usize, bytes: &mut [u8]) {
    let first = (from / 8) as u64;
    for (index, word) in bytes.chunks_mut(8).enumerate() {
        let step = first.wrapping_add(index as u64).wrapping_add(1);
        let mut mixed = seed.wrapping_add(step.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let number = (mixed ^ (mixed >> 31)).to_le_bytes();
        word.copy_from_slice(&number[..word.len()]);
    }
}

/// Writes the pattern to `len` bytes from `at` on, and returns when the GPU has
/// them. `alive` is called before each piece.
pub(crate) fn write(
    memory: &impl Sink,
    at: usize,
    len: usize,
    seed: u64,
    alive: &mut dyn FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut piece = vec![0; len.min(CHUNK)];
    for done in (0..len).step_by(CHUNK) {
        alive()?;
        let piece = &mut piece[..CHUNK.min(len - done)];
        fill(seed, done, piece);
        memory.write(at + done, piece)?;
    }
    Ok(())
}

/// Compares `len` bytes from `at` on with the pattern. `alive` is called before
/// each piece.
pub(crate) fn compare(
    memory: &impl Source,
    at: usize,
    len: usize,
    seed: u64,
    alive: &mut dyn FnMut() -> Result<(), Failure>,
) -> Result<Option<Difference>, Failure> {
    let mut found = vec![0; len.min(CHUNK)];
    let mut expected = found.clone();
    for done in (0..len).step_by(CHUNK) {
        alive()?;
        let bytes = CHUNK.min(len - done);
        let (found, expected) = (&mut found[..bytes], &mut expected[..bytes]);
        memory.read(at + done, found)?;
        fill(seed, done, expected);
        if found != expected {
            let pairs = found.iter().zip(expected.iter()).enumerate();
            let mut differing = pairs.filter(|(_, (found, expected))| found != expected);
            return Ok(differing
                .next()
                .map(|(index, (found, expected))| Difference {
                    at: done + index,
                    found: *found,
                    expected: *expected,
                }));
        }
    }
    Ok(None)
}

/// For `alive` where nobody waits.
pub(crate) fn nobody_waits() -> Result<(), Failure> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    struct Plain(RefCell<Vec<u8>>);

    impl Source for Plain {
        fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), gpuipc::Error> {
            to.copy_from_slice(&self.0.borrow()[offset..offset + to.len()]);
            Ok(())
        }
    }

    impl Sink for Plain {
        fn write(&self, offset: usize, from: &[u8]) -> Result<(), gpuipc::Error> {
            self.0.borrow_mut()[offset..offset + from.len()].copy_from_slice(from);
            Ok(())
        }
    }

    #[test]
    fn a_pattern_is_the_same_in_one_piece_and_in_several() {
        let mut whole = [0; 100];
        fill(7, 0, &mut whole);
        let mut part = [0; 36];
        fill(7, 64, &mut part);
        assert_eq!(whole[64..], part);
    }

    #[test]
    fn a_changed_byte_is_found_in_any_piece() {
        for len in [1, 7, 8, CHUNK, CHUNK + 13] {
            let memory = Plain(RefCell::new(vec![0; len + 5]));
            write(&memory, 5, len, 42, &mut nobody_waits).expect("plain memory");
            assert_eq!(
                compare(&memory, 5, len, 42, &mut nobody_waits).expect("plain memory"),
                None
            );
            memory.0.borrow_mut()[5 + len - 1] ^= 1;
            let difference = compare(&memory, 5, len, 42, &mut nobody_waits)
                .expect("plain memory")
                .expect("a byte was changed");
            assert_eq!(difference.at, len - 1);
            assert_eq!(difference.found ^ 1, difference.expected);
        }
    }
}
