//! How memory is imported.

use super::{Growing, types, wrong};
use crate::failure::Failure;
use crate::objects::Cancel;
use crate::values::{self, GPUIPC_ACCESS_READ_WRITE};
use std::mem::offset_of;
use std::time::Duration;

/// How memory is imported. Filled by `gpuipc_import_options_init`; then change
/// what is to be different.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ImportOptions {
    /// `sizeof(gpuipc_import_options)` of the header that the caller was compiled with.
    pub struct_size: usize,
    /// The device that maps the memory, by this process's ordinal. -1: the
    /// current context's; without a context the memory's own GPU if it is
    /// visible here, else device 0.
    pub device: i32,
    /// `GPUIPC_ACCESS_READ_WRITE` or `GPUIPC_ACCESS_READ_ONLY`.
    pub access: u32,
    /// 1: refuse a mapping of which nobody could say that it is still the memory
    /// that was offered. Else 0. Matters for `GPUIPC_TYPE_RUNTIME_IPC` only.
    pub require_live: u32,
    /// How long the import may wait for the exporter, over all types, in
    /// milliseconds. 0: `GPUIPC_TIMEOUT_MS`, else 5000. Driver calls cannot be
    /// interrupted and do not count.
    pub timeout_ms: u32,
    /// How many of `types` are given. 0: `GPUIPC_TYPES`, else descriptor,
    /// fabric, legacy.
    pub type_count: u8,
    /// The types that may be tried (`GPUIPC_TYPE_RUNTIME_IPC`, `_POSIX_FD`,
    /// `_FABRIC`), in order, each at most once; 0 from `type_count` on.
    pub types: [u8; 7],
    /// What another thread may end this import's waiting with, or NULL.
    pub cancel: *const Cancel,
}

const _: () = assert!(
    size_of::<ImportOptions>() == 40 && align_of::<ImportOptions>() == 8,
    "C callers were compiled with this size"
);
const _: () = assert!(
    offset_of!(ImportOptions, device) == 8
        && offset_of!(ImportOptions, access) == 12
        && offset_of!(ImportOptions, require_live) == 16
        && offset_of!(ImportOptions, timeout_ms) == 20
        && offset_of!(ImportOptions, type_count) == 24
        && offset_of!(ImportOptions, types) == 25
        && offset_of!(ImportOptions, cancel) == 32,
    "C callers were compiled with these places, which leave no padding"
);

// SAFETY: repr(C), the size first, no padding by the assertions above; numbers
// and a pointer take any bytes.
unsafe impl Growing for ImportOptions {
    const NAME: &'static str = "gpuipc_import_options";
    // The first one ended before `cancel`.
    const PUBLISHED: &'static [usize] = &[32, 40];

    fn defaults() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            device: -1,
            access: GPUIPC_ACCESS_READ_WRITE,
            require_live: 0,
            timeout_ms: 0,
            type_count: 0,
            types: [0; 7],
            cancel: core::ptr::null(),
        }
    }
}

impl ImportOptions {
    /// The library's options, if every field has a value that it can have, with
    /// what the pointer leads to.
    pub(crate) fn check(&self, cancel: Option<&Cancel>) -> Result<gpuipc::ImportOptions, Failure> {
        let mut options = gpuipc::ImportOptions::default();
        match self.device {
            -1 => {}
            0.. => options = options.device(self.device),
            _ => return Err(wrong("device", self.device, "it is an ordinal, or -1")),
        }
        let access = values::access(self.access).ok_or_else(|| {
            wrong(
                "access",
                self.access,
                "it is 0 (read and write) or 1 (read only)",
            )
        })?;
        options = options.access(access);
        match self.require_live {
            0 => {}
            1 => options = options.require_live(true),
            other => return Err(wrong("require_live", other, "it is 0 or 1")),
        }
        if self.timeout_ms != 0 {
            options = options.timeout(Duration::from_millis(self.timeout_ms.into()));
        }
        let types = types(self.type_count, &self.types)?;
        if !types.is_empty() {
            options = options.types(&types);
        }
        if let Some(cancel) = cancel {
            options = options.cancel(cancel.flag());
        }
        Ok(options)
    }
}
