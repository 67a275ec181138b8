//! What a runtime says of a registered memory, and the way to its bytes.

use crate::checksum::checksum_of_registered;
use crate::handle::GpuIpcMemHandle;
use crate::identity::{HostId, ProcessId};
use crate::layout::{HANDLE_BYTES, REGISTERED_HEADER_BYTES, TRANSPORT_BYTES, layout};
use crate::registered::error::EncodeError;
use crate::registered::transport::TransportInfo;
use crate::registered::{
    MAGIC, MAX_HANDLES, MAX_TRANSPORTS, MIN_READER, REGISTERED_VERSION, rules,
};

layout! {
    #[places(HeaderPlaces)]
    #[repr(C)]
    #[derive(Clone, Copy)]
    pub(crate) struct Header {
        #[at(0)] /// The letters `GIPM`.
        magic: u32,
        #[at(4)] /// The version of the form that the writer has.
        version: u8,
        #[at(5)] /// The oldest version that may read the bytes.
        min_reader: u8,
        #[at(6)] /// T, 0 to 16.
        transport_count: u16,
        #[at(8)] /// N, 0 to 1048576.
        handle_count: u32,
        #[at(12)] #[plain(u32)] /// The owner's pid in its own namespace. For messages; it identifies nobody by itself.
        pid: u32,
        #[at(16)] #[plain(u64)] /// The buffer's address in its owner, for the owner to recognise its own buffer. For no one else, and never a reason to touch that address: bytes that come in can say anything.
        pointer: u64,
        #[at(24)] #[plain(u64)] /// Bytes of the buffer, at least 1: as long as the handles' range.
        len: u64,
        #[at(32)] #[plain(ProcessId)] /// The owner, which exported all handles.
        process_id: [u8; 16],
        #[at(48)] #[plain(HostId)] /// The owner's host.
        host_id: [u8; 16],
        #[at(64)] #[plain(u32)] /// The inode of the owner's pid namespace.
        pid_namespace: u32,
        #[at(68)] /// 0.
        reserved: [u8; 56],
        #[at(124)] /// CRC-32C of the other 124 bytes of the header, and of the transports.
        checksum: u32,
    }

    /// All that a registered memory says beside its transports and handles.
    ///
    /// The default makes none: a length is missing.
    ///
    /// On the wire it is the first 128 bytes:
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RegisteredFields {}
}

/// Bytes of a registered memory with so many transports and handles; none where there may not be so
/// many.
///
/// ```
/// use gpuipc_core::registered_len;
///
/// assert_eq!(registered_len(0, 1), Some(128 + 384));
/// assert_eq!(registered_len(2, 1), Some(128 + 2 * 72 + 384));
/// assert_eq!(registered_len(17, 1), None);
/// ```
pub const fn registered_len(transports: usize, handles: usize) -> Option<usize> {
    if transports > MAX_TRANSPORTS || handles > MAX_HANDLES {
        return None;
    }
    let (Some(transports), Some(handles)) = (
        transports.checked_mul(TRANSPORT_BYTES),
        handles.checked_mul(HANDLE_BYTES),
    ) else {
        return None;
    };
    match transports.checked_add(handles) {
        Some(rest) => rest.checked_add(REGISTERED_HEADER_BYTES),
        None => None,
    }
}

impl RegisteredFields {
    /// Writes a registered memory to the start of `buffer`, and gives the bytes written:
    /// [`registered_len`].
    ///
    /// The handles are those of the buffer's range, in the order of their segments.
    ///
    /// # Errors
    ///
    /// [`EncodeError::Buffer`] says how long the buffer must be, [`EncodeError::Content`] which
    /// rule is broken, by the same rules as
    /// [`RegisteredMemoryRef::decode`](crate::RegisteredMemoryRef::decode). Nothing is written then.
    pub fn encode(
        &self,
        transports: &[TransportInfo],
        handles: &[GpuIpcMemHandle],
        buffer: &mut [u8],
    ) -> Result<usize, EncodeError> {
        rules::check_counts(transports.len(), handles.len())?;
        let got = buffer.len();
        let needed = registered_len(transports.len(), handles.len()).unwrap_or(usize::MAX);
        let too_short = EncodeError::Buffer { got, needed };
        let whole = buffer.get_mut(..needed).ok_or(too_short)?;
        rules::check_content(
            self,
            transports.iter().copied(),
            handles.iter().copied().map(Ok),
        )?;

        // The parts of a buffer of this length: they are there.
        let (header, rest) = whole.split_first_chunk_mut().ok_or(too_short)?;
        let transport_bytes = transports.len().saturating_mul(TRANSPORT_BYTES);
        let (for_transports, for_handles) = rest
            .split_at_mut_checked(transport_bytes)
            .ok_or(too_short)?;
        for (place, info) in for_transports.as_chunks_mut().0.iter_mut().zip(transports) {
            *place = info.wire();
        }
        for (place, handle) in for_handles.as_chunks_mut().0.iter_mut().zip(handles) {
            *place = handle.encode();
        }
        // Allowed counts: they fit.
        let transport_count = u16::try_from(transports.len()).unwrap_or(u16::MAX);
        let handle_count = u32::try_from(handles.len()).unwrap_or(u32::MAX);
        let mut wire = Header {
            magic: MAGIC,
            version: REGISTERED_VERSION,
            min_reader: MIN_READER,
            transport_count,
            handle_count,
            ..Header::of_wire(&[0; REGISTERED_HEADER_BYTES])
        }
        .with_plain(self);
        wire.checksum = checksum_of_registered(&wire.wire(), for_transports);
        *header = wire.wire();
        Ok(needed)
    }
}
