//! Memory of a runtime with an allocator of its own, which unmaps it as soon as its
//! offer has ended.
#![allow(unsafe_code)]

use crate::race::publish;
use crate::{NotOk, Peer, pattern, word};
use gpuipc::sys::{
    ALLOCATION_TYPE_PINNED, CuMemAccessDesc, CuMemAllocationProp, CuMemLocation, CuResult, access,
    handle_type, location,
};
use gpuipc::{Buffer, Error, ExportOptions, Memory};
use std::time::{Duration, Instant};

const LEN: usize = 2 << 20;

/// A driver call past the library, which keeps order among its own ones only.
macro_rules! cu {
    ($field:ident($($arg:expr),*)) => {{
        let function = crate::table().$field.ok_or(stringify!($field))?;
        // SAFETY: every place passed is a local that outlives the call and has the
        // type of `cuda.h`; handle, addresses and sizes are those that the driver gave.
        match unsafe { function($($arg),*) } {
            CuResult::SUCCESS => Ok(()),
            code => Err(NotOk::from(format!("{}: {code}", stringify!($field)).as_str())),
        }
    }};
}

/// Memory of device 0 at an address.
fn allocate() -> Result<u64, NotOk> {
    let place = CuMemLocation {
        kind: location::DEVICE,
        id: 0,
    };
    let prop = CuMemAllocationProp {
        kind: ALLOCATION_TYPE_PINNED,
        requested_handle_types: handle_type::POSIX_FILE_DESCRIPTOR,
        location: place,
        ..CuMemAllocationProp::default()
    };
    let rights = CuMemAccessDesc {
        location: place,
        flags: access::READ_WRITE,
    };
    let (mut handle, mut ptr) = (0, 0);
    cu!(mem_create(&mut handle, LEN, &prop, 0))?;
    cu!(mem_address_reserve(&mut ptr, LEN, 0, 0, 0))?;
    cu!(mem_map(ptr, LEN, 0, handle, 0))?;
    cu!(mem_set_access(ptr, LEN, &rights, 1))?;
    cu!(mem_release(handle))?;
    Ok(ptr)
}

/// Offers new memory again and again, and unmaps it when its offer has ended.
pub(crate) fn fleeting(
    peer: &mut Peer,
    words: &mut std::str::SplitWhitespace<'_>,
) -> Result<String, NotOk> {
    let (file, seed): (String, u64) = (word(words)?, word(words)?);
    let end = Instant::now() + Duration::from_millis(word(words)?);
    let ipc = peer.ipc()?;
    // Keeps a context, and the broker.
    let anchor = Buffer::new(peer.driver, 0, Memory::VmmFd, LEN)?;
    let _kept = ipc.export(anchor.device_ptr(), LEN, &ExportOptions::default())?;
    let start = pattern(seed, 0, 4096);
    let mut rounds = 0_u64;
    while Instant::now() < end {
        let ptr = allocate()?;
        // SAFETY: the memory was allocated just now.
        unsafe { peer.driver.memcpy_htod(ptr, &start) }.map_err(Error::from)?;
        // A short copy may still be under way (CUDA: it returns when the bytes are staged).
        peer.driver.synchronize().map_err(Error::from)?;
        let options = ExportOptions::default().fd_on_demand(rounds.is_multiple_of(2));
        let exported = ipc.export(ptr, LEN, &options)?;
        publish(&file, &exported.handles()[0])?;
        std::thread::sleep(Duration::from_micros(rounds % 23 * 40));
        drop(exported);
        cu!(mem_unmap(ptr, LEN))?;
        cu!(mem_address_free(ptr, LEN))?;
        rounds += 1;
    }
    Ok(rounds.to_string())
}
