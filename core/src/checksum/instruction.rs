//! CRC-32C by the processor's instruction: `crc32` of SSE 4.2, 8 bytes in three cycles.
//!
//! Where there is none, the table does it.
#![allow(unsafe_code)]

use core::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};

// Asks the processor once: below a hypervisor the question takes microseconds.
cpufeatures::new!(sse42, "sse4.2");

/// The CRC-32C of the parts, one behind the other; `None` on a processor without the instruction.
pub(super) fn crc_of(parts: &[&[u8]]) -> Option<u32> {
    // SAFETY: the processor has SSE 4.2, as it says itself.
    sse42::get().then(|| unsafe { crc_by_sse42(parts) })
}

#[target_feature(enable = "sse4.2")]
fn crc_by_sse42(parts: &[&[u8]]) -> u32 {
    let mut crc = u32::MAX;
    for part in parts {
        let (words, rest) = part.as_chunks();
        let mut wide = u64::from(crc);
        for word in words {
            wide = _mm_crc32_u64(wide, u64::from_le_bytes(*word));
        }
        // The instruction leaves the upper half zero.
        crc = u32::try_from(wide).unwrap_or_default();
        for byte in rest {
            crc = _mm_crc32_u8(crc, *byte);
        }
    }
    !crc
}
