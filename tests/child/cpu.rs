//! Imported host memory, used by the CPU.
#![allow(unsafe_code)]

use crate::{NotOk, pattern, same};
use gpuipc::GpuIpcMem;

/// The mapping's first byte for the CPU.
fn address(mapping: &GpuIpcMem) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut(
        usize::try_from(mapping.device_ptr()).unwrap_or_default(),
    )
}

/// Compares all bytes with a pattern.
pub(crate) fn read(mapping: &GpuIpcMem, seed: u64) -> Result<String, NotOk> {
    let from = address(mapping);
    let bytes: Vec<u8> = (0..mapping.len())
        .map(|at| {
            // SAFETY: the test imported the mapping with host access, so that its
            // bytes are mapped for the CPU as long as it lives; other processes
            // may write them, hence volatile.
            unsafe { from.wrapping_add(at).read_volatile() }
        })
        .collect();
    same(&bytes, &pattern(seed, 0, bytes.len()))
}

/// Writes a pattern.
pub(crate) fn write(mapping: &GpuIpcMem, seed: u64) -> Result<String, NotOk> {
    let to = address(mapping);
    for (at, byte) in pattern(seed, 0, mapping.len()).into_iter().enumerate() {
        // SAFETY: as in `read`; no Rust reference covers the bytes.
        unsafe { to.wrapping_add(at).write_volatile(byte) };
    }
    Ok(String::new())
}
