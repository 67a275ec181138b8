//! What the server asks about the exports of this process. The layer above implements
//! it.

use crate::gpu::driver::Result;
use crate::sys::CuDevicePtr;
use core::fmt::Debug;
use gpuipc_core::{Endpoint, Token};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The exports of this process.
pub(crate) trait Exports: Debug + Send {
    /// The live export of an allocation by the broker with this endpoint, for one who
    /// holds its token.
    fn under_token(
        &self,
        allocation_id: u64,
        endpoint: Endpoint,
        token: &Token,
    ) -> Option<Arc<dyn Export>>;
}

/// One allocation that is exported.
pub(crate) trait Export {
    /// Its place in this process.
    fn place(&self) -> (CuDevicePtr, u64);

    /// Whether an importer can have a descriptor.
    fn has_descriptor(&self) -> bool;

    /// One for an importer; `None` where it has none, or has ended.
    fn give_descriptor(&self) -> Result<Option<Given<'_>>>;

    /// Whether the memory at its address is still the one that was exported.
    fn memory_unchanged(&self) -> Result<bool>;
}

/// A descriptor on its way to an importer.
pub(crate) enum Given<'a> {
    /// It stays open here.
    Borrowed(BorrowedFd<'a>),
    /// It was made for this importer and is closed when it is sent.
    Owned(OwnedFd),
}

impl AsFd for Given<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Borrowed(fd) => fd.as_fd(),
            Self::Owned(fd) => fd.as_fd(),
        }
    }
}
