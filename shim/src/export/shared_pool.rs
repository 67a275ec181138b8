//! An exported memory pool. It is exported once for all exported pointers in it.

use crate::attempt::Attempt;
use crate::gpu::driver::Driver;
use crate::process::private_fd::PrivateFd;
use crate::sys::{CuDevicePtr, CuMemPool, pointer_attribute};
use core::sync::atomic::{AtomicU64, Ordering};
use gpuipc_core::{Endpoint, TypeFlags};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

/// What importers need of a pool. Dropped with the last export in it.
#[derive(Debug)]
pub(crate) struct SharedPool {
    /// Never used again in this process.
    pub(crate) id: u64,
    fd: Option<PrivateFd>,
    pub(crate) fabric: Option<[u8; 64]>,
    /// The types that could not be exported.
    pub(crate) attempts: Vec<Attempt>,
    /// The driver's pool, and the allocations in it that are exported: address
    /// and BUFFER_ID.
    raw: CuMemPool,
    exported: Mutex<Vec<(CuDevicePtr, u64)>>,
}

impl SharedPool {
    pub(crate) fn new(
        raw: CuMemPool,
        fd: Option<PrivateFd>,
        fabric: Option<[u8; 64]>,
        attempts: Vec<Attempt>,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            fd,
            fabric,
            attempts,
            raw,
            exported: Mutex::default(),
        }
    }

    /// The pool's descriptor, unless its number is another file's by now.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().and_then(PrivateFd::there)
    }

    /// An allocation in it is exported.
    pub(crate) fn enter(&self, base: CuDevicePtr, id: u64) {
        self.exported().push((base, id));
    }

    /// It no longer is.
    pub(crate) fn forget(&self, base: CuDevicePtr, id: u64) {
        let mut exported = self.exported();
        if let Some(at) = exported.iter().position(|entry| *entry == (base, id)) {
            exported.swap_remove(at);
        }
    }

    /// Whether the driver's number still means this pool: a destroyed pool's may
    /// come again, but a pool lives as long as one of its allocations.
    fn is_same_pool(&self, driver: Driver) -> bool {
        let exported = self.exported().clone();
        exported.iter().any(|(base, id)| {
            let says =
                |attribute, value| driver.pointer_attribute(attribute, *base).ok() == Some(value);
            says(pointer_attribute::BUFFER_ID, *id)
                && says(pointer_attribute::MEMPOOL_HANDLE, self.raw.0 as u64)
        })
    }

    fn exported(&self) -> MutexGuard<'_, Vec<(CuDevicePtr, u64)>> {
        self.exported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pool as it is exported already, by this broker and for these types.
    pub(crate) fn find(driver: Driver, key: Key) -> Option<Arc<Self>> {
        let all: Vec<Arc<Self>> = {
            let pools = pools();
            pools.get(&key)?.iter().filter_map(Weak::upgrade).collect()
        };
        all.into_iter().find(|pool| pool.is_same_pool(driver))
    }

    /// Puts the pool where [`SharedPool::find`] looks. Two threads may have made
    /// one each, or the driver did not tell for once that it is the same: all
    /// serve their exports.
    pub(crate) fn register(self, key: Key) -> Arc<Self> {
        let pool = Arc::new(self);
        let mut pools = pools();
        pools.retain(|_, pools| {
            pools.retain(|pool| pool.strong_count() > 0);
            !pools.is_empty()
        });
        pools.entry(key).or_default().push(Arc::downgrade(&pool));
        pool
    }
}

/// Driver, pool, the endpoint of the broker that answers for it, types.
pub(crate) type Key = (usize, CuMemPool, Endpoint, TypeFlags);

/// Of one number more than one where a destroyed pool's has come again.
type Pools = HashMap<Key, Vec<Weak<SharedPool>>>;

fn pools() -> MutexGuard<'static, Pools> {
    static POOLS: LazyLock<Mutex<Pools>> = LazyLock::new(Mutex::default);
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}
