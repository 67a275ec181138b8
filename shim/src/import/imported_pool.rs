//! Memory of another process's pool: the pool imported once in this process,
//! each pointer in it once, and given back in the reverse order.
//!
//! The driver does not count: a pool that is imported again gives the same
//! `CUmemoryPool`, a pointer the same address, and the first `cuMemFree` ends
//! it for everybody. A stale pointer, too, gives the address of whatever came to lie in
//! its place (all seen on an H200, driver 580). So objects here are kept by what the
//! driver answered, not by the bytes that led to it.

#![allow(unsafe_code)]

use crate::attempt::{Failure, Reason, Step};
use crate::broker::Foreign;
use crate::context::DeviceContext;
use crate::driver::Driver;
use crate::identity;
use crate::sys::{CuDevice, CuDevicePtr, CuMemAccessDesc, CuMemPool, pointer_attribute};
use crate::undo;
use gpuipc_core::{Endpoint, GpuIpcMemHandle, HandleType, ProcessId};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

/// A pointer in an imported pool. Its users in this process share it.
#[derive(Clone, Debug)]
pub(crate) struct PooledMapping {
    pointer: Arc<Pointer>,
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

/// What makes two handles lead to the same pool: its exporter's process and
/// broker, its number there, and, by fabric, its bytes. A forged handle cannot
/// put another pool in the place of an honest one's: the broker that it names would
/// not give the descriptor, and other bytes are another key.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    driver: usize,
    process: ProcessId,
    endpoint: Option<Endpoint>,
    number: u64,
    fabric: Option<[u8; 64]>,
}

/// Who wants a pool that is being imported waits for its entry, nobody else does.
type Entry = Arc<Mutex<Weak<Pool>>>;

#[derive(Default)]
struct Pools {
    by_key: HashMap<Key, Entry>,
    /// By driver and its pool. An entry is taken out by its drop, after the
    /// destruction.
    by_raw: HashMap<(usize, CuMemPool), Weak<Pool>>,
}

fn pools() -> MutexGuard<'static, Pools> {
    static POOLS: LazyLock<Mutex<Pools>> = LazyLock::new(Mutex::default);
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PooledMapping {
    /// Imports the pool of `handle`, if this process has not yet, gives `rights`
    /// to all of it, imports the pointer and compares its length. `descriptor`
    /// fetches the pool's descriptor where that is needed.
    pub(crate) fn import(
        driver: Driver,
        handle: &GpuIpcMemHandle,
        handle_type: HandleType,
        rights: &[CuMemAccessDesc],
        device: CuDevice,
        descriptor: impl FnOnce() -> Result<Foreign, Failure>,
    ) -> Result<Self, Failure> {
        let failed = |step| move |error| Failure::driver(step, handle_type, &error);
        let missing = Failure::refused(Step::Select, Reason::NotCreatedFor);
        let data = handle.pool_pointer().ok_or(missing)?;
        let fabric = match handle_type {
            HandleType::Fabric => Some(*handle.fabric().ok_or(missing)?),
            _ => None,
        };
        let key = Key {
            driver: driver.id(),
            process: handle.process_id(),
            endpoint: handle.ticket().map(|ticket| ticket.endpoint),
            number: handle.pool_id(),
            fabric,
        };
        let pool = Pool::get(key, || {
            let imported = match fabric {
                Some(bytes) => Pool::import(driver, || driver.pool_import_fabric(&bytes)),
                None => descriptor()?.give(|fd| Pool::import(driver, || driver.pool_import_fd(fd))),
            };
            imported.map_err(failed(Step::ImportPool))
        })?;
        // SAFETY: imported, and destroyed by the drop of `pool` only.
        unsafe { driver.pool_set_access(pool.raw, rights) }.map_err(failed(Step::SetPoolAccess))?;
        let context = DeviceContext::for_device(driver, device).map_err(failed(Step::Context))?;
        let pointer = pool
            .pointer(data, context)
            .map_err(failed(Step::ImportPointer))?;
        let size = driver
            .pointer_attribute(pointer_attribute::RANGE_SIZE, pointer.base)
            .map_err(failed(Step::Compare))?;
        if size != handle.base_size() {
            return Err(Failure::refused(Step::Compare, Reason::SizeMismatch));
        }
        Ok(Self { pointer })
    }

    /// The first byte of the allocation.
    pub(crate) fn base(&self) -> CuDevicePtr {
        self.pointer.base
    }
}

impl Pool {
    /// The pool under this key; imported by `import` if it is not there.
    fn get(
        key: Key,
        import: impl FnOnce() -> Result<Arc<Self>, Failure>,
    ) -> Result<Arc<Self>, Failure> {
        let entry = Arc::clone(pools().by_key.entry(key).or_default());
        let mut place = entry.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = place.upgrade() {
            return Ok(pool);
        }
        let imported = import();
        if let Ok(pool) = &imported {
            *place = Arc::downgrade(pool);
        }
        drop(place);
        drop(entry);
        // Pools that have ended make room. An entry that only the map holds is
        // nobody's who is about to import.
        pools().by_key.retain(|_, entry| {
            Arc::strong_count(entry) > 1
                || entry.try_lock().is_ok_and(|place| place.strong_count() > 0)
        });
        imported
    }

    /// The object for what `import` answers, which may be there already.
    fn import(
        driver: Driver,
        import: impl FnOnce() -> crate::driver::Result<CuMemPool>,
    ) -> crate::driver::Result<Arc<Self>> {
        // Locked first: what the driver answers may be the pool of an object whose
        // drop has begun, which must not destroy it between the answer and here.
        let mut pools = pools();
        let raw = import()?;
        let known = pools.by_raw.entry((driver.id(), raw)).or_default();
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
    ) -> crate::driver::Result<Arc<Pointer>> {
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

impl Drop for Pool {
    fn drop(&mut self) {
        if identity::is_forked() {
            return;
        }
        let key = (self.driver.id(), self.raw);
        let mut pools = pools();
        let is_mine = pools
            .by_raw
            .get(&key)
            .is_some_and(|entry| core::ptr::eq(entry.as_ptr(), self));
        if is_mine {
            // SAFETY: imported by this object, destroyed only here; its pointers,
            // each of which holds it, are freed.
            undo::report("cuMemPoolDestroy", unsafe {
                self.driver.pool_destroy(self.raw)
            });
            pools.by_raw.remove(&key);
        }
    }
}
