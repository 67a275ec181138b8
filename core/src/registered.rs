//! A registered memory: what a runtime ships to another process to describe one of its buffers, with every
//! way to reach it.

mod error;
mod fields;
mod rules;
mod transport;

pub use error::{EncodeError, RegisteredError};
pub use fields::{RegisteredFields, registered_len};
pub use transport::TransportInfo;

use crate::checksum::checksum_of_registered;
use crate::handle::GpuIpcMemHandle;
use crate::layout::{HANDLE_BYTES, REGISTERED_HEADER_BYTES, TRANSPORT_BYTES};
use core::fmt;
pub(crate) use fields::Header;

/// The most transports that a registered memory has.
pub const MAX_TRANSPORTS: usize = 16;
/// The most handles that a registered memory has: 2 TiB in pieces of 2 MiB.
pub const MAX_HANDLES: usize = 1 << 20;
/// The version of the form that this crate writes, and the newest that it knows fully.
pub const REGISTERED_VERSION: u8 = 1;

/// The first four bytes: the letters `GIPM`.
const MAGIC: u32 = u32::from_le_bytes(*b"GIPM");
/// The oldest version that can read what this crate writes.
const MIN_READER: u8 = 1;

/// A registered memory, read in place: one buffer of a process, the GPU handles of all its segments,
/// and the runtime's other transports to it.
///
/// Made by [`decode`](Self::decode), which checks everything, or written by
/// [`RegisteredFields::encode`]. A header of 128 bytes, whose table stands with
/// [`RegisteredFields`], then T transports, 72 bytes each ([`TransportInfo`], each of another kind),
/// then N handles, 384 bytes each ([`GpuIpcMemHandle`], each with a checksum of its own); all
/// little-endian, without padding. T is at most 16, N at most 1048576.
///
/// The handles are those of one range of `len` bytes: all of its segments, in their order, each
/// where the one before ends, and all of the owner. A reader takes bytes whose `min_reader` is at
/// most its own version, and ignores the reserved bytes that a newer writer set. Each handle has
/// versions of its own.
///
/// Whoever holds the bytes may ask for the memory, so they are to be kept like a password; the
/// `Debug` text shows neither a token nor the bytes of driver and runtime.
#[derive(Clone, Copy)]
pub struct RegisteredMemoryRef<'a> {
    header: Header,
    transports: &'a [[u8; TRANSPORT_BYTES]],
    handles: &'a [[u8; HANDLE_BYTES]],
    bytes: &'a [u8],
}

impl<'a> RegisteredMemoryRef<'a> {
    /// Turns bytes from anywhere, of any length, into a registered memory. Never panics.
    ///
    /// # Errors
    ///
    /// The first rule that the bytes break: the header's length, magic, versions, counts, the whole
    /// length, checksum, reserved bytes, and then what header, transports and handles say.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, RegisteredError> {
        let wanted = Self::length_of(bytes)?;
        let length = RegisteredError::Length {
            got: bytes.len(),
            wanted,
        };
        if bytes.len() != wanted {
            return Err(length);
        }
        // The parts of bytes of this length: they are there.
        let (first, rest) = bytes.split_first_chunk().ok_or(length)?;
        let header = Header::of_wire(first);
        let transport_bytes = usize::from(header.transport_count).saturating_mul(TRANSPORT_BYTES);
        let (summed, rest) = rest.split_at_checked(transport_bytes).ok_or(length)?;
        let (transports, _) = summed.as_chunks();
        let (handles, _) = rest.as_chunks();

        let (stored, computed) = (header.checksum, checksum_of_registered(first, summed));
        if stored != computed {
            return Err(RegisteredError::Checksum { stored, computed });
        }
        rules::check_unused(&header, transports)?;
        rules::check_content(
            &header.fields_with(),
            transports.iter().map(TransportInfo::of_ours),
            handles.iter().map(|bytes| GpuIpcMemHandle::decode(bytes)),
        )?;
        Ok(Self {
            header,
            transports,
            handles,
            bytes,
        })
    }

    /// How long the registered memory is that starts with these bytes, of which there are at least
    /// 128: for those who read it from a stream. Up to 384 MiB, before anything is known of the
    /// sender, so a reader that knows the buffers of the others has a lower limit.
    ///
    /// # Errors
    ///
    /// [`RegisteredError::Length`] for fewer bytes, and what is wrong with magic, versions and
    /// counts. Damage is found only when all bytes are there.
    pub fn length_of(bytes: &[u8]) -> Result<usize, RegisteredError> {
        let Some(first) = bytes.first_chunk() else {
            return Err(RegisteredError::Length {
                got: bytes.len(),
                wanted: REGISTERED_HEADER_BYTES,
            });
        };
        let header = Header::of_wire(first);
        rules::check_readable(&header)?;
        let transports = header.transport_count.into();
        let handles = usize::try_from(header.handle_count).unwrap_or(usize::MAX);
        rules::check_counts(transports, handles)?;
        Ok(registered_len(transports, handles).unwrap_or(usize::MAX))
    }

    /// The version of the form that the writer has.
    pub fn version(&self) -> u8 {
        self.header.version
    }

    /// The oldest version that may read the bytes.
    pub fn min_reader(&self) -> u8 {
        self.header.min_reader
    }

    /// All but transports and handles.
    pub fn fields(&self) -> RegisteredFields {
        self.header.fields_with()
    }

    /// The transports, at most 16, each of another kind.
    pub fn transports(
        &self,
    ) -> impl ExactSizeIterator<Item = TransportInfo> + DoubleEndedIterator + Clone + use<'a> {
        self.transports.iter().map(TransportInfo::of_ours)
    }

    /// The transport of this kind.
    pub fn transport(&self, kind: u32) -> Option<TransportInfo> {
        self.transports().find(|info| info.kind() == kind)
    }

    /// The handles, one a segment of the buffer, in their order. They were checked already.
    pub fn handles(
        &self,
    ) -> impl ExactSizeIterator<Item = GpuIpcMemHandle> + DoubleEndedIterator + Clone + use<'a>
    {
        self.handles.iter().map(GpuIpcMemHandle::of_wire)
    }

    /// The handles' bytes.
    pub fn handle_bytes(&self) -> &'a [[u8; HANDLE_BYTES]] {
        self.handles
    }

    /// All bytes, as they were read.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// CRC-32C of header and transports.
    pub fn checksum(&self) -> u32 {
        self.header.checksum
    }
}

/// A list whose elements are made while it is shown.
struct List<I>(I);

impl<I: Iterator<Item: fmt::Debug> + Clone> fmt::Debug for List<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.clone()).finish()
    }
}

impl fmt::Debug for RegisteredMemoryRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredMemoryRef")
            .field("version", &self.header.version)
            .field("min_reader", &self.header.min_reader)
            .field("fields", &self.fields())
            // Both mask what is secret.
            .field("transports", &List(self.transports()))
            .field("handles", &List(self.handles()))
            .field("checksum", &format_args!("{:#010x}", self.header.checksum))
            .finish()
    }
}
