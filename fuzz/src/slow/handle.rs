//! The handle: reading it, its rules, and writing it.
//!
//! | at | field | size |
//! |---|---|---|
//! | 0 | magic `GIPC` | 4 |
//! | 4, 5, 6, 7 | version, min_reader, platform, type_flags | 1 each |
//! | 8, 10, 12, 14 | attributes, num_devices, numa_node, reserved | 2 each |
//! | 16, 24, 32 | base_size, offset_from_base, length | 8 each |
//! | 40, 48, 56, 64 | allocation_id, window_id, window_length, window_offset | 8 each |
//! | 72, 76 | segment_index, segment_count | 4 each |
//! | 80, 96, 112 | device_uuid, process_id, host_id | 16 each |
//! | 128, 132, 136, 140 | pid, pid_namespace, net_namespace, fabric_clique | 4 each |
//! | 144 | fabric_cluster | 16 |
//! | 160 | pool_id | 8 |
//! | 168 | reserved | 20 |
//! | 188 | checksum | 4 |
//! | 192, 256, 320 | slots: runtime_ipc or pool_pointer, ticket, fabric | 64 each |
//! | 256, 272, 288 | ticket: endpoint 16, token 16, fd 4 | |
//! | 292, 296, 300, 304, 312 | ledger: fd 4, slot 4, reserved 4, device 8, inode 8 | |

use super::{AllBroken, crc_32c, name, number, put};
use gpuipc_core::{
    ClusterUuid, DeviceUuid, Endpoint, HandleFields, HostId, LedgerEntry, ProcessId, Ticket, Token,
    Window,
};

/// Bytes of a handle.
pub const BYTES: usize = 384;
/// Where the checksum lies, with its size.
pub const CHECKSUM: (usize, usize) = (188, 4);
/// The newest version that the table describes.
const NEWEST: u8 = 1;

const RUNTIME_IPC: u8 = 1;
const POSIX_FD: u8 = 2;
const FABRIC: u8 = 4;

const TICKET: u16 = 1;
const MEM_POOL: u16 = 2;
const HOST_NUMA: u16 = 4;
const MULTICAST: u16 = 8;

/// What accepted bytes say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The writer's version.
    pub version: u8,
    /// The oldest version that may read.
    pub min_reader: u8,
    /// The types, without bits that version 1 does not know.
    pub types: u8,
    /// The attributes, without bits that version 1 does not know.
    pub attributes: u16,
    /// The checksum.
    pub checksum: u32,
    /// All the rest.
    pub fields: HandleFields,
}

/// Why bytes are refused. The causes in the order in which a reader meets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Not 384 bytes.
    Length,
    /// Not `GIPC`.
    Magic,
    /// Versions that make no sense.
    Versions(AllBroken),
    /// For newer readers.
    Newer,
    /// Damaged.
    Checksum,
    /// Fields that make no sense.
    Fields(AllBroken),
}

/// The checksum that 384 bytes must carry.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc_32c(&[&bytes[..188], &bytes[192..]])
}

/// Reads a handle.
///
/// # Errors
///
/// Why the bytes are none, with all rules that the fields break.
pub fn read(bytes: &[u8]) -> Result<Decoded, Refused> {
    let Ok(bytes) = <&[u8; BYTES]>::try_from(bytes) else {
        return Err(Refused::Length);
    };
    if &bytes[..4] != b"GIPC" {
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
    let checksum = checksum(bytes);
    if number(bytes, 188, 4) != u64::from(checksum) {
        return Err(Refused::Checksum);
    }
    let broken = broken_rules(bytes);
    if broken != AllBroken::default() {
        return Err(Refused::Fields(broken));
    }
    Ok(Decoded {
        version,
        min_reader,
        types: bytes[7] & 7,
        attributes: attributes(bytes) & 15,
        checksum,
        fields: fields(bytes),
    })
}

fn attributes(bytes: &[u8; BYTES]) -> u16 {
    u16::from_le_bytes([bytes[8], bytes[9]])
}

fn broken_rules(bytes: &[u8; BYTES]) -> AllBroken {
    let mut broken = AllBroken::default();
    // From a newer writer, what has no meaning yet is allowed.
    let newer = bytes[4] > NEWEST;
    let unknown = bytes[7] & !7 != 0 || attributes(bytes) & !15 != 0;

    broken.unless(bytes[6] == 1, "platform", bytes[6].into());
    if !newer {
        broken.unless(bytes[7] & !7 == 0, "type_flags", bytes[7].into());
        let bits = attributes(bytes);
        broken.unless(bits & !15 == 0, "attributes", bits.into());
        broken.unless_zero(bytes, 14, 16, "reserved");
        broken.unless_zero(bytes, 168, 188, "reserved");
    }
    types_and_slots(bytes, newer, unknown, &mut broken);
    kind_of_memory(bytes, &mut broken);
    sizes(bytes, &mut broken);
    broken
}

fn types_and_slots(bytes: &[u8; BYTES], newer: bool, unknown: bool, broken: &mut AllBroken) {
    let (types, bits) = (bytes[7], attributes(bytes));
    let runtime_ipc = types & RUNTIME_IPC != 0;
    let posix_fd = types & POSIX_FD != 0;
    let fabric = types & FABRIC != 0;
    let ticket = bits & TICKET != 0;
    let pool = bits & MEM_POOL != 0;
    let multicast = bits & MULTICAST != 0;

    let some = runtime_ipc || posix_fd || fabric;
    broken.unless(some, "type_flags", types.into());
    broken.unless(!posix_fd || ticket, "attributes", bits.into());
    broken.unless(!pool || !runtime_ipc, "type_flags", types.into());
    broken.unless(!multicast || !runtime_ipc, "type_flags", types.into());
    broken.unless(!multicast || !pool, "attributes", bits.into());

    // An unknown bit may announce any slot.
    if !unknown && !runtime_ipc && !pool {
        broken.unless_zero(bytes, 192, 256, "slot_0");
    }
    if !unknown && !ticket {
        broken.unless_zero(bytes, 256, 320, "slot_1");
    }
    if !unknown && !fabric {
        broken.unless_zero(bytes, 320, 384, "slot_2");
    }
    if ticket {
        if !newer {
            broken.unless_zero(bytes, 300, 304, "ticket.reserved");
        }
        // From 0 on, or -1.
        let fd = number(bytes, 288, 4);
        let right = fd < 0x8000_0000 || fd == 0xffff_ffff;
        broken.unless(right, "ticket.fd", fd);
        // A ledger is there if it has an inode.
        if number(bytes, 312, 8) == 0 {
            broken.unless_zero(bytes, 292, 300, "ticket.ledger");
            broken.unless_zero(bytes, 304, 312, "ticket.ledger");
        } else {
            let ledger_fd = number(bytes, 292, 4);
            broken.unless(ledger_fd < 0x8000_0000, "ticket.ledger.fd", ledger_fd);
        }
    }
}

fn kind_of_memory(bytes: &[u8; BYTES], broken: &mut AllBroken) {
    let bits = attributes(bytes);
    let pool_id = number(bytes, 160, 8);
    let pool = bits & MEM_POOL != 0;
    broken.unless(pool || pool_id == 0, "pool_id", pool_id);

    let devices = number(bytes, 10, 2);
    let multicast = bits & MULTICAST != 0;
    broken.unless(multicast == (devices != 0), "num_devices", devices);

    let node = number(bytes, 12, 2);
    if bits & HOST_NUMA != 0 {
        broken.unless(node < 0x8000, "numa_node", node);
        broken.unless_zero(bytes, 80, 96, "device_uuid");
    } else {
        broken.unless(node == 0xffff, "numa_node", node);
    }
}

fn sizes(bytes: &[u8; BYTES], broken: &mut AllBroken) {
    let base_size = number(bytes, 16, 8);
    let offset = number(bytes, 24, 8);
    let length = number(bytes, 32, 8);
    let window_length = number(bytes, 56, 8);
    let window_offset = number(bytes, 64, 8);
    let index = number(bytes, 72, 4);
    let count = number(bytes, 76, 4);
    // 128 bits do not overflow.
    let end = |start: u64| u128::from(start) + u128::from(length);

    broken.unless(length != 0, "length", length);
    let inside = end(offset) <= u128::from(base_size);
    broken.unless(inside, "offset_from_base", offset);
    let inside = end(window_offset) <= u128::from(window_length);
    broken.unless(inside, "window_offset", window_offset);
    broken.unless(count != 0, "segment_count", count);
    broken.unless(index < count, "segment_index", index);
    if count == 1 {
        broken.unless(window_offset == 0, "window_offset", window_offset);
        broken.unless(window_length == length, "window_length", window_length);
    }
}

fn slot(bytes: &[u8; BYTES], at: usize) -> [u8; 64] {
    *bytes[at..].first_chunk().expect("64 bytes")
}

/// What 384 bytes say, whether or not they keep the rules.
pub fn fields(bytes: &[u8; BYTES]) -> HandleFields {
    let (types, bits) = (bytes[7], attributes(bytes));
    let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let fd = word(288).cast_signed();
    HandleFields {
        base_size: number(bytes, 16, 8),
        offset_from_base: number(bytes, 24, 8),
        length: number(bytes, 32, 8),
        allocation_id: number(bytes, 40, 8),
        window: Window {
            id: number(bytes, 48, 8),
            length: number(bytes, 56, 8),
            offset: number(bytes, 64, 8),
            segment_index: word(72),
            segment_count: word(76),
        },
        device_uuid: DeviceUuid(name(bytes, 80)),
        process_id: ProcessId(name(bytes, 96)),
        host_id: HostId(name(bytes, 112)),
        pid: word(128),
        pid_namespace: word(132),
        net_namespace: word(136),
        fabric_clique: word(140),
        fabric_cluster: ClusterUuid(name(bytes, 144)),
        numa_node: (bits & HOST_NUMA != 0).then_some(short(12).cast_signed()),
        num_devices: short(10),
        pool_id: number(bytes, 160, 8),
        runtime_ipc: (types & RUNTIME_IPC != 0).then_some(slot(bytes, 192)),
        pool_pointer: (bits & MEM_POOL != 0).then_some(slot(bytes, 192)),
        ticket: (bits & TICKET != 0).then_some(Ticket {
            endpoint: Endpoint(name(bytes, 256)),
            token: Token::new(name(bytes, 272)),
            fd: (fd != -1).then_some(fd),
            ledger: (number(bytes, 312, 8) != 0).then(|| LedgerEntry {
                fd: word(292).cast_signed(),
                slot: word(296),
                device: number(bytes, 304, 8),
                inode: number(bytes, 312, 8),
            }),
        }),
        posix_fd: types & POSIX_FD != 0,
        fabric: (types & FABRIC != 0).then_some(slot(bytes, 320)),
        multicast: bits & MULTICAST != 0,
    }
}

/// Writes a handle, without asking whether its fields make sense.
pub fn write(fields: &HandleFields) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let b = &mut bytes;
    b[..4].copy_from_slice(b"GIPC");
    b[4..7].copy_from_slice(&[1, 1, 1]);
    let mut types = 0;
    let mut bits = 0;
    if let Some(driver) = fields.runtime_ipc {
        types |= RUNTIME_IPC;
        b[192..256].copy_from_slice(&driver);
    }
    if let Some(driver) = fields.pool_pointer {
        bits |= MEM_POOL;
        b[192..256].copy_from_slice(&driver);
    }
    if let Some(ticket) = fields.ticket {
        bits |= TICKET;
        b[256..272].copy_from_slice(&ticket.endpoint.0);
        b[272..288].copy_from_slice(ticket.token.as_bytes());
        put(b, 288, 4, ticket.fd.unwrap_or(-1).cast_unsigned().into());
        if let Some(ledger) = ticket.ledger {
            put(b, 292, 4, ledger.fd.cast_unsigned().into());
            put(b, 296, 4, ledger.slot.into());
            put(b, 304, 8, ledger.device);
            put(b, 312, 8, ledger.inode);
        }
    }
    if let Some(driver) = fields.fabric {
        types |= FABRIC;
        b[320..384].copy_from_slice(&driver);
    }
    if fields.posix_fd {
        types |= POSIX_FD;
    }
    if fields.numa_node.is_some() {
        bits |= HOST_NUMA;
    }
    if fields.multicast {
        bits |= MULTICAST;
    }
    b[7] = types;
    put(b, 8, 2, bits.into());
    put(b, 10, 2, fields.num_devices.into());
    let node = fields.numa_node.unwrap_or(-1);
    put(b, 12, 2, node.cast_unsigned().into());
    put(b, 16, 8, fields.base_size);
    put(b, 24, 8, fields.offset_from_base);
    put(b, 32, 8, fields.length);
    put(b, 40, 8, fields.allocation_id);
    put(b, 48, 8, fields.window.id);
    put(b, 56, 8, fields.window.length);
    put(b, 64, 8, fields.window.offset);
    put(b, 72, 4, fields.window.segment_index.into());
    put(b, 76, 4, fields.window.segment_count.into());
    b[80..96].copy_from_slice(&fields.device_uuid.0);
    b[96..112].copy_from_slice(&fields.process_id.0);
    b[112..128].copy_from_slice(&fields.host_id.0);
    put(b, 128, 4, fields.pid.into());
    put(b, 132, 4, fields.pid_namespace.into());
    put(b, 136, 4, fields.net_namespace.into());
    put(b, 140, 4, fields.fabric_clique.into());
    b[144..160].copy_from_slice(&fields.fabric_cluster.0);
    put(b, 160, 8, fields.pool_id);
    seal(b);
    bytes
}

/// Writes the checksum that the bytes must carry.
pub fn seal(bytes: &mut [u8; BYTES]) {
    let sum = checksum(bytes);
    put(bytes, CHECKSUM.0, CHECKSUM.1, sum.into());
}

/// The rules that fields break when a handle is made of them.
pub fn broken_fields(fields: &HandleFields) -> AllBroken {
    let mut broken = broken_rules(&write(fields));
    // On the wire -1 is "no descriptor" and inode 0 "no ledger", so these cannot be said.
    if let Some(fd) = fields.ticket.and_then(|ticket| ticket.fd) {
        broken.unless(fd >= 0, "ticket.fd", fd.cast_unsigned().into());
    }
    if let Some(ledger) = fields.ticket.and_then(|ticket| ticket.ledger) {
        broken.unless(ledger.inode != 0, "ticket.ledger.inode", ledger.inode);
    }
    broken
}
