//! Multicast objects, and whether this driver is a real one.
//!
//! None of these calls ever ran on a real driver: what they give is by CUDA's
//! documentation. So they are the crate's own, behind [`crate::multicast`], which
//! asks first.

#![allow(unsafe_code)]

use super::{AllocationHandle, Driver, DriverCause, DriverError, Result, Timer, call};
use crate::sys::{self, CuDevice, CuDevicePtr, CuMulticastObjectProp, CuResult};

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
    pub(crate) fn multicast_granularity(
        self,
        prop: &CuMulticastObjectProp,
        option: u32,
    ) -> Result<usize> {
        let mut bytes = 0;
        call!(self, multicast_get_granularity(&mut bytes, prop, option))?;
        Ok(bytes)
    }

    /// `cuMulticastCreate`: an object without members.
    pub(crate) fn multicast_create(self, prop: &CuMulticastObjectProp) -> Result<AllocationHandle> {
        let mut handle = 0;
        call!(self, multicast_create(&mut handle, prop))?;
        Ok(AllocationHandle {
            driver: self,
            raw: handle,
        })
    }

    /// `cuMulticastAddDevice`: for as long as the object lives.
    pub(crate) fn multicast_add_device(
        self,
        object: &AllocationHandle,
        device: CuDevice,
    ) -> Result<()> {
        call!(self, multicast_add_device(object.raw, device))
    }

    /// `cuMemAddressReserve` at a multiple of `alignment`, a power of two.
    pub(crate) fn mem_address_reserve_aligned(
        self,
        size: usize,
        alignment: usize,
    ) -> Result<CuDevicePtr> {
        let mut ptr = 0;
        call!(self, mem_address_reserve(&mut ptr, size, alignment, 0, 0))?;
        Ok(ptr)
    }

    /// `cuMulticastBindMem`. **Waits until every member was added**, for ever if
    /// one never is.
    pub(crate) fn multicast_bind_mem(
        self,
        object: &AllocationHandle,
        offset: usize,
        memory: &AllocationHandle,
        memory_offset: usize,
        size: usize,
    ) -> Result<()> {
        call!(
            self,
            multicast_bind_mem(object.raw, offset, memory.raw, memory_offset, size, 0)
        )
    }

    /// `cuMulticastUnbind`: what `device` has bound at exactly this place. With
    /// another device it takes another member's memory away.
    pub(crate) fn multicast_unbind(
        self,
        object: &AllocationHandle,
        device: CuDevice,
        offset: usize,
        size: usize,
    ) -> Result<()> {
        call!(self, multicast_unbind(object.raw, device, offset, size))
    }
}
