//! The driver calls that somebody would write by hand, with nothing between them.
#![allow(unsafe_code)]

use crate::{Result, Session};
use gpuipc::sys::CuMemHandle;
use gpuipc::sys::{
    self, CuDevicePtr, CuMemAccessDesc, CuMemAllocationProp, CuMemLocation, pointer_attribute,
};
use gpuipc::{Driver, DriverError};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// The least sizes of VMM memory of this GPU.
pub(crate) fn granularity(session: &Session) -> Result<usize> {
    let prop = CuMemAllocationProp {
        kind: sys::ALLOCATION_TYPE_PINNED,
        requested_handle_types: sys::handle_type::POSIX_FILE_DESCRIPTOR,
        location: CuMemLocation {
            kind: sys::location::DEVICE,
            id: session.device,
        },
        ..CuMemAllocationProp::default()
    };
    Ok(session.driver.mem_granularity(&prop)?)
}

/// `cuMemRetainAllocationHandle`, `cuMemExportToShareableHandle`.
pub(crate) fn export(
    driver: Driver,
    ptr: CuDevicePtr,
) -> Result<(OwnedFd, Reference), DriverError> {
    // SAFETY: the callers' memory, which nobody unmaps meanwhile.
    let handle = unsafe { driver.mem_retain(ptr) }?;
    // SAFETY: retained just now.
    Ok((
        unsafe { driver.mem_export_fd(handle) }?,
        Reference { driver, handle },
    ))
}

/// A reference to an allocation: `cuMemRelease` on drop.
pub(crate) struct Reference {
    driver: Driver,
    handle: CuMemHandle,
}

impl Drop for Reference {
    fn drop(&mut self) {
        // SAFETY: retained by `export`, released here only; nobody unmaps meanwhile.
        let _ = unsafe { self.driver.mem_release(self.handle) };
    }
}

/// What must be asked to find out which allocation a pointer is of.
pub(crate) fn look_up(driver: Driver, ptr: CuDevicePtr) -> Result<u64, DriverError> {
    driver.pointer_attribute(pointer_attribute::BUFFER_ID, ptr)
}

/// Another process's descriptor by its number: `pidfd_open`, `pidfd_getfd`.
pub(crate) fn fetch(pid: u32, number: i32) -> Result<OwnedFd> {
    let failed = |errno| format!("the kernel does not allow pidfd_getfd: {errno}");
    let pid = Pid::from_raw(i32::try_from(pid)?).ok_or("no pid")?;
    let process = pidfd_open(pid, PidfdFlags::empty()).map_err(failed)?;
    Ok(pidfd_getfd(process, number, PidfdGetfdFlags::empty()).map_err(failed)?)
}

/// Memory mapped by hand.
pub(crate) struct Mapped {
    driver: Driver,
    ptr: CuDevicePtr,
    size: usize,
}

/// `cuMemImportFromShareableHandle`, `cuMemMap` and `cuMemRelease` of each
/// descriptor's memory, side by side in one `cuMemAddressReserve`, and one
/// `cuMemSetAccess` over all.
pub(crate) fn map<F: AsFd>(
    session: &Session,
    fds: &[F],
    piece: usize,
) -> Result<Mapped, DriverError> {
    let driver = session.driver;
    let size = piece * fds.len();
    let ptr = driver.mem_address_reserve(size, 0)?;
    for (at, fd) in fds.iter().enumerate() {
        let handle = driver.mem_import_fd(fd.as_fd())?;
        // SAFETY: imported just now, and a place of its own in the reservation.
        unsafe { driver.mem_map(ptr + (at * piece) as u64, piece, handle) }?;
        // SAFETY: the only release of this reference.
        unsafe { driver.mem_release(handle) }?;
    }
    let rights = CuMemAccessDesc {
        location: CuMemLocation {
            kind: sys::location::DEVICE,
            id: session.device,
        },
        flags: sys::access::READ_WRITE,
    };
    // SAFETY: mapped just now; nobody has rights yet.
    unsafe { driver.mem_set_access(ptr, size, &[rights]) }?;
    Ok(Mapped { driver, ptr, size })
}

impl Mapped {
    /// `cuMemUnmap`, `cuMemAddressFree`.
    pub(crate) fn undo(self) -> Result<(), DriverError> {
        // SAFETY: of `map`; nobody uses it any more.
        unsafe { self.driver.mem_unmap(self.ptr, self.size) }?;
        // SAFETY: nothing is mapped there any more.
        unsafe { self.driver.mem_address_free(self.ptr, self.size) }
    }
}

/// Something that can be copied within: its first half to its second.
pub(crate) struct Copied {
    pub(crate) driver: Driver,
    pub(crate) ptr: CuDevicePtr,
    pub(crate) len: usize,
}

impl Copied {
    /// Copies several times, waits for the GPU, and gives bytes a second.
    pub(crate) fn rate(&self, times: u32) -> Result<f64> {
        let half = self.len / 2;
        let start = Instant::now();
        for _ in 0..times {
            let to = self.ptr + half as u64;
            // SAFETY: both halves are device memory that was mapped for reading
            // and writing; the caller keeps it meanwhile.
            unsafe { self.driver.memcpy(to, self.ptr, half) }?;
        }
        // SAFETY: the default stream is always there.
        unsafe { self.driver.stream_synchronize(sys::CuStream::DEFAULT) }?;
        Ok(half as f64 * f64::from(times) / start.elapsed().as_secs_f64())
    }
}

/// Bytes of the heap that this process holds, with what the allocator adds.
pub(crate) fn heap() -> usize {
    // SAFETY: reads the allocator's counters, under its locks.
    unsafe { libc::mallinfo2() }.uordblks
}
