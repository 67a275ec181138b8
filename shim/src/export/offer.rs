//! Offers: what an exporter holds for one allocation while any of its handles
//! is offered, and the live registry of them.
//!
//! The registry is the only thing that gives a pointer of this process to an
//! importer in this process; the bytes of a handle never do.

use crate::attempt::Attempt;
use crate::broker::Broker;
use crate::driver::{AllocationHandle, Driver};
use crate::error::Error;
use crate::export::allocation;
use crate::export::descriptor::{Descriptor, Given};
use crate::export::ledger;
use crate::identity::{self, Identity};
use crate::sys::CuDevicePtr;
use core::fmt;
use gpuipc_core::{DeviceUuid, Endpoint, HandleFields, Ticket, Token, TypeFlags};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

/// An export's part in an offer. The offer ends with the last one's drop: nobody
/// finds it by its token from then on, even while the broker's thread, in the
/// middle of an answer, still holds it.
#[derive(Debug)]
pub(crate) struct Kept(Arc<Offer>);

impl core::ops::Deref for Kept {
    type Target = Offer;

    fn deref(&self) -> &Offer {
        &self.0
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // In a forked child the registry may be locked for ever.
        if identity::is_forked() {
            return;
        }
        let key = self.0.key();
        let mut registry = registry();
        if let Some(offers) = registry.get_mut(&key) {
            // A new offer of the same allocation may be there already.
            let mine = |entry: &Entry| core::ptr::eq(entry.offer.as_ptr(), &*self.0);
            if let Some(at) = offers.iter().position(mine) {
                offers[at].exports -= 1;
                if offers[at].exports == 0 {
                    offers.swap_remove(at);
                }
            }
            if offers.is_empty() {
                registry.remove(&key);
            }
        }
    }
}

/// One allocation on offer. Dropping the last reference closes the descriptor and
/// releases the driver's reference.
pub(crate) struct Offer {
    pub(crate) driver: Driver,
    /// The types that were asked for; no other one was made.
    pub(crate) types: TypeFlags,
    /// The driver's BUFFER_ID: never reused within a process.
    pub(crate) allocation_id: u64,
    /// Proves to the broker that the asker holds a handle of this offer.
    pub(crate) token: Token,
    pub(crate) base: CuDevicePtr,
    pub(crate) size: u64,
    /// The GPU that holds the memory; zero for host memory.
    pub(crate) device_uuid: DeviceUuid,
    /// The node of host memory.
    pub(crate) numa_node: Option<i16>,
    pub(crate) runtime_ipc: Option<[u8; 64]>,
    /// Of a pool's memory: what `cuMemPoolImportPointer` wants.
    pub(crate) pool_pointer: Option<[u8; 64]>,
    /// A pool's for its memory.
    pub(crate) fabric: Option<[u8; 64]>,
    /// The token in the ledger. Before `descriptor`, and so taken out before that is closed.
    pub(crate) entry: Option<ledger::Entry>,
    pub(crate) descriptor: Descriptor,
    /// Keeps VMM memory allocated while it is offered, whatever its owner frees.
    pub(crate) reference: Option<AllocationHandle>,
    /// The types that the memory was made for but that could not be exported.
    pub(crate) attempts: Vec<Attempt>,
    /// Answers for the offer as long as it lives.
    pub(crate) broker: Arc<Broker>,
}

impl Offer {
    /// An offer by which nothing can be had yet.
    pub(crate) fn new(
        driver: Driver,
        broker: Arc<Broker>,
        types: TypeFlags,
        allocation_id: u64,
        base: CuDevicePtr,
        size: u64,
    ) -> Result<Self, Error> {
        Ok(Self {
            driver,
            types,
            allocation_id,
            token: identity::random_token()?,
            base,
            size,
            device_uuid: DeviceUuid::default(),
            numa_node: None,
            runtime_ipc: None,
            pool_pointer: None,
            fabric: None,
            entry: None,
            descriptor: Descriptor::None,
            reference: None,
            attempts: Vec::new(),
            broker,
        })
    }

    /// What every handle of it says; which part of the allocation it means is
    /// still to be said.
    pub(crate) fn fields(&self, exporter: &Identity) -> HandleFields {
        HandleFields {
            base_size: self.size,
            allocation_id: self.allocation_id,
            device_uuid: self.device_uuid,
            numa_node: self.numa_node,
            process_id: exporter.process,
            host_id: exporter.host,
            pid: exporter.pid,
            pid_namespace: exporter.pid_namespace,
            net_namespace: exporter.net_namespace,
            runtime_ipc: self.runtime_ipc,
            pool_pointer: self.pool_pointer,
            pool_id: self.pool_id(),
            ticket: Some(Ticket {
                endpoint: self.broker.endpoint(),
                token: self.token,
                fd: self.descriptor.number(),
                ledger: self.entry.as_ref().map(ledger::Entry::describe),
            }),
            posix_fd: self.descriptor.is_there(),
            fabric: self.fabric,
            ..HandleFields::default()
        }
    }

    /// Whether the memory at the offer's address is still the one that was offered.
    pub(crate) fn memory_unchanged(&self) -> crate::driver::Result<bool> {
        // Without an id the driver no longer knows the address: freed.
        Ok(allocation::id_at(self.driver, self.base)? == Some(self.allocation_id))
    }

    /// A descriptor of the memory for an importer, if there is one.
    pub(crate) fn give_descriptor(&self) -> crate::driver::Result<Option<Given<'_>>> {
        self.descriptor.give(self.driver, self.reference.as_ref())
    }

    /// The types that were made.
    pub(crate) fn types_made(&self) -> TypeFlags {
        let mut types = TypeFlags::empty();
        types.set(TypeFlags::RUNTIME_IPC, self.runtime_ipc.is_some());
        types.set(TypeFlags::POSIX_FD, self.descriptor.is_there());
        types.set(TypeFlags::FABRIC, self.fabric.is_some());
        types
    }

    /// The number of the pool that the memory is from; 0 for other memory.
    pub(crate) fn pool_id(&self) -> u64 {
        match &self.descriptor {
            Descriptor::Pool(pool) => pool.id,
            _ => 0,
        }
    }

    /// Puts the offer into the registry, unless a live one for the same
    /// allocation and types is already there: then that one is given back, and
    /// this is dropped.
    pub(crate) fn register(self) -> Kept {
        let (key, types) = (self.key(), self.types);
        let mine = Arc::new(self);
        let mut registry = registry();
        let offers = registry.entry(key).or_default();
        let theirs = find(offers, |offer| offer.types == types);
        let kept = match theirs {
            Some((entry, theirs)) => {
                entry.exports += 1;
                Kept(theirs)
            }
            None => {
                offers.push(Entry {
                    offer: Arc::downgrade(&mine),
                    exports: 1,
                });
                Kept(Arc::clone(&mine))
            }
        };
        // Unlocked before a second one closes its descriptor.
        drop(registry);
        drop(mine);
        kept
    }

    /// The live offer of an allocation by this broker, for exporting it again.
    pub(crate) fn of_allocation(
        driver: Driver,
        allocation_id: u64,
        endpoint: Endpoint,
        types: TypeFlags,
    ) -> Option<Kept> {
        let mut registry = registry();
        let offers = registry.get_mut(&(driver.id(), allocation_id, endpoint.0))?;
        let (entry, offer) = find(offers, |offer| offer.types == types)?;
        entry.exports += 1;
        Some(Kept(offer))
    }

    /// The live offer of an allocation by this broker, for one who holds its token.
    pub(crate) fn under_token(
        driver: Driver,
        allocation_id: u64,
        endpoint: Endpoint,
        token: &Token,
    ) -> Option<Arc<Self>> {
        let mut registry = registry();
        let offers = registry.get_mut(&(driver.id(), allocation_id, endpoint.0))?;
        let (_, offer) = find(offers, |offer| offer.token.matches(token))?;
        Some(offer)
    }

    fn key(&self) -> Key {
        (
            self.driver.id(),
            self.allocation_id,
            self.broker.endpoint().0,
        )
    }
}

impl fmt::Debug for Offer {
    /// Without the token and the driver's bytes: each of them gives access.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer")
            .field("allocation_id", &self.allocation_id)
            .field("base", &self.base)
            .field("size", &self.size)
            .field("types", &self.types)
            .finish_non_exhaustive()
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if identity::is_forked() {
            return;
        }
        if let Descriptor::Pool(pool) = &self.descriptor {
            pool.forget(self.base, self.allocation_id);
        }
    }
}

/// An offer in the registry, and how many exports keep it there: at least one, so
/// that the offer lives.
struct Entry {
    offer: Weak<Offer>,
    exports: usize,
}

/// The offer that is wanted. The others are held for a moment only, and never by
/// the last reference: an export of each has one as long as it has its entry.
fn find(offers: &mut [Entry], wanted: impl Fn(&Offer) -> bool) -> Option<(&mut Entry, Arc<Offer>)> {
    offers.iter_mut().find_map(|entry| {
        let offer = entry.offer.upgrade()?;
        wanted(&offer).then_some((entry, offer))
    })
}

/// Driver, allocation, and the endpoint of the broker that answers for it: one
/// broker's offers are not another one's, whose policy may be wider.
type Key = (usize, u64, [u8; 16]);
type Registry = HashMap<Key, Vec<Entry>>;

fn registry() -> MutexGuard<'static, Registry> {
    static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}
