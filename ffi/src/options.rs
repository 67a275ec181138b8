//! How memory is imported, as C says it.

use crate::failure::Failure;
use crate::values::{self, GPUIPC_ACCESS_READ_WRITE};
use gpuipc::HandleType;
use std::mem::offset_of;
use std::time::Duration;

/// How memory is imported. Filled by `gpuipc_import_options_init`; then change
/// what is to be different.
///
/// It may grow at its end. The library takes the size of every header that was
/// published up to its own version, and gives fields that an older header does
/// not have their defaults.
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
}

/// The size of the first published header.
const FIRST_SIZE: usize = 32;

const _: () = assert!(
    size_of::<ImportOptions>() == FIRST_SIZE && align_of::<ImportOptions>() == 8,
    "C callers were compiled with this size"
);
const _: () = assert!(
    offset_of!(ImportOptions, device) == 8
        && offset_of!(ImportOptions, access) == 12
        && offset_of!(ImportOptions, require_live) == 16
        && offset_of!(ImportOptions, timeout_ms) == 20
        && offset_of!(ImportOptions, type_count) == 24
        && offset_of!(ImportOptions, types) == 25,
    "C callers were compiled with these places, which leave no padding"
);

/// The default, for a caller with options of this size.
pub(crate) fn defaults(struct_size: usize) -> Result<ImportOptions, Failure> {
    check_size(struct_size)?;
    Ok(ImportOptions {
        struct_size,
        device: -1,
        access: GPUIPC_ACCESS_READ_WRITE,
        require_live: 0,
        timeout_ms: 0,
        type_count: 0,
        types: [0; 7],
    })
}

fn check_size(struct_size: usize) -> Result<(), Failure> {
    if struct_size == FIRST_SIZE {
        Ok(())
    } else {
        Err(Failure::argument(format!(
            "struct_size of the options is {struct_size}, this library knows {FIRST_SIZE}: \
             set them up with gpuipc_import_options_init, with the header of this library or an older one"
        )))
    }
}

impl ImportOptions {
    /// The library's options, if every field has a value that it can have.
    pub(crate) fn check(&self) -> Result<gpuipc::ImportOptions, Failure> {
        check_size(self.struct_size)?;
        let wrong = |field: &str, value: i64, rule: &str| {
            Failure::argument(format!("{field} of the options is {value}, but {rule}"))
        };
        let mut options = gpuipc::ImportOptions::default();
        match self.device {
            -1 => {}
            0.. => options = options.device(self.device),
            _ => {
                return Err(wrong(
                    "device",
                    self.device.into(),
                    "it is an ordinal, or -1",
                ));
            }
        }
        let access = values::access(self.access).ok_or_else(|| {
            wrong(
                "access",
                self.access.into(),
                "it is 0 (read and write) or 1 (read only)",
            )
        })?;
        options = options.access(access);
        match self.require_live {
            0 => {}
            1 => options = options.require_live(true),
            other => return Err(wrong("require_live", other.into(), "it is 0 or 1")),
        }
        if self.timeout_ms != 0 {
            options = options.timeout(Duration::from_millis(self.timeout_ms.into()));
        }
        let types = self.checked_types()?;
        if !types.is_empty() {
            options = options.types(&types);
        }
        Ok(options)
    }

    fn checked_types(&self) -> Result<Vec<HandleType>, Failure> {
        let count = usize::from(self.type_count);
        let Some((given, unused)) = self.types.split_at_checked(count) else {
            return Err(Failure::argument(format!(
                "type_count of the options is {count}, but there is room for {}",
                self.types.len()
            )));
        };
        let mut types = Vec::with_capacity(count);
        for number in given {
            match values::handle_type(*number) {
                Some(handle_type) if !types.contains(&handle_type) => types.push(handle_type),
                Some(handle_type) => {
                    return Err(Failure::argument(format!(
                        "types of the options has {handle_type} twice"
                    )));
                }
                None => {
                    return Err(Failure::argument(format!(
                        "types of the options has {number}, but a type is 1 (RuntimeIpc), 2 (PosixFd) or 4 (Fabric)"
                    )));
                }
            }
        }
        if unused.iter().any(|number| *number != 0) {
            return Err(Failure::argument(format!(
                "types of the options goes on after type_count, which is {count}: it must be 0 there"
            )));
        }
        Ok(types)
    }
}
