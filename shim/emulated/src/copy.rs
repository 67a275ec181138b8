//! `cuMemcpy*` and `cuMemset*`. Every device address is looked up; what lies
//! nowhere, or may not be reached, gives `INVALID_VALUE`, never a fault.

use crate::Answer;
use crate::border::{In, Out};
use crate::state::state;
use crate::storage::Storage;
use core::ffi::c_void;
use gpuipc::sys::CuResult;
use std::sync::Arc;

/// A run of bytes in one file.
struct Part {
    storage: Arc<Storage>,
    offset: u64,
    len: usize,
}

/// The files behind `bytes` at `address`, which may span pieces side by side.
/// The copy itself runs without the lock; the files stay as long as it needs.
fn parts(address: u64, bytes: usize, write: bool) -> Answer<Vec<Part>> {
    let state = state();
    let device = state.current_device()?;
    let mut parts = Vec::new();
    let mut done = 0;
    while done < bytes {
        let here = address
            .checked_add(done as u64)
            .ok_or(CuResult::INVALID_VALUE)?;
        let (start, piece) = state.piece_at(here).ok_or(CuResult::INVALID_VALUE)?;
        if !piece.allows(device, write) {
            return Err(CuResult::INVALID_VALUE);
        }
        let offset = here - start;
        let left = usize::try_from(piece.size - offset).unwrap_or(usize::MAX);
        let len = left.min(bytes - done);
        parts.push(Part {
            storage: Arc::clone(&piece.storage),
            offset,
            len,
        });
        done += len;
    }
    Ok(parts)
}

/// `cuMemcpyHtoD_v2`.
pub(crate) fn memcpy_htod(to: u64, from: In<c_void>, bytes: usize) -> Answer {
    let mut done = 0;
    for part in parts(to, bytes, true)? {
        part.storage.write(part.offset, from, done, part.len)?;
        done += part.len;
    }
    Ok(())
}

/// `cuMemcpyDtoH_v2`.
pub(crate) fn memcpy_dtoh(to: Out<c_void>, from: u64, bytes: usize) -> Answer {
    let mut done = 0;
    for part in parts(from, bytes, false)? {
        part.storage.read(part.offset, to, done, part.len)?;
        done += part.len;
    }
    Ok(())
}

/// `cuMemsetD8_v2`.
pub(crate) fn memset_d8(to: u64, value: u8, count: usize) -> Answer {
    for part in parts(to, count, true)? {
        part.storage.fill(part.offset, value, part.len)?;
    }
    Ok(())
}
