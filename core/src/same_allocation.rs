//! Whether two handles are of one allocation, exported once.

use crate::handle::GpuIpcMemHandle;
use crate::layout::HANDLE_BYTES;

impl GpuIpcMemHandle {
    /// Whether both are parts of the same allocation, exported under the same token and by the
    /// same types: everything is equal but what says which part of it each one is, and the
    /// checksum.
    pub fn same_allocation(&self, other: &Self) -> bool {
        without_part(self) == without_part(other)
    }
}

/// A handle's bytes with zeros for which part of the allocation it is.
fn without_part(handle: &GpuIpcMemHandle) -> [u8; HANDLE_BYTES] {
    let at = GpuIpcMemHandle::AT;
    let mut bytes = handle.encode();
    let b = &mut bytes;
    at.offset_from_base.put(b, [0; 8]);
    at.length.put(b, [0; 8]);
    at.range_id.put(b, [0; 8]);
    at.range_length.put(b, [0; 8]);
    at.range_offset.put(b, [0; 8]);
    at.segment_index.put(b, [0; 4]);
    at.segment_count.put(b, [0; 4]);
    at.checksum.put(b, [0; 4]);
    bytes
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::as_conversions)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn every_byte_matters_but_those_that_say_which_part() {
        let handle = GpuIpcMemHandle::of_wire(&[0x5a; HANDLE_BYTES]);
        let free: Vec<usize> = (0..HANDLE_BYTES)
            .filter(|index| {
                let mut bytes = handle.encode();
                bytes[*index] ^= 1;
                handle.same_allocation(&GpuIpcMemHandle::of_wire(&bytes))
            })
            .collect();
        // The table in the documentation of `GpuIpcMemHandle`: offset and length, range and
        // segment, checksum.
        let parts: Vec<usize> = (24..40).chain(48..80).chain(188..192).collect();
        assert_eq!(free, parts);
    }
}
