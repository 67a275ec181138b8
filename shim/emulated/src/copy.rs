//! `cuMemcpy*` and `cuMemset*`. Every device address is looked up; what lies
//! nowhere, or may not be reached, gives `INVALID_VALUE`, never a fault.

use crate::Answer;
use crate::args::{In, Out, host_memory};
use crate::config::config;
use crate::header::Kind;
use crate::multicast_reach::reach;
use crate::piece::Origin;
use crate::pool_file::is_freed;
use crate::state::{State, state};
use crate::storage::Storage;
use core::ffi::c_void;
use gpuipc_sys::{CuResult, CuStream};
use std::sync::Arc;

/// Bytes that a copy from memory to memory has in hand.
const CHUNK: usize = 1 << 20;

/// A run of bytes.
struct Part {
    len: usize,
    /// The file that has them, and where; through a multicast object several.
    files: Vec<(Arc<Storage>, u64)>,
}

/// The files behind `bytes` at `address`, which may span pieces side by side.
/// The copy itself runs without the lock; the files stay as long as it needs.
fn parts(address: u64, bytes: usize, write: bool) -> Answer<Vec<Part>> {
    let mut state = state();
    let device = state.enqueue_on_legacy()?;
    parts_for(&mut state, device, address, bytes, write)
}

/// The same for a device, whatever context is current.
fn parts_for(
    state: &mut State,
    device: usize,
    address: u64,
    bytes: usize,
    write: bool,
) -> Answer<Vec<Part>> {
    let mut parts = Vec::new();
    let mut done = 0;
    while done < bytes {
        let here = address
            .checked_add(done as u64)
            .ok_or(CuResult::INVALID_VALUE)?;
        let (start, piece) = state.piece_at(here).ok_or(CuResult::INVALID_VALUE)?;
        if !state.allows(piece, device, write) {
            return Err(CuResult::INVALID_VALUE);
        }
        if config().stale_pool_is_fatal && is_freed(piece) {
            state.broken.insert(device);
            return Err(CuResult::LAUNCH_FAILED);
        }
        let inside = here - start;
        let left = usize::try_from(piece.size - inside).unwrap_or(usize::MAX);
        let len = left.min(bytes - done);
        if piece.storage.header().kind == Kind::Multicast {
            // A plain read of a multicast address has no meaning.
            if !write {
                return Err(CuResult::INVALID_VALUE);
            }
            let runs = reach(state, &piece.storage, inside, len)?;
            parts.extend(runs.into_iter().map(|run| Part {
                len: run.len,
                files: run.memories,
            }));
        } else {
            let file = (Arc::clone(&piece.storage), piece.file_offset() + inside);
            parts.push(Part {
                len,
                files: vec![file],
            });
        }
        done += len;
    }
    Ok(parts)
}

fn write_all(parts: &[Part], from: In<c_void>) -> Answer {
    let mut done = 0;
    for part in parts {
        for (storage, offset) in &part.files {
            storage.write(*offset, from, done, part.len)?;
        }
        done += part.len;
    }
    Ok(())
}

fn read_all(parts: &[Part], to: Out<c_void>) -> Answer {
    let mut done = 0;
    for part in parts {
        let (storage, offset) = part.files.first().ok_or(CuResult::INVALID_VALUE)?;
        storage.read(*offset, to, done, part.len)?;
        done += part.len;
    }
    Ok(())
}

/// `cuMemcpyHtoD_v2`.
pub(crate) fn memcpy_htod(to: u64, from: In<c_void>, bytes: usize) -> Answer {
    write_all(&parts(to, bytes, true)?, from)
}

/// `cuMemcpyDtoH_v2`.
pub(crate) fn memcpy_dtoh(to: Out<c_void>, from: u64, bytes: usize) -> Answer {
    read_all(&parts(from, bytes, false)?, to)
}

/// `cuMemcpy`: each address is memory of the driver's or of the host.
pub(crate) fn memcpy(to: u64, from: u64, bytes: usize) -> Answer {
    let device = state().enqueue_on_legacy()?;
    copy(device, to, from, bytes)
}

/// `cuMemcpyAsync`: done when it returns.
pub(crate) fn memcpy_async(to: u64, from: u64, bytes: usize, stream: CuStream) -> Answer {
    let device = state().enqueue(stream)?;
    copy(device, to, from, bytes)
}

/// One side of a copy.
enum Side {
    Memory(Vec<Part>),
    Host(u64),
}

fn side(device: usize, address: u64, bytes: usize, write: bool) -> Answer<Side> {
    let mut state = state();
    if state.piece_at(address).is_none() {
        return Ok(Side::Host(address));
    }
    parts_for(&mut state, device, address, bytes, write).map(Side::Memory)
}

fn copy(device: usize, to: u64, from: u64, bytes: usize) -> Answer {
    let sides = (
        side(device, to, bytes, true)?,
        side(device, from, bytes, false)?,
    );
    match sides {
        (Side::Memory(parts), Side::Host(from)) => write_all(&parts, host_memory(from).1),
        (Side::Host(to), Side::Memory(parts)) => read_all(&parts, host_memory(to).0),
        (Side::Memory(to), Side::Memory(from)) => copy_parts(&to, &from),
        // No memory of the driver's: not played.
        (Side::Host(_), Side::Host(_)) => Err(CuResult::INVALID_VALUE),
    }
}

/// From memory to memory. Ranges that overlap have no defined result.
fn copy_parts(to: &[Part], from: &[Part]) -> Answer {
    let mut to = to.iter().flat_map(chunks);
    let mut room = to.next();
    let mut buffer = vec![0; CHUNK];
    for (part, mut skip, mut len) in from.iter().flat_map(chunks) {
        let (storage, offset) = part.files.first().ok_or(CuResult::INVALID_VALUE)?;
        while len > 0 {
            let Some((there, at, left)) = room else {
                return Ok(());
            };
            let step = len.min(left);
            let bytes = &mut buffer[..step];
            storage.read_bytes(offset + skip, bytes)?;
            for (storage, offset) in &there.files {
                storage.write_bytes(offset + at, bytes)?;
            }
            skip += step as u64;
            len -= step;
            room = if step < left {
                Some((there, at + step as u64, left - step))
            } else {
                to.next()
            };
        }
    }
    Ok(())
}

/// A part in pieces that fit into the buffer: where in the part, and bytes.
fn chunks(part: &Part) -> impl Iterator<Item = (&Part, u64, usize)> {
    (0..part.len).step_by(CHUNK).map(move |done| {
        let len = CHUNK.min(part.len - done);
        (part, done as u64, len)
    })
}

/// `cuMemsetD8_v2`. A copy finds its way to `cuMemAlloc` memory of another GPU,
/// a fill does not: it needs a context of the memory's own (seen on two H200,
/// driver 580). It is the GPU's work also with host memory, to which a copy goes by
/// the CPU.
pub(crate) fn memset_d8(to: u64, value: u8, count: usize) -> Answer {
    {
        let state = state();
        let here = state.current_device()?;
        let reaches = match state.piece_at(to).map(|(_, piece)| &piece.origin) {
            Some(Origin::Alloc { device, .. }) => *device == here,
            Some(Origin::Mapped { access, .. }) => access.allows(here, true),
            _ => true,
        };
        if !reaches {
            return Err(CuResult::INVALID_VALUE);
        }
    }
    for part in parts(to, count, true)? {
        for (storage, offset) in &part.files {
            storage.fill(*offset, value, part.len)?;
        }
    }
    Ok(())
}
