//! Owners of device memory that an export can keep.

#![allow(unsafe_code)]

use crate::sys::CuDevicePtr;
use core::fmt;
use std::sync::Arc;

/// A type that owns device memory: a buffer of an allocator, a tensor's storage.
///
/// [`Ipc::export_from`](crate::Ipc::export_from) keeps such an owner for as long as the
/// memory is exported, which makes it safe where [`Ipc::export`](crate::Ipc::export) of a
/// bare pointer is not.
///
/// # Safety
/// The bytes `device_ptr() .. device_ptr() + len()` stay allocated, mapped and at their
/// address until the value is dropped, and both methods always return the same.
///
/// ```
/// # use gpuipc::sys::CuDevicePtr;
/// # struct CudaSlice { ptr: CuDevicePtr, len: usize }
/// struct Shareable(CudaSlice);
///
/// // SAFETY: the slice owns its memory and frees it on drop only.
/// unsafe impl gpuipc::DeviceMemory for Shareable {
///     fn device_ptr(&self) -> CuDevicePtr { self.0.ptr }
///     fn len(&self) -> usize { self.0.len }
/// }
/// ```
#[allow(clippy::len_without_is_empty)] // no bytes cannot be exported
pub unsafe trait DeviceMemory: Send + Sync + 'static {
    /// The first byte.
    fn device_ptr(&self) -> CuDevicePtr;
    /// Bytes.
    fn len(&self) -> usize;
}

// SAFETY: the value behind it lives at least as long.
unsafe impl<T: DeviceMemory + ?Sized> DeviceMemory for Arc<T> {
    fn device_ptr(&self) -> CuDevicePtr {
        T::device_ptr(self)
    }

    fn len(&self) -> usize {
        T::len(self)
    }
}

/// The owner that an export keeps.
pub(crate) struct Keeper(#[allow(dead_code)] pub(crate) Box<dyn DeviceMemory>);

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keeper")
    }
}
