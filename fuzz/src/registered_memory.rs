//! Any bytes against the decoder of registered memories, and what they hold against the encoder.

use crate::decode;
use crate::round_trip::mended as mended_handle;
use crate::slow::AllBroken;
use crate::slow::handle::{self, BYTES as HANDLE};
use crate::slow::registered::{self as slow, BrokenHandle, Decoded, HEADER, Refused, TRANSPORT};
use gpuipc_core::{
    EncodeError, GpuIpcMemHandle, RegisteredError, RegisteredFields, RegisteredMemoryRef,
    TransportInfo, Window, registered_len,
};

/// Looks at the bytes as they are, at their [`repaired`] form, and at [`nearly`] a valid registered
/// memory; and writes what the repaired form holds.
///
/// # Panics
///
/// If gpuipc-core and the slow decoder disagree, or a promise of a registered memory does not hold.
pub fn run(data: &[u8]) {
    look(data);
    let repaired = repaired(data);
    look(&repaired);
    look(&nearly(&repaired));
    write(&parts(&repaired));
}

/// The bytes with the length, magic, versions, counts and checksums that get them past all
/// checksums. Everything else stays as it is, and so does about the length.
pub fn repaired(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    bytes.resize(data.len().max(HEADER), 0);
    bytes[..4].copy_from_slice(b"GIPM");
    bytes[4] = bytes[4].max(1);
    bytes[5] = 1;
    bytes[6] %= 9;
    bytes[7] = 0;
    let first_handle = HEADER + usize::from(bytes[6]) * TRANSPORT;
    let handles = (bytes.len().saturating_sub(first_handle) + HANDLE / 2) / HANDLE;
    let number = u32::try_from(handles).expect("an input is short");
    bytes[8..12].copy_from_slice(&number.to_le_bytes());
    bytes.resize(first_handle + handles * HANDLE, 0);
    seal_all(&mut bytes);
    bytes
}

/// Gives handles and header what gets them past their checksums.
fn seal_all(bytes: &mut [u8]) {
    let first_handle = HEADER + usize::from(bytes[6]) * TRANSPORT;
    for place in bytes[first_handle..].chunks_exact_mut(HANDLE) {
        let sealed = decode::repaired(place);
        place.copy_from_slice(&sealed);
    }
    slow::seal(bytes);
}

/// A valid registered memory but for the version and one line of 8 bytes, which are as they were: a
/// rule that only one decoder keeps is not hidden behind others that are broken too.
pub fn nearly(repaired: &[u8]) -> Vec<u8> {
    let parts = mended(parts(repaired));
    let mut nearly = slow::write(&parts.fields, &parts.transports, &parts.handles);
    nearly[4] = repaired[4];
    // Any line that both have, but always the same one for the same bytes.
    let lines = nearly.len().min(repaired.len()) / 8;
    let at = slow::checksum(repaired) as usize % lines * 8;
    let counts = nearly[6..12].to_vec();
    nearly[at..at + 8].copy_from_slice(&repaired[at..at + 8]);
    nearly[6..12].copy_from_slice(&counts);
    seal_all(&mut nearly);
    nearly
}

/// What a registered memory is made of: each part valid for itself, but maybe not with the others.
#[derive(Clone, Debug)]
pub struct Parts {
    /// What the header says.
    pub fields: RegisteredFields,
    /// Kind and data of each transport.
    pub transports: Vec<(u32, Vec<u8>)>,
    /// The bytes of each handle.
    pub handles: Vec<[u8; HANDLE]>,
}

/// The parts of bytes of the right length. Handles that are none are mended.
pub fn parts(bytes: &[u8]) -> Parts {
    let handles = slow::handle_places(bytes).into_iter();
    Parts {
        fields: slow::fields(bytes),
        transports: slow::transport_places(bytes)
            .into_iter()
            .map(slow::transport)
            .collect(),
        handles: handles
            .map(|place| *place.first_chunk().expect("a whole handle"))
            .map(|place| handle::write(&mended_handle(handle::fields(&place))))
            .collect(),
    }
}

/// The parts, changed as little as makes them go together.
fn mended(mut parts: Parts) -> Parts {
    for index in 0..parts.transports.len() {
        let (before, rest) = parts.transports.split_at_mut(index);
        while before.iter().any(|(kind, _)| *kind == rest[0].0) {
            rest[0].0 = rest[0].0.wrapping_add(1);
        }
    }
    let mut handles: Vec<_> = parts.handles.iter().map(handle::fields).collect();
    let count = handles.len() as u64;
    if count == 0 {
        parts.fields.size = parts.fields.size.max(1);
        return parts;
    }
    for fields in &mut handles {
        fields.length = fields.length.min(u64::MAX / count);
    }
    parts.fields.size = handles.iter().map(|fields| fields.length).sum();
    let mut window = Window {
        length: parts.fields.size,
        offset: 0,
        segment_index: 0,
        segment_count: u32::try_from(count).expect("an input is short"),
        ..handles[0].window
    };
    for fields in &mut handles {
        fields.process_id = parts.fields.process_id;
        fields.host_id = parts.fields.host_id;
        fields.window = window;
        window.offset += fields.length;
        window.segment_index += 1;
    }
    parts.handles = handles.iter().map(handle::write).collect();
    parts
}

/// Writes the parts, if the rules allow it, as the slow decoder judges. True if they do.
///
/// # Panics
///
/// As [`run`].
pub fn write(parts: &Parts) -> bool {
    let expected = slow::write(&parts.fields, &parts.transports, &parts.handles);
    let transports = parts.transports.iter();
    let transports: Vec<TransportInfo> = transports
        .map(|(kind, data)| TransportInfo::new(*kind, data).expect("it has at most 64 bytes"))
        .collect();
    let handles = parts.handles.iter();
    let handles: Vec<GpuIpcMemHandle> = handles
        .map(|bytes| GpuIpcMemHandle::decode(bytes).expect("each is valid for itself"))
        .collect();
    assert_eq!(
        registered_len(transports.len(), handles.len()),
        Some(expected.len())
    );
    // One more byte, which stays as it was.
    let mut buffer = vec![0x77; expected.len() + 1];
    let untouched = buffer.clone();
    let short = parts
        .fields
        .encode(&transports, &handles, &mut buffer[..expected.len() - 1]);
    let needed = EncodeError::Buffer {
        got: expected.len() - 1,
        needed: expected.len(),
    };
    assert_eq!(short, Err(needed));
    assert_eq!(buffer, untouched);
    match (
        parts.fields.encode(&transports, &handles, &mut buffer),
        slow::read(&expected),
    ) {
        (Ok(written), Ok(_)) => {
            assert_eq!(written, expected.len());
            assert_eq!(buffer, [&expected[..], &[0x77]].concat());
            true
        }
        (Err(EncodeError::Content(error)), Err(refused)) => {
            same_cause(&error, &refused, &expected);
            assert_eq!(buffer, untouched);
            false
        }
        (written, decoded) => panic!("{written:?}, slow decoder: {decoded:?}, {parts:?}"),
    }
}

/// Decodes the bytes with both decoders and compares. True if they are a registered memory.
///
/// # Panics
///
/// As [`run`].
pub fn look(bytes: &[u8]) -> bool {
    match (RegisteredMemoryRef::decode(bytes), slow::read(bytes)) {
        (Ok(registered), Ok(decoded)) => {
            same(&registered, &decoded, bytes);
            keeps_secrets(&registered);
            true
        }
        (Err(error), Err(refused)) => {
            same_cause(&error, &refused, bytes);
            false
        }
        (registered, decoded) => {
            panic!("gpuipc-core: {registered:?}\nslow decoder: {decoded:?}\nbytes: {bytes:02x?}")
        }
    }
}

fn same(registered: &RegisteredMemoryRef<'_>, decoded: &Decoded, bytes: &[u8]) {
    assert_eq!(RegisteredMemoryRef::length_of(bytes), Ok(bytes.len()));
    assert_eq!(registered.as_bytes(), bytes);
    assert_eq!(registered.version(), decoded.version);
    assert_eq!(registered.min_reader(), decoded.min_reader);
    assert_eq!(registered.checksum(), decoded.checksum);
    assert_eq!(registered.fields(), decoded.fields);
    assert_eq!(registered.transports().len(), decoded.transports.len());
    for (info, (kind, data)) in registered.transports().zip(&decoded.transports) {
        assert_eq!(info.kind(), *kind);
        assert_eq!(info.bytes(), data);
        assert_eq!(registered.transport(*kind), Some(info), "a kind comes once");
    }
    assert_eq!(registered.handles().len(), decoded.handles.len());
    for (one, decoded) in registered.handles().zip(&decoded.handles) {
        assert_eq!(one.version(), decoded.version);
        assert_eq!(one.fields(), decoded.fields);
    }

    // What it says makes one again: this version's, without what a newer writer added to it.
    let transports: Vec<TransportInfo> = registered.transports().collect();
    let handles: Vec<GpuIpcMemHandle> = registered.handles().collect();
    let mut again = vec![0; bytes.len()];
    let written = registered
        .fields()
        .encode(&transports, &handles, &mut again);
    assert_eq!(written, Ok(bytes.len()));
    let handles = handles.iter().map(GpuIpcMemHandle::encode);
    let handles: Vec<[u8; HANDLE]> = handles.collect();
    let expected = slow::write(&decoded.fields, &decoded.transports, &handles);
    assert_eq!(again, expected);
    if decoded.version == 1 {
        assert_eq!(again, bytes);
    }
}

/// The error names a rule that the bytes do break, with the value that they have.
fn same_cause(error: &RegisteredError, refused: &Refused, bytes: &[u8]) {
    let same = match (error, refused) {
        (RegisteredError::Length { got, wanted }, Refused::Length(whole)) => {
            *got == bytes.len() && wanted == whole
        }
        (RegisteredError::Magic { got }, Refused::Magic) => got.to_le_bytes() == bytes[..4],
        (
            RegisteredError::Newer {
                version,
                min_reader,
            },
            Refused::Newer,
        ) => [*version, *min_reader] == bytes[4..6],
        (RegisteredError::Checksum { stored, computed }, Refused::Checksum) => {
            stored.to_le_bytes() == bytes[124..128] && *computed == slow::checksum(bytes)
        }
        (
            RegisteredError::Field { field, value, .. },
            Refused::Versions(header) | Refused::Counts(header) | Refused::Content { header, .. },
        ) => header.has(field, *value),
        (
            RegisteredError::Transport {
                index,
                field,
                value,
                ..
            },
            Refused::Content { transports, .. },
        ) => transports[*index].has(field, *value),
        (RegisteredError::Handle { index, error }, Refused::Content { handles, .. }) => {
            match &handles[*index] {
                BrokenHandle::Alone(refused) => {
                    let place = slow::handle_places(bytes)[*index];
                    decode::same_cause(error, refused, place);
                    true
                }
                BrokenHandle::Together(broken) => {
                    assert_ne!(*broken, AllBroken::default());
                    decode::names_one_of(error, broken)
                }
            }
        }
        _ => false,
    };
    assert!(
        same,
        "gpuipc-core: {error:?}\nslow decoder: {refused:?}\nbytes: {bytes:02x?}"
    );
    assert!(!error.to_string().is_empty());
}

/// The `Debug` text stays the same when the data of transports, the tokens and the driver's bytes
/// change, so it cannot show them in any spelling.
fn keeps_secrets(registered: &RegisteredMemoryRef<'_>) {
    let mut other = registered.as_bytes().to_vec();
    let mut at = HEADER;
    for info in registered.transports() {
        for byte in &mut other[at + 8..][..info.bytes().len()] {
            *byte ^= 0xff;
        }
        at += TRANSPORT;
    }
    for handle in registered.handles() {
        for place in decode::secret_places(&handle) {
            other[at + place] ^= 0xff;
        }
        at += HANDLE;
    }
    seal_all(&mut other);
    let other = RegisteredMemoryRef::decode(&other).expect("no rule asks for a secret's value");
    assert_eq!(text(registered), text(&other));
}

/// The `Debug` text without the checksums, which change with every byte.
fn text(registered: &RegisteredMemoryRef<'_>) -> String {
    let sums = registered.handles().map(|handle| handle.checksum());
    sums.chain([registered.checksum()])
        .fold(format!("{registered:?}"), |text, sum| {
            text.replace(&format!("{sum:#010x}"), "")
        })
}
