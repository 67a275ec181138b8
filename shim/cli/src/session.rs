//! A driver with one of its GPUs, ready to share and to copy.

use crate::driver::{Choice, Opened, open};
use crate::output::Failure;
use gpuipc::{Buffer, DeviceId, GpuIpcMemHandle, Ipc, Memory};

/// A driver in use on one GPU.
pub(crate) struct Session {
    pub(crate) opened: Opened,
    pub(crate) ipc: Ipc,
    pub(crate) device: i32,
    /// Keeps the GPU's primary context in use. Making one takes longer than any
    /// import, and imported memory keeps none before its first copy: without
    /// this the time of the first import would be that of the context.
    _context: Buffer,
}

impl Session {
    /// Opens the driver and takes this GPU.
    pub(crate) fn on_device(
        choice: Choice,
        option: &str,
        device: impl Into<DeviceId>,
    ) -> Result<Self, Failure> {
        let opened = open(choice)?;
        let device = opened.device(option, device.into())?;
        Self::new(opened, device)
    }

    /// Opens the driver and takes this GPU, by default the one that holds the
    /// handle's memory if it is visible here, else the first.
    pub(crate) fn for_handle(
        choice: Choice,
        device: Option<DeviceId>,
        handle: &GpuIpcMemHandle,
    ) -> Result<Self, Failure> {
        let opened = open(choice)?;
        let device = match device {
            Some(device) => opened.device("--device", device)?,
            None => {
                let holds = |device: &i32| {
                    gpuipc::device_uuid(opened.driver, *device).ok() == Some(handle.device_uuid())
                };
                let count = opened.driver.device_count()?;
                (0..count).find(holds).unwrap_or(0)
            }
        };
        Self::new(opened, device)
    }

    fn new(opened: Opened, device: i32) -> Result<Self, Failure> {
        let ipc = Ipc::new(opened.driver)?;
        let context = Buffer::new(opened.driver, device, Memory::CudaMalloc, 1)
            .map_err(|error| Failure::text(format!("GPU {device} cannot be used: {error}")))?;
        Ok(Self {
            opened,
            ipc,
            device,
            _context: context,
        })
    }
}
