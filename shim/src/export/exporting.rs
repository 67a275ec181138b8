//! Makes every handle of an allocation that the allocation and the options allow. It
//! tries each one and does not guess.

use crate::attempt::{Attempt, Failure, Reason, Step};
use crate::error::{Error, MemoryKind, NotExportable};
use crate::export::allocation::{Allocation, AllocationKind, Location, not_exportable};
use crate::export::descriptor::{Descriptor, FdQuota, KeptFd};
use crate::export::exported_allocation::ExportedAllocation;
use crate::export::reference::Reference;
use crate::export::shared_pool::SharedPool;
use crate::fd::broker::Broker;
use crate::gpu::context::{DeviceContext, with_context};
use crate::gpu::driver::{AllocationHandle, Driver, DriverError, device_uuid};
use crate::options::ExportOptions;
use crate::process::private_fd::PrivateFd;
use crate::sys::{CuContext, CuMemPool, CuResult, pointer_attribute};
use gpuipc_core::{DeviceUuid, HandleType, TypeFlags};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Makes every handle that the allocation and the options allow.
pub(crate) fn export(
    driver: Driver,
    broker: Arc<Broker>,
    allocation: Allocation,
    options: &ExportOptions,
) -> Result<ExportedAllocation, Error> {
    let types = options.flags();
    let (device_uuid, numa_node) = match allocation.location {
        Location::Gpu(device) => (device_uuid(driver, device)?, None),
        Location::HostNode(node) => (DeviceUuid::default(), Some(node)),
    };
    let mut export = ExportedAllocation::new(
        driver,
        broker,
        types,
        allocation.id,
        allocation.base,
        allocation.size,
    )?;
    (export.device_uuid, export.numa_node) = (device_uuid, numa_node);
    let (made_for, kind) = (allocation.kind.types(), allocation.kind.memory_kind());
    let wanted = made_for & types;
    match allocation.kind {
        AllocationKind::Legacy { context } if wanted.contains(TypeFlags::RUNTIME_IPC) => {
            export.make_legacy(context, allocation.location)?;
        }
        AllocationKind::Legacy { .. } => {}
        AllocationKind::Vmm { handle, .. } => export.make_vmm(handle, wanted, options)?,
        AllocationKind::Pool { pool, .. } => export.make_pooled(pool, wanted)?,
    }
    if export.types_made().is_empty() {
        let excluded = HandleType::ALL
            .into_iter()
            .filter(|handle_type| (made_for - types).contains(handle_type.flag()));
        let refused = Failure::refused(Step::Select, Reason::NotAllowed);
        let mut attempts = core::mem::take(&mut export.attempts);
        attempts.extend(excluded.map(|excluded| refused.attempt(excluded, Duration::ZERO)));
        return Err(Error::NotExportable(NotExportable { kind, attempts }));
    }
    // Before the first handle exists.
    export.entry = export.broker.enter(
        &export.token,
        export.descriptor.number(),
        export.allocation_id,
    );
    let by_number = export.entry.is_some() && export.descriptor.number().is_some();
    match export.broker.cannot_serve() {
        Some(error) if export.types_made() == TypeFlags::POSIX_FD && !by_number => Err(error),
        _ => Ok(export),
    }
}

impl ExportedAllocation {
    /// `cuIpcGetMemHandle` in the context that allocated.
    fn make_legacy(&mut self, context: CuContext, location: Location) -> Result<(), Error> {
        let (driver, base) = (self.driver, self.base);
        let get = || driver.ipc_get_mem_handle(base);
        let made = trial(&mut self.attempts, HandleType::RuntimeIpc, || {
            match (context, location) {
                (CuContext::NULL, Location::Gpu(device)) => {
                    DeviceContext::for_device(driver, device)?.with(get)
                }
                _ => with_context(driver, context, get),
            }
        })?;
        self.runtime_ipc = made;
        Ok(())
    }

    /// `cuMemExportToShareableHandle` for each type.
    fn make_vmm(
        &mut self,
        handle: AllocationHandle,
        wanted: TypeFlags,
        options: &ExportOptions,
    ) -> Result<(), Error> {
        if wanted.contains(TypeFlags::POSIX_FD) {
            // Nobody can demand one of a broker that does not serve.
            let is_on_demand = options.is_fd_on_demand() && self.broker.serves();
            let room = (!is_on_demand).then(FdQuota::take).flatten();
            self.descriptor = match room {
                Some(room) => trial(&mut self.attempts, HandleType::PosixFd, || {
                    handle.export_fd()
                })?
                .map_or(Descriptor::None, |fd| {
                    Descriptor::Kept(KeptFd::new(fd, room))
                }),
                None => Descriptor::OnDemand,
            };
        }
        if wanted.contains(TypeFlags::FABRIC) {
            self.fabric = trial(&mut self.attempts, HandleType::Fabric, || {
                handle.export_fabric()
            })?;
        }
        // Neither the fabric bytes nor the ticket hold a reference.
        self.reference = Reference::new(Some(handle));
        Ok(())
    }

    /// The pool first, if it is not exported yet: `cuMemPoolExportToShareableHandle`;
    /// then the pointer: `cuMemPoolExportPointer`.
    fn make_pooled(&mut self, pool: CuMemPool, wanted: TypeFlags) -> Result<(), Error> {
        let driver = self.driver;
        let key = (driver.id(), pool, self.broker.endpoint(), wanted);
        let shared = match SharedPool::find(driver, key) {
            Some(shared) => shared,
            None => self.share_pool(pool, wanted)?.register(key),
        };
        self.attempts.extend_from_slice(&shared.attempts);
        let first = match (shared.fd(), shared.fabric) {
            (Some(_), _) => HandleType::PosixFd,
            (None, Some(_)) => HandleType::Fabric,
            (None, None) => return Ok(()),
        };
        let base = self.base;
        self.pool_pointer = trial(&mut self.attempts, first, || {
            driver.pool_export_pointer(base)
        })?;
        // Without its pointer the pool is of no use.
        if self.pool_pointer.is_some() {
            self.fabric = shared.fabric;
            shared.enter(self.base, self.allocation_id);
            self.descriptor = Descriptor::Pool(shared);
        }
        Ok(())
    }

    /// The pool of the memory that is exported.
    #[allow(unsafe_code)]
    fn share_pool(&self, pool: CuMemPool, wanted: TypeFlags) -> Result<SharedPool, Error> {
        let driver = self.driver;
        let mut attempts = Vec::new();
        let (mut fd, mut fabric) = (None, None);
        let _stays = Driver::pools_stay();
        // Its owner may have freed it, and the pool, since it was looked at.
        let is_there = self.memory_unchanged()?
            && driver.pointer_attribute(pointer_attribute::MEMPOOL_HANDLE, self.base)?
                == pool.0 as u64;
        if !is_there {
            return Err(not_exportable(MemoryKind::NotCuda));
        }
        if wanted.contains(TypeFlags::POSIX_FD) {
            fd = trial(&mut attempts, HandleType::PosixFd, || {
                // SAFETY: the driver has just said that this is the pool of memory that
                // is allocated, and no pool is destroyed as long as `_stays` lives.
                unsafe { driver.pool_export_fd(pool) }
            })?;
        }
        if wanted.contains(TypeFlags::FABRIC) {
            fabric = trial(&mut attempts, HandleType::Fabric, || {
                // SAFETY: as above.
                unsafe { driver.pool_export_fabric(pool) }
            })?;
        }
        Ok(SharedPool::new(
            pool,
            fd.map(PrivateFd::new),
            fabric,
            attempts,
        ))
    }
}

/// Tries one type. A refusal drops the type and is kept as an attempt; only
/// out-of-memory, which says nothing about the type, ends the export.
fn trial<T>(
    attempts: &mut Vec<Attempt>,
    handle_type: HandleType,
    export: impl FnOnce() -> Result<T, DriverError>,
) -> Result<Option<T>, Error> {
    let start = Instant::now();
    match export() {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.code() == Some(CuResult::OUT_OF_MEMORY) => Err(error.into()),
        Err(error) => {
            let attempt = Failure::driver(Step::Export, handle_type, &error)
                .attempt(handle_type, start.elapsed());
            log::debug!(target: "gpuipc::gpu", "export: {attempt}");
            attempts.push(attempt);
            Ok(None)
        }
    }
}
