//! Any bytes against the handle's decoder.

use crate::change::Random;
use crate::count::one_past_the_checksum;
use crate::round_trip::mended;
use crate::slow::AllBroken;
use crate::slow::handle::{self as slow, BYTES, Decoded, Refused};
use gpuipc_core::{DecodeError, GpuIpcMemHandle, checksum_of};
use std::fmt::Debug;

/// Looks at the bytes as they are, at their [`repaired`] form, and at [`nearly`] a valid handle.
///
/// # Panics
///
/// If gpuipc-core and the slow decoder disagree, or a promise of the handle does not hold.
pub fn run(data: &[u8]) {
    look(data);
    let repaired = repaired(data);
    look(&repaired);
    look(&nearly(&repaired));
}

/// Changes of a valid handle that [`around`] looks at.
pub const NEIGHBOURS: usize = 100;

/// Looks at handles that differ from a valid one in a few bits, bytes or numbers, or in a line of the
/// input, too; all have the right checksum. The same ones for the same input.
///
/// Of one in `secrets_every`, by its checksum, the `Debug` text is looked at, which takes longer than all
/// else together.
///
/// # Panics
///
/// As [`run`].
pub fn around(data: &[u8], secrets_every: u32) {
    let base = repaired(data);
    let valid = valid(&base);
    let nearly = nearly(&base);
    let mut random = Random(slow::checksum(&base).into());
    for _ in 0..NEIGHBOURS / 2 {
        for mut bytes in [valid, nearly] {
            random.change_some(&mut bytes);
            repair(&mut bytes);
            if let Ok(handle) = judged_alike(&bytes)
                && handle.checksum() % secrets_every == 0
            {
                keeps_secrets(&handle, &bytes);
            }
        }
    }
}

/// The bytes with the length, magic, versions and checksum that get them past the checksum.
/// Everything else stays as it is.
pub fn repaired(data: &[u8]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let kept = data.len().min(BYTES);
    bytes[..kept].copy_from_slice(&data[..kept]);
    repair(&mut bytes);
    bytes
}

fn repair(bytes: &mut [u8; BYTES]) {
    bytes[..4].copy_from_slice(b"GIPC");
    bytes[4] = bytes[4].max(1);
    bytes[5] = 1;
    slow::seal(bytes);
}

/// A valid handle that says as much of what the bytes say as the rules allow, in their version.
fn valid(bytes: &[u8; BYTES]) -> [u8; BYTES] {
    let mut valid = slow::write(&mended(slow::fields(bytes)));
    valid[4] = bytes[4];
    valid
}

/// A valid handle but for the version and one line of 8 bytes, which are as they were: a rule that
/// only one decoder keeps is not hidden behind others that are broken too.
pub fn nearly(bytes: &[u8; BYTES]) -> [u8; BYTES] {
    let mut nearly = valid(bytes);
    // Any line, but always the same one for the same bytes.
    let at = slow::checksum(bytes) as usize % (BYTES / 8) * 8;
    nearly[at..at + 8].copy_from_slice(&bytes[at..at + 8]);
    slow::seal(&mut nearly);
    nearly
}

/// Decodes the bytes with both decoders and compares.
///
/// # Panics
///
/// As [`run`].
pub fn look(bytes: &[u8]) {
    if let Ok(whole) = bytes.try_into() {
        assert_eq!(checksum_of(whole), slow::checksum(whole), "checksum");
    }
    match judged_alike(bytes) {
        Ok(handle) => keeps_secrets(&handle, bytes),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// What both decoders say of the bytes.
fn judged_alike(bytes: &[u8]) -> Result<GpuIpcMemHandle, DecodeError> {
    let judged = (GpuIpcMemHandle::decode(bytes), slow::read(bytes));
    if matches!(judged.1, Ok(_) | Err(Refused::Fields(_))) {
        one_past_the_checksum();
    }
    match judged {
        (Ok(handle), Ok(decoded)) => {
            same(&handle, &decoded, bytes);
            Ok(handle)
        }
        (Err(error), Err(refused)) => {
            same_cause(&error, &refused, bytes);
            Err(error)
        }
        (handle, decoded) => {
            panic!("gpuipc-core: {handle:?}\nslow decoder: {decoded:?}\nbytes: {bytes:02x?}")
        }
    }
}

fn same(handle: &GpuIpcMemHandle, decoded: &Decoded, bytes: &[u8]) {
    assert_eq!(handle.version(), decoded.version);
    assert_eq!(handle.min_reader(), decoded.min_reader);
    assert_eq!(handle.types().bits(), decoded.types);
    assert_eq!(handle.attributes().bits(), decoded.attributes);
    assert_eq!(handle.checksum(), decoded.checksum);
    assert_eq!(handle.fields(), decoded.fields);

    assert_eq!(handle.encode(), bytes, "encoding gives the same bytes");
    let types = handle.types().types();
    let flags = types.iter().fold(0, |all, one| all | one.flag().bits());
    assert_eq!(flags, decoded.types, "the list has the types of the flags");

    // What a handle says makes a handle again: this version's, without what a newer writer added.
    let again = GpuIpcMemHandle::new(&decoded.fields).map(|again| again.fields());
    assert_eq!(again.as_ref(), Ok(&decoded.fields));
}

/// The error names a rule that the bytes do break, with the value that they have.
pub(crate) fn same_cause(error: &DecodeError, refused: &Refused, bytes: &[u8]) {
    let same = match (error, refused) {
        (DecodeError::Length { got }, Refused::Length) => *got == bytes.len(),
        (DecodeError::Magic { got }, Refused::Magic) => got.to_le_bytes() == bytes[..4],
        (
            DecodeError::Newer {
                version,
                min_reader,
            },
            Refused::Newer,
        ) => [*version, *min_reader] == bytes[4..6],
        (DecodeError::Checksum { stored, computed }, Refused::Checksum) => {
            stored.to_le_bytes() == bytes[188..192] && *computed == slow::checksum(bytes)
        }
        (_, Refused::Versions(broken) | Refused::Fields(broken)) => names_one_of(error, broken),
        _ => false,
    };
    assert!(
        same,
        "gpuipc-core: {error:?}\nslow decoder: {refused:?}\nbytes: {bytes:02x?}"
    );
}

/// The error is one of a field that is among the broken ones.
pub(crate) fn names_one_of(error: &DecodeError, broken: &AllBroken) -> bool {
    matches!(error, DecodeError::Field { field, value, .. } if broken.has(field, *value))
}

/// The `Debug` text stays the same when the token and the driver's bytes change, so it cannot show
/// them in any spelling.
fn keeps_secrets(handle: &GpuIpcMemHandle, bytes: &[u8]) {
    let mut other: [u8; BYTES] = std::array::from_fn(|at| bytes[at]);
    for at in secret_places(handle) {
        other[at] ^= 0xff;
    }
    slow::seal(&mut other);
    let other = GpuIpcMemHandle::decode(&other).expect("no rule asks for a secret's value");
    assert_eq!(text(handle, handle), text(&other, &other));
    assert_eq!(
        text(&handle.fields(), handle),
        text(&other.fields(), &other)
    );
}

/// Where the token and the driver's bytes lie in the handle.
pub(crate) fn secret_places(handle: &GpuIpcMemHandle) -> Vec<usize> {
    let mut secrets = Vec::new();
    if handle.runtime_ipc().is_some() || handle.pool_pointer().is_some() {
        secrets.extend(192..256);
    }
    if handle.ticket().is_some() {
        secrets.extend(272..288);
    }
    if handle.fabric().is_some() {
        secrets.extend(320..384);
    }
    secrets
}

/// The `Debug` text without the checksum, which changes with every byte.
fn text(value: &impl Debug, handle: &GpuIpcMemHandle) -> String {
    format!("{value:?}").replace(&format!("{:#010x}", handle.checksum()), "")
}
