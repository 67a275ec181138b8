//! What a member holds of a multicast object. It is undone in the one order that the
//! driver allows, in whatever order the application drops its parts.

#![allow(unsafe_code)]

use super::ranges::Ranges;
use super::{Reason, Stage, Unavailable};
use crate::error::Error;
use crate::gpu::driver::{AllocationHandle, Driver, Result};
use crate::gpu::undo;
use crate::process::identity;
use crate::sys::{CuDevice, CuDevicePtr, CuResult, pointer_attribute};
use std::sync::{Arc, Mutex, PoisonError};

/// A reference to an object.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) driver: Driver,
    pub(super) handle: AllocationHandle,
    /// Bytes that each member can bind.
    pub(super) size: u64,
    /// The least granularity.
    pub(super) unit: u64,
    pub(super) num_devices: u16,
    /// The creator and its number of the object.
    pub(super) identity: ([u8; 16], u64),
}

/// An object and the device that was added to it here.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) object: Object,
    pub(super) device: CuDevice,
}

/// Memory that is to be bound, with a reference that keeps it.
#[derive(Debug)]
pub(super) struct Memory {
    handle: AllocationHandle,
    offset: u64,
    pub(super) size: u64,
}

impl Memory {
    /// The allocation around `ptr`, if `len` bytes of it can be bound: the
    /// driver's rules, asked of the pointer before any call that binds.
    ///
    /// # Safety
    /// As for [`Ipc::export`](crate::Ipc::export).
    pub(super) unsafe fn at(
        member: &Member,
        ptr: CuDevicePtr,
        len: usize,
    ) -> core::result::Result<Self, Error> {
        let driver = member.object.driver;
        let not_bindable = || Unavailable::refused(Stage::Layout, Reason::NotBindable);
        let attribute = |attribute| driver.pointer_attribute(attribute, ptr);
        // SAFETY: as the caller says.
        let handle = unsafe { AllocationHandle::retain(driver, ptr) }.map_err(|error| {
            if error.code() == Some(CuResult::INVALID_VALUE) {
                not_bindable()
            } else {
                Unavailable::driver(Stage::Layout, &error)
            }
        })?;
        let asked = || -> Result<(u64, u64, u64)> {
            Ok((
                attribute(pointer_attribute::MAPPING_BASE_ADDR)?,
                attribute(pointer_attribute::MAPPING_SIZE)?,
                attribute(pointer_attribute::DEVICE_ORDINAL)?,
            ))
        };
        let (base, mapped, device) = asked().map_err(Unavailable::at(Stage::Layout))?;
        let (offset, size, unit) = (ptr.wrapping_sub(base), len as u64, member.object.unit);
        if i32::try_from(device) != Ok(member.device) {
            return Err(not_bindable().into());
        }
        let wrong = |name, value, rule, number| Error::Number {
            name,
            value,
            rule,
            number,
        };
        if size == 0 || !size.is_multiple_of(unit) {
            let rule = "it is a multiple of the multicast granularity, which is";
            return Err(wrong("len", size, rule, unit));
        }
        if !offset.is_multiple_of(unit) {
            let rule =
                "its offset in the allocation is a multiple of the multicast granularity, which is";
            return Err(wrong("ptr", ptr, rule, unit));
        }
        let left = mapped.saturating_sub(offset);
        if size > left {
            let rule = "the bytes that the allocation has from ptr on are";
            return Err(wrong("len", size, rule, left));
        }
        Ok(Self {
            handle,
            offset,
            size,
        })
    }
}

/// Bound memory: `cuMulticastBindMem`, `cuMulticastUnbind` on the device that
/// was added on drop. The fields go in their order after that: the memory, then
/// the object.
#[derive(Debug)]
pub(super) struct Binding {
    memory: Memory,
    member: Arc<Member>,
    offset: u64,
    /// Who gets the range back once it is free.
    ranges: Option<Arc<Mutex<Ranges>>>,
    undone: bool,
}

impl Binding {
    /// Binds at `offset` of the object.
    pub(super) fn new(
        member: &Arc<Member>,
        memory: Memory,
        offset: u64,
        ranges: Option<Arc<Mutex<Ranges>>>,
    ) -> core::result::Result<Self, Unavailable> {
        let Object { driver, handle, .. } = &member.object;
        // All fit: the object's size, which is a usize, is the largest of them.
        let [at, from, bytes] = [offset, memory.offset, memory.size]
            .map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        let (object, allocation) = (handle.raw(), memory.handle.raw());
        // SAFETY: both references live.
        unsafe { driver.multicast_bind_mem(object, at, allocation, from, bytes) }
            .map_err(Unavailable::at(Stage::Bind))?;
        Ok(Self {
            memory,
            member: Arc::clone(member),
            offset,
            ranges,
            undone: false,
        })
    }

    /// Where it begins in the object.
    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes.
    pub(super) const fn size(&self) -> u64 {
        self.memory.size
    }

    /// Unbinds, once. A range that could not be unbound is never given out again.
    pub(super) fn undo(&mut self) -> Result<()> {
        if self.undone || identity::is_forked() {
            return Ok(());
        }
        self.undone = true;
        let Member { object, device } = &*self.member;
        let [at, bytes] = [self.offset, self.memory.size]
            .map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        let (driver, handle) = (object.driver, object.handle.raw());
        // SAFETY: bound by this object at this very place; the reference lives.
        let unbound = unsafe { driver.multicast_unbind(handle, *device, at, bytes) };
        if unbound.is_ok()
            && let Some(ranges) = &self.ranges
        {
            let mut ranges = ranges.lock().unwrap_or_else(PoisonError::into_inner);
            ranges.give(self.offset);
        }
        unbound
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        undo::report("cuMulticastUnbind", self.undo());
    }
}
