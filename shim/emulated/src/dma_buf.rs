//! `cuMemGetHandleForAddressRange`: a dma-buf for drivers of other hardware.
//!
//! There is no such hardware here. The descriptor is one of the memory's file
//! to read only, which keeps the memory and is no handle to import.

#![allow(unsafe_code)]

use crate::Answer;
use crate::args::Out;
use crate::piece::Origin;
use crate::state::state;
use core::ffi::{c_int, c_void};
use gpuipc_sys::{CuResult, RANGE_HANDLE_TYPE_DMA_BUF_FD};
use rustix::fd::IntoRawFd;

/// `cuMemGetHandleForAddressRange`: memory of a GPU, whole pages of one
/// allocation's block.
pub(crate) fn mem_get_handle_for_address_range(
    handle: Out<c_void>,
    ptr: u64,
    size: usize,
    kind: u32,
    flags: u64,
) -> Answer {
    handle.check()?;
    let state = state();
    let (start, piece) = state.piece_at(ptr).ok_or(CuResult::INVALID_VALUE)?;
    let own = match piece.origin {
        Origin::Alloc { .. }
        | Origin::Pooled {
            imported: false, ..
        } => true,
        Origin::Mapped { .. } => piece.on_gpu(),
        _ => false,
    };
    let page = rustix::param::page_size() as u64;
    let size = size as u64;
    let end = piece
        .spot()
        .map_or(start + piece.size, |spot| spot.block + spot.block_size);
    let whole = size > 0 && ptr.is_multiple_of(page) && size.is_multiple_of(page);
    let inside = size <= end - ptr;
    if kind != RANGE_HANDLE_TYPE_DMA_BUF_FD || flags != 0 || !own || !whole || !inside {
        return Err(CuResult::INVALID_VALUE);
    }
    let fd = piece.storage.for_reading()?;
    // SAFETY: for this type the caller gives a place for an int.
    unsafe { handle.holds::<c_int>() }.put(fd.into_raw_fd())
}
