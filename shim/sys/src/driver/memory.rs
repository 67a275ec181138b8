//! `cuMemAlloc` memory: allocating, copying, asking about pointers, legacy handles.

#![allow(unsafe_code)]

use super::{Driver, DriverCause, DriverError, OneAtATime, Result, Timer, call};
use crate::{self as sys, CuDevicePtr, CuIpcMemHandle, CuResult, CuStream};
use core::ffi::c_void;

impl Driver {
    /// `cuMemAlloc_v2` on the current context's GPU.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` (2), `INVALID_CONTEXT` (201), `INVALID_VALUE` (1) for 0 bytes.
    pub fn mem_alloc(self, bytes: usize) -> Result<CuDevicePtr> {
        let _relaxed = self.relaxed();
        let mut ptr = 0;
        call!(self, mem_alloc(&mut ptr, bytes))?;
        Ok(ptr)
    }

    /// `cuMemFree_v2`: waits for the GPU, then frees memory of `cuMemAlloc`, or of a
    /// pool, own or imported.
    ///
    /// # Safety
    /// Nobody uses the memory any more.
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for anything that `cuMemAlloc` did not return.
    pub unsafe fn mem_free(self, ptr: CuDevicePtr) -> Result<()> {
        let _relaxed = self.relaxed();
        call!(self, mem_free(ptr))
    }

    /// `cuMemcpyHtoD_v2`: copies `from` to device memory. From pageable memory it
    /// may return before the bytes are there; [`Driver::stream_synchronize`] waits for them.
    ///
    /// # Safety
    /// `to .. to + from.len()` is device memory, or host memory that no Rust
    /// reference covers.
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) where `to` is not writable device memory,
    /// `INVALID_CONTEXT` (201).
    pub unsafe fn memcpy_htod(self, to: CuDevicePtr, from: &[u8]) -> Result<()> {
        call!(self, memcpy_htod(to, from.as_ptr().cast(), from.len()))
    }

    /// `cuMemcpyDtoH_v2`: copies device memory to `to` and waits.
    ///
    /// # Safety
    /// `from .. from + to.len()` is device memory, or host memory that no
    /// mutable Rust reference covers.
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) where `from` is not readable device memory,
    /// `INVALID_CONTEXT` (201).
    pub unsafe fn memcpy_dtoh(self, to: &mut [u8], from: CuDevicePtr) -> Result<()> {
        call!(self, memcpy_dtoh(to.as_mut_ptr().cast(), from, to.len()))
    }

    /// `cuMemcpy`: copies device memory to device memory, on the default stream. It
    /// may return before the bytes are there; [`Driver::stream_synchronize`] of the
    /// default stream waits for them.
    ///
    /// # Safety
    /// `from .. from + bytes` and `to .. to + bytes` are device memory, or host
    /// memory that no Rust reference covers.
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for memory that CUDA does not know, `INVALID_CONTEXT`
    /// (201).
    pub unsafe fn memcpy(self, to: CuDevicePtr, from: CuDevicePtr, bytes: usize) -> Result<()> {
        call!(self, memcpy(to, from, bytes))
    }

    /// `cuMemcpyAsync`: a copy between any two addresses, in a stream's order.
    ///
    /// # Safety
    /// `from .. from + bytes` and `to .. to + bytes` are device memory, or host
    /// memory, and stay so until the stream's work is done; no Rust reference covers
    /// what is written, no mutable one what is read. `stream` was not destroyed.
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for memory that CUDA does not know, `INVALID_CONTEXT`
    /// (201).
    pub unsafe fn memcpy_async(
        self,
        to: CuDevicePtr,
        from: CuDevicePtr,
        bytes: usize,
        stream: CuStream,
    ) -> Result<()> {
        call!(self, memcpy_async(to, from, bytes, stream))
    }

    /// `cuPointerGetAttribute`, for attributes of at most eight bytes; shorter
    /// answers come zero-extended. Needs no current context.
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for a pointer that CUDA does not know, or an
    /// attribute that this driver does not know.
    pub fn pointer_attribute(self, attribute: u32, ptr: CuDevicePtr) -> Result<u64> {
        // Far more bytes than any attribute has. On little-endian machines a
        // shorter answer is its own value.
        let mut value = [0_u64; 8];
        call!(
            self,
            pointer_get_attribute(value.as_mut_ptr().cast::<c_void>(), attribute, ptr)
        )?;
        Ok(value[0])
    }

    /// `cuMemGetAddressRange_v2`: base and length of the allocation around
    /// `ptr`. Needs a context of the memory's GPU.
    ///
    /// # Errors
    /// `INVALID_CONTEXT` (201), `NOT_FOUND` (500).
    pub fn address_range(self, ptr: CuDevicePtr) -> Result<(CuDevicePtr, usize)> {
        let (mut base, mut size) = (0, 0);
        call!(self, mem_get_address_range(&mut base, &mut size, ptr))?;
        Ok((base, size))
    }

    /// `cuIpcGetMemHandle`: the legacy handle of the allocation around `ptr`.
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for memory that legacy IPC cannot share,
    /// `INVALID_CONTEXT` (201) without a context.
    pub fn ipc_get_mem_handle(self, ptr: CuDevicePtr) -> Result<[u8; 64]> {
        let mut handle = CuIpcMemHandle { reserved: [0; 64] };
        call!(self, ipc_get_mem_handle(&mut handle, ptr))?;
        Ok(handle.reserved)
    }

    /// `cuIpcOpenMemHandle_v2` with lazy peer access: maps the allocation into
    /// the current context. A second open gives the same address and counts.
    ///
    /// # Errors
    /// `INVALID_HANDLE` (400) once the exporter has exited, `INVALID_VALUE` (1)
    /// for freed memory or bytes that are no handle, `INVALID_CONTEXT` (201)
    /// without a context or in the exporter itself, `TOO_MANY_PEERS` (711).
    pub fn ipc_open_mem_handle(self, handle: &[u8; 64]) -> Result<CuDevicePtr> {
        let mut ptr = 0;
        let handle = CuIpcMemHandle { reserved: *handle };
        call!(
            self,
            ipc_open_mem_handle(&mut ptr, handle, sys::IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
            Some(&LEGACY_OPENS)
        )?;
        Ok(ptr)
    }

    /// `cuIpcCloseMemHandle`: undoes one open, in the same context. The last one unmaps.
    ///
    /// # Safety
    /// The caller opened it ([`Driver::ipc_open_mem_handle`] gave `ptr`), and uses the
    /// memory no longer.
    ///
    /// # Errors
    /// `INVALID_VALUE` (1), `INVALID_CONTEXT` (201).
    pub unsafe fn ipc_close_mem_handle(self, ptr: CuDevicePtr) -> Result<()> {
        call!(self, ipc_close_mem_handle(ptr), Some(&LEGACY_OPENS))
    }
}

/// Opens and closes go one at a time. Where threads open and close the same memory,
/// `cuIpcOpenMemHandle` answers `ALREADY_MAPPED` (208) now and then (seen on an H200,
/// driver 580), though it counts its opens. An import's deadline does not end the wait:
/// an open and a close take about a millisecond.
static LEGACY_OPENS: OneAtATime = OneAtATime::new();
