//! What begins a registered memory, as it is on the wire.

use crate::identity::{HostId, ProcessId};
use crate::layout::{REGISTERED_HEADER_BYTES, registered as at};
use crate::registered::fields::RegisteredFields;
use crate::registered::{MAGIC, MIN_READER, REGISTERED_VERSION};

/// The header's fields, whether or not they keep the rules.
#[derive(Clone, Copy)]
pub(super) struct Header {
    pub(super) magic: u32,
    pub(super) version: u8,
    pub(super) min_reader: u8,
    pub(super) transport_count: u16,
    pub(super) handle_count: u32,
    pub(super) fields: RegisteredFields,
    pub(super) reserved: [u8; 56],
    pub(super) checksum: u32,
}

impl Header {
    /// What this version writes. The checksum is 0.
    pub(super) fn new(fields: &RegisteredFields, transport_count: u16, handle_count: u32) -> Self {
        Self {
            magic: MAGIC,
            version: REGISTERED_VERSION,
            min_reader: MIN_READER,
            transport_count,
            handle_count,
            fields: *fields,
            reserved: [0; 56],
            checksum: 0,
        }
    }

    pub(super) fn read(b: &[u8; REGISTERED_HEADER_BYTES]) -> Self {
        Self {
            magic: u32::from_le_bytes(at::MAGIC.get(b)),
            version: u8::from_le_bytes(at::VERSION.get(b)),
            min_reader: u8::from_le_bytes(at::MIN_READER.get(b)),
            transport_count: u16::from_le_bytes(at::TRANSPORT_COUNT.get(b)),
            handle_count: u32::from_le_bytes(at::HANDLE_COUNT.get(b)),
            fields: RegisteredFields {
                pointer: u64::from_le_bytes(at::POINTER.get(b)),
                size: u64::from_le_bytes(at::SIZE.get(b)),
                process_id: ProcessId(at::PROCESS_ID.get(b)),
                host_id: HostId(at::HOST_ID.get(b)),
                pid: u32::from_le_bytes(at::PID.get(b)),
                pid_namespace: u32::from_le_bytes(at::PID_NAMESPACE.get(b)),
            },
            reserved: at::RESERVED.get(b),
            checksum: u32::from_le_bytes(at::CHECKSUM.get(b)),
        }
    }

    pub(super) fn encode(&self) -> [u8; REGISTERED_HEADER_BYTES] {
        let fields = &self.fields;
        let mut bytes = [0; REGISTERED_HEADER_BYTES];
        let b = &mut bytes;
        at::MAGIC.put(b, self.magic.to_le_bytes());
        at::VERSION.put(b, self.version.to_le_bytes());
        at::MIN_READER.put(b, self.min_reader.to_le_bytes());
        at::TRANSPORT_COUNT.put(b, self.transport_count.to_le_bytes());
        at::HANDLE_COUNT.put(b, self.handle_count.to_le_bytes());
        at::PID.put(b, fields.pid.to_le_bytes());
        at::POINTER.put(b, fields.pointer.to_le_bytes());
        at::SIZE.put(b, fields.size.to_le_bytes());
        at::PROCESS_ID.put(b, fields.process_id.0);
        at::HOST_ID.put(b, fields.host_id.0);
        at::PID_NAMESPACE.put(b, fields.pid_namespace.to_le_bytes());
        at::RESERVED.put(b, self.reserved);
        at::CHECKSUM.put(b, self.checksum.to_le_bytes());
        bytes
    }
}
