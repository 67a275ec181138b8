//! Any bytes against the handle's decoder.

use crate::change::Random;
use crate::checker::{self, Broken, HANDLE, HANDLES, handle_sum, judge, number, seal};
use crate::count::one_past_the_checksum;
use crate::round_trip::mended;
use gpuipc_core::{DecodeError, GpuIpcMemHandle, checksum_of};
use std::fmt::Debug;

/// Looks at the bytes as they are, at their [`repaired`] form, and at [`nearly`] a valid handle.
///
/// # Panics
///
/// If gpuipc-core and the checker disagree, or a promise of the handle does not hold.
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
    let mut random = Random(handle_sum(&base).into());
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
pub fn repaired(data: &[u8]) -> [u8; HANDLE] {
    let mut bytes = [0; HANDLE];
    let kept = data.len().min(HANDLE);
    bytes[..kept].copy_from_slice(&data[..kept]);
    repair(&mut bytes);
    bytes
}

fn repair(bytes: &mut [u8; HANDLE]) {
    bytes[..4].copy_from_slice(b"GIPC");
    bytes[4] = bytes[4].max(1);
    bytes[5] = 1;
    seal(bytes);
}

/// A valid handle that says as much of what the bytes say as the rules allow, in their version.
fn valid(bytes: &[u8; HANDLE]) -> [u8; HANDLE] {
    let mut valid = checker::write(&mended(checker::fields(bytes)));
    valid[4] = bytes[4];
    valid
}

/// A valid handle but for the version and one line of 8 bytes, which are as they were: a rule that
/// is broken alone is not hidden behind others that are broken too.
pub fn nearly(bytes: &[u8; HANDLE]) -> [u8; HANDLE] {
    let mut nearly = valid(bytes);
    // Any line, but always the same one for the same bytes.
    let at = handle_sum(bytes) as usize % (HANDLE / 8) * 8;
    nearly[at..at + 8].copy_from_slice(&bytes[at..at + 8]);
    repair(&mut nearly);
    nearly
}

/// Decodes the bytes and has the checker judge them.
///
/// # Panics
///
/// As [`run`].
pub fn look(bytes: &[u8]) {
    if let Ok(whole) = bytes.try_into() {
        assert_eq!(checksum_of(whole), handle_sum(whole), "checksum");
    }
    match judged_alike(bytes) {
        Ok(handle) => keeps_secrets(&handle, bytes),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// What gpuipc-core says of the bytes, and the checker too.
fn judged_alike(bytes: &[u8]) -> Result<GpuIpcMemHandle, DecodeError> {
    const EARLY: [&str; 6] = [
        "length of all",
        "magic",
        "version",
        "min_reader",
        "newer",
        "checksum",
    ];
    let broken = judge(&HANDLES, bytes);
    if !broken.iter().any(|(_, name, _)| EARLY.contains(name)) {
        one_past_the_checksum();
    }
    let decoded = GpuIpcMemHandle::decode(bytes);
    match &decoded {
        Ok(handle) if broken.is_empty() => same(handle, bytes),
        Err(error) if broken.contains(&broken_by(0, error)) => {}
        _ => panic!("gpuipc-core: {decoded:?}\nchecker: {broken:?}\nbytes: {bytes:02x?}"),
    }
    decoded
}

/// What an error of a handle that starts there says, in the checker's words.
pub(crate) fn broken_by(part: usize, error: &DecodeError) -> Broken {
    let (name, value) = match *error {
        DecodeError::Length { .. } => ("length of all", 0),
        DecodeError::Magic { got } => ("magic", got.into()),
        DecodeError::Newer {
            version,
            min_reader,
        } => ("newer", u16::from_le_bytes([version, min_reader]).into()),
        DecodeError::Checksum { stored, .. } => ("checksum", stored.into()),
        DecodeError::Field { field, value, .. } => (field, value),
        _ => panic!("an error that the checker does not know: {error:?}"),
    };
    (part, name, value)
}

fn same(handle: &GpuIpcMemHandle, bytes: &[u8]) {
    let whole = bytes.try_into().expect("a whole handle");
    let fields = checker::fields(whole);
    assert_eq!([handle.version(), handle.min_reader()], bytes[4..6]);
    assert_eq!(handle.types().bits(), bytes[7] & 7);
    assert_eq!(
        u64::from(handle.attributes().bits()),
        number(bytes, 8, 2) & 15
    );
    assert_eq!(handle.checksum(), handle_sum(bytes));
    assert_eq!(handle.fields(), fields);
    assert_eq!(handle.encode(), bytes, "encoding gives the same bytes");
    let types = handle.types().types();
    let flags = types.iter().fold(0, |all, one| all | one.flag().bits());
    assert_eq!(flags, bytes[7] & 7, "the list has the types of the flags");

    // What a handle says makes a handle again: this version's, without what a newer writer added.
    let again = GpuIpcMemHandle::new(&fields).map(|again| again.fields());
    assert_eq!(again, Ok(fields));
}

/// The `Debug` text stays the same when the token and the driver's bytes change, so it cannot show
/// them in any spelling.
fn keeps_secrets(handle: &GpuIpcMemHandle, bytes: &[u8]) {
    let mut other: [u8; HANDLE] = std::array::from_fn(|at| bytes[at]);
    for at in secret_places(handle) {
        other[at] ^= 0xff;
    }
    seal(&mut other);
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
