//! The formats once more, as tables of places and rules, to judge gpuipc-core by: nothing of it is
//! used but the plain structs in which fields are told. All rules of a stage are looked at; an error
//! of gpuipc-core must name one that is broken, with the value that is there.

use gpuipc_core::{Endpoint, HandleFields, TablePlace, Ticket, Token};
use std::sync::LazyLock;

/// Bytes of a handle.
pub const HANDLE: usize = 384;
/// Bytes of a registered memory's header.
pub const HEADER: usize = 128;
/// Bytes of a transport of a registered memory.
pub const TRANSPORT: usize = 72;

/// Where the part starts that breaks a rule, the field's name, and its value; for bytes that must be
/// zero: where the first other one is.
pub type Broken = (usize, &'static str, u64);

/// A field's name, place and size, and what it must be.
type Rule = (&'static str, usize, usize, Must);

#[derive(Debug)]
enum Must {
    Be(fn(u64, &[u8]) -> bool),
    BeZeroIf(fn(&[u8]) -> bool),
}
use Must::{Be, BeZeroIf};

/// Rules in the order in which a reader meets them: those of a stage only if all before hold.
#[derive(Debug)]
pub struct Format(&'static [&'static [Rule]]);

/// A handle. Byte 7: 1 RuntimeIpc, 2 PosixFd, 4 Fabric. Bytes 8, 9: 1 ticket, 2 pool, 4 host, 8 multicast.
#[rustfmt::skip]
pub static HANDLES: Format = Format(&[
    &[("length of all", 0, 0, Be(|_, b| b.len() == HANDLE))],
    &[("magic", 0, 4, Be(|_, b| &b[..4] == b"GIPC"))],
    VERSIONS,
    &[("newer", 4, 2, Be(|_, b| b[5] <= 1))],
    &[("checksum", 188, 4, Be(|n, b| n == handle_sum(b).into()))],
    &[
        ("platform", 6, 1, Be(|n, _| n == 1)),
        ("type_flags", 7, 1, Be(|n, b| n & !7 == 0 || b[4] > 1)),
        ("attributes", 8, 2, Be(|n, b| n & !15 == 0 || b[4] > 1)),
        ("reserved", 14, 2, OURS),
        ("reserved", 168, 20, OURS),
        ("type_flags", 7, 1, Be(|n, _| n & 7 != 0)),
        ("attributes", 8, 2, Be(|n, b| !has(b, 7, 2) || n & 1 != 0)),
        ("type_flags", 7, 1, Be(|n, b| n & 1 == 0 || !has(b, 8, 2))),
        ("type_flags", 7, 1, Be(|n, b| n & 1 == 0 || !has(b, 8, 8))),
        ("attributes", 8, 2, Be(|n, _| n & 10 != 10)),
        ("slot_0", 192, 64, BeZeroIf(|b| !unknown(b) && !has(b, 7, 1) && !has(b, 8, 2))),
        ("slot_1", 256, 64, BeZeroIf(|b| !unknown(b) && !has(b, 8, 1))),
        ("slot_2", 320, 64, BeZeroIf(|b| !unknown(b) && !has(b, 7, 4))),
        ("ticket.reserved", 300, 4, BeZeroIf(|b| has(b, 8, 1) && b[4] <= 1)),
        ("ticket.fd", 288, 4, Be(|n, b| !has(b, 8, 1) || n < 1 << 31 || n == 0xffff_ffff)),
        ("ticket.table", 292, 8, BeZeroIf(|b| has(b, 8, 1) && number(b, 312, 8) == 0)),
        ("ticket.table", 304, 8, BeZeroIf(|b| has(b, 8, 1) && number(b, 312, 8) == 0)),
        ("ticket.table.fd", 292, 4, Be(|n, b| !has(b, 8, 1) || number(b, 312, 8) == 0 || n < 1 << 31)),
        ("pool_id", 160, 8, Be(|n, b| n == 0 || has(b, 8, 2))),
        ("num_devices", 10, 2, Be(|n, b| (n != 0) == has(b, 8, 8))),
        ("numa_node", 12, 2, Be(|n, b| if has(b, 8, 4) { n < 1 << 15 } else { n == 0xffff })),
        ("device_uuid", 80, 16, BeZeroIf(|b| has(b, 8, 4))),
        ("length", 32, 8, Be(|n, _| n != 0)),
        ("offset_from_base", 24, 8, Be(|n, b| fits(n, number(b, 32, 8), number(b, 16, 8)))),
        ("segment_count", 76, 4, Be(|n, _| n != 0)),
        ("segment_index", 72, 4, Be(|n, b| n < number(b, 76, 4))),
        ("range_offset", 64, 8, Be(|n, b| fits(n, number(b, 32, 8), number(b, 56, 8)))),
        ("range_offset", 64, 8, Be(|n, b| number(b, 76, 4) != 1 || n == 0)),
        ("range_length", 56, 8, Be(|n, b| number(b, 76, 4) != 1 || n == number(b, 32, 8))),
    ],
]);

/// A request to the broker.
#[rustfmt::skip]
pub static REQUESTS: Format = Format(&[
    &[("length of all", 0, 0, Be(|_, b| b.len() == 64))],
    &[("magic", 0, 4, Be(|_, b| &b[..4] == b"GIPQ"))],
    &[("version", 4, 1, Be(|n, _| n == 1))],
    &[
        ("kind", 5, 1, Be(|n, _| (1..=3).contains(&n))),
        ("reserved", 6, 2, BeZeroIf(|_| true)),
        ("reserved", 40, 24, BeZeroIf(|_| true)),
    ],
]);

/// A reply of the broker.
#[rustfmt::skip]
pub static REPLIES: Format = Format(&[
    &[("length of all", 0, 0, Be(|_, b| b.len() == 64))],
    &[("magic", 0, 4, Be(|_, b| &b[..4] == b"GIPR"))],
    &[("version", 4, 1, Be(|n, _| n == 1))],
    &[
        ("status", 5, 1, Be(|n, _| (1..=11).contains(&n))),
        ("reserved", 6, 2, BeZeroIf(|_| true)),
        ("reserved", 28, 4, BeZeroIf(|_| true)),
        ("reserved", 48, 16, BeZeroIf(|_| true)),
    ],
]);

/// A registered memory's header; with its parts [`registered`] judges it.
#[rustfmt::skip]
static HEADERS: Format = Format(&[
    &[("length of all", 0, 0, Be(|_, b| b.len() >= HEADER))],
    &[("magic", 0, 4, Be(|_, b| &b[..4] == b"GIPM"))],
    VERSIONS,
    &[("newer", 4, 2, Be(|_, b| b[5] <= 1))],
    &[
        ("transport_count", 6, 2, Be(|n, _| n <= 16)),
        ("handle_count", 8, 4, Be(|n, _| n <= 1 << 20)),
    ],
    &[("length of all", 0, 0, Be(|_, b| b.len() == first_handle(b) + number(b, 8, 4) as usize * HANDLE))],
    &[("checksum", 124, 4, Be(|n, b| n == registered_sum(b).into()))],
]);

#[rustfmt::skip]
static HEADER_FIELDS: Format = Format(&[&[
    ("reserved", 68, 56, OURS),
    ("len", 24, 8, Be(|n, _| n != 0)),
]]);

#[rustfmt::skip]
static VERSIONS: &[Rule] = &[
    ("version", 4, 1, Be(|n, _| n != 0)),
    ("min_reader", 5, 1, Be(|n, b| n != 0 && n <= b[4].into())),
];

/// From a writer of this version, what has no meaning yet is zero.
const OURS: Must = BeZeroIf(|b| b[4] <= 1);

/// A bit that only a newer version knows.
fn unknown(b: &[u8]) -> bool {
    has(b, 7, !7) || number(b, 8, 2) & !15 != 0
}

fn fits(start: u64, length: u64, whole: u64) -> bool {
    u128::from(start) + u128::from(length) <= whole.into()
}

fn has(bytes: &[u8], at: usize, bit: u8) -> bool {
    bytes[at] & bit != 0
}

/// The little-endian number of up to 8 bytes at a place.
pub fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let bytes = bytes[at..at + size].iter().rev();
    bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn not_zero(bytes: &[u8], from: usize, to: usize) -> Option<u64> {
    (from..to).find(|at| bytes[*at] != 0).map(|at| at as u64)
}

/// The broken rules of the first stage that has some; none for bytes that are of the format.
pub fn judge(format: &Format, bytes: &[u8]) -> Vec<Broken> {
    let broken = |(name, at, size, must): &Rule| {
        let value = match must {
            Be(right) => {
                let value = if bytes.len() < at + size {
                    0
                } else {
                    number(bytes, *at, *size)
                };
                (!right(value, bytes)).then_some(value)
            }
            BeZeroIf(asked) if asked(bytes) => not_zero(bytes, *at, at + size),
            BeZeroIf(_) => None,
        };
        value.map(|value| (0, *name, value))
    };
    let stages = format
        .0
        .iter()
        .map(|rules| rules.iter().filter_map(broken).collect());
    stages
        .into_iter()
        .find(|all: &Vec<Broken>| !all.is_empty())
        .unwrap_or_default()
}

/// As [`judge`] for a registered memory with its transports and handles.
pub fn registered(bytes: &[u8]) -> Vec<Broken> {
    let header = judge(&HEADERS, bytes);
    if !header.is_empty() {
        return header;
    }
    let mut broken = judge(&HEADER_FIELDS, bytes);
    for at in (HEADER..first_handle(bytes)).step_by(TRANSPORT) {
        let (one, kind) = (&bytes[at..at + TRANSPORT], number(bytes, at, 4));
        let length = usize::from(one[4]);
        let mut before = (HEADER..at).step_by(TRANSPORT);
        let twice = before.any(|other| number(bytes, other, 4) == kind);
        let reserved = not_zero(one, 5, 8).filter(|_| bytes[4] <= 1);
        let data = not_zero(one, 8 + length.min(64), TRANSPORT).filter(|_| length <= 64);
        broken.extend(twice.then_some((at, "kind", kind)));
        broken.extend(reserved.map(|place| (at, "reserved", place)));
        broken.extend((length > 64).then_some((at, "length", length as u64)));
        broken.extend(data.map(|place| (at, "data", place)));
    }
    let (mut end, mut index) = (0_u128, 0);
    let (size, count) = (number(bytes, 24, 8), number(bytes, 8, 4));
    for at in (first_handle(bytes)..bytes.len()).step_by(HANDLE) {
        let one = &bytes[at..at + HANDLE];
        let alone = judge(&HANDLES, one);
        broken.extend(alone.iter().map(|(_, name, value)| (at, *name, *value)));
        for (name, theirs, ours) in [("process_id", 96, 32), ("host_id", 112, 48)] {
            let differing = (0..16).find(|place| one[theirs + place] != bytes[ours + place]);
            broken.extend(differing.map(|place| (at, name, (theirs + place) as u64)));
        }
        let start = end;
        end += u128::from(number(one, 32, 8));
        for (name, place, bytes, right) in [
            (
                "range_id",
                48,
                8,
                number(one, 48, 8) == number(bytes, first_handle(bytes) + 48, 8),
            ),
            ("segment_count", 76, 4, number(one, 76, 4) == count),
            ("segment_index", 72, 4, number(one, 72, 4) == index),
            ("range_length", 56, 8, number(one, 56, 8) == size),
            (
                "range_offset",
                64,
                8,
                u128::from(number(one, 64, 8)) == start,
            ),
            ("length", 32, 8, index + 1 != count || end == size.into()),
        ] {
            broken.extend((!right).then(|| (at, name, number(one, place, bytes))));
        }
        index += 1;
    }
    broken
}

/// Where the handles of a registered memory start.
pub fn first_handle(bytes: &[u8]) -> usize {
    HEADER + number(bytes, 6, 2) as usize * TRANSPORT
}

/// A field's value, from and to its bytes.
trait Field {
    fn copy(&mut self, bytes: &mut [u8], read: bool);
}

macro_rules! fields {
    ($($type:ty),+) => {$(impl Field for $type {
        fn copy(&mut self, bytes: &mut [u8], read: bool) {
            let place = bytes.first_chunk_mut().expect("it lies inside");
            if read { *self = Self::from_le_bytes(*place) } else { *place = self.to_le_bytes() }
        }
    })+};
}
fields!(u16, i16, u32, i32, u64);

impl<const N: usize> Field for [u8; N] {
    fn copy(&mut self, bytes: &mut [u8], read: bool) {
        let place = bytes.first_chunk_mut().expect("it lies inside");
        if read { *self = *place } else { *place = *self }
    }
}

/// Each field of a handle and its place: into the fields, or out of them.
#[rustfmt::skip]
fn copy(f: &mut HandleFields, b: &mut [u8; HANDLE], read: bool) {
    let mut at = |at: usize, field: &mut dyn Field| field.copy(&mut b[at..], read);
    at(10, &mut f.num_devices);
    at(16, &mut f.base_size);
    at(24, &mut f.offset_from_base);
    at(32, &mut f.length);
    at(40, &mut f.allocation_id);
    at(48, &mut f.range.id);
    at(56, &mut f.range.length);
    at(64, &mut f.range.offset);
    at(72, &mut f.range.segment_index);
    at(76, &mut f.range.segment_count);
    at(80, &mut f.device_uuid.0);
    at(96, &mut f.process_id.0);
    at(112, &mut f.host_id.0);
    at(128, &mut f.pid);
    at(132, &mut f.pid_namespace);
    at(136, &mut f.net_namespace);
    at(140, &mut f.fabric_clique);
    at(144, &mut f.fabric_cluster.0);
    at(160, &mut f.pool_id);
    f.numa_node.iter_mut().for_each(|node| at(12, node));
    f.runtime_ipc.iter_mut().for_each(|slot| at(192, slot));
    f.pool_pointer.iter_mut().for_each(|slot| at(192, slot));
    f.fabric.iter_mut().for_each(|slot| at(320, slot));
    let Some(ticket) = &mut f.ticket else { return };
    let (mut token, mut fd) = (*ticket.token.as_bytes(), ticket.fd.unwrap_or(-1));
    let mut table = ticket.table.unwrap_or(NO_TABLE_PLACE);
    at(256, &mut ticket.endpoint.0);
    at(272, &mut token);
    at(288, &mut fd);
    at(292, &mut table.fd);
    at(296, &mut table.slot);
    at(304, &mut table.device);
    at(312, &mut table.inode);
    ticket.token = Token::new(token);
    ticket.fd = (fd != -1).then_some(fd);
    ticket.table = (table.inode != 0).then_some(table);
}

#[rustfmt::skip]
const NO_TABLE_PLACE: TablePlace = TablePlace { fd: 0, slot: 0, device: 0, inode: 0 };
#[rustfmt::skip]
const NO_TICKET: Ticket = Ticket {
    endpoint: Endpoint([0; 16]), token: Token::new([0; 16]), fd: None, table: None,
};

/// What the bytes of a handle say, whether or not they keep the rules.
pub fn fields(bytes: &[u8; HANDLE]) -> HandleFields {
    let slot = |announced: bool| announced.then_some([0; 64]);
    let mut fields = HandleFields {
        numa_node: has(bytes, 8, 4).then_some(0),
        runtime_ipc: slot(has(bytes, 7, 1)),
        pool_pointer: slot(has(bytes, 8, 2)),
        ticket: has(bytes, 8, 1).then_some(NO_TICKET),
        posix_fd: has(bytes, 7, 2),
        fabric: slot(has(bytes, 7, 4)),
        multicast: has(bytes, 8, 8),
        ..HandleFields::default()
    };
    copy(&mut fields, &mut bytes.clone(), true);
    fields
}

/// The bytes that say this, whether or not it keeps the rules.
pub fn write(fields: &HandleFields) -> [u8; HANDLE] {
    let mut bytes = [0; HANDLE];
    bytes[..7].copy_from_slice(b"GIPC\x01\x01\x01");
    let bit = |there: bool, bit: u8| if there { bit } else { 0 };
    bytes[7] = bit(fields.runtime_ipc.is_some(), 1) | bit(fields.posix_fd, 2);
    bytes[7] |= bit(fields.fabric.is_some(), 4);
    bytes[8] = bit(fields.ticket.is_some(), 1) | bit(fields.pool_pointer.is_some(), 2);
    bytes[8] |= bit(fields.numa_node.is_some(), 4) | bit(fields.multicast, 8);
    bytes[12..14].fill(0xff);
    copy(&mut fields.clone(), &mut bytes, false);
    seal(&mut bytes);
    bytes
}

/// The rules that fields break when a handle is made of them: those of the bytes, and that -1 and
/// inode 0 mean that there is nothing.
pub fn broken_fields(fields: &HandleFields) -> Vec<Broken> {
    let mut all = judge(&HANDLES, &write(fields));
    let negative = fields
        .ticket
        .and_then(|ticket| ticket.fd)
        .filter(|fd| *fd < 0);
    all.extend(negative.map(|fd| (0, "ticket.fd", fd.cast_unsigned().into())));
    let table = fields.ticket.and_then(|ticket| ticket.table);
    let no_inode = table.filter(|table| table.inode == 0);
    all.extend(no_inode.map(|_| (0, "ticket.table.inode", 0)));
    all
}

/// The checksum that a handle must carry.
pub fn handle_sum(bytes: &[u8]) -> u32 {
    crc_32c(bytes[..188].iter().chain(&bytes[192..HANDLE]))
}

/// The checksum that a registered memory must carry.
pub fn registered_sum(bytes: &[u8]) -> u32 {
    crc_32c(
        bytes[..124]
            .iter()
            .chain(&bytes[HEADER..first_handle(bytes)]),
    )
}

/// Writes the right checksum into a handle.
pub fn seal(bytes: &mut [u8; HANDLE]) {
    let sum = handle_sum(bytes);
    bytes[188..192].copy_from_slice(&sum.to_le_bytes());
}

/// A table: libFuzzer traces each comparison of a loop over bits, which would take most of its time.
fn crc_32c<'a>(bytes: impl Iterator<Item = &'a u8>) -> u32 {
    static TABLE: LazyLock<[u32; 256]> = LazyLock::new(|| {
        std::array::from_fn(|byte| {
            (0..8).fold(byte as u32, |sum, _| (sum >> 1) ^ (0x82f6_3b78 * (sum & 1)))
        })
    });
    let table = &*TABLE;
    !bytes.fold(u32::MAX, |sum, byte| {
        table[(sum as u8 ^ byte) as usize] ^ (sum >> 8)
    })
}
