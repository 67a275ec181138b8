//! A registered memory: reading it, its rules, and writing it.
//!
//! | at | field | size |
//! |---|---|---|
//! | 0 | magic `GIPM` | 4 |
//! | 4, 5 | version, min_reader | 1 each |
//! | 6 | transport_count, T, at most 16 | 2 |
//! | 8 | handle_count, N, at most 2 to the 20th | 4 |
//! | 12 | pid | 4 |
//! | 16, 24 | pointer, size | 8 each |
//! | 32, 48 | process_id, host_id | 16 each |
//! | 64 | pid_namespace | 4 |
//! | 68 | reserved | 56 |
//! | 124 | checksum of the 124 bytes before and of the transports | 4 |
//! | 128 | transports: kind 4, length 1, reserved 3, data 64 | T x 72 |
//! | 128 + 72 T | handles | N x 384 |

use super::handle::{self, BYTES as HANDLE};
use super::{AllBroken, crc_32c, name, number, put};
use gpuipc_core::{HostId, ProcessId, RegisteredFields};

/// Bytes of the header.
pub const HEADER: usize = 128;
/// Bytes of a transport.
pub const TRANSPORT: usize = 72;
/// The newest version that the table describes.
const NEWEST: u8 = 1;

/// What accepted bytes say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The writer's version.
    pub version: u8,
    /// The oldest version that may read.
    pub min_reader: u8,
    /// The checksum.
    pub checksum: u32,
    /// The rest of the header.
    pub fields: RegisteredFields,
    /// Kind and data of each transport.
    pub transports: Vec<(u32, Vec<u8>)>,
    /// Each handle.
    pub handles: Vec<handle::Decoded>,
}

/// Why bytes are refused. The causes in the order in which a reader meets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Not so many bytes.
    Length(usize),
    /// Not `GIPM`.
    Magic,
    /// Versions that make no sense.
    Versions(AllBroken),
    /// For newer readers.
    Newer,
    /// Too many transports or handles.
    Counts(AllBroken),
    /// Damaged.
    Checksum,
    /// Something that makes no sense.
    Content {
        /// In the header.
        header: AllBroken,
        /// In each transport.
        transports: Vec<AllBroken>,
        /// In each handle.
        handles: Vec<BrokenHandle>,
    },
}

/// What is wrong with a handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrokenHandle {
    /// It is none.
    Alone(handle::Refused),
    /// It breaks these rules of the whole, or none.
    Together(AllBroken),
}

/// Where the handles start.
fn first_handle(bytes: &[u8]) -> usize {
    HEADER + number(bytes, 6, 2) as usize * TRANSPORT
}

/// The checksum that the bytes must carry, of which header and transports are there.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc_32c(&[&bytes[..124], &bytes[HEADER..first_handle(bytes)]])
}

/// Writes the checksum that the bytes must carry. The handles have their own.
pub fn seal(bytes: &mut [u8]) {
    let sum = checksum(bytes);
    put(bytes, 124, 4, sum.into());
}

/// Reads a registered memory.
///
/// # Errors
///
/// Why the bytes are none, with all rules that they break.
pub fn read(bytes: &[u8]) -> Result<Decoded, Refused> {
    if bytes.len() < HEADER {
        return Err(Refused::Length(HEADER));
    }
    if &bytes[..4] != b"GIPM" {
        return Err(Refused::Magic);
    }
    let (version, min_reader) = (bytes[4], bytes[5]);
    let mut broken = AllBroken::default();
    broken.unless(version != 0, "version", version.into());
    let sensible = min_reader != 0 && min_reader <= version;
    broken.unless(sensible, "min_reader", min_reader.into());
    if broken != AllBroken::default() {
        return Err(Refused::Versions(broken));
    }
    if min_reader > NEWEST {
        return Err(Refused::Newer);
    }
    let (transports, handles) = (number(bytes, 6, 2), number(bytes, 8, 4));
    broken.unless(transports <= 16, "transport_count", transports);
    broken.unless(handles <= 1 << 20, "handle_count", handles);
    if broken != AllBroken::default() {
        return Err(Refused::Counts(broken));
    }
    let whole = first_handle(bytes) + handles as usize * HANDLE;
    if bytes.len() != whole {
        return Err(Refused::Length(whole));
    }
    if number(bytes, 124, 4) != u64::from(checksum(bytes)) {
        return Err(Refused::Checksum);
    }
    content(bytes)
}

fn content(bytes: &[u8]) -> Result<Decoded, Refused> {
    // From a newer writer, what has no meaning yet is allowed.
    let newer = bytes[4] > NEWEST;
    let mut header = AllBroken::default();
    if !newer {
        header.unless_zero(bytes, 68, 124, "reserved");
    }
    header.unless(number(bytes, 24, 8) != 0, "size", 0);
    let places = transport_places(bytes);
    let transports: Vec<AllBroken> = (0..places.len())
        .map(|index| broken_transport(&places, index, newer))
        .collect();
    let handles: Vec<BrokenHandle> = (0..handle_places(bytes).len())
        .map(|index| broken_handle(bytes, index))
        .collect();

    let fine = header == AllBroken::default()
        && transports.iter().all(|one| *one == AllBroken::default())
        && handles
            .iter()
            .all(|one| *one == BrokenHandle::Together(AllBroken::default()));
    if !fine {
        return Err(Refused::Content {
            header,
            transports,
            handles,
        });
    }
    let handles = handle_places(bytes).into_iter().map(handle::read);
    Ok(Decoded {
        version: bytes[4],
        min_reader: bytes[5],
        checksum: checksum(bytes),
        fields: fields(bytes),
        transports: places.into_iter().map(transport).collect(),
        handles: handles.collect::<Result<_, _>>().expect("all are fine"),
    })
}

/// The bytes of each transport, where the length is right.
pub fn transport_places(bytes: &[u8]) -> Vec<&[u8]> {
    let places = bytes[HEADER..first_handle(bytes)].chunks_exact(TRANSPORT);
    places.collect()
}

/// The bytes of each handle, where the length is right.
pub fn handle_places(bytes: &[u8]) -> Vec<&[u8]> {
    bytes[first_handle(bytes)..].chunks_exact(HANDLE).collect()
}

fn broken_transport(places: &[&[u8]], index: usize, newer: bool) -> AllBroken {
    let bytes = places[index];
    let mut broken = AllBroken::default();
    let kind = number(bytes, 0, 4);
    for before in &places[..index] {
        broken.unless(number(before, 0, 4) != kind, "kind", kind);
    }
    if !newer {
        broken.unless_zero(bytes, 5, 8, "reserved");
    }
    let length = bytes[4];
    broken.unless(length <= 64, "length", length.into());
    if length <= 64 {
        broken.unless_zero(bytes, 8 + usize::from(length), TRANSPORT, "data");
    }
    broken
}

/// The rules of the whole are judged by the bytes, since a handle's rules hold by then.
fn broken_handle(bytes: &[u8], index: usize) -> BrokenHandle {
    let places = handle_places(bytes);
    let one = places[index];
    if let Err(refused) = handle::read(one) {
        return BrokenHandle::Alone(refused);
    }
    let mut broken = AllBroken::default();
    for (field, there, ours) in [("process_id", 96, 32), ("host_id", 112, 48)] {
        let mut places = 0..16;
        let differing = places.find(|place| one[there + place] != bytes[ours + place]);
        if let Some(place) = differing {
            broken.unless(false, field, (there + place) as u64);
        }
    }
    let size = number(bytes, 24, 8);
    let window_id = number(one, 48, 8);
    let window_length = number(one, 56, 8);
    let window_offset = number(one, 64, 8);
    let segment_index = number(one, 72, 4);
    let segment_count = number(one, 76, 4);
    let same_window = number(places[0], 48, 8) == window_id;
    broken.unless(same_window, "window_id", window_id);
    let all = segment_count == places.len() as u64;
    broken.unless(all, "segment_count", segment_count);
    let in_place = segment_index == index as u64;
    broken.unless(in_place, "segment_index", segment_index);
    broken.unless(window_length == size, "window_length", window_length);
    // Segments add up: all before to the offset, all together to the size.
    let end_of = |count: usize| -> u128 {
        let lengths = places[..count].iter().map(|one| number(one, 32, 8));
        lengths.map(u128::from).sum()
    };
    let joined = u128::from(window_offset) == end_of(index);
    broken.unless(joined, "window_offset", window_offset);
    if index + 1 == places.len() {
        let filled = end_of(places.len()) == u128::from(size);
        broken.unless(filled, "length", number(one, 32, 8));
    }
    BrokenHandle::Together(broken)
}

/// What the header says beside the counts, whether or not it keeps the rules.
pub fn fields(bytes: &[u8]) -> RegisteredFields {
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    RegisteredFields {
        pointer: number(bytes, 16, 8),
        size: number(bytes, 24, 8),
        process_id: ProcessId(name(bytes, 32)),
        host_id: HostId(name(bytes, 48)),
        pid: word(12),
        pid_namespace: word(64),
    }
}

/// Kind and data of a transport, with a length as near to its own as may be.
pub fn transport(bytes: &[u8]) -> (u32, Vec<u8>) {
    let kind = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let length = usize::from(bytes[4].min(64));
    (kind, bytes[8..8 + length].into())
}

/// Writes a registered memory, without asking whether it makes sense.
pub fn write(
    fields: &RegisteredFields,
    transports: &[(u32, Vec<u8>)],
    handles: &[[u8; HANDLE]],
) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    let b = &mut bytes;
    b[..4].copy_from_slice(b"GIPM");
    b[4..6].copy_from_slice(&[1, 1]);
    put(b, 6, 2, transports.len() as u64);
    put(b, 8, 4, handles.len() as u64);
    put(b, 12, 4, fields.pid.into());
    put(b, 16, 8, fields.pointer);
    put(b, 24, 8, fields.size);
    b[32..48].copy_from_slice(&fields.process_id.0);
    b[48..64].copy_from_slice(&fields.host_id.0);
    put(b, 64, 4, fields.pid_namespace.into());
    for (kind, data) in transports {
        let at = b.len();
        b.resize(at + TRANSPORT, 0);
        put(b, at, 4, (*kind).into());
        put(b, at + 4, 1, data.len() as u64);
        b[at + 8..at + 8 + data.len()].copy_from_slice(data);
    }
    for handle in handles {
        b.extend(handle);
    }
    seal(b);
    bytes
}
