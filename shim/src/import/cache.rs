//! One mapping an allocation, whatever windows of it are imported: made once, even
//! if many threads ask at the same time, and undone by the last window's drop.
//!
//! Two windows share a mapping if every byte of their handles is equal but for
//! those that say which part of the allocation they are, and the same devices map
//! it with the same rights, by importers that trust the same users. So a forged handle cannot reach an honest one's
//! mapping: it would have to have the honest one's token. No lock is held during a
//! driver call; who wants what another thread is mapping waits for that one only.

use crate::attempt::{Failure, Reason, Step};
use crate::context;
use crate::import::devices::DeviceId;
use crate::import::importing::Import;
use crate::ipc::Ipc;
use crate::mem::{Liveness, Shared, Used};
use crate::options::{Access, ImportOptions, Trust};
use crate::sys::CuDevice;
use crate::wait::{Ended, Wait};
use core::fmt;
use gpuipc_core::{
    Attributes, GpuIpcMemHandle, HANDLE_BYTES, HandleType, ProcessId, TypeFlags, TypeList,
};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

/// What finds a slot quickly; what it is for is compared after that.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Short {
    driver: usize,
    process: ProcessId,
    allocation: u64,
    device: CuDevice,
}

/// The mappings of one allocation for one set of devices.
pub(crate) struct Slot {
    short: Short,
    handle: [u8; HANDLE_BYTES],
    more: Box<[CuDevice]>,
    access: Access,
    host: bool,
    /// Whom the importer believes: another `Ipc` of the process may believe fewer.
    trust: Trust,
    state: Mutex<State>,
    changed: Condvar,
}

impl fmt::Debug for Slot {
    /// Without the handle's bytes, which hold the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("allocation", &self.short.allocation)
            .field("device", &self.short.device)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    /// A thread is making a mapping.
    is_making: bool,
    /// No longer to be found: a new slot takes its place.
    is_removed: bool,
    /// One a type, seldom more.
    mappings: Vec<Known>,
}

/// A mapping that was made. What is asked of it stands here, so that nobody has to
/// hold it, and perhaps be its last user, while the slot is locked.
#[derive(Debug)]
struct Known {
    handle_type: HandleType,
    /// The types that had failed before.
    failed: TypeFlags,
    is_referenced: bool,
    shared: Weak<Shared>,
}

type Slots = HashMap<Short, Vec<Arc<Slot>>>;

fn slots() -> &'static RwLock<Slots> {
    static SLOTS: LazyLock<RwLock<Slots>> = LazyLock::new(RwLock::default);
    &SLOTS
}

/// Whether both are windows of the same allocation, on offer under the same token
/// by the same types: all bytes are equal but for offset and length (24 to 39),
/// window and segment (48 to 79) and checksum (188 to 191).
fn same_allocation(a: &[u8; HANDLE_BYTES], b: &[u8; HANDLE_BYTES]) -> bool {
    [0..24, 40..48, 80..188, 192..HANDLE_BYTES]
        .into_iter()
        .all(|part| a[part.clone()] == b[part])
}

/// Whether windows of this handle share a mapping at all. Memory of a pool does
/// not: after its owner's free its address can show other memory, so each import
/// of it asks the owner. Its pool and its pointer are shared in any case.
pub(crate) fn is_shared(handle: &GpuIpcMemHandle, options: &ImportOptions) -> bool {
    let odd = Attributes::MULTICAST | Attributes::MEM_POOL;
    handle.window().segment_count == 1
        && !handle.attributes().intersects(odd)
        && options.place.is_none()
}

impl Slot {
    fn fits(
        &self,
        handle: &[u8; HANDLE_BYTES],
        more: &[CuDevice],
        access: Access,
        host: bool,
        trust: &Trust,
    ) -> bool {
        self.access == access
            && self.host == host
            && self.trust == *trust
            && *self.more == *more
            && same_allocation(&self.handle, handle)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mapping that an import with these types, in this order, would come to:
    /// the types before it have been tried and have failed when it was made.
    fn find(&self, order: &[HandleType], require_live: bool) -> Option<Arc<Shared>> {
        self.state().find(order, require_live)
    }

    /// Forgets mappings that have ended, and the slot with the last one.
    pub(crate) fn clean(self: &Arc<Self>) {
        let mut slots = slots().write().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        state
            .mappings
            .retain(|known| known.shared.strong_count() > 0);
        if state.mappings.is_empty() && !state.is_making && !state.is_removed {
            state.is_removed = true;
            if let Some(all) = slots.get_mut(&self.short) {
                all.retain(|slot| !Arc::ptr_eq(slot, self));
                if all.is_empty() {
                    slots.remove(&self.short);
                }
            }
        }
    }
}

impl State {
    fn find(&self, order: &[HandleType], require_live: bool) -> Option<Arc<Shared>> {
        self.mappings.iter().find_map(|known| {
            let mut before = order
                .iter()
                .take_while(|wanted| **wanted != known.handle_type);
            let is_next = order.contains(&known.handle_type)
                && before.all(|wanted| known.failed.contains(wanted.flag()));
            let lives = !require_live || known.is_referenced;
            (is_next && lives).then(|| known.shared.upgrade()).flatten()
        })
    }
}

/// The mapping of a window's allocation, if it is there: without allocating, and
/// with no other call to the driver than for the current context's device.
pub(crate) fn hit(
    ipc: &Ipc,
    handle: &GpuIpcMemHandle,
    options: &ImportOptions,
) -> Option<Arc<Shared>> {
    if !is_shared(handle, options) || !options.more_devices.is_empty() {
        return None;
    }
    let driver = ipc.driver();
    let device = match options.device {
        Some(DeviceId::Ordinal(ordinal)) => driver.device(ordinal).ok()?,
        Some(DeviceId::Uuid(_)) => return None,
        None => context::current(driver).ok()??.1,
    };
    let short = Short {
        driver: driver.id(),
        process: handle.process_id(),
        allocation: handle.allocation_id(),
        device,
    };
    let slots = slots().read().unwrap_or_else(PoisonError::into_inner);
    let all = slots.get(&short)?;
    let bytes = handle.encode();
    let trust = &ipc.settings().trust;
    let slot = all
        .iter()
        .find(|slot| slot.fits(&bytes, &[], options.access, options.host_access, trust))?;
    let order = options.types.as_deref().unwrap_or(&ipc.settings().types);
    if handle.host_id() != ipc.identity().host {
        return None;
    }
    let offered = handle.types();
    let mut wanted = TypeList::new();
    for handle_type in order {
        if offered.contains(handle_type.flag()) && wanted.push(*handle_type).is_err() {
            return None;
        }
    }
    slot.find(&wanted, options.require_live)
}

/// The mapping of a window's allocation: made by `make` if it is not there. An
/// error of `make` is this caller's alone.
pub(crate) fn get<E>(
    import: &Import<'_>,
    order: &[HandleType],
    make: impl FnOnce(Option<Arc<Slot>>) -> Result<Arc<Shared>, E>,
    late: impl FnOnce(Failure) -> E,
) -> Result<Arc<Shared>, E> {
    let slot = loop {
        let slot = slot_of(import);
        match slot.take_turn(order, import.options.require_live, import.wait) {
            Turn::Hit(shared) => return Ok(shared),
            Turn::Make => break slot,
            Turn::Again => {}
            Turn::Ended(ended) => {
                return Err(late(Failure::refused(Step::Select, ended.reason())));
            }
        }
    };
    let turn = Making { slot: &slot };
    let made = make(Some(Arc::clone(&slot)));
    if let Ok(shared) = &made
        && let Used::Type(handle_type) = shared.used
    {
        let attempts = shared.attempts.iter();
        let attempts = attempts.filter(|attempt| attempt.reason != Reason::NotAllowed);
        slot.state().mappings.push(Known {
            handle_type,
            failed: attempts.map(|attempt| attempt.handle_type.flag()).collect(),
            is_referenced: shared.liveness == Liveness::Referenced,
            shared: Arc::downgrade(shared),
        });
    }
    drop(turn);
    made
}

/// What a thread that wants a mapping is to do.
enum Turn {
    Hit(Arc<Shared>),
    /// Make it: nobody else does.
    Make,
    /// Look for the slot again: this one is no longer to be found.
    Again,
    Ended(Ended),
}

impl Slot {
    fn take_turn(&self, order: &[HandleType], require_live: bool, wait: &Wait) -> Turn {
        /// How often a waiting thread looks at its cancel flag.
        const INTERVAL: Duration = Duration::from_millis(20);
        let mut state = self.state();
        loop {
            if let Some(shared) = state.find(order, require_live) {
                return Turn::Hit(shared);
            }
            if state.is_removed {
                return Turn::Again;
            }
            if !state.is_making {
                state.is_making = true;
                return Turn::Make;
            }
            let left = match wait.left() {
                Ok(left) => left,
                Err(ended) => return Turn::Ended(ended),
            };
            let waited = self.changed.wait_timeout(state, left.min(INTERVAL));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A turn at making: ended on drop, however it went.
struct Making<'a> {
    slot: &'a Arc<Slot>,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.slot.state().is_making = false;
        self.slot.changed.notify_all();
        self.slot.clean();
    }
}

fn slot_of(import: &Import<'_>) -> Arc<Slot> {
    let (handle, options) = (import.window.first(), import.options);
    let short = Short {
        driver: import.ipc.driver().id(),
        process: handle.process_id(),
        allocation: handle.allocation_id(),
        device: import.importers.first,
    };
    let bytes = handle.encode();
    let mut slots = slots().write().unwrap_or_else(PoisonError::into_inner);
    let all = slots.entry(short).or_default();
    let more = &import.importers.more;
    let (access, host) = (options.access, options.host_access);
    let trust = &import.ipc.settings().trust;
    if let Some(slot) = all
        .iter()
        .find(|slot| slot.fits(&bytes, more, access, host, trust))
    {
        return Arc::clone(slot);
    }
    let slot = Arc::new(Slot {
        short,
        handle: bytes,
        more: more.clone().into_boxed_slice(),
        access,
        host,
        trust: trust.clone(),
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    all.push(Arc::clone(&slot));
    slot
}
