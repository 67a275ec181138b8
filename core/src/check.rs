//! What the rules of all formats have in common.

use crate::error::{DecodeError, MessageError};
use crate::registered::RegisteredError;

/// A field's name in the format, its value, and the rule that it breaks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Broken {
    pub(crate) field: &'static str,
    pub(crate) value: u64,
    pub(crate) rule: &'static str,
}

pub(crate) type Checked = Result<(), Broken>;

macro_rules! broken_is {
    ($($error:ident)+) => {$(
        impl From<Broken> for $error {
            fn from(Broken { field, value, rule }: Broken) -> Self {
                Self::Field { field, value, rule }
            }
        }
    )+};
}

broken_is!(DecodeError MessageError RegisteredError);

/// The rule as one line: what must hold, whose field it is, its value, and the rule in words.
pub(crate) fn rule(
    holds: bool,
    field: &'static str,
    value: impl Into<u64>,
    rule: &'static str,
) -> Checked {
    if holds {
        return Ok(());
    }
    let value = value.into();
    Err(Broken { field, value, rule })
}

/// All bytes of `part` are zero. The error's value is the place of the first that is not, where
/// `part` starts at `start`: never its content, which may be a secret.
pub(crate) fn zeros(
    part: &[u8],
    start: usize,
    field: &'static str,
    words: &'static str,
) -> Checked {
    let position = part.iter().position(|byte| *byte != 0);
    let place = start.saturating_add(position.unwrap_or(0));
    rule(position.is_none(), field, number(place), words)
}

pub(crate) const RESERVED: &str = "reserved bytes are zero, and this is where one is not";

/// The versions that a writer gives make sense.
pub(crate) fn versions(version: u8, min_reader: u8) -> Checked {
    let words = "versions start at 1";
    rule(version != 0, "version", version, words)?;
    rule(min_reader != 0, "min_reader", min_reader, words)?;
    let words = "a writer can read what it writes, so this is at most version";
    rule(min_reader <= version, "min_reader", min_reader, words)
}

pub(crate) fn number(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}
