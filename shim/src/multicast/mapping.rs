//! The mapping of a multicast object. The driver maps only whole objects.

#![allow(unsafe_code)]

use super::member::{Member, Object};
use super::{Stage, Unavailable};
use crate::gpu::driver::{Driver, Result};
use crate::gpu::undo;
use crate::process::identity;
use crate::sys::{self, CuDevicePtr, CuMemAccessDesc, CuMemLocation};

/// Addresses at a multiple of the object's granularity, as CUDA asks for:
/// `cuMemAddressReserve`, `cuMemAddressFree` on drop.
#[derive(Debug)]
struct Reservation {
    driver: Driver,
    base: CuDevicePtr,
    size: usize,
    undone: bool,
}

impl Reservation {
    fn undo(&mut self) -> Result<()> {
        if core::mem::replace(&mut self.undone, true) || identity::is_forked() {
            return Ok(());
        }
        // SAFETY: reserved by this object; its mapping was undone before.
        unsafe { self.driver.mem_address_free(self.base, self.size) }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        undo::report("cuMemAddressFree", self.undo());
    }
}

/// An object mapped for its member's device: `cuMemMap`, `cuMemUnmap` on drop.
#[derive(Debug)]
pub(super) struct ObjectMapping {
    /// Freed after the unmap.
    reservation: Reservation,
    undone: bool,
}

impl ObjectMapping {
    /// Waits for nobody, since all members were added.
    pub(super) fn new(member: &Member) -> core::result::Result<Self, Unavailable> {
        let Object { driver, handle, .. } = &member.object;
        // Both fit: the handle's size was checked at import, and the object is no
        // smaller than its granularity.
        let [size, unit] = [member.object.size, member.object.unit]
            .map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        let base = driver
            .mem_address_reserve(size, unit)
            .map_err(Unavailable::at(Stage::Reserve))?;
        let reservation = Reservation {
            driver: *driver,
            base,
            size,
            undone: false,
        };
        // SAFETY: the handle is a reference that lives, the place a reservation of this
        // very size.
        unsafe { driver.mem_map(base, size, handle.raw()) }.map_err(Unavailable::at(Stage::Map))?;
        let mapping = Self {
            reservation,
            undone: false,
        };
        let access = CuMemAccessDesc {
            location: CuMemLocation {
                kind: sys::location::DEVICE,
                id: member.device,
            },
            flags: sys::access::READ_WRITE,
        };
        // SAFETY: mapped above; nobody has rights yet.
        unsafe { driver.mem_set_access(base, size, &[access]) }
            .map_err(Unavailable::at(Stage::SetAccess))?;
        Ok(mapping)
    }

    /// The first byte of the object.
    pub(super) const fn base(&self) -> CuDevicePtr {
        self.reservation.base
    }

    /// Unmaps and frees the addresses, once; the second also where the first fails.
    pub(super) fn undo(&mut self) -> core::result::Result<(), Unavailable> {
        let unmapped = self
            .unmap()
            .map_err(|error| Unavailable::driver(Stage::Unmap, &error));
        let freed = self.reservation.undo();
        unmapped.and(freed.map_err(|error| Unavailable::driver(Stage::Unmap, &error)))
    }

    fn unmap(&mut self) -> Result<()> {
        if core::mem::replace(&mut self.undone, true) || identity::is_forked() {
            return Ok(());
        }
        let Reservation {
            driver, base, size, ..
        } = self.reservation;
        // SAFETY: mapped by this object, whose users are gone.
        unsafe { driver.mem_unmap(base, size) }
    }
}

impl Drop for ObjectMapping {
    fn drop(&mut self) {
        undo::report("cuMemUnmap", self.unmap());
    }
}
