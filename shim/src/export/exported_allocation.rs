//! What an exporter holds for one exported allocation, and the registry of live
//! exports.
//!
//! Only this registry gives a pointer of this process to an importer in this process.
//! The bytes of a handle never do.

use crate::attempt::Attempt;
use crate::error::Error;
use crate::export::allocation;
use crate::export::descriptor::Descriptor;
use crate::export::reference::Reference;
use crate::export::registry::Registry;
use crate::fd::broker::{Broker, Export, Exports, Given};
use crate::fd::export_table;
use crate::gpu::driver::{AllocationHandle, Driver};
use crate::process::identity::{self, Identity};
use crate::session::Ipc;
use crate::sys::CuDevicePtr;
use core::fmt;
use gpuipc_core::{DeviceUuid, Endpoint, HandleFields, Ticket, Token, TypeFlags};
use std::sync::{Arc, LazyLock};

/// A share of an exported allocation. The export ends with the last one's drop: nobody
/// finds it by its token from then on, nor its descriptor's number in the export table,
/// even while the broker's thread, in the middle of an answer, still uses it; and
/// the driver's reference is released.
#[derive(Debug)]
pub(crate) struct ExportShare(Arc<ExportedAllocation>);

impl core::ops::Deref for ExportShare {
    type Target = ExportedAllocation;

    fn deref(&self) -> &ExportedAllocation {
        &self.0
    }
}

impl Drop for ExportShare {
    fn drop(&mut self) {
        // In a forked child the registry may be locked for ever.
        if identity::is_forked() {
            return;
        }
        if registry().release(&self.0.key(), &self.0) {
            if let Some(entry) = &self.0.entry {
                entry.revoke();
            }
            self.0.reference.end();
        }
    }
}

/// One exported allocation. Whoever drops it last closes the descriptor.
pub(crate) struct ExportedAllocation {
    pub(crate) driver: Driver,
    /// The types that were asked for; no other one was made.
    pub(crate) types: TypeFlags,
    /// The driver's BUFFER_ID: never reused within a process.
    pub(crate) allocation_id: u64,
    /// Proves to the broker that the asker holds a handle of this export.
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
    /// The token in the export table. Before `descriptor`, and so taken out before that is closed.
    pub(crate) entry: Option<export_table::Entry>,
    pub(crate) descriptor: Descriptor,
    /// Keeps VMM memory allocated while it is exported, whatever its owner frees.
    pub(crate) reference: Reference<AllocationHandle>,
    /// The types that the memory was made for but that could not be exported.
    pub(crate) attempts: Vec<Attempt>,
    /// Answers for the export as long as it lives.
    pub(crate) broker: Arc<Broker>,
}

impl ExportedAllocation {
    /// An export by which nothing can be had yet.
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
            reference: Reference::new(None),
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
            // That nobody is there under the abstract name means nothing without one.
            net_namespace: if self.broker.has_abstract_name() {
                exporter.net_namespace
            } else {
                0
            },
            runtime_ipc: self.runtime_ipc,
            pool_pointer: self.pool_pointer,
            pool_id: self.pool_id(),
            ticket: Some(Ticket {
                endpoint: self.broker.endpoint(),
                token: self.token,
                fd: self.descriptor.number(),
                table: self.entry.as_ref().map(export_table::Entry::describe),
            }),
            posix_fd: self.descriptor.is_there(),
            fabric: self.fabric,
            ..HandleFields::default()
        }
    }

    /// Whether the memory at the export's address is still the one that was exported.
    pub(crate) fn memory_unchanged(&self) -> crate::gpu::driver::Result<bool> {
        // Without an id the driver no longer knows the address: freed.
        Ok(allocation::id_at(self.driver, self.base)? == Some(self.allocation_id))
    }

    /// A descriptor of the memory for an importer, if there is one.
    pub(crate) fn give_descriptor(&self) -> crate::gpu::driver::Result<Option<Given<'_>>> {
        let reference = self.reference.lend();
        self.descriptor.give(reference.as_deref())
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

    /// Puts the export into the registry, unless a live one for the same
    /// allocation and types is already there: then that one is given back, and
    /// this is dropped.
    pub(crate) fn register(self) -> ExportShare {
        let (key, types) = (self.key(), self.types);
        ExportShare(registry().register(key, self, |export| export.types == types))
    }

    /// The live export of an allocation by this broker, for exporting it again.
    pub(crate) fn of_allocation(
        driver: Driver,
        allocation_id: u64,
        endpoint: Endpoint,
        types: TypeFlags,
    ) -> Option<ExportShare> {
        let key = (driver.id(), allocation_id, endpoint.0);
        registry()
            .hold(&key, |export| export.types == types)
            .map(ExportShare)
    }

    /// The live export of an allocation by this broker, for one who holds its token.
    pub(crate) fn under_token(
        driver: Driver,
        allocation_id: u64,
        endpoint: Endpoint,
        token: &Token,
    ) -> Option<Arc<Self>> {
        let key = (driver.id(), allocation_id, endpoint.0);
        registry().find(&key, |export| export.token.matches(token))
    }

    /// Which allocation it is of, and the types that were asked for.
    pub(crate) fn kind(&self) -> (Key, u8) {
        (self.key(), self.types.bits())
    }

    fn key(&self) -> Key {
        (
            self.driver.id(),
            self.allocation_id,
            self.broker.endpoint().0,
        )
    }
}

impl Ipc {
    /// The broker, started if it is not there yet or serves no more.
    pub(crate) fn broker(&self) -> Result<Arc<Broker>, Error> {
        self.broker_for(LiveExports(self.driver()))
    }
}

/// The exports of one driver, for the broker.
#[derive(Debug)]
struct LiveExports(Driver);

impl Exports for LiveExports {
    fn under_token(
        &self,
        allocation_id: u64,
        endpoint: Endpoint,
        token: &Token,
    ) -> Option<Arc<dyn Export>> {
        let export = ExportedAllocation::under_token(self.0, allocation_id, endpoint, token)?;
        Some(export)
    }
}

impl Export for ExportedAllocation {
    fn place(&self) -> (CuDevicePtr, u64) {
        (self.base, self.size)
    }

    fn has_descriptor(&self) -> bool {
        self.descriptor.is_there()
    }

    fn give_descriptor(&self) -> crate::gpu::driver::Result<Option<Given<'_>>> {
        ExportedAllocation::give_descriptor(self)
    }

    fn memory_unchanged(&self) -> crate::gpu::driver::Result<bool> {
        ExportedAllocation::memory_unchanged(self)
    }
}

impl fmt::Debug for ExportedAllocation {
    /// Without the token and the driver's bytes: each of them gives access.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportedAllocation")
            .field("allocation_id", &self.allocation_id)
            .field("base", &self.base)
            .field("size", &self.size)
            .field("types", &self.types)
            .finish_non_exhaustive()
    }
}

impl Drop for ExportedAllocation {
    fn drop(&mut self) {
        if identity::is_forked() {
            return;
        }
        if let Descriptor::Pool(pool) = &self.descriptor {
            pool.forget(self.base, self.allocation_id);
        }
    }
}

/// Driver, allocation, and the endpoint of the broker that answers for it: one
/// broker's exports are not another one's, whose policy may be wider.
pub(crate) type Key = (usize, u64, [u8; 16]);

fn registry() -> &'static Registry<Key, ExportedAllocation> {
    static REGISTRY: LazyLock<Registry<Key, ExportedAllocation>> = LazyLock::new(Registry::default);
    &REGISTRY
}
