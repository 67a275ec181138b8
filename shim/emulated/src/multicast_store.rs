//! What multicast leaves in the directory: names of bound memory, by which
//! every member finds what the others bound, and the slots of the switches.
//!
//! Every object has a name, and notes in its table whether it has a slot. It
//! exists as long as any descriptor of it is open anywhere, which a shared lock on
//! its file tells; so its slot is free again when its last holder is killed.

use crate::Answer;
use crate::config::config;
use crate::multicast_table::Table;
use crate::owner::{self, OwnerId};
use crate::storage::Storage;
use crate::store::{self, Store};
use gpuipc_sys::CuResult;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::retry_on_intr;

const FOLDER: &str = "multicast";
const OBJECT: &str = "object-";
/// The byte of an object's file whose lock says that the object exists.
const EXISTS: i64 = 0;

/// The folder, if any object was ever bound to on this machine.
pub(crate) fn folder_if_there(store: &Store) -> Option<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat(store.dir(), FOLDER, flags, Mode::empty()).ok()
}

fn folder(store: &Store) -> Answer<OwnedFd> {
    store.folder(FOLDER).map_err(|error| {
        log::error!("the folder {FOLDER} cannot be used: {error}");
        CuResult::OPERATING_SYSTEM
    })
}

/// Which memory, of whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemoryId {
    /// The process that bound it.
    pub(crate) owner: OwnerId,
    /// Random.
    pub(crate) id: u64,
}

impl MemoryId {
    fn name(self) -> String {
        format!("{:016x}-{:016x}", self.owner.0, self.id)
    }

    /// The memory, if its binder lives and still has it.
    pub(crate) fn open(self, store: &Store) -> Option<Storage> {
        let folder = folder_if_there(store)?;
        let file = store::open_name(folder.as_fd(), &self.name()).ok()?;
        let alive = owner::lives(store, self.owner);
        Storage::open(store, file.as_fd()).filter(|_| alive)
    }
}

/// Memory's name for the members of the objects that it is bound to.
#[derive(Debug)]
pub(crate) struct MemoryName {
    folder: OwnedFd,
    id: MemoryId,
}

impl MemoryName {
    /// Makes memory of this process findable.
    pub(crate) fn publish(store: &Store, owner: OwnerId, storage: &Storage) -> Answer<Self> {
        let folder = folder(store)?;
        let id = MemoryId {
            owner,
            id: u64::from_le_bytes(store::random()),
        };
        store::name_file(storage.file(), folder.as_fd(), &id.name()).map_err(|error| {
            log::error!("memory cannot be named for a multicast object: {error}");
            CuResult::OPERATING_SYSTEM
        })?;
        Ok(Self { folder, id })
    }

    /// Which memory it is.
    pub(crate) fn id(&self) -> MemoryId {
        self.id
    }

    /// Takes the name away.
    pub(crate) fn remove(self) {
        store::remove_name(self.folder.as_fd(), &self.id.name());
    }
}

/// Says that the object exists, as long as this open file does.
pub(crate) fn keep_object(storage: &Storage) {
    if !owner::share_lock(storage.file(), EXISTS) {
        log::warn!("a multicast object cannot be locked: its slot may be given out twice");
    }
}

/// Gives a new object its name.
pub(crate) fn name_object(store: &Store, storage: &Storage) -> Answer {
    // Before the name: one without the lock is swept.
    keep_object(storage);
    let name = format!("{OBJECT}{:016x}", u64::from_le_bytes(store::random()));
    let folder = folder(store)?;
    store::name_file(storage.file(), folder.as_fd(), &name).map_err(|error| {
        log::error!("a multicast object cannot be named: {error}");
        CuResult::OPERATING_SYSTEM
    })
}

/// Runs `take` if the machine has a slot left. One process at a time counts and
/// takes.
pub(crate) fn with_slot(store: &Store, take: impl FnOnce() -> Answer) -> Answer {
    let folder = folder(store)?;
    // The lock goes with the descriptor.
    retry_on_intr(|| flock(&folder, FlockOperation::LockExclusive))
        .map_err(|_| CuResult::OPERATING_SYSTEM)?;
    if slots(store, &folder) >= config().multicast_slots {
        return Err(CuResult::OUT_OF_MEMORY);
    }
    take()
}

/// Removes the names of objects that are gone.
pub(crate) fn sweep_objects(store: &Store) {
    if let Some(folder) = folder_if_there(store) {
        slots(store, &folder);
    }
}

/// Slots in use; names of objects that are gone are removed.
fn slots(store: &Store, folder: &OwnedFd) -> usize {
    let mut used = 0;
    for name in store::names(folder.as_fd()) {
        if !name.starts_with(OBJECT) {
            continue;
        }
        let Ok(file) = store::open_name(folder.as_fd(), &name) else {
            continue;
        };
        if !owner::is_locked(file.as_fd(), EXISTS) {
            store::remove_name(folder.as_fd(), &name);
            continue;
        }
        let object = Storage::open(store, file.as_fd());
        let table = object.and_then(|object| Table::read(&object).ok());
        used += usize::from(table.is_some_and(|table| table.has_slot()));
    }
    used
}
