//! Offers: what an exporter holds for one allocation while any of its handles
//! is offered, and the live registry of them.
//!
//! The registry is the only thing that gives a pointer of this process to an
//! importer in this process; the bytes of a handle never do.

use crate::attempt::Attempt;
use crate::broker::Broker;
use crate::driver::{AllocationHandle, Driver};
use crate::identity;
use crate::ledger;
use crate::private_fd::PrivateFd;
use crate::sys::{CuDevicePtr, pointer_attribute};
use gpuipc_core::{DeviceUuid, Token};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

/// One allocation on offer. Dropping the last reference ends the offer: the
/// descriptor is closed, the driver's reference released, the token forgotten.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) driver: Driver,
    /// The driver's BUFFER_ID: never reused within a process.
    pub(crate) allocation_id: u64,
    /// Proves to the broker that the asker holds a handle of this offer.
    pub(crate) token: Token,
    pub(crate) base: CuDevicePtr,
    pub(crate) size: u64,
    pub(crate) device_uuid: DeviceUuid,
    pub(crate) runtime_ipc: Option<[u8; 64]>,
    pub(crate) fabric: Option<[u8; 64]>,
    /// The token in the ledger. Before `fd`, and so taken out before that is closed.
    pub(crate) entry: Option<ledger::Entry>,
    pub(crate) fd: Option<PrivateFd>,
    /// Keeps VMM memory allocated while it is offered, whatever its owner frees.
    pub(crate) reference: Option<AllocationHandle>,
    /// The types that the memory was made for but that could not be exported.
    pub(crate) attempts: Vec<Attempt>,
    /// Answers for the offer as long as it lives.
    pub(crate) broker: Arc<Broker>,
}

impl Offer {
    /// Whether the memory at the offer's address is still the one that was offered.
    pub(crate) fn memory_unchanged(&self) -> crate::driver::Result<bool> {
        match self
            .driver
            .pointer_attribute(pointer_attribute::BUFFER_ID, self.base)
        {
            Ok(id) => Ok(id == self.allocation_id),
            // The driver no longer knows the address: freed.
            Err(error) if error.code() == Some(crate::sys::CuResult::INVALID_VALUE) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Puts the offer into the registry, unless a live one for the same
    /// allocation is already there: then that one is given back, and this is dropped.
    pub(crate) fn register(self) -> Arc<Self> {
        let key = (self.driver.id(), self.allocation_id);
        let mine = Arc::new(self);
        let mut registry = registry();
        let theirs = registry.get(&key).and_then(Weak::upgrade);
        if theirs.is_none() {
            registry.insert(key, Arc::downgrade(&mine));
        }
        // Unlocked before either may be dropped: a drop takes the lock.
        drop(registry);
        theirs.unwrap_or(mine)
    }

    /// The live offer of an allocation, for exporting it again.
    pub(crate) fn of_allocation(driver: Driver, allocation_id: u64) -> Option<Arc<Self>> {
        registry()
            .get(&(driver.id(), allocation_id))
            .and_then(Weak::upgrade)
    }

    /// The live offer of an allocation, for one who holds its token.
    pub(crate) fn under_token(
        driver: Driver,
        allocation_id: u64,
        token: &Token,
    ) -> Option<Arc<Self>> {
        Self::of_allocation(driver, allocation_id).filter(|offer| offer.token.matches(token))
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if identity::is_forked() {
            return;
        }
        let key = (self.driver.id(), self.allocation_id);
        let mut registry = registry();
        // A new offer of the same allocation may have taken the place already.
        if registry
            .get(&key)
            .is_some_and(|entry| core::ptr::eq(entry.as_ptr(), self))
        {
            registry.remove(&key);
        }
    }
}

/// By driver and allocation id.
type Registry = HashMap<(usize, u64), Weak<Offer>>;

fn registry() -> MutexGuard<'static, Registry> {
    static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}
