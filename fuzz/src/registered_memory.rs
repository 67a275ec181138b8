//! Any bytes against the decoder of registered memories, and what they hold against the encoder.

use crate::checker::{
    self, Broken, HANDLE, HEADER, TRANSPORT, first_handle, number, registered, registered_sum,
};
use crate::decode::{self, broken_by};
use crate::round_trip::mended as mended_handle;
use gpuipc_core::{
    EncodeError, GpuIpcMemHandle, HandleFields, HostId, ProcessId, RegisteredError,
    RegisteredFields, RegisteredMemoryRef, SharedRange, TransportInfo, registered_len,
};

/// Looks at the bytes as they are, at their [`repaired`] form, and at [`nearly`] a valid registered
/// memory; and writes what the repaired form holds.
///
/// # Panics
///
/// If gpuipc-core and the checker disagree, or a promise of a registered memory does not hold.
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
    bytes[6] %= 17;
    bytes[7] = 0;
    let first_handle = first_handle(&bytes);
    let handles = (bytes.len().saturating_sub(first_handle) + HANDLE / 2) / HANDLE;
    let number = u32::try_from(handles).expect("an input is short");
    bytes[8..12].copy_from_slice(&number.to_le_bytes());
    bytes.resize(first_handle + handles * HANDLE, 0);
    seal_all(&mut bytes);
    bytes
}

/// Gives handles and header what gets them past their checksums.
fn seal_all(bytes: &mut [u8]) {
    let first_handle = first_handle(bytes);
    for place in bytes[first_handle..].chunks_exact_mut(HANDLE) {
        let sealed = decode::repaired(place);
        place.copy_from_slice(&sealed);
    }
    seal(bytes);
}

fn seal(bytes: &mut [u8]) {
    let sum = registered_sum(bytes);
    bytes[124..128].copy_from_slice(&sum.to_le_bytes());
}

/// A valid registered memory but for the version and one line of 8 bytes, which are as they were: a
/// rule that is broken alone is not hidden behind others that are broken too.
pub fn nearly(repaired: &[u8]) -> Vec<u8> {
    let mut nearly = raw(&mended(parts(repaired)));
    nearly[4] = repaired[4];
    // Any line that both have, but always the same one for the same bytes.
    let lines = nearly.len().min(repaired.len()) / 8;
    let at = registered_sum(repaired) as usize % lines * 8;
    let counts = nearly[6..12].to_vec();
    nearly[at..at + 8].copy_from_slice(&repaired[at..at + 8]);
    nearly[6..12].copy_from_slice(&counts);
    seal_all(&mut nearly);
    nearly
}

/// What a registered memory is made of: each part valid for itself, but maybe not with the others.
#[derive(Clone, Debug)]
pub struct Parts {
    fields: RegisteredFields,
    transports: Vec<TransportInfo>,
    handles: Vec<HandleFields>,
}

/// The parts of bytes of the right length. Transports and handles that are none are mended.
pub fn parts(bytes: &[u8]) -> Parts {
    let (transports, handles) = bytes[HEADER..].split_at(first_handle(bytes) - HEADER);
    let transport = |bytes: &[u8]| {
        let length = usize::from(bytes[4].clamp(0, 64));
        TransportInfo::new(number(bytes, 0, 4) as u32, &bytes[8..8 + length])
            .expect("at most 64 bytes")
    };
    let handle = |bytes: &[u8]| checker::fields(bytes.try_into().expect("a whole handle"));
    Parts {
        fields: fields(bytes),
        transports: transports.chunks(TRANSPORT).map(transport).collect(),
        handles: handles
            .chunks(HANDLE)
            .map(handle)
            .map(mended_handle)
            .collect(),
    }
}

/// What the header says.
fn fields(bytes: &[u8]) -> RegisteredFields {
    let name = |at: usize| *bytes[at..].first_chunk().expect("16 bytes");
    RegisteredFields {
        pointer: number(bytes, 16, 8),
        len: number(bytes, 24, 8),
        process_id: ProcessId(name(32)),
        host_id: HostId(name(48)),
        pid: number(bytes, 12, 4) as u32,
        pid_namespace: number(bytes, 64, 4) as u32,
    }
}

/// The parts' bytes, whether or not they go together.
fn raw(parts: &Parts) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes[..6].copy_from_slice(b"GIPM\x01\x01");
    bytes[6..8].copy_from_slice(&(parts.transports.len() as u16).to_le_bytes());
    bytes[8..12].copy_from_slice(&(parts.handles.len() as u32).to_le_bytes());
    bytes[12..16].copy_from_slice(&parts.fields.pid.to_le_bytes());
    bytes[16..24].copy_from_slice(&parts.fields.pointer.to_le_bytes());
    bytes[24..32].copy_from_slice(&parts.fields.len.to_le_bytes());
    bytes[32..48].copy_from_slice(&parts.fields.process_id.0);
    bytes[48..64].copy_from_slice(&parts.fields.host_id.0);
    bytes[64..68].copy_from_slice(&parts.fields.pid_namespace.to_le_bytes());
    for info in &parts.transports {
        bytes.extend(info.kind().to_le_bytes());
        bytes.extend([info.bytes().len() as u8, 0, 0, 0]);
        bytes.extend(info.data());
    }
    bytes.extend(parts.handles.iter().flat_map(checker::write));
    seal(&mut bytes);
    bytes
}

/// The parts, changed as little as makes them go together.
fn mended(mut parts: Parts) -> Parts {
    for index in 0..parts.transports.len() {
        let (before, rest) = parts.transports.split_at_mut(index);
        while before.iter().any(|info| info.kind() == rest[0].kind()) {
            let kind = rest[0].kind().wrapping_add(1);
            rest[0] = TransportInfo::new(kind, rest[0].bytes()).expect("at most 64 bytes");
        }
    }
    let count = parts.handles.len() as u64;
    let Some(first) = parts.handles.first() else {
        parts.fields.len = parts.fields.len.max(1);
        return parts;
    };
    let mut range = SharedRange {
        offset: 0,
        segment_index: 0,
        segment_count: u32::try_from(count).expect("an input is short"),
        ..first.range
    };
    for fields in &mut parts.handles {
        fields.length = fields.length.min(u64::MAX / count);
    }
    range.length = parts.handles.iter().map(|fields| fields.length).sum();
    parts.fields.len = range.length;
    for fields in &mut parts.handles {
        fields.process_id = parts.fields.process_id;
        fields.host_id = parts.fields.host_id;
        fields.range = range;
        range.offset += fields.length;
        range.segment_index += 1;
    }
    parts
}

/// Writes the parts, if the rules allow it, as the checker judges. True if they do.
///
/// # Panics
///
/// As [`run`].
pub fn write(parts: &Parts) -> bool {
    let expected = raw(parts);
    let handles = parts.handles.iter().map(GpuIpcMemHandle::new);
    let handles: Vec<_> = handles
        .map(|handle| handle.expect("each is valid for itself"))
        .collect();
    let count = registered_len(parts.transports.len(), handles.len());
    assert_eq!(count, Some(expected.len()));
    // One more byte, which stays as it was.
    let mut buffer = vec![0x77; expected.len() + 1];
    let untouched = buffer.clone();
    let got = expected.len() - 1;
    let write = |buffer: &mut [u8]| parts.fields.encode(&parts.transports, &handles, buffer);
    let needed = expected.len();
    assert_eq!(
        write(&mut buffer[..got]),
        Err(EncodeError::Buffer { got, needed })
    );
    assert_eq!(buffer, untouched);
    let broken = registered(&expected);
    match write(&mut buffer) {
        Ok(written) => {
            assert!(broken.is_empty(), "{broken:?}: {parts:?}");
            assert_eq!(written, expected.len());
            assert_eq!(buffer, [&expected[..], &[0x77]].concat());
            true
        }
        Err(EncodeError::Content(error)) => {
            names_one_of(&error, &broken, &expected);
            assert_eq!(buffer, untouched);
            false
        }
        Err(error) => panic!("the buffer is long enough: {error}, {parts:?}"),
    }
}

/// Decodes the bytes and has the checker judge them. True if they are a registered memory.
///
/// # Panics
///
/// As [`run`].
pub fn look(bytes: &[u8]) -> bool {
    let broken = registered(bytes);
    match RegisteredMemoryRef::decode(bytes) {
        Ok(memory) => {
            assert!(broken.is_empty(), "{broken:?}\nbytes: {bytes:02x?}");
            same(&memory, bytes);
            keeps_secrets(&memory);
            true
        }
        Err(error) => {
            names_one_of(&error, &broken, bytes);
            false
        }
    }
}

fn same(memory: &RegisteredMemoryRef<'_>, bytes: &[u8]) {
    assert_eq!(RegisteredMemoryRef::length_of(bytes), Ok(bytes.len()));
    assert_eq!(memory.as_bytes(), bytes);
    assert_eq!([memory.version(), memory.min_reader()], bytes[4..6]);
    assert_eq!(memory.checksum(), registered_sum(bytes));
    assert_eq!(memory.fields(), fields(bytes));
    // All that is valid: mending changes nothing.
    let parts = parts(bytes);
    assert!(memory.transports().eq(parts.transports.iter().copied()));
    let handles = memory.handles().map(|handle| handle.fields());
    assert!(handles.eq(parts.handles.iter().cloned()));
    for info in memory.transports() {
        assert_eq!(
            memory.transport(info.kind()),
            Some(info),
            "a kind comes once"
        );
    }
    // What it says makes one again: this version's, without what a newer writer added to it.
    assert!(write(&parts), "{parts:?}");
    let ours = |handle: GpuIpcMemHandle| handle.version() == 1;
    if memory.version() == 1 && memory.handles().all(ours) {
        assert_eq!(raw(&parts), bytes);
    }
}

/// The error is one of a rule that the bytes do break, with the value that they have.
fn names_one_of(error: &RegisteredError, broken: &[Broken], bytes: &[u8]) {
    let named = match *error {
        RegisteredError::Length { got, .. } => {
            assert_eq!(got, bytes.len());
            (0, "length of all", 0)
        }
        RegisteredError::Magic { got } => (0, "magic", got.into()),
        RegisteredError::Newer {
            version,
            min_reader,
        } => (0, "newer", u16::from_le_bytes([version, min_reader]).into()),
        RegisteredError::Checksum { stored, .. } => (0, "checksum", stored.into()),
        RegisteredError::Field { field, value, .. } => (0, field, value),
        RegisteredError::Transport {
            index,
            field,
            value,
            ..
        } => (HEADER + index * TRANSPORT, field, value),
        RegisteredError::Handle { index, error } => {
            broken_by(first_handle(bytes) + index * HANDLE, &error)
        }
        _ => panic!("an error that the checker does not know: {error:?}"),
    };
    assert!(
        broken.contains(&named),
        "gpuipc-core: {error:?}\nchecker: {broken:?}\nbytes: {bytes:02x?}"
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
