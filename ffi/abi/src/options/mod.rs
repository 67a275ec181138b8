//! How things are opened, exported and imported, as C says it.
//!
//! Each is a struct that begins with its own size and may grow at its end: see
//! [`Growing`], whose rules are those of Linux's extensible structs (`clone3`,
//! `openat2`).

#![allow(unsafe_code)] // the promise of `Growing`

mod device;
mod export;
mod import;
mod open;

pub use device::CDevice;
pub use export::ExportOptions;
pub use import::ImportOptions;
pub use open::OpenOptions;

use crate::failure::Failure;
use crate::values;
use gpuipc::HandleType;

/// A struct of options that begins with its own size.
///
/// The library takes every size that was published up to its own version: what
/// an older header lacks has its default. It also takes a larger one, from a newer
/// header, if all that it does not know is zero. So zero must always mean "as
/// before" in a field that is added.
///
/// # Safety
/// `repr(C)`, begins with the size as a `usize`, has no padding, and any bytes
/// are a value.
pub unsafe trait Growing: Copy {
    /// The struct's name in C.
    const NAME: &'static str;
    /// Every size that was published, in order; the last one is this version's.
    const PUBLISHED: &'static [usize];

    /// The defaults, with this version's size.
    fn defaults() -> Self;
}

/// No struct of options is ever as large: one that claims to be was not filled in.
const LARGEST: usize = 4096;

/// Refuses a size that no header has.
pub(crate) fn check_size<T: Growing>(size: usize) -> Result<(), Failure> {
    if T::PUBLISHED.contains(&size) || (size > size_of::<T>() && size <= LARGEST) {
        return Ok(());
    }
    Err(Failure::argument(format!(
        "struct_size of the options is {size}, this library knows {:?}: set them up with {}_init \
         and sizeof({})",
        T::PUBLISHED,
        T::NAME,
        T::NAME
    )))
}

/// The error for what a newer header has set and this library does not know.
pub(crate) fn newer<T: Growing>(size: usize) -> Failure {
    Failure::argument(format!(
        "the options have {size} bytes, and something is set beyond the {} that this library \
         knows: it is older than the header",
        size_of::<T>()
    ))
}

/// A field that has a value that it cannot have.
fn wrong(field: &str, value: impl core::fmt::Display, rule: &str) -> Failure {
    Failure::argument(format!("{field} of the options is {value}, but {rule}"))
}

/// The types in the first `count` places of `places`; the others must be 0.
fn types(count: u8, places: &[u8]) -> Result<Vec<HandleType>, Failure> {
    let count = usize::from(count);
    let Some((given, unused)) = places.split_at_checked(count) else {
        return Err(Failure::argument(format!(
            "type_count of the options is {count}, but there is room for {}",
            places.len()
        )));
    };
    let mut types = Vec::with_capacity(count);
    for number in given {
        match values::handle_type(*number) {
            Some(handle_type) if !types.contains(&handle_type) => types.push(handle_type),
            Some(handle_type) => {
                return Err(Failure::argument(format!(
                    "types of the options has {handle_type} twice"
                )));
            }
            None => {
                return Err(Failure::argument(format!(
                    "types of the options has {number}, but a type is 1 (RuntimeIpc), 2 (PosixFd) or 4 (Fabric)"
                )));
            }
        }
    }
    if unused.iter().any(|number| *number != 0) {
        return Err(Failure::argument(format!(
            "types of the options goes on after type_count, which is {count}: it must be 0 there"
        )));
    }
    Ok(types)
}
