//! Legacy sharing: `cuIpc*MemHandle`.
//!
//! A handle names an owner and an address. The exporter gives the memory a
//! name in the directory; whoever opens the handle gets what lies under that
//! name *now*, as with the real driver, unless that needs a block of another
//! size. A handle that is open in the process opens without a look at the
//! exporter, which may be gone.

use crate::Answer;
use crate::args::Out;
use crate::at_once::{self, Moving};
use crate::blocks::{ForeignBlock, room};
use crate::header::{Header, Kind, Place};
use crate::owner::{self, OwnerId};
use crate::piece::{OpenKey, Origin};
use crate::state::{State, state};
use crate::storage::Storage;
use crate::store;
use gpuipc_sys::{CuIpcMemHandle, CuResult, IPC_MEM_LAZY_ENABLE_PEER_ACCESS};
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
    pub(super) const ROOM: Range<usize> = 32..40;
    pub(super) const PID: Range<usize> = 40..44;
    /// Differs with the current device, and nobody looks at it either.
    pub(super) const DEVICE: Range<usize> = 44..48;
    pub(super) const CHECK: Range<usize> = 56..64;
    pub(super) const CHECKED: Range<usize> = 0..56;
}

/// What a handle says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Named {
    owner: OwnerId,
    address: u64,
    buffer_id: u64,
    /// Bytes of its block.
    room: u64,
    /// The owner's pid as it sees it itself.
    pid: u32,
    /// The device whose context was current.
    device: u32,
}

/// Bytes of the block around memory.
fn room_of(header: &Header) -> Answer<u64> {
    room(header.size, header.block_offset).ok_or(CuResult::INVALID_VALUE)
}

fn encode(named: Named) -> CuIpcMemHandle {
    let mut bytes = [0; 64];
    bytes[field::MAGIC].copy_from_slice(MAGIC);
    bytes[field::OWNER].copy_from_slice(&named.owner.0.to_le_bytes());
    bytes[field::ADDRESS].copy_from_slice(&named.address.to_le_bytes());
    bytes[field::BUFFER_ID].copy_from_slice(&named.buffer_id.to_le_bytes());
    bytes[field::ROOM].copy_from_slice(&named.room.to_le_bytes());
    bytes[field::PID].copy_from_slice(&named.pid.to_le_bytes());
    bytes[field::DEVICE].copy_from_slice(&named.device.to_le_bytes());
    let check = check(&bytes[field::CHECKED]);
    bytes[field::CHECK].copy_from_slice(&check.to_le_bytes());
    CuIpcMemHandle { reserved: bytes }
}

fn decode(handle: &CuIpcMemHandle) -> Option<Named> {
    let bytes = &handle.reserved;
    let long = |at: core::ops::Range<usize>| bytes[at].try_into().map(u64::from_le_bytes).ok();
    if &bytes[field::MAGIC] != MAGIC || long(field::CHECK)? != check(&bytes[field::CHECKED]) {
        return None;
    }
    Some(Named {
        owner: OwnerId(long(field::OWNER)?),
        address: long(field::ADDRESS)?,
        buffer_id: long(field::BUFFER_ID)?,
        room: long(field::ROOM)?,
        pid: bytes[field::PID].try_into().map(u32::from_le_bytes).ok()?,
        device: bytes[field::DEVICE]
            .try_into()
            .map(u32::from_le_bytes)
            .ok()?,
    })
}

/// FNV-1a: finds garbage, is no protection.
pub(crate) fn check(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// `cuIpcGetMemHandle`: an address inside gives the handle of the whole. In
/// another GPU's context it gives other bytes (seen on two H200, driver 580).
pub(crate) fn ipc_get_mem_handle(handle: Out<CuIpcMemHandle>, ptr: u64) -> Answer {
    handle.check()?;
    let mut state = state();
    let device = state.current_device()?;
    let (start, piece) = state.piece_at(ptr).ok_or(CuResult::INVALID_VALUE)?;
    if !matches!(piece.origin, Origin::Alloc { .. }) {
        return Err(CuResult::INVALID_VALUE);
    }
    let (buffer_id, room) = (piece.buffer_id, room_of(piece.storage.header())?);
    state.name_memory(start)?;
    handle.put(encode(Named {
        owner: state.session()?.owner,
        address: start,
        buffer_id,
        room,
        pid: std::process::id(),
        device: u32::try_from(device).map_err(|_| CuResult::UNKNOWN)?,
    }))
}

/// `cuIpcOpenMemHandle_v2`. Its flags "must be specified as"
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
pub(crate) fn ipc_open_mem_handle(ptr: Out<u64>, handle: CuIpcMemHandle, flags: u32) -> Answer {
    ptr.check()?;
    let mut state = state();
    let device = state.current_device()?;
    if flags != IPC_MEM_LAZY_ENABLE_PEER_ACCESS {
        return Err(CuResult::INVALID_VALUE);
    }
    let named = decode(&handle).ok_or(CuResult::INVALID_VALUE)?;
    // The real driver tells processes apart by their pids alone: two containers
    // that are both pid 1 are one process to it (seen on an H200, driver 580).
    if named.owner == state.session()?.owner || named.pid == std::process::id() {
        return Err(CuResult::INVALID_CONTEXT);
    }
    let key = OpenKey {
        handle: handle.reserved,
        device,
    };
    if at_once::is_moving(&key) {
        return Err(CuResult::ALREADY_MAPPED);
    }
    if let Some(open) = open_again(&mut state, key) {
        return ptr.put(open);
    }
    drop(state);
    let _moving = Moving::begin(key).ok_or(CuResult::ALREADY_MAPPED)?;
    ptr.put(open_first(&mut self::state(), key, named)?)
}

/// Maps what a handle names, unless another thread just did.
fn open_first(state: &mut State, key: OpenKey, named: Named) -> Answer<u64> {
    let OpenKey { device, .. } = key;
    let Named {
        owner,
        address,
        room,
        ..
    } = named;
    if let Some(open) = open_again(state, key) {
        return Ok(open);
    }
    let session = state.session()?;
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
    let header = *storage.header();
    if room_of(&header)? != room {
        return Err(CuResult::INVALID_VALUE);
    }
    if let Place::Gpu(machine) = header.place {
        state.check_reach(&[(device, machine)])?;
    }
    let from = ForeignBlock {
        owner,
        start: address.wrapping_sub(header.block_offset),
        device,
    };
    let spot = state
        .blocks
        .take_opened(from, header.size, header.block_offset)
        .ok_or(CuResult::OUT_OF_MEMORY)?;
    let origin = Origin::Opened {
        device,
        spot,
        key,
        count: 1,
    };
    state.add_piece(spot.address, header.size, Arc::new(storage), origin);
    Ok(spot.address)
}

/// Counts one more open of a handle that is open.
fn open_again(state: &mut State, wanted: OpenKey) -> Option<u64> {
    for (start, piece) in &mut state.pieces {
        if let Origin::Opened { key, count, .. } = &mut piece.origin
            && *key == wanted
        {
            *count += 1;
            return Some(*start);
        }
    }
    None
}

/// `cuIpcCloseMemHandle`: the last one unmaps.
pub(crate) fn ipc_close_mem_handle(ptr: u64) -> Answer {
    let mut locked = state();
    locked.current_device()?;
    let (key, count) = opened(&mut locked, ptr)?;
    let key = *key;
    if *count > 1 {
        *count -= 1;
        return Ok(());
    }
    drop(locked);
    let _moving = Moving::begin(key);
    let mut locked = state();
    let (_, count) = opened(&mut locked, ptr)?;
    *count -= 1;
    if *count == 0 {
        locked.remove_piece(ptr);
    }
    Ok(())
}

/// By which handle memory was opened, and how often.
fn opened(state: &mut State, ptr: u64) -> Answer<(&OpenKey, &mut u64)> {
    match state.pieces.get_mut(&ptr).map(|piece| &mut piece.origin) {
        Some(Origin::Opened { key, count, .. }) => Ok((key, count)),
        _ => Err(CuResult::INVALID_VALUE),
    }
}

#[cfg(test)]
mod tests {
    use super::{Named, decode, encode};
    use crate::owner::OwnerId;
    use gpuipc_sys::CuIpcMemHandle;

    #[test]
    fn a_handle_reads_back_and_garbage_does_not() {
        let named = Named {
            owner: OwnerId(7),
            address: 0x7f00_0000_0000,
            buffer_id: 0x38c,
            room: 0x20_0000,
            pid: 4242,
            device: 1,
        };
        let handle = encode(named);
        assert_eq!(decode(&handle), Some(named));
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
