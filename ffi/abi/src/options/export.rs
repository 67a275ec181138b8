//! How memory is exported.

use super::{Growing, types};
use crate::failure::Failure;
use std::mem::offset_of;

/// How memory is exported. Filled by `gpuipc_export_options_init`; then change
/// what is to be different.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ExportOptions {
    /// `sizeof(gpuipc_export_options)` of the header that the caller was compiled with.
    pub struct_size: usize,
    /// How many of `types` are given. 0: every type that the memory allows.
    pub type_count: u8,
    /// The types that may be offered (`GPUIPC_TYPE_RUNTIME_IPC`, `_POSIX_FD`,
    /// `_FABRIC`), each at most once; 0 from `type_count` on. Others are not made
    /// at all: without `GPUIPC_TYPE_POSIX_FD` there is no descriptor that anyone
    /// could ask for.
    pub types: [u8; 7],
}

const _: () = assert!(
    size_of::<ExportOptions>() == 16
        && offset_of!(ExportOptions, type_count) == 8
        && offset_of!(ExportOptions, types) == 9,
    "C callers were compiled with these places, which leave no padding"
);

// SAFETY: repr(C), the size first, no padding by the assertion above; numbers
// take any bytes.
unsafe impl Growing for ExportOptions {
    const NAME: &'static str = "gpuipc_export_options";
    const PUBLISHED: &'static [usize] = &[16];

    fn defaults() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            type_count: 0,
            types: [0; 7],
        }
    }
}

impl ExportOptions {
    /// The library's options.
    pub(crate) fn check(&self) -> Result<gpuipc::ExportOptions, Failure> {
        let types = types(self.type_count, &self.types)?;
        let options = gpuipc::ExportOptions::default();
        Ok(if types.is_empty() {
            options
        } else {
            options.types(&types)
        })
    }
}
