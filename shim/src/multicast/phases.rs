//! The phases from a member that has joined to a mapped object with one buffer.

#![allow(unsafe_code)]

use super::mapping::ObjectMapping;
use super::member::{Binding, Member, Memory};
use super::team::{Ballot, Team};
use super::{Stage, Unavailable};
use crate::error::Error;
use crate::sys::{CuDevice, CuDevicePtr};
use std::sync::Arc;

/// A member whose GPU was added, as every other member's was. Nothing is bound.
#[derive(Debug)]
pub struct Joined {
    member: Arc<Member>,
}

impl Joined {
    pub(super) const fn new(member: Arc<Member>) -> Self {
        Self { member }
    }

    pub(super) fn into_member(self) -> Arc<Member> {
        self.member
    }

    /// The device that was added.
    #[must_use]
    pub fn device(&self) -> CuDevice {
        self.member.device
    }

    /// Lengths and places of what is bound are multiples of this.
    #[must_use]
    pub fn granularity(&self) -> u64 {
        self.member.object.unit
    }

    /// Binds `len` bytes of this member's memory from `ptr` on to the beginning
    /// of the object (`cuMulticastBindMem`), once all members have said that
    /// they bind as many.
    ///
    /// The memory is `cuMemCreate` memory on the device that was added, made
    /// with a handle type; `ptr` is where it is mapped, and both `len` and the
    /// place in it are multiples of [`granularity`](Self::granularity). The
    /// binding keeps it (`cuMemRetainAllocationHandle`).
    ///
    /// # Errors
    /// As [`add_device`](super::Imported::add_device); `Reason::NotBindable` for
    /// other memory.
    ///
    /// # Safety
    /// As for [`Ipc::export`](crate::Ipc::export); while the result lives, no thread
    /// unmaps the same allocation during its drop.
    pub unsafe fn bind(
        self,
        ptr: CuDevicePtr,
        len: usize,
        team: &mut Team<'_>,
    ) -> Result<Bound, Error> {
        let ballot = Ballot {
            stage: Stage::Layout,
            object: self.member.object.identity,
            offset: 0,
            length: len as u64,
        };
        // SAFETY: as the caller says.
        let memory = unsafe { Memory::at(&self.member, ptr, len) }.and_then(|memory| {
            if memory.size <= self.member.object.size {
                Ok(memory)
            } else {
                Err(Unavailable::refused(Stage::Layout, super::Reason::NoRoom).into())
            }
        });
        let memory = team.agree(&ballot, memory)?;
        match Binding::new(&self.member, memory, 0, None) {
            Ok(binding) => Ok(Bound {
                binding,
                member: self.member,
            }),
            Err(error) => Err(team.refuse(&ballot.at(Stage::Map), error.into())),
        }
    }
}

/// A member that has bound its memory. Others may still be binding.
#[derive(Debug)]
pub struct Bound {
    binding: Binding,
    member: Arc<Member>,
}

impl Bound {
    /// Maps the whole object (`cuMemAddressReserve`, `cuMemMap`,
    /// `cuMemSetAccess`), and waits until every member has bound and mapped:
    /// before that the address reaches nothing.
    ///
    /// # Errors
    /// As [`add_device`](super::Imported::add_device).
    pub fn map(self, team: &mut Team<'_>) -> Result<Multicast, Error> {
        let ballot = Ballot {
            stage: Stage::Map,
            object: self.member.object.identity,
            offset: self.binding.offset(),
            length: self.binding.size(),
        };
        let mapping = ObjectMapping::new(&self.member).map_err(Error::from);
        let mapping = team.agree(&ballot, mapping)?;
        Ok(Multicast {
            mapping,
            binding: self.binding,
        })
    }
}

/// A mapped multicast object to which every member has bound its memory.
/// Dropping it unmaps, unbinds, and lets go of memory and object.
#[derive(Debug)]
pub struct Multicast {
    // Dropped in this order.
    mapping: ObjectMapping,
    binding: Binding,
}

impl Multicast {
    /// The multicast address of the memory that was bound. Only `multimem`
    /// instructions (and plain stores) mean something there.
    #[must_use]
    pub const fn device_ptr(&self) -> CuDevicePtr {
        self.mapping.base() + self.binding.offset()
    }

    /// Bytes that were bound.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // nothing empty is ever bound
    pub const fn len(&self) -> u64 {
        self.binding.size()
    }

    /// As the drop, but says what failed first. The rest is undone in any case.
    ///
    /// # Errors
    /// [`Error::MulticastUnavailable`] at [`Stage::Unmap`] or [`Stage::Unbind`].
    pub fn close(self) -> Result<(), Error> {
        let Self {
            mut mapping,
            mut binding,
        } = self;
        let unmapped = mapping.undo();
        let unbound = binding
            .undo()
            .map_err(|error| Unavailable::driver(Stage::Unbind, &error));
        Ok(unmapped.and(unbound)?)
    }
}
