//! Memory of a runtime with an allocator of its own, which unmaps it as soon as its
//! export has ended.
#![allow(unsafe_code)]

use crate::race::{is_over, publish};
use crate::{NotOk, TestChild, pattern, word};
use gpuipc::sys::{
    ALLOCATION_TYPE_PINNED, CuMemAccessDesc, CuMemAllocationProp, CuMemLocation, CuResult,
    CuStream, access, handle_type, location,
};
use gpuipc::{Buffer, Driver, Error, ExportOptions, Memory};
use std::time::Duration;

const LEN: usize = 2 << 20;

/// Memory of device 0 at an address.
fn allocate(driver: Driver) -> Result<u64, Error> {
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
    let handle = driver.mem_create(LEN, &prop)?;
    let ptr = driver.mem_address_reserve(LEN, 0)?;
    // SAFETY: made just now: the handle, and a reservation of this length.
    unsafe { driver.mem_map(ptr, LEN, handle) }?;
    // SAFETY: nobody has rights yet.
    unsafe { driver.mem_set_access(ptr, LEN, &[rights]) }?;
    // SAFETY: the reference of `mem_create`; nobody unmaps meanwhile.
    unsafe { driver.mem_release(handle) }?;
    Ok(ptr)
}

/// Past the library, whose own unmaps meet no other call of it.
fn unmap(ptr: u64) -> Result<(), NotOk> {
    let unmap = crate::table().mem_unmap.ok_or("mem_unmap")?;
    // SAFETY: the memory of `allocate`, which nothing uses any more.
    match unsafe { unmap(ptr, LEN) } {
        CuResult::SUCCESS => Ok(()),
        code => Err(NotOk::from(format!("cuMemUnmap: {code}").as_str())),
    }
}

/// Exports new memory again and again, and unmaps it when its export has ended.
pub(crate) fn fleeting(
    child: &mut TestChild,
    words: &mut std::str::SplitWhitespace<'_>,
) -> Result<String, NotOk> {
    let (file, seed): (String, u64) = (word(words)?, word(words)?);
    let (ipc, driver) = (child.ipc()?, child.driver);
    // Keeps a context, and the broker.
    let anchor = Buffer::new(driver, 0, Memory::VmmFd, LEN)?;
    let _kept = anchor.export(&ipc, 0, LEN, &ExportOptions::default())?;
    let start = pattern(seed, 0, 4096);
    let mut rounds = 0_u64;
    while !is_over(&file) {
        let ptr = allocate(driver)?;
        // SAFETY: the memory was allocated just now.
        unsafe { driver.memcpy_htod(ptr, &start) }.map_err(Error::from)?;
        // A short copy may still be under way (CUDA: it returns when the bytes are staged).
        // SAFETY: the default stream is always there.
        unsafe { driver.stream_synchronize(CuStream::DEFAULT) }.map_err(Error::from)?;
        let options = ExportOptions::default().fd_on_demand(rounds.is_multiple_of(2));
        // SAFETY: unmapped below, after the export's end.
        let exported = unsafe { ipc.export(ptr, LEN, &options) }?;
        publish(&file, &exported.handles()[0])?;
        std::thread::sleep(Duration::from_micros(rounds % 23 * 40));
        drop(exported);
        unmap(ptr)?;
        // SAFETY: of `allocate`; nothing is mapped there.
        unsafe { driver.mem_address_free(ptr, LEN) }.map_err(Error::from)?;
        rounds += 1;
    }
    Ok(rounds.to_string())
}
