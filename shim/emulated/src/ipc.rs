//! Legacy sharing: `cuIpc*MemHandle`.
//!
//! A handle names an owner and an address. The exporter gives the memory a
//! name in the directory; whoever opens the handle gets what lies under that
//! name *now*, as with the real driver.

use crate::Answer;
use crate::border::Out;
use crate::header::{Kind, Place};
use crate::owner::{self, OwnerId};
use crate::piece::{OpenKey, Origin};
use crate::state::{State, machine_number, state};
use crate::storage::Storage;
use crate::store;
use gpuipc::sys::{CuIpcMemHandle, CuResult, IPC_MEM_LAZY_ENABLE_PEER_ACCESS};
use rustix::fd::AsFd;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"emulated";

/// Layout of the handle, little-endian.
mod field {
    use core::ops::Range;
    pub(super) const MAGIC: Range<usize> = 0..8;
    pub(super) const OWNER: Range<usize> = 8..16;
    pub(super) const ADDRESS: Range<usize> = 16..24;
    /// Differs with each allocation, but nobody looks at it: a stale handle
    /// opens what lies there now.
    pub(super) const BUFFER_ID: Range<usize> = 24..32;
    pub(super) const CHECK: Range<usize> = 56..64;
    pub(super) const CHECKED: Range<usize> = 0..56;
}

fn encode(owner: OwnerId, address: u64, buffer_id: u64) -> CuIpcMemHandle {
    let mut bytes = [0; 64];
    bytes[field::MAGIC].copy_from_slice(MAGIC);
    bytes[field::OWNER].copy_from_slice(&owner.0.to_le_bytes());
    bytes[field::ADDRESS].copy_from_slice(&address.to_le_bytes());
    bytes[field::BUFFER_ID].copy_from_slice(&buffer_id.to_le_bytes());
    let check = check(&bytes[field::CHECKED]);
    bytes[field::CHECK].copy_from_slice(&check.to_le_bytes());
    CuIpcMemHandle { reserved: bytes }
}

fn decode(handle: &CuIpcMemHandle) -> Option<(OwnerId, u64)> {
    let bytes = &handle.reserved;
    let long = |at: core::ops::Range<usize>| bytes[at].try_into().map(u64::from_le_bytes).ok();
    if &bytes[field::MAGIC] != MAGIC || long(field::CHECK)? != check(&bytes[field::CHECKED]) {
        return None;
    }
    Some((OwnerId(long(field::OWNER)?), long(field::ADDRESS)?))
}

/// FNV-1a: finds garbage, is no protection.
pub(crate) fn check(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// `cuIpcGetMemHandle`: an address inside gives the handle of the whole.
pub(crate) fn ipc_get_mem_handle(handle: Out<CuIpcMemHandle>, ptr: u64) -> Answer {
    handle.check()?;
    let mut state = state();
    state.current_device()?;
    let (start, piece) = state.piece_at(ptr).ok_or(CuResult::INVALID_VALUE)?;
    if !matches!(piece.origin, Origin::Alloc { .. }) {
        return Err(CuResult::INVALID_VALUE);
    }
    let buffer_id = piece.buffer_id;
    state.name_memory(start)?;
    handle.put(encode(state.session()?.owner, start, buffer_id))
}

/// `cuIpcOpenMemHandle_v2`.
pub(crate) fn ipc_open_mem_handle(ptr: Out<u64>, handle: CuIpcMemHandle, flags: u32) -> Answer {
    ptr.check()?;
    let mut state = state();
    let device = state.current_device()?;
    if flags & !IPC_MEM_LAZY_ENABLE_PEER_ACCESS != 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    let (owner, address) = decode(&handle).ok_or(CuResult::INVALID_VALUE)?;
    let session = state.session()?;
    if owner == session.owner {
        return Err(CuResult::INVALID_CONTEXT);
    }
    if !owner::lives(&session.store, owner) {
        return Err(CuResult::INVALID_HANDLE);
    }
    let file = store::open_name(session.store.dir(), &owner.memory_name(address));
    let storage = file
        .ok()
        .and_then(|file| Storage::open(&session.store, file.as_fd()));
    let storage = storage
        .filter(|found| found.header().kind == Kind::Alloc)
        .ok_or(CuResult::INVALID_VALUE)?;
    if let Place::Gpu(machine) = storage.header().place {
        let is_own = machine == machine_number(device)?;
        if !is_own && flags & IPC_MEM_LAZY_ENABLE_PEER_ACCESS == 0 {
            return Err(CuResult::INVALID_VALUE);
        }
        state.check_reach(&[(device, machine)])?;
    }
    let key = OpenKey {
        owner,
        memory: storage.header().id,
        device,
    };
    ptr.put(open_once(&mut state, key, storage)?)
}

/// The mapping of this memory: the one that exists, or a new one.
fn open_once(state: &mut State, new: OpenKey, storage: Storage) -> Answer<u64> {
    for (start, piece) in &mut state.pieces {
        if let Origin::Opened { key, count, .. } = &mut piece.origin
            && *key == new
        {
            *count += 1;
            return Ok(*start);
        }
    }
    let header = *storage.header();
    let spot = state
        .blocks
        .take_whole(header.size, header.block_offset)
        .ok_or(CuResult::OUT_OF_MEMORY)?;
    let origin = Origin::Opened {
        device: new.device,
        spot,
        key: new,
        count: 1,
    };
    state.add_piece(spot.address, header.size, Arc::new(storage), origin);
    Ok(spot.address)
}

/// `cuIpcCloseMemHandle`: the last one unmaps.
pub(crate) fn ipc_close_mem_handle(ptr: u64) -> Answer {
    let mut state = state();
    state.current_device()?;
    let piece = state.pieces.get_mut(&ptr).ok_or(CuResult::INVALID_VALUE)?;
    let Origin::Opened { count, .. } = &mut piece.origin else {
        return Err(CuResult::INVALID_VALUE);
    };
    *count -= 1;
    if *count == 0 {
        state.remove_piece(ptr);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};
    use crate::owner::OwnerId;
    use gpuipc::sys::CuIpcMemHandle;

    #[test]
    fn a_handle_reads_back_and_garbage_does_not() {
        let handle = encode(OwnerId(7), 0x7f00_0000_0000, 0x38c);
        assert_eq!(decode(&handle), Some((OwnerId(7), 0x7f00_0000_0000)));
        for bad in [[0; 64], [0x5a; 64]] {
            assert_eq!(decode(&CuIpcMemHandle { reserved: bad }), None);
        }
        for at in 0..64 {
            let mut bad = handle;
            bad.reserved[at] ^= 1;
            assert_eq!(decode(&bad), None, "byte {at}");
        }
    }
}
