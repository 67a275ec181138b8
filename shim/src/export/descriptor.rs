//! The descriptor of an export: kept open, made on demand, or the descriptor of a pool.
//!
//! A descriptor that is kept open can be fetched by its number without the broker, but
//! takes a place in the process's table of open files. So a process keeps a bounded
//! number of them open, and makes the others when an importer asks.

use crate::export::shared_pool::SharedPool;
use crate::fd::broker::Given;
use crate::gpu::driver::{self, AllocationHandle};
use crate::process::private_fd::PrivateFd;
use core::sync::atomic::{AtomicUsize, Ordering};
use rustix::process::{Resource, getrlimit};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Most descriptors that a process keeps open for its exports, whatever its limit.
const MOST_KEPT: usize = 256;

/// Descriptors kept open by this process's exports.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Where an export's descriptor comes from.
#[derive(Debug)]
pub(crate) enum Descriptor {
    /// There is none.
    None,
    /// Kept open.
    Kept(KeptFd),
    /// Exported anew for each importer.
    OnDemand,
    /// The pool's, which all its exports share.
    Pool(Arc<SharedPool>),
}

/// A descriptor that counts as kept open.
#[derive(Debug)]
pub(crate) struct KeptFd {
    fd: PrivateFd,
    _room: FdQuota,
}

/// Room for one more descriptor that is kept open.
#[derive(Debug)]
pub(crate) struct FdQuota(());

impl FdQuota {
    /// Takes room, if there is some: a quarter of the process's limit of open
    /// files, and at most [`MOST_KEPT`].
    pub(crate) fn take() -> Option<Self> {
        let limit = getrlimit(Resource::Nofile).current;
        let quarter = limit.map_or(MOST_KEPT, |limit| {
            usize::try_from(limit / 4).unwrap_or(MOST_KEPT)
        });
        let most = quarter.min(MOST_KEPT);
        KEPT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |kept| {
            (kept < most).then_some(kept + 1)
        })
        .ok()
        .map(|_| Self(()))
    }
}

impl Drop for FdQuota {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Ordering::Relaxed);
    }
}

impl KeptFd {
    pub(crate) fn new(fd: OwnedFd, room: FdQuota) -> Self {
        Self {
            fd: PrivateFd::new(fd),
            _room: room,
        }
    }
}

impl Descriptor {
    /// Whether an importer can have one.
    pub(crate) fn is_there(&self) -> bool {
        match self {
            Self::None => false,
            Self::Kept(_) | Self::OnDemand => true,
            Self::Pool(pool) => pool.fd().is_some(),
        }
    }

    /// The number of one that is kept open.
    pub(crate) fn number(&self) -> Option<i32> {
        self.kept().map(|fd| fd.as_raw_fd())
    }

    /// One for an importer; `reference` is the allocation's.
    pub(crate) fn give(
        &self,
        reference: Option<&AllocationHandle>,
    ) -> driver::Result<Option<Given<'_>>> {
        match (self, self.kept(), reference) {
            (_, Some(fd), _) => Ok(Some(Given::Borrowed(fd))),
            // Also in the place of a kept one that the program has closed.
            (Self::OnDemand | Self::Kept(_), None, Some(handle)) => {
                handle.export_fd().map(Given::Owned).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// One that is kept open, unless its number is another file's by now.
    fn kept(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::None | Self::OnDemand => None,
            Self::Kept(kept) => kept.fd.there(),
            Self::Pool(pool) => pool.fd(),
        }
    }
}
