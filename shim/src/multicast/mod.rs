//! Multicast (NVLS): one object for the memory of several GPUs. A store to its address
//! reaches the memory of every member, and a load reduces over all of it, in the NVLink
//! switches.
//!
//! **It has run on the emulated driver only.** On any other driver every call fails with
//! [`Reason::NotOptedIn`] before it calls the driver, unless
//! [`IpcOptions::experimental_multicast`](crate::IpcOptions::experimental_multicast)
//! allows it.
//!
//! # Phases
//!
//! Each phase is a type, and its methods are the calls that are allowed in it. Each phase
//! consumes the one before it. A failed phase is undone, and memory that is shared in the
//! ordinary way is not affected.
//!
//! | phase | made by | driver calls |
//! |---|---|---|
//! | [`Created`] | [`Ipc::create_multicast`] in one process | `cuMulticastGetGranularity`, `cuMulticastCreate`, `cuMemExportToShareableHandle` |
//! | [`Imported`] | [`Ipc::import_multicast`] in every process, the creator's too | `cuMemImportFromShareableHandle` |
//! | [`Joined`] | [`Imported::add_device`] | `cuMulticastAddDevice`; **all members agree** |
//! | [`Bound`] | [`Joined::bind`] | **all compare the layout**; `cuMulticastBindMem` |
//! | [`Multicast`] | [`Bound::map`] | `cuMemAddressReserve`, `cuMemMap`, `cuMemSetAccess`; **all agree** |
//!
//! The driver's bind and map wait without a limit for a member that does not come. So
//! they are called only after all members have agreed that they were added. The address
//! is returned only after all members have bound and mapped. The creator keeps
//! [`Created`], which holds the first reference, until it is [`Joined`]: by then all
//! members have imported.
//!
//! Members agree over a [`Team`], which uses any transport of bytes that the application
//! has. An agreement has a deadline and names a member that is gone. A member that cannot
//! import calls [`Team::give_up`].
//!
//! ```
//! use gpuipc::multicast::{Multicast, Team};
//! use gpuipc::{GpuIpcMemHandle, ImportOptions, Ipc};
//!
//! unsafe fn member(ipc: &Ipc, handle: &GpuIpcMemHandle, team: &mut Team<'_>, ptr: u64, len: usize)
//!     -> Result<Multicast, gpuipc::Error>
//! {
//!     let imported = ipc.import_multicast(handle, &ImportOptions::default())?;
//!     let joined = imported.add_device(0, team)?;
//!     // SAFETY: the caller keeps the memory mapped.
//!     unsafe { joined.bind(ptr, len, team) }?.map(team)
//! }
//! # // SAFETY: the emulated driver's table follows CUDA's contract.
//! # let driver = unsafe { gpuipc::Driver::from_table(gpuipc_emulated::table()) };
//! # let ipc = gpuipc::Ipc::new(driver)?;
//! # let memory = gpuipc::Buffer::new(driver, 0, gpuipc::Memory::VmmFd, 2 << 20)?;
//! # let created = ipc.create_multicast(memory.len(), 1, &gpuipc::ExportOptions::default())?;
//! # // A team of one: its message is all there is.
//! # let mut team = Team::new(0, 1, |own, _| vec![gpuipc::multicast::Heard::Message(*own)])?;
//! # // SAFETY: `memory` lives until the end.
//! # let multicast = unsafe {
//! #     member(&ipc, created.handle(), &mut team, memory.device_ptr(), memory.len())
//! # }?;
//! # multicast.close()?;
//! # Ok::<(), gpuipc::Error>(())
//! ```
//!
//! [`Connection`] puts several buffers on one object.
//!
//! # Tear-down
//!
//! Objects may be dropped in any order. The driver sees: unmap, unbind on the device that
//! was added, release the memory, release the object. A binding holds a reference to its
//! memory, so the owner may free the memory before, but not in another thread at the same
//! time. A failure is logged as a warning and stops nothing. [`Multicast::close`] returns
//! it.
//!
//! Multicast does not wait for the GPUs or order their work: all members must be done with
//! the address before any of them drops it.

mod connection;
mod created;
mod imported;
mod mapping;
mod member;
mod message;
mod phases;
mod ranges;
mod team;

pub use crate::error::multicast::{Fault, Reason, Stage, TeamError, Unavailable};
pub use connection::{BoundBuffer, Connection};
pub use created::Created;
pub use imported::Imported;
pub use message::MESSAGE_BYTES;
pub use phases::{Bound, Joined, Multicast};
pub use ranges::Ranges;
pub use team::{DEFAULT_TEAM_TIMEOUT, Heard, Team};

use crate::error::Error;
use crate::options::{ExportOptions, ImportOptions};
use crate::session::Ipc;
use gpuipc_core::GpuIpcMemHandle;

/// The message that these bytes are, encoded again: for the fuzz targets.
pub(crate) fn decoded(bytes: &[u8; MESSAGE_BYTES]) -> Option<[u8; MESSAGE_BYTES]> {
    message::Message::decode(bytes).map(|message| message.encode())
}

impl Ipc {
    /// Makes a multicast object for `num_devices` members, one GPU each, and
    /// exports it. It has room for `size` bytes of each member's memory, rounded
    /// up to what the driver recommends; it takes none itself.
    ///
    /// The driver calls: `cuMulticastGetGranularity`, `cuMulticastCreate`,
    /// `cuMemExportToShareableHandle`. Where fabric handles are refused the
    /// object is made for descriptors alone.
    ///
    /// # Errors
    /// [`Error::MulticastUnavailable`] with the stage and the code,
    /// [`Error::Argument`] for no bytes or no devices, [`Error::BrokerStart`],
    /// [`Error::Forked`].
    pub fn create_multicast(
        &self,
        size: usize,
        num_devices: u16,
        options: &ExportOptions,
    ) -> Result<Created, Error> {
        created::create(self, size, num_devices, options)
    }

    /// Imports a multicast object. Maps nothing yet.
    ///
    /// The driver call is `cuMemImportFromShareableHandle`, after the descriptor
    /// was fetched as for memory. Of the options, the types, the deadline and the
    /// cancel flag count.
    ///
    /// # Errors
    /// [`Error::MulticastUnavailable`] where the driver refuses the object,
    /// [`Error::Import`] where no handle could be fetched, with every attempt,
    /// [`Error::Argument`] for a handle of something else, [`Error::Forked`].
    pub fn import_multicast(
        &self,
        handle: &GpuIpcMemHandle,
        options: &ImportOptions,
    ) -> Result<Imported, Error> {
        imported::import(self, handle, options)
    }
}

/// Refuses a driver that is not known to be the emulated one, unless the caller
/// allowed it.
fn allowed(ipc: &Ipc) -> Result<(), Error> {
    crate::process::identity::process_id()?;
    if ipc.settings().experimental_multicast || ipc.driver().is_emulated() {
        Ok(())
    } else {
        Err(Unavailable::refused(Stage::OptIn, Reason::NotOptedIn).into())
    }
}
