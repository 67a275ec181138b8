//! How memory is exported.

use super::{Growing, types, wrong};
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
    /// The types that may be exported (`GPUIPC_TYPE_RUNTIME_IPC`, `_POSIX_FD`,
    /// `_FABRIC`), each at most once; 0 from `type_count` on. Others are not made
    /// at all: without `GPUIPC_TYPE_POSIX_FD` there is no descriptor that anyone
    /// could ask for.
    pub types: [u8; 7],
    /// 1: make no file descriptor at the export, but one for each importer when it asks.
    /// Saves a call of the driver and a place in the process's table where perhaps
    /// nobody imports; costs the importer that call, and the way without the broker
    /// (`pidfd_getfd`), for which a descriptor must be open. Else 0: a process keeps
    /// descriptors open for its exports up to a quarter of its limit of open files, at
    /// most 256, and makes the others on demand. Memory that is exported already stays
    /// as it is.
    pub fd_on_demand: u32,
    /// 0.
    pub reserved: u32,
}

const _: () = assert!(
    size_of::<ExportOptions>() == 24
        && offset_of!(ExportOptions, type_count) == 8
        && offset_of!(ExportOptions, types) == 9
        && offset_of!(ExportOptions, fd_on_demand) == 16,
    "C callers were compiled with these places, which leave no padding"
);

// SAFETY: repr(C), the size first, no padding by the assertion above; numbers
// take any bytes.
unsafe impl Growing for ExportOptions {
    const NAME: &'static str = "gpuipc_export_options";
    // The first one ended before `fd_on_demand`.
    const PUBLISHED: &'static [usize] = &[16, 24];

    fn defaults() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            type_count: 0,
            types: [0; 7],
            fd_on_demand: 0,
            reserved: 0,
        }
    }
}

impl ExportOptions {
    /// The library's options.
    pub(crate) fn check(&self) -> Result<gpuipc::ExportOptions, Failure> {
        let types = types(self.type_count, &self.types)?;
        let mut options = gpuipc::ExportOptions::default();
        match self.fd_on_demand {
            0 => {}
            1 => options = options.fd_on_demand(true),
            other => return Err(wrong("fd_on_demand", other, "it is 0 or 1")),
        }
        if self.reserved != 0 {
            return Err(wrong("reserved", self.reserved, "it is 0"));
        }
        Ok(if types.is_empty() {
            options
        } else {
            options.types(&types)
        })
    }
}
