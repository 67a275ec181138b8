//! How memory is imported.

use super::device::{CDevice, device};
use super::{Growing, types, wrong};
use crate::failure::Failure;
use crate::objects::{Cancel, Reservation};
use crate::values::{self, GPUIPC_ACCESS_READ_WRITE};
use gpuipc::DeviceId;
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
    /// that was exported. Else 0. Matters for `GPUIPC_TYPE_RUNTIME_IPC` only.
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
    /// The device that maps the memory by its UUID (`cuDeviceGetUuid`), the same in all
    /// processes: then `device` is -1. Zeros: `device` says it.
    pub device_uuid: [u8; 16],
    /// 1: the CPU gets access, too. Of host memory only, whose address is then one for
    /// the CPU, too. Else 0, and reading it there crashes the process.
    pub host_access: u32,
    /// How many `access_devices`.
    pub access_device_count: u32,
    /// Further devices that get access (`cuMemSetAccess`), each of which must be a peer of
    /// the memory's GPU. A legacy mapping cannot: it is for one device. Read during the
    /// call only.
    pub access_devices: *const CDevice,
    /// Where to map, instead of at an address that the driver chooses, or NULL. It must
    /// have room for the sum of the handles' `base_size` from `place_offset` on. Only
    /// descriptors and fabric handles can, and memory of a pool cannot. The mapping
    /// keeps the addresses; the object may be freed.
    pub place: *const Reservation,
    /// Bytes from the base of `place`, a multiple of the granularity; without `place` 0.
    pub place_offset: usize,
}

const _: () = assert!(
    size_of::<ImportOptions>() == 88 && align_of::<ImportOptions>() == 8,
    "C callers were compiled with this size"
);
const _: () = assert!(
    offset_of!(ImportOptions, device) == 8
        && offset_of!(ImportOptions, access) == 12
        && offset_of!(ImportOptions, require_live) == 16
        && offset_of!(ImportOptions, timeout_ms) == 20
        && offset_of!(ImportOptions, type_count) == 24
        && offset_of!(ImportOptions, types) == 25
        && offset_of!(ImportOptions, cancel) == 32
        && offset_of!(ImportOptions, device_uuid) == 40
        && offset_of!(ImportOptions, host_access) == 56
        && offset_of!(ImportOptions, access_device_count) == 60
        && offset_of!(ImportOptions, access_devices) == 64
        && offset_of!(ImportOptions, place) == 72
        && offset_of!(ImportOptions, place_offset) == 80,
    "C callers were compiled with these places, which leave no padding"
);

// SAFETY: repr(C), the size first, no padding by the assertions above; numbers
// and pointers take any bytes.
unsafe impl Growing for ImportOptions {
    const NAME: &'static str = "gpuipc_import_options";
    // The first one ended before `cancel`, the second one before `device_uuid`.
    const PUBLISHED: &'static [usize] = &[32, 40, 88];

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
            device_uuid: [0; 16],
            host_access: 0,
            access_device_count: 0,
            access_devices: core::ptr::null(),
            place: core::ptr::null(),
            place_offset: 0,
        }
    }
}

impl ImportOptions {
    /// The library's options, if every field has a value that it can have, with
    /// what the pointers lead to.
    pub(crate) fn check(
        &self,
        cancel: Option<&Cancel>,
        place: Option<&Reservation>,
        more: &[CDevice],
    ) -> Result<gpuipc::ImportOptions, Failure> {
        let mut options = gpuipc::ImportOptions::default();
        if let Some(device) = device("device", self.device, self.device_uuid)? {
            options = options.device(device);
        }
        if !more.is_empty() {
            let more: Result<Vec<DeviceId>, Failure> = more.iter().map(CDevice::check).collect();
            options = options.access_devices(&more?);
        }
        match self.host_access {
            0 => {}
            1 => options = options.host_access(true),
            other => return Err(wrong("host_access", other, "it is 0 or 1")),
        }
        match place {
            Some(place) => options = options.place(&place.reservation, self.place_offset),
            None if self.place_offset == 0 => {}
            None => {
                return Err(wrong(
                    "place_offset",
                    self.place_offset,
                    "without place it is 0",
                ));
            }
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
