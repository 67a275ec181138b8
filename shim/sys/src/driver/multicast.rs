//! Multicast objects, and whether this driver is a real one.
//!
//! None of these calls ever ran on a real driver: what they give is by CUDA's
//! documentation.

#![allow(unsafe_code)]

use super::{Driver, DriverCause, DriverError, Result, Timer, call};
use crate::{self as sys, CuDevice, CuMemHandle, CuMulticastObjectProp, CuResult};

impl Driver {
    /// Whether this is gpuipc's emulated driver, in this process or loaded by
    /// path. Any other one counts as real: only the emulated driver has the call
    /// `gpuipcEmulatedDriver`, and a wrapper in front of a table passes it on.
    #[must_use]
    pub fn is_emulated(self) -> bool {
        let mut version = 0;
        call!(self, emulated_driver(&mut version)).is_ok()
            && version == sys::EMULATED_DRIVER_VERSION
    }

    /// `cuMulticastGetGranularity`: one of [`sys::multicast_granularity`].
    ///
    /// # Errors
    /// The driver's code.
    pub fn multicast_granularity(self, prop: &CuMulticastObjectProp, option: u32) -> Result<usize> {
        let mut bytes = 0;
        call!(self, multicast_get_granularity(&mut bytes, prop, option))?;
        Ok(bytes)
    }

    /// `cuMulticastCreate`: an object without members.
    ///
    /// # Errors
    /// The driver's code.
    pub fn multicast_create(self, prop: &CuMulticastObjectProp) -> Result<CuMemHandle> {
        let mut handle = 0;
        call!(self, multicast_create(&mut handle, prop))?;
        Ok(handle)
    }

    /// `cuMulticastAddDevice`: for as long as the object lives.
    ///
    /// # Safety
    /// Each handle is a reference that a call of this driver gave, and that was not released.
    ///
    /// # Errors
    /// The driver's code.
    pub unsafe fn multicast_add_device(self, object: CuMemHandle, device: CuDevice) -> Result<()> {
        call!(self, multicast_add_device(object, device))
    }

    /// `cuMulticastBindMem`. **Waits until every member was added**, for ever if
    /// one never is.
    ///
    /// # Safety
    /// Each handle is a reference that a call of this driver gave, and that was not released.
    ///
    /// # Errors
    /// The driver's code.
    pub unsafe fn multicast_bind_mem(
        self,
        object: CuMemHandle,
        offset: usize,
        memory: CuMemHandle,
        memory_offset: usize,
        size: usize,
    ) -> Result<()> {
        call!(
            self,
            multicast_bind_mem(object, offset, memory, memory_offset, size, 0)
        )
    }

    /// `cuMulticastUnbind`: what `device` has bound at exactly this place. With
    /// another device it takes another member's memory away.
    ///
    /// # Safety
    /// Each handle is a reference that a call of this driver gave, and that was not released.
    /// Nobody uses the bound memory through the object any more.
    ///
    /// # Errors
    /// The driver's code.
    pub unsafe fn multicast_unbind(
        self,
        object: CuMemHandle,
        device: CuDevice,
        offset: usize,
        size: usize,
    ) -> Result<()> {
        call!(self, multicast_unbind(object, device, offset, size))
    }
}
