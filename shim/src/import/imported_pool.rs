//! Imports of pool memory: each token imports the pool once, and each pointer in it is
//! imported once. They are freed in the reverse order.
//!
//! A stale pointer imports successfully as the address of whatever lies in its place
//! now (seen on an H200, driver 580).
//!
//! A pool that is already imported is not given to a handle that merely names it. A
//! token may use a pool only after a descriptor was fetched with that token, from the
//! broker or by the export table, and the driver has said that the descriptor belongs
//! to this pool. This ends when no memory that was imported with the token is in use.

use crate::attempt::{Failure, Reason, Step};
use crate::fd::broker::Foreign;
use crate::gpu::context::DeviceContext;
use crate::gpu::imported_pool::{Pointer, Pool};
use crate::import::importing::Import;
use crate::import::slots::{self, Asked, Content, Slots};
use crate::options::Trust;
use crate::process::identity;
use crate::process::wait::Ended;
use crate::sys::{CuDevicePtr, CuMemAccessDesc, pointer_attribute};
use gpuipc_core::{Endpoint, HandleType, ProcessId, Token};
use std::sync::{Arc, LazyLock};

/// A pointer in an imported pool. Its users in this process share it.
#[derive(Clone, Debug)]
pub(crate) struct PooledMapping {
    pointer: Arc<Pointer>,
    /// Others who have the token import without asking for the pool.
    _given: Arc<Given>,
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
        let (driver, handle) = (import.ipc.driver(), import.range.first());
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
        pool.set_access(rights)
            .map_err(failed(Step::SetPoolAccess))?;
        let context = DeviceContext::for_device(driver, import.access.first)
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

impl Drop for Given {
    fn drop(&mut self) {
        if !identity::is_forked() {
            self.slot.clean();
        }
    }
}
