//! Any fields through a handle's bytes and back.

use crate::checker;
use arbitrary::{Arbitrary, Result, Unstructured};
use gpuipc_core::{
    ClusterUuid, DecodeError, DeviceUuid, Endpoint, GpuIpcMemHandle, HandleFields, HostId,
    ProcessId, SharedRange, TablePlace, Ticket, Token,
};

/// Takes fields from the bytes, and looks at them as they are and at their [`mended`] form.
///
/// # Panics
///
/// If gpuipc-core and the checker disagree, or fields do not come back.
pub fn run(data: &[u8]) {
    let fields = fields_of(data);
    look(&fields);
    let accepted = look(&mended(fields.clone()));
    assert!(accepted, "mended fields make a handle: {fields:?}");
}

/// Makes a handle, if the rules allow one, and gets the fields back from its bytes. True if they
/// do allow it.
///
/// # Panics
///
/// As [`run`].
pub fn look(fields: &HandleFields) -> bool {
    let broken = checker::broken_fields(fields);
    match GpuIpcMemHandle::new(fields) {
        Ok(handle) => {
            assert!(broken.is_empty(), "{broken:?}: {fields:?}");
            let bytes = handle.encode();
            assert_eq!(bytes, checker::write(fields));
            assert_eq!(handle.fields(), *fields);
            assert_eq!(GpuIpcMemHandle::decode(&bytes), Ok(handle));
            true
        }
        Err(DecodeError::Field { field, value, .. }) => {
            assert!(
                broken.contains(&(0, field, value)),
                "{field} {value} is none of {broken:?}: {fields:?}"
            );
            false
        }
        Err(error) => panic!("no field has this error: {error:?}, {fields:?}"),
    }
}

/// The fields, changed as little as makes them keep all rules.
pub fn mended(mut fields: HandleFields) -> HandleFields {
    if fields.multicast {
        fields.pool_pointer = None;
        fields.num_devices = fields.num_devices.max(1);
    } else {
        fields.num_devices = 0;
    }
    if fields.multicast || fields.pool_pointer.is_some() {
        fields.runtime_ipc = None;
    }
    if fields.pool_pointer.is_none() {
        fields.pool_id = 0;
    }
    if let Some(node) = &mut fields.numa_node {
        *node &= i16::MAX;
        fields.device_uuid = DeviceUuid::default();
    }
    if let Some(ticket) = &mut fields.ticket {
        ticket.fd = ticket.fd.map(|fd| fd & i32::MAX);
        if let Some(table) = &mut ticket.table {
            table.fd &= i32::MAX;
            table.inode = table.inode.max(1);
        }
    } else {
        fields.posix_fd = false;
    }
    if fields.runtime_ipc.is_none() && !fields.posix_fd {
        fields.fabric = fields.fabric.or(Some([0; 64]));
    }

    fields.length = fields.length.max(1);
    let inside = |start: u64, whole: u64| {
        let start = start.min(u64::MAX - fields.length);
        (start, whole.max(start + fields.length))
    };
    (fields.offset_from_base, fields.base_size) = inside(fields.offset_from_base, fields.base_size);
    let range = &mut fields.range;
    (range.offset, range.length) = inside(range.offset, range.length);
    range.segment_count = range.segment_count.max(1);
    range.segment_index = range.segment_index.min(range.segment_count - 1);
    if range.segment_count == 1 {
        range.offset = 0;
        range.length = fields.length;
    }
    fields
}

/// The fields that bytes stand for; what the bytes lack is zero.
pub fn fields_of(data: &[u8]) -> HandleFields {
    // Reading past the end gives zeros, so there is no error.
    read(&mut Unstructured::new(data)).unwrap_or_default()
}

fn read(bytes: &mut Unstructured<'_>) -> Result<HandleFields> {
    fn some<'a, T: Arbitrary<'a>>(bytes: &mut Unstructured<'a>) -> Result<T> {
        bytes.arbitrary()
    }
    let b = bytes;
    Ok(HandleFields {
        base_size: some(b)?,
        offset_from_base: some(b)?,
        length: some(b)?,
        allocation_id: some(b)?,
        range: SharedRange {
            id: some(b)?,
            length: some(b)?,
            offset: some(b)?,
            segment_index: some(b)?,
            segment_count: some(b)?,
        },
        device_uuid: DeviceUuid(some(b)?),
        process_id: ProcessId(some(b)?),
        host_id: HostId(some(b)?),
        pid: some(b)?,
        pid_namespace: some(b)?,
        net_namespace: some(b)?,
        fabric_clique: some(b)?,
        fabric_cluster: ClusterUuid(some(b)?),
        numa_node: some(b)?,
        num_devices: some(b)?,
        pool_id: some(b)?,
        posix_fd: some(b)?,
        multicast: some(b)?,
        ticket: some::<Option<WireTicket>>(b)?.map(|(endpoint, token, fd, table)| Ticket {
            endpoint: Endpoint(endpoint),
            token: Token::new(token),
            fd,
            table: table.map(|(fd, slot, device, inode)| TablePlace {
                fd,
                slot,
                device,
                inode,
            }),
        }),
        runtime_ipc: some(b)?,
        pool_pointer: some(b)?,
        fabric: some(b)?,
    })
}

/// A ticket's parts, in the order in which bytes give them.
type WireTicket = (
    [u8; 16],
    [u8; 16],
    Option<i32>,
    Option<(i32, u32, u64, u64)>,
);
