//! Import: from a handle to a mapped, accessible address, by the first type
//! that works.

use crate::attempt::{Attempt, Failure, Reason, Step};
use crate::context;
use crate::driver::{AllocationHandle, Driver};
use crate::error::{Error, ImportError};
use crate::exporter::Exporter;
use crate::identity;
use crate::ipc::Ipc;
use crate::mapping::{LegacyMapping, VmmMapping};
use crate::mem::{GpuIpcMem, Liveness, Mapping, Used};
use crate::offer::Offer;
use crate::options::{Access, ImportOptions};
use crate::sys::{CuDevice, CuDevicePtr};
use crate::wait::Wait;
use gpuipc_core::{Attributes, GpuIpcMemHandle, HandleType, TypeList};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A timeout longer than this is this: a deadline must be a time that exists.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// See [`Ipc::import`].
pub(crate) fn import(
    ipc: &Ipc,
    handles: &[GpuIpcMemHandle],
    options: &ImportOptions,
) -> Result<GpuIpcMem, Error> {
    identity::process_id()?;
    let handle = the_one_handle(handles)?;
    if handle.process_id() == ipc.identity().process {
        return import_own(ipc, handle);
    }
    let timeout = options
        .timeout
        .unwrap_or(ipc.settings().timeout)
        .min(LONGEST_TIMEOUT);
    let wait = Wait {
        deadline: Instant::now() + timeout,
        cancel: options.cancel.clone(),
    };
    let this_host = handle.host_id() == ipc.identity().host;
    if this_host
        && let Ok(exporter) = Exporter::of(handle, ipc, &wait)
        && exporter.is_this_process()
    {
        return match exporter.own_pointer() {
            Ok(base) => own(ipc, handle, base),
            Err(failure) => Err(refuse_all(handle, failure)),
        };
    }
    let device = importing_device(ipc.driver(), handle, options)?;
    let import = Import {
        ipc,
        handle,
        options,
        device,
        wait,
    };
    let mut attempts = Vec::new();
    let mut order = options
        .types
        .clone()
        .unwrap_or_else(|| ipc.settings().types.clone());
    for handle_type in handle.types().types() {
        if !order.contains(&handle_type) {
            attempts.push(
                Failure::refused(Step::Select, Reason::NotAllowed)
                    .attempt(handle_type, Duration::ZERO),
            );
        }
    }
    order.retain(|handle_type| handle.types().contains(handle_type.flag()));
    if !this_host {
        refuse_but_fabric(&mut order, &mut attempts);
    }
    for handle_type in order {
        let start = Instant::now();
        let mut note = |failure: Failure| {
            let attempt = failure.attempt(handle_type, start.elapsed());
            log::debug!(target: "gpuipc::gpu", "import: {attempt}");
            attempts.push(attempt);
        };
        match import.by(handle_type, &mut note) {
            Ok((mapping, liveness)) => {
                if let Some(first) = attempts.first() {
                    log::info!(target: "gpuipc::gpu", "imported by {handle_type} as a fallback; first: {first}");
                }
                return Ok(GpuIpcMem::new(
                    ipc.driver(),
                    device,
                    mapping,
                    handle,
                    Used::Type(handle_type),
                    liveness,
                    attempts,
                ));
            }
            Err(failure) => {
                note(failure);
                if failure.reason == Reason::Cancelled {
                    break;
                }
            }
        }
    }
    Err(Error::Import(ImportError { attempts }))
}

/// What this version imports.
fn the_one_handle(handles: &[GpuIpcMemHandle]) -> Result<&GpuIpcMemHandle, Error> {
    let [handle] = handles else {
        return Err(match handles.len() {
            0 => Error::Argument {
                name: "handles",
                rule: "there must be at least one handle",
            },
            _ => Error::Unsupported {
                what: "memory in several segments",
            },
        });
    };
    let attributes = handle.attributes();
    let what = if handle.window().segment_count != 1 {
        Some("memory in several segments")
    } else if attributes.contains(Attributes::MEM_POOL) {
        Some("memory of a pool")
    } else if attributes.contains(Attributes::HOST_NUMA) {
        Some("memory on a host NUMA node")
    } else if attributes.contains(Attributes::MULTICAST) {
        Some("multicast objects")
    } else {
        None
    };
    what.map_or(Ok(handle), |what| Err(Error::Unsupported { what }))
}

/// The original pointer, for a handle of this very process whose memory is on
/// offer under its token.
fn import_own(ipc: &Ipc, handle: &GpuIpcMemHandle) -> Result<GpuIpcMem, Error> {
    let refused = |reason| Err(refuse_all(handle, Failure::refused(Step::Select, reason)));
    let offer = handle.ticket().and_then(|ticket| {
        let id = handle.allocation_id();
        Offer::under_token(ipc.driver(), id, ticket.endpoint, &ticket.token)
    });
    let Some(offer) = offer else {
        return refused(Reason::OfferWithdrawn);
    };
    if offer.size != handle.base_size() {
        return refused(Reason::SizeMismatch);
    }
    if !offer.memory_unchanged()? {
        return refused(Reason::StaleMemory);
    }
    own(ipc, handle, offer.base)
}

/// This process's own memory, by its original address.
fn own(ipc: &Ipc, handle: &GpuIpcMemHandle, base: CuDevicePtr) -> Result<GpuIpcMem, Error> {
    let driver = ipc.driver();
    let device = device_of_uuid(driver, handle)?.unwrap_or(0);
    Ok(GpuIpcMem::new(
        driver,
        device,
        Mapping::Own(base),
        handle,
        Used::SameProcess,
        Liveness::MemoryUnchanged,
        Vec::new(),
    ))
}

/// One cause for every type of the handle.
fn refuse_all(handle: &GpuIpcMemHandle, failure: Failure) -> Error {
    let attempt = |handle_type| failure.attempt(handle_type, Duration::ZERO);
    let attempts = handle.types().types().into_iter().map(attempt).collect();
    Error::Import(ImportError { attempts })
}

/// Before any call: on another host a legacy handle can open unrelated memory,
/// and a broker's name or a pid means nothing.
fn refuse_but_fabric(order: &mut TypeList, attempts: &mut Vec<Attempt>) {
    let refused = |handle_type: &HandleType| {
        Failure::refused(Step::Select, Reason::OtherHost).attempt(*handle_type, Duration::ZERO)
    };
    attempts.extend(
        order
            .iter()
            .filter(|handle_type| **handle_type != HandleType::Fabric)
            .map(refused),
    );
    order.retain(|handle_type| *handle_type == HandleType::Fabric);
}

/// The device that maps: the options', the current context's, the memory's own,
/// the first.
fn importing_device(
    driver: Driver,
    handle: &GpuIpcMemHandle,
    options: &ImportOptions,
) -> Result<CuDevice, Error> {
    if let Some(ordinal) = options.device {
        return Ok(driver.device(ordinal)?);
    }
    if let Some((_, device)) = context::current(driver)? {
        return Ok(device);
    }
    match device_of_uuid(driver, handle)? {
        Some(device) => Ok(device),
        None => Ok(driver.device(0)?),
    }
}

/// The handle's GPU in this process's order, if it is visible here.
fn device_of_uuid(driver: Driver, handle: &GpuIpcMemHandle) -> Result<Option<CuDevice>, Error> {
    for ordinal in 0..driver.device_count()? {
        let device = driver.device(ordinal)?;
        if driver.device_uuid(device)? == handle.device_uuid() {
            return Ok(Some(device));
        }
    }
    Ok(None)
}

/// One import under way.
struct Import<'a> {
    ipc: &'a Ipc,
    handle: &'a GpuIpcMemHandle,
    options: &'a ImportOptions,
    device: CuDevice,
    wait: Wait,
}

impl Import<'_> {
    /// Goes one way, to its end or to the step that fails. `note` hears of ways
    /// inside it that failed before.
    fn by(
        &self,
        handle_type: HandleType,
        note: impl FnOnce(Failure),
    ) -> Result<(Mapping, Liveness), Failure> {
        let driver = self.ipc.driver();
        match handle_type {
            HandleType::PosixFd => {
                let exporter = Exporter::of(self.handle, self.ipc, &self.wait)?;
                let fd = exporter.descriptor(note)?;
                let imported = driver.mem_import_fd(fd.as_fd());
                // The driver has its own reference from here on.
                drop(fd);
                self.map(handle_type, imported)
            }
            HandleType::Fabric => {
                let bytes = self
                    .handle
                    .fabric()
                    .ok_or(Failure::refused(Step::Select, Reason::NotCreatedFor))?;
                self.map(handle_type, driver.mem_import_fabric(bytes))
            }
            HandleType::RuntimeIpc => self.open(),
        }
    }

    /// Maps VMM memory. The reference goes once the mapping has its own.
    fn map(
        &self,
        handle_type: HandleType,
        imported: crate::driver::Result<AllocationHandle>,
    ) -> Result<(Mapping, Liveness), Failure> {
        let imported =
            imported.map_err(|error| Failure::driver(Step::Import, handle_type, &error))?;
        let size = usize::try_from(self.handle.base_size())
            .map_err(|_| Failure::refused(Step::Reserve, Reason::SizeMismatch))?;
        let access = self.options.access;
        let mapping = VmmMapping::new(self.ipc.driver(), &imported, size, self.device, access)
            .map_err(|(step, error)| Failure::driver(step, handle_type, &error))?;
        Ok((Mapping::Vmm(mapping), Liveness::Referenced))
    }

    /// Opens a legacy handle, and asks the exporter whether what it leads to is
    /// still what was offered: after a free, the driver opens whatever lies at
    /// that address now, with success.
    fn open(&self) -> Result<(Mapping, Liveness), Failure> {
        if self.options.access == Access::ReadOnly {
            return Err(Failure::refused(Step::Select, Reason::CannotBeReadOnly));
        }
        // Without a ticket there is nobody to ask.
        let exporter = Exporter::of(self.handle, self.ipc, &self.wait).ok();
        if exporter.is_none() && self.options.require_live {
            return Err(Failure::refused(Step::Liveness, Reason::LivenessUnknown));
        }
        let bytes = self
            .handle
            .runtime_ipc()
            .ok_or(Failure::refused(Step::Select, Reason::NotCreatedFor))?;
        let mapping = LegacyMapping::open(
            self.ipc.driver(),
            bytes,
            self.handle.base_size(),
            self.device,
        )
        .map_err(|failure| {
            let same_pid = self.handle.pid() == self.ipc.identity().pid;
            if failure.reason == Reason::ContextRefused && same_pid {
                Failure {
                    reason: Reason::SamePid,
                    ..failure
                }
            } else {
                failure
            }
        })?;
        let liveness = match exporter {
            Some(exporter) => exporter.liveness(self.options.require_live)?,
            None => Liveness::Unknown,
        };
        Ok((Mapping::Legacy(mapping), liveness))
    }
}
