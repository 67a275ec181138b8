//! Any fields through a handle's bytes and back.

use crate::slow::handle as slow;
use crate::slow::{AllBroken, Broken};
use arbitrary::{Arbitrary, Result, Unstructured};
use gpuipc_core::{
    ClusterUuid, DecodeError, DeviceUuid, Endpoint, GpuIpcMemHandle, HandleFields, HostId,
    LedgerEntry, ProcessId, Ticket, Token, Window,
};

/// Takes fields from the bytes, and looks at them as they are and at their [`mended`] form.
///
/// # Panics
///
/// If gpuipc-core and the slow rules disagree, or fields do not come back.
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
    let broken = slow::broken_fields(fields);
    match GpuIpcMemHandle::new(fields) {
        Ok(handle) => {
            assert_eq!(broken, AllBroken::default(), "{fields:?}");
            let bytes = handle.encode();
            assert_eq!(bytes, slow::write(fields));
            assert_eq!(handle.fields(), *fields);
            let decoded = GpuIpcMemHandle::decode(&bytes);
            assert_eq!(decoded, Ok(handle));
            assert_eq!(decoded.map(|decoded| decoded.fields()), Ok(fields.clone()));
            true
        }
        Err(DecodeError::Field { field, value, .. }) => {
            let error = Broken { field, value };
            assert!(
                broken.has(field, value),
                "{error:?} is none of {broken:?}: {fields:?}"
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
        if let Some(ledger) = &mut ticket.ledger {
            ledger.fd &= i32::MAX;
            ledger.inode = ledger.inode.max(1);
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
    let window = &mut fields.window;
    (window.offset, window.length) = inside(window.offset, window.length);
    window.segment_count = window.segment_count.max(1);
    window.segment_index = window.segment_index.min(window.segment_count - 1);
    if window.segment_count == 1 {
        window.offset = 0;
        window.length = fields.length;
    }
    fields
}

/// The fields that bytes stand for; what the bytes lack is zero. The inverse of [`bytes_of`].
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
        window: Window {
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
        ticket: some::<Option<WireTicket>>(b)?.map(|(endpoint, token, fd, ledger)| Ticket {
            endpoint: Endpoint(endpoint),
            token: Token::new(token),
            fd,
            ledger: ledger.map(|(fd, slot, device, inode)| LedgerEntry {
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

/// The bytes that [`fields_of`] takes these fields from: for seeds.
pub fn bytes_of(fields: &HandleFields) -> Vec<u8> {
    fn option<const N: usize>(bytes: &mut Vec<u8>, value: Option<[u8; N]>) {
        bytes.push(u8::from(value.is_some()));
        bytes.extend(value.iter().flatten());
    }
    let window = &fields.window;
    let mut bytes = Vec::new();
    let b = &mut bytes;
    for number in [
        fields.base_size,
        fields.offset_from_base,
        fields.length,
        fields.allocation_id,
        window.id,
        window.length,
        window.offset,
    ] {
        b.extend(number.to_le_bytes());
    }
    b.extend(window.segment_index.to_le_bytes());
    b.extend(window.segment_count.to_le_bytes());
    b.extend(fields.device_uuid.0);
    b.extend(fields.process_id.0);
    b.extend(fields.host_id.0);
    for number in [
        fields.pid,
        fields.pid_namespace,
        fields.net_namespace,
        fields.fabric_clique,
    ] {
        b.extend(number.to_le_bytes());
    }
    b.extend(fields.fabric_cluster.0);
    option(b, fields.numa_node.map(i16::to_le_bytes));
    b.extend(fields.num_devices.to_le_bytes());
    b.extend(fields.pool_id.to_le_bytes());
    b.push(u8::from(fields.posix_fd));
    b.push(u8::from(fields.multicast));
    b.push(u8::from(fields.ticket.is_some()));
    if let Some(ticket) = fields.ticket {
        b.extend(ticket.endpoint.0);
        b.extend(ticket.token.as_bytes());
        option(b, ticket.fd.map(i32::to_le_bytes));
        b.push(u8::from(ticket.ledger.is_some()));
        if let Some(ledger) = ticket.ledger {
            b.extend(ledger.fd.to_le_bytes());
            b.extend(ledger.slot.to_le_bytes());
            b.extend(ledger.device.to_le_bytes());
            b.extend(ledger.inode.to_le_bytes());
        }
    }
    option(b, fields.runtime_ipc);
    option(b, fields.pool_pointer);
    option(b, fields.fabric);
    bytes
}
