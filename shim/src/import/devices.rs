//! The devices that get access to imported memory, and which access they and the CPU
//! get.

use crate::error::Error;
use crate::gpu::context;
use crate::gpu::driver::{Driver, DriverError, device_uuid};
use crate::import::range::RangeHandles;
use crate::options::{Access, DeviceId, ImportOptions};
use crate::sys::{self, CuDevice, CuMemAccessDesc, CuMemLocation};
use gpuipc_core::DeviceUuid;

/// The device in this process.
fn find(device: DeviceId, driver: Driver) -> Result<CuDevice, Error> {
    match device {
        DeviceId::Ordinal(ordinal) => Ok(driver.device(ordinal)?),
        DeviceId::Uuid(uuid) => with_uuid(driver, uuid)?.ok_or(Error::DeviceNotVisible(uuid)),
    }
}

/// The GPU with this UUID, if this process sees it.
pub(crate) fn with_uuid(driver: Driver, uuid: DeviceUuid) -> Result<Option<CuDevice>, DriverError> {
    for ordinal in 0..driver.device_count()? {
        let device = driver.device(ordinal)?;
        if device_uuid(driver, device)? == uuid {
            return Ok(Some(device));
        }
    }
    Ok(None)
}

/// Who gets access to imported memory.
#[derive(Clone, Debug)]
pub(crate) struct AccessDevices {
    /// The device that maps.
    pub(crate) first: CuDevice,
    /// Others that get access, without `first`.
    pub(crate) more: Vec<CuDevice>,
    /// Whether the CPU does, too.
    pub(crate) host: bool,
    access: Access,
}

impl AccessDevices {
    /// The options' devices. Without any, the current context's; without a
    /// context the memory's own GPU; and where that is hidden, the first.
    pub(crate) fn of(
        driver: Driver,
        range: &RangeHandles<'_>,
        options: &ImportOptions,
    ) -> Result<Self, Error> {
        let first = match options.device {
            Some(device) => find(device, driver)?,
            None => default_device(driver, range)?,
        };
        let mut more = Vec::new();
        for device in &options.access_devices {
            let device = find(*device, driver)?;
            if device != first && !more.contains(&device) {
                more.push(device);
            }
        }
        Ok(Self {
            first,
            more,
            host: options.host_access,
            access: options.access,
        })
    }

    /// Every device.
    pub(crate) fn devices(&self) -> impl Iterator<Item = CuDevice> + '_ {
        core::iter::once(self.first).chain(self.more.iter().copied())
    }

    /// The first device of which the driver says that it does not reach the memory
    /// of `owner`.
    pub(crate) fn without_way_to(&self, driver: Driver, owner: CuDevice) -> Option<CuDevice> {
        self.devices()
            .filter(|device| *device != owner)
            .find(|device| !driver.can_access_peer(*device, owner).unwrap_or(true))
    }

    /// The rights as `cuMemSetAccess` wants them; `node` is the memory's, if it
    /// is the host's.
    pub(crate) fn rights(&self, node: Option<i16>) -> Vec<CuMemAccessDesc> {
        let flags = match self.access {
            Access::ReadOnly => sys::access::READ,
            Access::ReadWrite => sys::access::READ_WRITE,
        };
        let desc = |kind, id| CuMemAccessDesc {
            location: CuMemLocation { kind, id },
            flags,
        };
        let devices = self
            .devices()
            .map(|device| desc(sys::location::DEVICE, device));
        let host = node
            .filter(|_| self.host)
            .map(|node| desc(sys::location::HOST_NUMA, node.into()));
        devices.chain(host).collect()
    }

    /// Whether they may only read.
    pub(crate) fn are_read_only(&self) -> bool {
        self.access == Access::ReadOnly
    }
}

fn default_device(driver: Driver, range: &RangeHandles<'_>) -> Result<CuDevice, Error> {
    if let Some((_, device)) = context::current(driver)? {
        return Ok(device);
    }
    match with_uuid(driver, range.first().device_uuid())? {
        Some(device) => Ok(device),
        None => Ok(driver.device(0)?),
    }
}
