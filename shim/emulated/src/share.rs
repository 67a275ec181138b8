//! VMM sharing: `cuMemExportToShareableHandle` and its counterpart.

#![allow(unsafe_code)]

use crate::Answer;
use crate::args::Out;
use crate::fabric::{self, FabricName};
use crate::header::Kind;
use crate::state::state;
use crate::storage::Storage;
use crate::{device, multicast_store};
use core::ffi::{c_int, c_void};
use gpuipc_sys::{CuMemFabricHandle, CuResult, device_attribute as attribute, handle_type};
use rustix::fd::{BorrowedFd, IntoRawFd};

/// `CU_MEM_HANDLE_TYPE_WIN32`.
const WIN32: u32 = 2;
/// What the import takes.
const IMPORTED: [Kind; 2] = [Kind::Vmm, Kind::Multicast];

/// `cuMemExportToShareableHandle`. Only for a type that was asked for when the
/// memory was made; never for imported memory.
pub(crate) fn mem_export_to_shareable_handle(
    shareable: Out<c_void>,
    handle: u64,
    kind: u32,
    flags: u64,
) -> Answer {
    shareable.check()?;
    let mut state = state();
    let physical = state.physical(handle)?;
    let known = matches!(
        kind,
        handle_type::POSIX_FILE_DESCRIPTOR | handle_type::FABRIC
    );
    if flags != 0 || !known || physical.handle_types & kind == 0 {
        return Err(CuResult::INVALID_VALUE);
    }
    if kind == handle_type::POSIX_FILE_DESCRIPTOR {
        let fd = physical.storage.duplicate()?;
        // SAFETY: for this type the caller gives a place for an int.
        return unsafe { shareable.holds::<c_int>() }.put(fd.into_raw_fd());
    }
    if state.physical(handle)?.fabric.is_none() {
        let session = state.session()?;
        let storage = state
            .physicals
            .get(&handle)
            .ok_or(CuResult::INVALID_VALUE)?
            .storage
            .as_ref();
        let name = FabricName::publish(&session.store, session.owner, storage)?;
        state.physical(handle)?.fabric = Some(name);
    }
    let bytes = state
        .physical(handle)?
        .fabric
        .as_ref()
        .map(FabricName::bytes)
        .ok_or(CuResult::UNKNOWN)?;
    // SAFETY: for this type the caller gives a place for a CUmemFabricHandle.
    unsafe { shareable.holds::<CuMemFabricHandle>() }.put(bytes)
}

/// `cuMemImportFromShareableHandle`. Each import gives a handle of its own.
pub(crate) fn mem_import_from_shareable_handle(
    handle: Out<u64>,
    shareable: Out<c_void>,
    kind: u32,
) -> Answer {
    handle.check()?;
    let mut state = state();
    let store = &state.session()?.store;
    let storage = match kind {
        handle_type::POSIX_FILE_DESCRIPTOR => {
            let number = shareable.address() as u32 as c_int;
            let storage = with_descriptor(number, |file| Storage::open(store, file)).flatten();
            // Anything that is no CUDA descriptor (seen on an H200, driver 580).
            storage
                .filter(|found| IMPORTED.contains(&found.header().kind))
                .ok_or(CuResult::UNKNOWN)?
        }
        handle_type::FABRIC => {
            // SAFETY: for this type the caller gives a CUmemFabricHandle.
            let bytes = unsafe { shareable.as_read().holds::<CuMemFabricHandle>() }.get()?;
            fabric::open(store, &bytes, &IMPORTED).ok_or(CuResult::NOT_SUPPORTED)?
        }
        WIN32 => return Err(CuResult::NOT_SUPPORTED),
        _ => return Err(CuResult::INVALID_VALUE),
    };
    if storage.header().kind == Kind::Multicast {
        if !device::has(attribute::MULTICAST_SUPPORTED) {
            return Err(CuResult::NOT_SUPPORTED);
        }
        multicast_store::keep_object(&storage);
    }
    handle.put(state.add_physical(storage, handle_type::NONE, true))
}

/// Looks at a caller's descriptor, if there is one of that number.
pub(crate) fn with_descriptor<T>(
    number: c_int,
    look: impl FnOnce(BorrowedFd<'_>) -> T,
) -> Option<T> {
    // SAFETY: F_GETFD takes any number and answers EBADF for one that is not open.
    let open = number >= 0 && unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
    if !open {
        return None;
    }
    // SAFETY: the number is not -1 and was open right above; the caller of an
    // import keeps its descriptor open until the call returns. It is only looked at and duplicated.
    Some(look(unsafe { BorrowedFd::borrow_raw(number) }))
}
