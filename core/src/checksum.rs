//! The checksum of a handle and of a registered memory: CRC-32C (Castagnoli, as in iSCSI, RFC 3720
//! section 12.1), without the checksum's own four bytes.
//!
//! It finds damage: every flipped bit and every burst of up to 32 bits. It is no protection
//! against forgery, since anyone can compute it.
//!
//! The processor's own instruction computes it where there is one (`instruction`), else 16 bytes a
//! step by a table of 16 KiB that the compiler makes and every program carries. A byte a step, with
//! 1 KiB, is about seven times as slow as that table: 0.9 us a handle and not 0.13
//! (`benches/handle.rs`).

#[cfg(target_arch = "x86_64")]
mod instruction;

use crate::handle::GpuIpcMemHandle;
use crate::layout::{HANDLE_BYTES, REGISTERED_HEADER_BYTES};
use crate::registered::Header;
use crc::{CRC_32_ISCSI, Crc, Table};

/// A static, not a const: a const's 16 KiB table would be copied to the stack at each use.
static CRC_32C: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// The checksum that a handle with these bytes must carry at bytes 188..192: CRC-32C of the other
/// 380 bytes. For programs that change handles on purpose, such as tests; a
/// [`GpuIpcMemHandle`](crate::GpuIpcMemHandle) always has the right one.
pub fn checksum_of(bytes: &[u8; HANDLE_BYTES]) -> u32 {
    let place = GpuIpcMemHandle::AT.checksum;
    let (before, _) = bytes.split_at(place.start);
    let (_, after) = bytes.split_at(place.end);
    crc_of(&[before, after])
}

/// The checksum that a registered memory must carry at bytes 124..128: CRC-32C of the other 124 of
/// its header, and of its transports. The handles have their own.
pub(crate) fn checksum_of_registered(
    header: &[u8; REGISTERED_HEADER_BYTES],
    transports: &[u8],
) -> u32 {
    let (before, _) = header.split_at(Header::AT.checksum.start);
    crc_of(&[before, transports])
}

/// The CRC-32C of the parts, one behind the other.
fn crc_of(parts: &[&[u8]]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(crc) = instruction::crc_of(parts) {
        return crc;
    }
    crc_by_table(parts)
}

fn crc_by_table(parts: &[&[u8]]) -> u32 {
    let mut digest = CRC_32C.digest();
    for part in parts {
        digest.update(part);
    }
    digest.finalize()
}

#[cfg(test)]
#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions
)]
mod tests {
    use super::*;

    #[test]
    fn the_algorithm_gives_the_published_check_value() {
        assert_eq!(crc_of(&[b"123456789"]), 0xE306_9283);
        assert_eq!(crc_by_table(&[b"123456789"]), 0xE306_9283);
    }

    #[test]
    fn instruction_and_table_give_the_same_wherever_the_parts_end() {
        let bytes: [u8; 100] = core::array::from_fn(|at| (at * at % 251) as u8);
        for end in 0..=bytes.len() {
            for seam in 0..=end {
                let parts = [&bytes[..seam], &bytes[seam..end]];
                assert_eq!(
                    crc_of(&parts),
                    crc_by_table(&[&bytes[..end]]),
                    "{seam} {end}"
                );
            }
        }
    }

    #[test]
    fn the_checksum_covers_every_byte_but_its_own() {
        let zeros = [0; HANDLE_BYTES];
        for at in 0..HANDLE_BYTES {
            let mut bytes = zeros;
            bytes[at] = 1;
            let same = checksum_of(&bytes) == checksum_of(&zeros);
            assert_eq!(
                same,
                GpuIpcMemHandle::AT.checksum.range().contains(&at),
                "byte {at}"
            );
        }
    }
}
