//! The mappings of VMM allocations. All imported ranges of one allocation share one
//! mapping. It is made once, even if several threads import at the same time, and the
//! last range's drop unmaps it.
//!
//! Two ranges share a mapping if their handles are equal in all bytes except those that
//! select the range, if the same devices map them with the same access, and if the
//! importers trust the same users. So a forged handle cannot reach the mapping of a
//! genuine one: it would need the genuine token. No lock is held during a driver call.
//! An import waits only for a thread that maps the same allocation.

use crate::attempt::{Failure, Reason, Step};
use crate::gpu::context;
use crate::import::importing::Import;
use crate::import::mem::{Shared, Used};
use crate::import::slots::{self, Asked, Content, Slots};
use crate::options::{Access, DeviceId, ImportOptions, Trust};
use crate::process::identity::Host;
use crate::session::Ipc;
use crate::sys::CuDevice;
use gpuipc_core::{Attributes, GpuIpcMemHandle, HandleType, ProcessId, TypeFlags, TypeList};
use std::sync::{Arc, LazyLock};

/// What the slots keep.
pub(crate) struct Mappings;

impl Content for Mappings {
    type Short = Short;
    type Exact = Exact;
    type Note = Known;
    type Value = Shared;
}

/// The mappings of one allocation for one set of devices: one a type, seldom more.
pub(crate) type Slot = slots::Slot<Mappings>;

/// What finds a slot quickly; what it is for is compared after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Short {
    driver: usize,
    process: ProcessId,
    allocation: u64,
    device: CuDevice,
}

/// What a slot is for.
pub(crate) struct Exact {
    handle: GpuIpcMemHandle,
    more: Box<[CuDevice]>,
    access: Access,
    host: bool,
    /// Whom the importer believes: another `Ipc` of the process may believe fewer.
    trust: Trust,
}

/// What is asked of a mapping that was made.
pub(crate) struct Known {
    handle_type: HandleType,
    /// The types that had failed before.
    failed: TypeFlags,
}

impl Known {
    /// `None` for memory that is not mapped by a type.
    fn of(shared: &Shared) -> Option<Self> {
        let Used::Type(handle_type) = shared.used else {
            return None;
        };
        let attempts = shared.attempts.iter();
        let attempts = attempts.filter(|attempt| attempt.reason != Reason::NotAllowed);
        Some(Self {
            handle_type,
            failed: attempts.map(|attempt| attempt.handle_type.flag()).collect(),
        })
    }
}

/// What an import asks for.
struct Wanted<'a> {
    short: Short,
    handle: &'a GpuIpcMemHandle,
    more: &'a [CuDevice],
    access: Access,
    host: bool,
    trust: &'a Trust,
    order: &'a [HandleType],
}

impl<'a> Wanted<'a> {
    fn new(
        ipc: &'a Ipc,
        handle: &'a GpuIpcMemHandle,
        options: &ImportOptions,
        (device, more): (CuDevice, &'a [CuDevice]),
        order: &'a [HandleType],
    ) -> Self {
        Self {
            short: Short {
                driver: ipc.driver().id(),
                process: handle.process_id(),
                allocation: handle.allocation_id(),
                device,
            },
            handle,
            more,
            access: options.access,
            host: options.host_access,
            trust: &ipc.settings().trust,
            order,
        }
    }
}

impl Asked<Mappings> for Wanted<'_> {
    fn short(&self) -> Short {
        self.short
    }

    fn fits(&self, exact: &Exact) -> bool {
        self.access == exact.access
            && self.host == exact.host
            && *self.trust == exact.trust
            && *self.more == *exact.more
            && self.handle.same_allocation(&exact.handle)
    }

    fn exact(&self) -> Exact {
        Exact {
            handle: *self.handle,
            more: self.more.into(),
            access: self.access,
            host: self.host,
            trust: self.trust.clone(),
        }
    }

    /// Whether an import with these types, in this order, would come to it: the
    /// types before it have been tried and have failed when it was made.
    fn suits(&self, known: &Known) -> bool {
        let mut before = self
            .order
            .iter()
            .take_while(|wanted| **wanted != known.handle_type);
        self.order.contains(&known.handle_type)
            && before.all(|wanted| known.failed.contains(wanted.flag()))
    }
}

fn slots() -> &'static Arc<Slots<Mappings>> {
    static SLOTS: LazyLock<Arc<Slots<Mappings>>> = LazyLock::new(Arc::default);
    &SLOTS
}

/// Whether ranges of this handle share a mapping at all. Legacy memory and memory of a
/// pool do not: after their owner's free the address can show other memory, so each
/// import asks the owner. What the driver gave is shared in any case, below the mapping.
pub(crate) fn is_shared(handle: &GpuIpcMemHandle, options: &ImportOptions) -> bool {
    let odd = Attributes::MULTICAST | Attributes::MEM_POOL;
    handle.range().segment_count == 1
        && !handle.attributes().intersects(odd)
        && !handle.types().contains(TypeFlags::RUNTIME_IPC)
        && options.place.is_none()
}

/// The mapping of a range's allocation, if it is there: without allocating, and
/// with no other call to the driver than for the current context's device.
pub(crate) fn hit(
    ipc: &Ipc,
    handle: &GpuIpcMemHandle,
    options: &ImportOptions,
) -> Option<Arc<Shared>> {
    if !is_shared(handle, options) || !options.access_devices.is_empty() {
        return None;
    }
    if ipc.identity().host_of(handle) == Host::Other {
        return None;
    }
    let driver = ipc.driver();
    let device = match options.device {
        Some(DeviceId::Ordinal(ordinal)) => driver.device(ordinal).ok()?,
        Some(DeviceId::Uuid(_)) => return None,
        None => context::current(driver).ok()??.1,
    };
    let order = options.types.as_deref().unwrap_or(&ipc.settings().types);
    let exported = handle.types();
    let mut wanted = TypeList::new();
    for handle_type in order {
        if exported.contains(handle_type.flag()) && wanted.push(*handle_type).is_err() {
            return None;
        }
    }
    slots().find(&Wanted::new(ipc, handle, options, (device, &[]), &wanted))
}

/// By which type an import would find the mapping of another range.
pub(crate) fn found(import: &Import<'_>, order: &[HandleType]) -> Option<HandleType> {
    let handle = import.range.first();
    if !is_shared(handle, import.options) {
        return None;
    }
    let wanted = wanted(import, order);
    match slots().find(&wanted)?.used {
        Used::Type(handle_type) => Some(handle_type),
        Used::SameProcess => None,
    }
}

/// What an import under way asks for.
fn wanted<'a>(import: &'a Import<'_>, order: &'a [HandleType]) -> Wanted<'a> {
    let access = import.access;
    let devices = (access.first, &*access.more);
    Wanted::new(
        import.ipc,
        import.range.first(),
        import.options,
        devices,
        order,
    )
}

/// The mapping of a range's allocation: made by `make` if it is not there. An
/// error of `make` is this caller's alone.
pub(crate) fn get<E>(
    import: &Import<'_>,
    order: &[HandleType],
    make: impl FnOnce(Option<Arc<Slot>>) -> Result<Arc<Shared>, E>,
    late: impl FnOnce(Failure) -> E,
) -> Result<Arc<Shared>, E> {
    let wanted = wanted(import, order);
    let make = |slot: &Arc<Slot>| {
        let shared = make(Some(Arc::clone(slot)))?;
        let known = Known::of(&shared);
        Ok((shared, known))
    };
    slots().get(&wanted, import.wait, make, |ended| {
        late(Failure::refused(Step::Select, ended.reason()))
    })
}
