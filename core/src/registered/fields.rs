//! What a runtime says of a registered memory, and the way to its bytes.

use crate::checksum::checksum_of_registered;
use crate::handle::GpuIpcMemHandle;
use crate::identity::{HostId, ProcessId};
use crate::layout::{HANDLE_BYTES, REGISTERED_HEADER_BYTES, TRANSPORT_BYTES, registered as at};
use crate::registered::error::EncodeError;
use crate::registered::header::Header;
use crate::registered::transport::TransportInfo;
use crate::registered::{MAX_HANDLES, MAX_TRANSPORTS, rules};

/// All that a registered memory says beside its transports and handles.
///
/// The default makes none: a size is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisteredFields {
    /// The buffer's address in its owner, for the owner to recognise its own buffer. For no one
    /// else, and never a reason to touch that address: bytes that come in can say anything.
    pub pointer: u64,
    /// Bytes of the buffer, at least 1: as long as the handles' window.
    pub size: u64,
    /// The owner, which exported all handles.
    pub process_id: ProcessId,
    /// The owner's host.
    pub host_id: HostId,
    /// The owner's pid in its own namespace. For messages; it identifies nobody by itself.
    pub pid: u32,
    /// The inode of the owner's pid namespace.
    pub pid_namespace: u32,
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
    /// The handles are those of the buffer's window, in the order of their segments.
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
            *place = info.encode();
        }
        for (place, handle) in for_handles.as_chunks_mut().0.iter_mut().zip(handles) {
            *place = handle.encode();
        }
        // Allowed counts: they fit.
        let transport_count = u16::try_from(transports.len()).unwrap_or(u16::MAX);
        let handle_count = u32::try_from(handles.len()).unwrap_or(u32::MAX);
        *header = Header::new(self, transport_count, handle_count).encode();
        let sum = checksum_of_registered(header, for_transports);
        at::CHECKSUM.put(header, sum.to_le_bytes());
        Ok(needed)
    }
}
