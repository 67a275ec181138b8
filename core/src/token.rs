//! The secret that the broker asks for.

use crate::layout::Plain;
use core::fmt;
use core::hint::black_box;

/// Compares without stopping at the first difference, so that the time tells nothing about where
/// the two differ.
pub(crate) fn same_bytes<const N: usize>(a: &[u8; N], b: &[u8; N]) -> bool {
    let differing = a
        .iter()
        .zip(b)
        // The optimizer must not see that one differing bit already decides.
        .fold(0, |bits, (a, b)| black_box(bits | (a ^ b)));
    differing == 0
}

/// The secret of one exported allocation: who shows it to the broker gets the memory's descriptor.
///
/// Comparing takes the same time wherever two tokens differ, and no text of this crate shows one.
#[derive(Clone, Copy)]
pub struct Token([u8; 16]);

impl Token {
    /// The bytes must come from a cryptographic random source.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The secret itself: for the wire only, never for a log.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Compares in constant time. `==` does the same.
    pub fn matches(&self, other: &Self) -> bool {
        same_bytes(&self.0, &other.0)
    }
}

impl Plain<[u8; 16]> for Token {
    fn of(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
    fn raw(self) -> [u8; 16] {
        self.0
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.matches(other)
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}
