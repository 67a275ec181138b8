//! Sharing pools: a handle of the pool, and 64 bytes for each pointer in it.

#![allow(unsafe_code)]

use crate::Answer;
use crate::args::Out;
use crate::fabric::{self, FabricName};
use crate::header::{Kind, Place};
use crate::ipc::check;
use crate::piece::Origin;
use crate::pool::{handle_of, pool_of};
use crate::pool_file::marks;
use crate::pools::{Pool, PooledPlace, Role};
use crate::share::with_descriptor;
use crate::state::{state, visible_number};
use crate::storage::{MOST_POOL_BYTES, Storage};
use core::ffi::{c_int, c_void};
use gpuipc_sys::{CuMemFabricHandle, CuMemPool, CuMemPoolPtrExportData, CuResult, handle_type};
use rustix::fd::IntoRawFd;
use std::sync::Arc;

const MAGIC: &[u8; 4] = b"emup";

/// Layout of a pointer's bytes, little-endian. A real driver does not look at the
/// last ones (seen on an H200, driver 580).
mod field {
    use core::ops::Range;
    pub(super) const MAGIC: Range<usize> = 0..4;
    /// Makes two allocations' bytes differ that lie in one place.
    pub(super) const NUMBER: Range<usize> = 4..8;
    /// The pool's file, by its random number's first half.
    pub(super) const POOL: Range<usize> = 8..16;
    pub(super) const OFFSET: Range<usize> = 16..24;
    pub(super) const SIZE: Range<usize> = 24..32;
    pub(super) const BLOCK_OFFSET: Range<usize> = 32..40;
    pub(super) const BLOCK_SIZE: Range<usize> = 40..48;
    pub(super) const CHECK: Range<usize> = 48..56;
    pub(super) const CHECKED: Range<usize> = 0..48;
}

fn encode(pool: &[u8; 16], number: u64, place: PooledPlace) -> CuMemPoolPtrExportData {
    let mut bytes = [0; 64];
    bytes[field::MAGIC].copy_from_slice(MAGIC);
    bytes[field::NUMBER].copy_from_slice(&number.to_le_bytes()[..4]);
    bytes[field::POOL].copy_from_slice(&pool[..8]);
    bytes[field::OFFSET].copy_from_slice(&place.offset.to_le_bytes());
    bytes[field::SIZE].copy_from_slice(&place.size.to_le_bytes());
    bytes[field::BLOCK_OFFSET].copy_from_slice(&place.block_offset.to_le_bytes());
    bytes[field::BLOCK_SIZE].copy_from_slice(&place.block_size.to_le_bytes());
    let check = check(&bytes[field::CHECKED]);
    bytes[field::CHECK].copy_from_slice(&check.to_le_bytes());
    CuMemPoolPtrExportData { reserved: bytes }
}

/// What the bytes say, if they are of this very pool.
fn decode(pool: &[u8; 16], data: &CuMemPoolPtrExportData) -> Option<PooledPlace> {
    let bytes = &data.reserved;
    let long = |at: core::ops::Range<usize>| bytes[at].try_into().map(u64::from_le_bytes).ok();
    if bytes[field::MAGIC] != MAGIC[..]
        || bytes[field::POOL] != pool[..8]
        || long(field::CHECK)? != check(&bytes[field::CHECKED])
    {
        return None;
    }
    let place = PooledPlace {
        offset: long(field::OFFSET)?,
        size: long(field::SIZE)?,
        block_offset: long(field::BLOCK_OFFSET)?,
        block_size: long(field::BLOCK_SIZE)?,
    };
    let end = place.offset.checked_add(place.size)?;
    let block = place.offset.checked_sub(place.block_offset)?;
    let fits = end <= MOST_POOL_BYTES && block >= marks(place.block_size);
    (place.size > 0 && fits).then_some(place)
}

/// `cuMemPoolExportToShareableHandle`: only for a type that was asked for when
/// the pool was made; never the default pool or an imported one. The descriptor
/// stays open on exec, other than that of VMM memory (seen on an H200, driver
/// 580).
pub(crate) fn mem_pool_export_to_shareable_handle(
    shareable: Out<c_void>,
    pool: CuMemPool,
    kind: u32,
    flags: u64,
) -> Answer {
    shareable.check()?;
    let mut state = state();
    let handle = handle_of(pool);
    let pool = state.pool(handle)?;
    if flags != 0 || !kind.is_power_of_two() || pool.handle_types & kind == 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    // A host node's.
    let file = pool.file.as_ref().ok_or(CuResult::NOT_SUPPORTED)?;
    let file = Arc::clone(file.storage());
    if kind == handle_type::POSIX_FILE_DESCRIPTOR {
        let fd = file.duplicate_to_inherit()?;
        pool.exported = true;
        // SAFETY: for this type the caller gives a place for an int.
        return unsafe { shareable.holds::<c_int>() }.put(fd.into_raw_fd());
    }
    if pool.fabric.is_none() {
        let session = state.session()?;
        let name = FabricName::publish(&session.store, session.owner, &file)?;
        state.pool(handle)?.fabric = Some(name);
    }
    let pool = state.pool(handle)?;
    let bytes = pool
        .fabric
        .as_ref()
        .map(FabricName::bytes)
        .ok_or(CuResult::UNKNOWN)?;
    pool.exported = true;
    // SAFETY: for this type the caller gives a place for a CUmemFabricHandle.
    unsafe { shareable.holds::<CuMemFabricHandle>() }.put(bytes)
}

/// `cuMemPoolImportFromShareableHandle`: the same pool again while it is there
/// (seen on an H200, driver 580).
pub(crate) fn mem_pool_import_from_shareable_handle(
    pool: Out<CuMemPool>,
    shareable: Out<c_void>,
    kind: u32,
    flags: u64,
) -> Answer {
    pool.check()?;
    if flags != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    let mut state = state();
    let store = &state.session()?.store;
    let file = match kind {
        handle_type::POSIX_FILE_DESCRIPTOR => {
            let number = shareable.address() as u32 as c_int;
            let file = with_descriptor(number, |file| Storage::open(store, file)).flatten();
            let file = file.filter(|found| found.header().kind == Kind::Pool);
            file.ok_or(CuResult::UNKNOWN)?
        }
        handle_type::FABRIC => {
            // SAFETY: for this type the caller gives a CUmemFabricHandle.
            let bytes = unsafe { shareable.as_read().holds::<CuMemFabricHandle>() }.get()?;
            fabric::open(store, &bytes, &[Kind::Pool]).ok_or(CuResult::NOT_SUPPORTED)?
        }
        _ => return Err(CuResult::INVALID_VALUE),
    };
    if let Some(handle) = state.imported_pool(&file) {
        return pool.put(pool_of(handle));
    }
    let place = file.header().place;
    let Place::Gpu(machine) = place else {
        return Err(CuResult::UNKNOWN);
    };
    let device = visible_number(machine);
    let mut imported = Pool::new(Role::Imported, place, device, Some(file));
    if device.is_none() && state.check_reach(&[(0, machine)]).is_ok() {
        imported.stand_in = Some(0);
    }
    pool.put(pool_of(state.add_pool(imported)))
}

/// `cuMemPoolExportPointer`: after the pool itself was exported (seen on an
/// H200, driver 580).
pub(crate) fn mem_pool_export_pointer(data: Out<CuMemPoolPtrExportData>, ptr: u64) -> Answer {
    data.check()?;
    let mut state = state();
    let piece = state.pieces.get(&ptr).ok_or(CuResult::INVALID_VALUE)?;
    let Origin::Pooled {
        pool,
        spot,
        offset,
        imported: false,
        ..
    } = piece.origin
    else {
        return Err(CuResult::INVALID_VALUE);
    };
    let (id, number) = (piece.storage.header().id, piece.buffer_id);
    let place = PooledPlace {
        offset,
        size: piece.size,
        block_offset: spot.address - spot.block,
        block_size: spot.block_size,
    };
    if !state.pools.get(&pool).is_some_and(|pool| pool.exported) {
        return Err(CuResult::INVALID_VALUE);
    }
    if let Some(piece) = state.pieces.get_mut(&ptr)
        && let Origin::Pooled { exported, .. } = &mut piece.origin
    {
        *exported = true;
    }
    data.put(encode(&id, number, place))
}

/// `cuMemPoolImportPointer`: the same address again while it is there. Freed memory
/// imports too (seen on an H200, driver 580).
pub(crate) fn mem_pool_import_pointer(
    ptr: Out<u64>,
    pool: CuMemPool,
    data: Out<CuMemPoolPtrExportData>,
) -> Answer {
    ptr.check()?;
    let data = data.as_read().get()?;
    let mut state = state();
    let handle = handle_of(pool);
    let pool = state.pool(handle)?;
    let file = pool.file.as_ref().filter(|_| pool.role == Role::Imported);
    let file = file.ok_or(CuResult::INVALID_VALUE)?.storage();
    let place = decode(&file.header().id, &data).ok_or(CuResult::INVALID_VALUE)?;
    ptr.put(state.import_pooled(handle, place)?)
}

#[cfg(test)]
mod tests {
    use super::{PooledPlace, decode, encode};

    #[test]
    fn a_pointer_reads_back_in_its_own_pool_only() {
        let place = PooledPlace {
            offset: (64 << 10) + 512,
            size: 100,
            block_offset: 512,
            block_size: 32 << 20,
        };
        let data = encode(&[7; 16], 1, place);
        assert_ne!(data.reserved, encode(&[7; 16], 2, place).reserved);
        assert_eq!(decode(&[7; 16], &data), Some(place));
        assert_eq!(decode(&[8; 16], &data), None);
        for at in 0..64 {
            let mut changed = data;
            changed.reserved[at] ^= 1;
            let expected = (at >= 56).then_some(place);
            assert_eq!(decode(&[7; 16], &changed), expected, "byte {at}");
        }
        for (offset, size) in [(place.offset, 0), (u64::MAX, 2), (1 << 50, 1), (4096, 1)] {
            let bad = PooledPlace {
                offset,
                size,
                ..place
            };
            assert_eq!(decode(&[7; 16], &encode(&[7; 16], 1, bad)), None);
        }
    }
}
