//! A device, as C names it.

use super::wrong;
use crate::failure::Failure;
use gpuipc::{DeviceId, DeviceUuid};
use std::mem::offset_of;

/// A device, by its place in this process's order or by its UUID. Of 24 bytes for
/// ever.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CDevice {
    /// This process's ordinal, from 0; -1: by its UUID.
    pub ordinal: i32,
    /// 0.
    pub reserved: u32,
    /// With `ordinal` -1 the UUID (`cuDeviceGetUuid`), the same in all processes;
    /// else zeros.
    pub uuid: [u8; 16],
}

const _: () = assert!(
    size_of::<CDevice>() == 24 && offset_of!(CDevice, uuid) == 8,
    "C callers were compiled with these places, which leave no padding"
);

impl CDevice {
    pub(crate) fn check(&self) -> Result<DeviceId, Failure> {
        if self.reserved != 0 {
            return Err(wrong("reserved", self.reserved, "it is 0"));
        }
        device("access_devices", self.ordinal, self.uuid)?.ok_or_else(|| {
            wrong(
                "access_devices",
                "neither ordinal nor UUID",
                "each names a device",
            )
        })
    }
}

/// The device with this ordinal, or with this UUID; `None` for -1 and zeros.
pub(super) fn device(
    field: &str,
    ordinal: i32,
    uuid: [u8; 16],
) -> Result<Option<DeviceId>, Failure> {
    let uuid = DeviceUuid(uuid);
    match ordinal {
        -1 if uuid.is_zero() => Ok(None),
        -1 => Ok(Some(DeviceId::Uuid(uuid))),
        0.. if uuid.is_zero() => Ok(Some(DeviceId::Ordinal(ordinal))),
        0.. => Err(wrong(
            field,
            ordinal,
            "with a UUID it is -1: one of the two names the device",
        )),
        _ => Err(wrong(field, ordinal, "it is an ordinal, or -1")),
    }
}
