//! Everything this process has, behind one lock.

use crate::Answer;
use crate::blocks::Blocks;
use crate::config::config;
use crate::header::Place;
use crate::owner::OwnerId;
use crate::physical::Physical;
use crate::piece::{Origin, Piece, allow};
use crate::pools::Pool;
use crate::space::Region;
use crate::storage::Storage;
use crate::store::{self, Store};
use crate::stream::Stream;
use gpuipc_sys::{CuContext, CuResult};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// The driver's numbers start somewhere, so that nobody relies on 1.
const FIRST_BUFFER_ID: u64 = 0x38c;
const FIRST_HANDLE: u64 = 0x5593_9000_0000;
const HANDLE_STEP: u64 = 0x110;
const FIRST_CONTEXT: usize = 0x5593_8000_0000;
const CONTEXT_STEP: usize = 0x1000;

/// What `cuInit` sets up.
#[derive(Debug)]
pub(crate) struct Session {
    /// The directory.
    pub(crate) store: Store,
    /// This process.
    pub(crate) owner: OwnerId,
}

/// The process's devices, memory and handles.
#[derive(Debug)]
pub(crate) struct State {
    /// Set by `cuInit`.
    pub(crate) session: Option<Session>,
    /// Retain count of each device's primary context.
    pub(crate) retained: Vec<u64>,
    /// Addresses of what is not VMM memory.
    pub(crate) blocks: Blocks,
    /// Memory by its first address.
    pub(crate) pieces: BTreeMap<u64, Piece>,
    /// VMM reservations by their first address.
    pub(crate) reservations: BTreeMap<u64, Region>,
    /// VMM allocations by handle.
    pub(crate) physicals: BTreeMap<u64, Physical>,
    /// Pools by handle.
    pub(crate) pools: BTreeMap<u64, Pool>,
    /// Streams by handle.
    pub(crate) streams: BTreeMap<usize, Stream>,
    /// Graphs that captures gave.
    pub(crate) graphs: BTreeSet<usize>,
    /// Devices whose context a fault of the GPU has ended.
    pub(crate) broken: BTreeSet<usize>,
    /// Addresses that a legacy handle was made of.
    pub(crate) exported: BTreeSet<u64>,
    /// Names of legacy memory that exist now.
    pub(crate) named: BTreeSet<u64>,
    next_buffer_id: u64,
    next_handle: u64,
}

static STATE: Mutex<State> = Mutex::new(State {
    session: None,
    retained: Vec::new(),
    blocks: Blocks::new(),
    pieces: BTreeMap::new(),
    reservations: BTreeMap::new(),
    physicals: BTreeMap::new(),
    pools: BTreeMap::new(),
    streams: BTreeMap::new(),
    graphs: BTreeSet::new(),
    broken: BTreeSet::new(),
    exported: BTreeSet::new(),
    named: BTreeSet::new(),
    next_buffer_id: FIRST_BUFFER_ID,
    next_handle: FIRST_HANDLE,
});

/// Takes the lock. A call that panicked before does not stop the others.
pub(crate) fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the lock unless someone has it.
pub(crate) fn try_state() -> Option<MutexGuard<'static, State>> {
    match STATE.try_lock() {
        Ok(state) => Some(state),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A device's primary context.
pub(crate) fn context_of(device: usize) -> CuContext {
    CuContext(FIRST_CONTEXT + device * CONTEXT_STEP)
}

/// The device whose primary context this is.
pub(crate) fn device_of(context: CuContext) -> Option<usize> {
    (0..config().visible.len()).find(|device| context_of(*device) == context)
}

/// The device of a `CUdevice` argument.
pub(crate) fn device_index(device: i32) -> Answer<usize> {
    let index = usize::try_from(device)
        .ok()
        .filter(|index| *index < config().visible.len());
    index.ok_or(CuResult::INVALID_DEVICE)
}

/// The machine's number of one of this process's devices.
pub(crate) fn machine_number(device: usize) -> Answer<u32> {
    config()
        .visible
        .get(device)
        .copied()
        .ok_or(CuResult::INVALID_DEVICE)
}

/// This process's number of one of the machine's GPUs, if it sees it.
pub(crate) fn visible_number(machine: u32) -> Option<usize> {
    config()
        .visible
        .iter()
        .position(|device| *device == machine)
}

impl State {
    /// What `cuInit` set up.
    pub(crate) fn session(&self) -> Answer<&Session> {
        self.session.as_ref().ok_or(CuResult::NOT_INITIALIZED)
    }

    /// The device of this thread's current context.
    pub(crate) fn current_device(&self) -> Answer<usize> {
        let device = crate::context::current_device()?;
        match self.retained.get(device) {
            Some(0) | None => Err(CuResult::CONTEXT_IS_DESTROYED),
            Some(_) if self.broken.contains(&device) => Err(CuResult::LAUNCH_FAILED),
            Some(_) => Ok(device),
        }
    }

    /// That this thread's current context is fit for use, if there is one.
    pub(crate) fn check_context(&self) -> Answer {
        match crate::context::current() {
            Some(_) => self.current_device().map(drop),
            None => Ok(()),
        }
    }

    /// A number for a new piece.
    pub(crate) fn buffer_id(&mut self) -> u64 {
        let id = self.next_buffer_id;
        self.next_buffer_id += 1;
        id
    }

    /// A number for a new handle.
    pub(crate) fn next_handle(&mut self) -> u64 {
        let handle = self.next_handle;
        self.next_handle += HANDLE_STEP;
        handle
    }

    /// Adds memory at an address.
    pub(crate) fn add_piece(
        &mut self,
        start: u64,
        size: u64,
        storage: Arc<Storage>,
        origin: Origin,
    ) {
        let buffer_id = self.buffer_id();
        let piece = Piece {
            size,
            buffer_id,
            storage,
            origin,
        };
        self.pieces.insert(start, piece);
    }

    /// Whether a device may read, or also write, a piece.
    pub(crate) fn allows(&self, piece: &Piece, device: usize, write: bool) -> bool {
        match &piece.origin {
            Origin::Alloc { .. }
            | Origin::Host { .. }
            | Origin::Managed { .. }
            | Origin::Opened { .. } => true,
            Origin::Mapped { access, .. } if piece.on_gpu() => access.allows(device, write),
            Origin::Mapped { access, .. } => allow(access.of_driver(), write),
            Origin::Pooled { pool, .. } => self.pools.get(pool).is_some_and(|pool| {
                pool.access.allows(device, write) || pool.stand_in == Some(device)
            }),
        }
    }

    /// The memory around an address, and where it begins.
    pub(crate) fn piece_at(&self, address: u64) -> Option<(u64, &Piece)> {
        let (start, piece) = self.pieces.range(..=address).next_back()?;
        (address - start < piece.size).then_some((*start, piece))
    }

    /// The reservation around an address, and where it begins.
    pub(crate) fn reservation_at(&self, address: u64) -> Option<(u64, &Region)> {
        let (start, region) = self.reservations.range(..=address).next_back()?;
        (address - start < region.size()).then_some((*start, region))
    }

    /// Removes memory in the driver's blocks, with its name and addresses.
    pub(crate) fn remove_piece(&mut self, start: u64) {
        let Some(piece) = self.pieces.remove(&start) else {
            return;
        };
        self.remove_memory_name(start);
        let Some(spot) = piece.spot() else { return };
        if matches!(piece.origin, Origin::Host { .. })
            && let Some(region) = self.blocks.region(spot)
            && let Err(error) = region.hide(0, region.size())
        {
            log::warn!("host memory at {start:#x} stays visible: {error}");
        }
        self.blocks.give(spot);
    }

    /// Gives `cuMemAlloc` memory the name that legacy handles of its address
    /// find.
    pub(crate) fn name_memory(&mut self, start: u64) -> Answer {
        if self.named.contains(&start) {
            return Ok(());
        }
        let session = self.session()?;
        let piece = self.pieces.get(&start).ok_or(CuResult::INVALID_VALUE)?;
        let name = session.owner.memory_name(start);
        store::name_file(piece.storage.file(), session.store.dir(), &name).map_err(|error| {
            log::error!("the memory at {start:#x} cannot be named: {error}");
            CuResult::OPERATING_SYSTEM
        })?;
        self.named.insert(start);
        self.exported.insert(start);
        Ok(())
    }

    fn remove_memory_name(&mut self, start: u64) {
        if self.named.remove(&start)
            && let Some(session) = &self.session
        {
            store::remove_name(session.store.dir(), &session.owner.memory_name(start));
        }
    }

    /// Bytes of one of the machine's GPUs that this process's own memory takes.
    pub(crate) fn used(&self, machine: u32) -> u64 {
        let here = |storage: &Storage| storage.header().place == Place::Gpu(machine);
        let allocated = self.pieces.values().filter(|piece| piece.is_own());
        let allocated = allocated
            .filter(|piece| here(&piece.storage))
            .map(|piece| piece.size);
        let created = self
            .physicals
            .values()
            .filter(|physical| !physical.imported && here(&physical.storage));
        allocated
            .chain(created.map(|physical| physical.storage.header().size))
            .sum()
    }

    /// Whether a GPU has room for `size` bytes more.
    pub(crate) fn check_room(&self, machine: u32, size: u64) -> Answer {
        let total = self.used(machine).checked_add(size);
        if total.is_some_and(|total| total <= config().memory) {
            Ok(())
        } else {
            Err(CuResult::OUT_OF_MEMORY)
        }
    }

    /// Removes every name of this process, at its end.
    pub(crate) fn remove_names(&mut self) {
        for start in core::mem::take(&mut self.exported) {
            self.remove_memory_name(start);
        }
        for name in self
            .physicals
            .values_mut()
            .filter_map(|physical| physical.fabric.take())
            .chain(
                self.pools
                    .values_mut()
                    .filter_map(|pool| pool.fabric.take()),
            )
        {
            name.remove();
        }
        for name in self
            .physicals
            .values_mut()
            .filter_map(|physical| physical.bound.take())
        {
            name.remove();
        }
        if let Some(session) = &self.session {
            crate::owner::revoke(&session.store, session.owner);
        }
    }
}
