//! A part of a buffer or a mapping, written and read.

use crate::{NotOk, TestChild, pattern, word};
use gpuipc_tests::{sum_of, to_hex};

type Words<'a, 'b> = &'a mut std::str::SplitWhitespace<'b>;

/// What is read or written.
enum What {
    Buffer(u32),
    Mapping(u32),
    Registered(u32),
}

/// `buffer`, `mapping` or `registered`, and its number.
fn what(words: Words<'_, '_>) -> Result<What, NotOk> {
    match word::<String>(words)?.as_str() {
        "buffer" => Ok(What::Buffer(word(words)?)),
        "mapping" => Ok(What::Mapping(word(words)?)),
        "registered" => Ok(What::Registered(word(words)?)),
        _ => Err("neither a buffer nor a mapping".into()),
    }
}

/// Writes the pattern of a seed, from its first byte on.
pub(crate) fn put(child: &TestChild, words: Words<'_, '_>) -> Result<String, NotOk> {
    let what = what(words)?;
    let (offset, len): (usize, usize) = (word(words)?, word(words)?);
    let bytes = pattern(word(words)?, 0, len);
    match what {
        What::Buffer(id) => child.buffer_of(id)?.write(offset, &bytes)?,
        What::Mapping(id) => child.mapping_of(id)?.write(offset, &bytes)?,
        What::Registered(id) => child.registered_mapping(id)?.write(offset, &bytes)?,
    }
    Ok(String::new())
}

fn read(child: &TestChild, words: Words<'_, '_>) -> Result<Vec<u8>, NotOk> {
    let what = what(words)?;
    let (offset, len): (usize, usize) = (word(words)?, word(words)?);
    let mut bytes = vec![0; len];
    match what {
        What::Buffer(id) => child.buffer_of(id)?.read(offset, &mut bytes)?,
        What::Mapping(id) => child.mapping_of(id)?.read(offset, &mut bytes)?,
        What::Registered(id) => child.registered_mapping(id)?.read(offset, &mut bytes)?,
    }
    Ok(bytes)
}

/// What tells the bytes from others.
pub(crate) fn sum(child: &TestChild, words: Words<'_, '_>) -> Result<String, NotOk> {
    Ok(sum_of(&read(child, words)?).to_string())
}

/// The bytes themselves.
pub(crate) fn bytes(child: &TestChild, words: Words<'_, '_>) -> Result<String, NotOk> {
    Ok(to_hex(&read(child, words)?))
}
