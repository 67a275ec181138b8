//! Import: from handles to a mapped, accessible address, by the first type that works.

pub(crate) mod cache;
pub(crate) mod can_import;
pub(crate) mod devices;
pub(crate) mod exporter;
pub(crate) mod imported_pool;
pub(crate) mod importing;
pub(crate) mod legacy;
pub(crate) mod mem;
pub(crate) mod own_access;
pub(crate) mod own_memory;
pub(crate) mod range;
pub(crate) mod slots;

use self::cache::Slot;
use self::devices::AccessDevices;
use self::exporter::Exporter;
use self::importing::Import;
use self::own_memory::OwnMemory;
use self::range::RangeHandles;
use crate::attempt::{Attempt, Failure, Reason, Step};
use crate::error::{Error, ImportError};
use crate::export::exported_allocation::ExportedAllocation;
use crate::import::mem::{GpuIpcMem, Liveness, Mapping, Shared, Used};
use crate::options::ImportOptions;
use crate::process::identity::{self, Host};
use crate::process::wait::Wait;
use crate::session::Ipc;
use crate::sys::CuDevicePtr;
use core::sync::atomic::Ordering;
use gpuipc_core::{GpuIpcMemHandle, HandleType, TypeFlags, TypeList};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A timeout longer than this is this: a deadline must be a time that exists.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// See [`Ipc::import`].
pub(crate) fn import(
    ipc: &Ipc,
    handles: &[GpuIpcMemHandle],
    options: &ImportOptions,
) -> Result<GpuIpcMem, Error> {
    let own = identity::process_id()?;
    if is_cancelled(options) {
        return Err(cancelled(&RangeHandles::of(handles)?));
    }
    if let [handle] = handles
        && handle.process_id() != own
        && let Some(shared) = cache::hit(ipc, handle, options)
    {
        // A range lies inside its allocation, which is mapped: it fits.
        let len = usize::try_from(handle.length()).unwrap_or(usize::MAX);
        return Ok(GpuIpcMem::new(shared, handle.offset_from_base(), len));
    }
    let range = RangeHandles::of(handles)?;
    let wait = wait_of(ipc, options);
    match own_memory(ipc, &range, &wait) {
        Some(own) => import_own(ipc, &range, options, &wait, own),
        None => import_range(ipc, &range, options, &wait),
    }
}

/// Imports what is another process's.
pub(crate) fn import_range(
    ipc: &Ipc,
    range: &RangeHandles<'_>,
    options: &ImportOptions,
    wait: &Wait,
) -> Result<GpuIpcMem, Error> {
    let access = AccessDevices::of(ipc.driver(), range, options)?;
    let import = Import {
        ipc,
        range,
        options,
        access: &access,
        wait,
    };
    let (order, attempts) = order_of(ipc, range, options);
    let handle = range.first();
    let make = |slot| map(&import, &order, attempts, slot);
    let shared = if cache::is_shared(handle, options) {
        let late = |failure| refuse_all(range, failure);
        cache::get(&import, &order, make, late)?
    } else {
        make(None)?
    };
    // The range's allocations are mapped: it fits.
    let len = range.len().unwrap_or(usize::MAX);
    Ok(GpuIpcMem::new(shared, handle.offset_from_base(), len))
}

/// Tries each type.
fn map(
    import: &Import<'_>,
    order: &TypeList,
    mut attempts: Vec<Attempt>,
    slot: Option<Arc<Slot>>,
) -> Result<Arc<Shared>, Error> {
    for handle_type in order.iter().copied() {
        let start = Instant::now();
        let mut note = |failure: Failure| {
            let attempt = failure.attempt(handle_type, start.elapsed());
            log::debug!(target: "gpuipc::gpu", "import: {attempt}");
            attempts.push(attempt);
        };
        match import.by(handle_type, &mut note) {
            Ok(mapped) => {
                if let Some(first) = attempts.first() {
                    log::info!(target: "gpuipc::gpu", "imported by {handle_type} as a fallback; first: {first}");
                }
                let mut shared = Shared::new(
                    import.ipc.driver(),
                    import.access.first,
                    mapped,
                    Used::Type(handle_type),
                    attempts,
                    slot,
                );
                shared.is_read_only_host =
                    import.access.are_read_only() && import.range.first().numa_node().is_some();
                return Ok(Arc::new(shared));
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

/// How long an import may wait.
pub(crate) fn wait_of(ipc: &Ipc, options: &ImportOptions) -> Wait {
    let timeout = options
        .timeout
        .unwrap_or(ipc.settings().timeout)
        .min(LONGEST_TIMEOUT);
    Wait {
        deadline: Instant::now() + timeout,
        cancel: options.cancel.clone(),
    }
}

/// The types to try, in order, and those of the handles that are not to be tried.
pub(crate) fn order_of(
    ipc: &Ipc,
    range: &RangeHandles<'_>,
    options: &ImportOptions,
) -> (TypeList, Vec<Attempt>) {
    let exported = range.types();
    let mut order = options
        .types
        .clone()
        .unwrap_or_else(|| ipc.settings().types.clone());
    let refused = |reason| {
        move |handle_type: &HandleType| {
            Failure::refused(Step::Select, reason).attempt(*handle_type, Duration::ZERO)
        }
    };
    let mut attempts: Vec<Attempt> = exported
        .iter()
        .filter(|handle_type| !order.contains(handle_type))
        .map(refused(Reason::NotAllowed))
        .collect();
    order.retain(|handle_type| exported.contains(handle_type));
    if ipc.identity().host_of(range.first()) == Host::Other {
        // Before any call: on another host a legacy handle can open unrelated
        // memory, and a broker's name or a pid means nothing.
        attempts.extend(
            order
                .iter()
                .filter(|handle_type| **handle_type != HandleType::Fabric)
                .map(refused(Reason::OtherHost)),
        );
        order.retain(|handle_type| *handle_type == HandleType::Fabric);
    }
    (order, attempts)
}

/// The range at its original address, if this very process exported it; `None` if it
/// is another process's.
pub(crate) fn own_memory(
    ipc: &Ipc,
    range: &RangeHandles<'_>,
    wait: &Wait,
) -> Option<Result<OwnMemory, Failure>> {
    let first = range.first();
    if first.process_id() == ipc.identity().process {
        return Some(side_by_side(range, |handle| own_export(ipc, handle)));
    }
    // Another copy of the library in this process has another process id.
    let is_other_copy = ipc.identity().host_of(first) == Host::This
        && Exporter::of(first, ipc, wait).is_ok_and(|exporter| exporter.is_this_process());
    is_other_copy.then(|| {
        side_by_side(range, |handle| {
            Ok((Exporter::of(handle, ipc, wait)?.own_pointer()?, None))
        })
    })
}

/// The memory from the first allocation on, if all lie there as the range says.
fn side_by_side(
    range: &RangeHandles<'_>,
    base_of: impl Fn(
        &GpuIpcMemHandle,
    ) -> Result<(CuDevicePtr, Option<Weak<ExportedAllocation>>), Failure>,
) -> Result<OwnMemory, Failure> {
    let mut first = None;
    let mut next = None;
    let mut exports = Vec::new();
    for (at, handle) in range.segments().iter().enumerate() {
        let number = range.number_of(at);
        let (base, export) = base_of(handle).map_err(|failure| failure.at_segment(number))?;
        if next.is_some_and(|next| next != base) {
            return Err(Failure::refused(Step::Select, Reason::SizeMismatch).at_segment(number));
        }
        first.get_or_insert(base);
        next = Some(base.wrapping_add(handle.base_size()));
        exports.extend(export);
    }
    let base = first.ok_or(Failure::refused(Step::Select, Reason::ExportRevoked))?;
    Ok(OwnMemory { base, exports })
}

/// The original address of memory that this process exports under the handle's token, and
/// the export.
fn own_export(
    ipc: &Ipc,
    handle: &GpuIpcMemHandle,
) -> Result<(CuDevicePtr, Option<Weak<ExportedAllocation>>), Failure> {
    let refused = |reason| Err(Failure::refused(Step::Select, reason));
    let export = handle.ticket().and_then(|ticket| {
        let id = handle.allocation_id();
        ExportedAllocation::under_token(ipc.driver(), id, ticket.endpoint, &ticket.token)
    });
    let Some(export) = export else {
        return refused(Reason::ExportRevoked);
    };
    if export.size != handle.base_size() {
        return refused(Reason::SizeMismatch);
    }
    match export.memory_unchanged() {
        Ok(true) => Ok((export.base, Some(Arc::downgrade(&export)))),
        Ok(false) => refused(Reason::StaleMemory),
        Err(error) => Err(Failure::driver(Step::Liveness, HandleType::PosixFd, &error)),
    }
}

/// This process's own memory, by its original address, with access for the importing
/// devices.
pub(crate) fn import_own(
    ipc: &Ipc,
    range: &RangeHandles<'_>,
    options: &ImportOptions,
    wait: &Wait,
    own: Result<OwnMemory, Failure>,
) -> Result<GpuIpcMem, Error> {
    if is_cancelled(options) {
        return Err(cancelled(range));
    }
    let refuse = |failure| refuse_all(range, failure);
    let own = own.map_err(refuse)?;
    let driver = ipc.driver();
    let access = AccessDevices::of(driver, range, options)?;
    let owner = devices::with_uuid(driver, range.first().device_uuid())?;
    own_access::check(range, options, &access, owner).map_err(refuse)?;
    own_access::give(driver, range, own.base, &access).map_err(|error| {
        // Another thread may have revoked or freed it meanwhile.
        refuse(match own_memory(ipc, range, wait) {
            Some(Err(gone)) => gone,
            _ => Failure::driver(Step::SetAccess, HandleType::PosixFd, &error),
        })
    })?;
    let is_legacy = range.first().types().contains(TypeFlags::RUNTIME_IPC);
    let device = owner.filter(|_| is_legacy).unwrap_or(access.first);
    let shared = Shared::new(
        driver,
        device,
        (Mapping::Own(own), Liveness::MemoryUnchanged),
        Used::SameProcess,
        Vec::new(),
        None,
    );
    let len = range.len().unwrap_or(usize::MAX);
    let offset = range.first().offset_from_base();
    Ok(GpuIpcMem::new(Arc::new(shared), offset, len))
}

fn is_cancelled(options: &ImportOptions) -> bool {
    let cancel = options.cancel.as_ref();
    cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed))
}

fn cancelled(range: &RangeHandles<'_>) -> Error {
    refuse_all(range, Failure::refused(Step::Select, Reason::Cancelled))
}

/// One cause for every type of the handles.
pub(crate) fn refuse_all(range: &RangeHandles<'_>, failure: Failure) -> Error {
    let attempt = |handle_type| failure.attempt(handle_type, Duration::ZERO);
    let attempts = range.types().into_iter().map(attempt).collect();
    Error::Import(ImportError { attempts })
}
