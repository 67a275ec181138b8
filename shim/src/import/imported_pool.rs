//! Memory of another process's pool: the pool imported by each token that an importer
//! shows, each pointer in it once, and given back in the reverse order.
//!
//! The driver does not count: a pool that is imported again gives the same
//! `CUmemoryPool`, a pointer the same address, and the first `cuMemFree` ends
//! it for everybody. A stale pointer, too, gives the address of whatever came to lie in
//! its place (all seen on an H200, driver 580). So objects here are kept by what the
//! driver answered, not by the bytes that led to it.
//!
//! A pool that is here already is not given to who names it. A token is good for a
//! pool once a descriptor was had by it, from the broker or by the export table, and
//! the driver says that it is this pool's; and only as long as memory imported by it
//! is in use.

#![allow(unsafe_code)]

use crate::attempt::{Failure, Reason, Step};
use crate::fd::broker::Foreign;
use crate::gpu::context::DeviceContext;
use crate::gpu::driver::Driver;
use crate::gpu::undo;
use crate::import::importing::Import;
use crate::import::slots::{self, Asked, Content, Slots};
use crate::options::Trust;
use crate::process::identity;
use crate::process::wait::Ended;
use crate::sys::{CuDevicePtr, CuMemAccessDesc, CuMemPool, pointer_attribute};
use gpuipc_core::{Endpoint, HandleType, ProcessId, Token};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

/// A pointer in an imported pool. Its users in this process share it.
#[derive(Clone, Debug)]
pub(crate) struct PooledMapping {
    pointer: Arc<Pointer>,
    /// Others who have the token import without asking for the pool.
    _given: Arc<Given>,
}

/// What `cuMemPoolImportPointer` gave; freed on drop, which frees nothing of the
/// owner's.
#[derive(Debug)]
struct Pointer {
    base: CuDevicePtr,
    context: DeviceContext,
    /// Destroyed after the pointer is freed, if it was the last one.
    pool: Arc<Pool>,
}

/// What `cuMemPoolImportFromShareableHandle` gave; destroyed on drop.
#[derive(Debug)]
struct Pool {
    driver: Driver,
    raw: CuMemPool,
    /// By address. An entry is taken out by its drop, after the free.
    pointers: Mutex<HashMap<CuDevicePtr, Weak<Pointer>>>,
}

/// A pool as one token, or one fabric handle, led to it.
#[derive(Debug)]
pub(crate) struct Given {
    pool: Arc<Pool>,
    slot: Arc<Slot>,
}

/// What the slots keep.
#[derive(Debug)]
pub(crate) struct GivenPools;

impl Content for GivenPools {
    /// Driver, exporter, allocation.
    type Short = (usize, ProcessId, u64);
    type Exact = By;
    type Note = ();
    type Value = Given;
}

type Slot = slots::Slot<GivenPools>;

/// By what a pool is given.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum By {
    /// The broker, or the export table, if importers trust these users.
    Token(Endpoint, Token, Trust),
    /// The driver.
    Fabric([u8; 64]),
}

struct Wanted {
    short: (usize, ProcessId, u64),
    by: By,
}

impl Asked<GivenPools> for Wanted {
    fn short(&self) -> (usize, ProcessId, u64) {
        self.short
    }

    fn fits(&self, by: &By) -> bool {
        self.by == *by
    }

    fn exact(&self) -> By {
        self.by.clone()
    }

    fn suits(&self, (): &()) -> bool {
        true
    }
}

fn given_pools() -> &'static Arc<Slots<GivenPools>> {
    static GIVEN: LazyLock<Arc<Slots<GivenPools>>> = LazyLock::new(Arc::default);
    &GIVEN
}

/// The imported pools, by driver and its pool. An entry is taken out by its drop, after
/// the destruction.
type Pools = HashMap<(usize, CuMemPool), Weak<Pool>>;

fn pools() -> MutexGuard<'static, Pools> {
    static POOLS: LazyLock<Mutex<Pools>> = LazyLock::new(Mutex::default);
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PooledMapping {
    /// Imports the pool of `handle`, if its token has not led to it yet, gives `rights`
    /// to all of it, imports the pointer and compares its length. `descriptor`
    /// fetches the pool's descriptor where that is needed.
    pub(crate) fn import(
        import: &Import<'_>,
        handle_type: HandleType,
        rights: &[CuMemAccessDesc],
        descriptor: impl FnOnce() -> Result<Foreign, Failure>,
    ) -> Result<Self, Failure> {
        let failed = |step| move |error| Failure::driver(step, handle_type, &error);
        let missing = Failure::refused(Step::Select, Reason::NotCreatedFor);
        let (driver, handle) = (import.ipc.driver(), import.window.first());
        let data = handle.pool_pointer().ok_or(missing)?;
        let by = match handle_type {
            HandleType::Fabric => By::Fabric(*handle.fabric().ok_or(missing)?),
            _ => {
                let ticket = handle.ticket().ok_or(missing)?;
                let trust = import.ipc.settings().trust.clone();
                By::Token(ticket.endpoint, ticket.token, trust)
            }
        };
        let wanted = Wanted {
            short: (driver.id(), handle.process_id(), handle.allocation_id()),
            by,
        };
        let make = |slot: &Arc<Slot>| {
            let imported = match &wanted.by {
                By::Fabric(bytes) => Pool::import(driver, || driver.pool_import_fabric(bytes)),
                By::Token(..) => {
                    descriptor()?.give(|fd| Pool::import(driver, || driver.pool_import_fd(fd)))
                }
            };
            let given = Given {
                pool: imported.map_err(failed(Step::ImportPool))?,
                slot: Arc::clone(slot),
            };
            Ok((Arc::new(given), Some(())))
        };
        let late = |ended: Ended| Failure::refused(Step::ImportPool, ended.reason());
        let given = given_pools().get(&wanted, import.wait, make, late)?;
        let pool = &given.pool;
        // SAFETY: imported, and destroyed by the drop of `pool` only.
        unsafe { driver.pool_set_access(pool.raw, rights) }.map_err(failed(Step::SetPoolAccess))?;
        let context = DeviceContext::for_device(driver, import.importers.first)
            .map_err(failed(Step::Context))?;
        let pointer = pool
            .pointer(data, context)
            .map_err(failed(Step::ImportPointer))?;
        let size = driver
            .pointer_attribute(pointer_attribute::RANGE_SIZE, pointer.base)
            .map_err(failed(Step::Compare))?;
        if size != handle.base_size() {
            return Err(Failure::refused(Step::Compare, Reason::SizeMismatch));
        }
        Ok(Self {
            pointer,
            _given: given,
        })
    }

    /// The first byte of the allocation.
    pub(crate) fn base(&self) -> CuDevicePtr {
        self.pointer.base
    }
}

impl Pool {
    /// The object for what `import` answers, which may be there already.
    fn import(
        driver: Driver,
        import: impl FnOnce() -> crate::gpu::driver::Result<CuMemPool>,
    ) -> crate::gpu::driver::Result<Arc<Self>> {
        // Locked first: what the driver answers may be the pool of an object whose
        // drop has begun, which must not destroy it between the answer and here.
        let mut pools = pools();
        let raw = import()?;
        let known = pools.entry((driver.id(), raw)).or_default();
        if let Some(pool) = known.upgrade() {
            return Ok(pool);
        }
        // One whose drop has begun finds this one in its place, and leaves the
        // destruction to it.
        let pool = Arc::new(Self {
            driver,
            raw,
            pointers: Mutex::default(),
        });
        *known = Arc::downgrade(&pool);
        Ok(pool)
    }

    /// The pointer in the pool that these bytes mean.
    fn pointer(
        self: &Arc<Self>,
        data: &[u8; 64],
        context: DeviceContext,
    ) -> crate::gpu::driver::Result<Arc<Pointer>> {
        let mut pointers = self.pointers();
        // SAFETY: `raw` was imported and is destroyed by this pool's drop only.
        let base = context.with(|| unsafe { self.driver.pool_import_pointer(self.raw, data) })?;
        let known = pointers.entry(base).or_default();
        if let Some(pointer) = known.upgrade() {
            return Ok(pointer);
        }
        // As in `import`.
        let pointer = Arc::new(Pointer {
            base,
            context,
            pool: Arc::clone(self),
        });
        *known = Arc::downgrade(&pointer);
        Ok(pointer)
    }

    fn pointers(&self) -> MutexGuard<'_, HashMap<CuDevicePtr, Weak<Pointer>>> {
        self.pointers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pointer {
    fn drop(&mut self) {
        if identity::is_forked() {
            return;
        }
        let mut pointers = self.pool.pointers();
        let is_mine = pointers
            .get(&self.base)
            .is_some_and(|entry| core::ptr::eq(entry.as_ptr(), self));
        if is_mine {
            let driver = self.pool.driver;
            undo::report(
                "cuMemFree of an imported pointer",
                self.context.give_back(|| {
                    // SAFETY: imported by this object, whose users are gone.
                    unsafe { driver.mem_free(self.base) }
                }),
            );
            pointers.remove(&self.base);
        }
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        if !identity::is_forked() {
            self.slot.clean();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if identity::is_forked() {
            return;
        }
        let key = (self.driver.id(), self.raw);
        let mut pools = pools();
        let is_mine = pools
            .get(&key)
            .is_some_and(|entry| core::ptr::eq(entry.as_ptr(), self));
        if is_mine {
            // SAFETY: imported by this object, destroyed only here; its pointers,
            // each of which holds it, are freed.
            undo::report("cuMemPoolDestroy", unsafe {
                self.driver.pool_destroy(self.raw)
            });
            pools.remove(&key);
        }
    }
}
