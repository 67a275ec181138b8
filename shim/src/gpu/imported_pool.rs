//! A pool imported from another process, and the pointers in it. The last user of each
//! one frees it.
//!
//! The driver does not count imports: a second import of a pool returns the same
//! `CUmemoryPool`, a second import of a pointer the same address, and the first
//! `cuMemFree` ends it for everybody (seen on an H200, driver 580). So these objects
//! are keyed by what the driver returned, not by the bytes that led to it.

#![allow(unsafe_code)]

use crate::gpu::context::DeviceContext;
use crate::gpu::driver::{Driver, Result};
use crate::gpu::undo;
use crate::process::identity;
use crate::sys::{CuDevicePtr, CuMemAccessDesc, CuMemPool};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

/// What `cuMemPoolImportPointer` gave; freed on drop, which frees nothing of the
/// owner's.
#[derive(Debug)]
pub(crate) struct Pointer {
    pub(crate) base: CuDevicePtr,
    context: DeviceContext,
    /// Destroyed after the pointer is freed, if it was the last one.
    pool: Arc<Pool>,
}

/// What `cuMemPoolImportFromShareableHandle` gave; destroyed on drop.
#[derive(Debug)]
pub(crate) struct Pool {
    driver: Driver,
    raw: CuMemPool,
    /// By address. An entry is taken out by its drop, after the free.
    pointers: Mutex<HashMap<CuDevicePtr, Weak<Pointer>>>,
}

/// The imported pools, by driver and its pool. An entry is taken out by its drop, after
/// the destruction.
type Pools = HashMap<(usize, CuMemPool), Weak<Pool>>;

fn pools() -> MutexGuard<'static, Pools> {
    static POOLS: LazyLock<Mutex<Pools>> = LazyLock::new(Mutex::default);
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// The object for what `import` answers, which may be there already.
    pub(crate) fn import(
        driver: Driver,
        import: impl FnOnce() -> Result<CuMemPool>,
    ) -> Result<Arc<Self>> {
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

    /// `cuMemPoolSetAccess`.
    pub(crate) fn set_access(&self, rights: &[CuMemAccessDesc]) -> Result<()> {
        // SAFETY: `raw` was imported and is destroyed by this pool's drop only.
        unsafe { self.driver.pool_set_access(self.raw, rights) }
    }

    /// The pointer in the pool that these bytes mean.
    pub(crate) fn pointer(
        self: &Arc<Self>,
        data: &[u8; 64],
        context: DeviceContext,
    ) -> Result<Arc<Pointer>> {
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
