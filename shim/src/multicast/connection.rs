//! Several buffers on one multicast object.

#![allow(unsafe_code)]

use super::mapping::ObjectMapping;
use super::member::{Binding, Member, Memory};
use super::phases::Joined;
use super::ranges::Ranges;
use super::team::{Ballot, Team};
use super::{Reason, Stage, Unavailable};
use crate::error::Error;
use crate::sys::CuDevicePtr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A member's side of one object with any number of buffers, as mscclpp's
/// `NvlsConnection`. The object is mapped once, whole, with the first buffer, and
/// unmapped with the last.
///
/// All members bind, and drop, in the same order: so each gets the same range
/// of the object. A member whose range differs is found before anything is bound.
#[derive(Debug)]
pub struct Connection<'a> {
    member: Arc<Member>,
    ranges: Arc<Mutex<Ranges>>,
    mapping: Mutex<Weak<ObjectMapping>>,
    team: Mutex<Team<'a>>,
}

impl<'a> Connection<'a> {
    /// Takes the member and its team. Calls nothing.
    #[must_use]
    pub fn new(joined: Joined, team: Team<'a>) -> Self {
        let member = joined.into_member();
        let ranges = Ranges::new(member.object.size);
        Self {
            member,
            ranges: Arc::new(Mutex::new(ranges)),
            mapping: Mutex::new(Weak::new()),
            team: Mutex::new(team),
        }
    }

    /// Bytes of the object that no buffer takes. One range may be smaller.
    #[must_use]
    pub fn free(&self) -> u64 {
        let ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        ranges.free().iter().map(|(_, length)| length).sum()
    }

    /// Lengths and places of what is bound are multiples of this.
    #[must_use]
    pub fn granularity(&self) -> u64 {
        self.member.object.unit
    }

    /// Binds `len` bytes of this member's memory from `ptr` on to the first free
    /// range of the object, on every member at once, and gives their address once
    /// all have bound and mapped. What memory can be bound
    /// [`Joined::bind`] says.
    ///
    /// The driver calls: `cuMemRetainAllocationHandle`, `cuMulticastBindMem`; with
    /// the first buffer `cuMemAddressReserve`, `cuMemMap`, `cuMemSetAccess`.
    ///
    /// # Errors
    /// [`Error::MulticastUnavailable`] for this member's own failure
    /// ([`Reason::NoRoom`] where no range is free), [`Error::MulticastTeam`] with
    /// the member that failed, is gone, or means another range. The buffers that
    /// are there stay.
    ///
    /// # Safety
    /// As for [`Ipc::export`](crate::Ipc::export); while the result lives, no thread
    /// unmaps the same allocation during its drop.
    pub unsafe fn bind(&self, ptr: CuDevicePtr, len: usize) -> Result<BoundBuffer, Error> {
        crate::process::identity::process_id()?;
        let mut team = self.team.lock().unwrap_or_else(PoisonError::into_inner);
        let length = len as u64;
        // SAFETY: as the caller says.
        let memory = unsafe { Memory::at(&self.member, ptr, len) };
        // Taken also for what cannot be bound, so that the others see which range
        // was meant; given back below.
        let range = Range::take(&self.ranges, length, self.granularity());
        let ballot = Ballot {
            stage: Stage::Layout,
            object: self.member.object.identity,
            offset: range.as_ref().map_or(u64::MAX, |range| range.offset),
            length,
        };
        let ready = memory.and_then(|memory| {
            let range = range.ok_or(Unavailable::refused(Stage::Layout, Reason::NoRoom))?;
            Ok((memory, range))
        });
        let (memory, range) = team.agree(&ballot, ready)?;
        let bound = range.bind(&self.member, memory).and_then(|binding| {
            let mapping = self.map()?;
            Ok(BoundBuffer { mapping, binding })
        });
        team.agree(&ballot.at(Stage::Map), bound.map_err(Error::from))
    }

    /// The mapping of the whole object that the buffers share.
    fn map(&self) -> Result<Arc<ObjectMapping>, Unavailable> {
        let mut shared = self.mapping.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mapping) = shared.upgrade() {
            return Ok(mapping);
        }
        let mapping = Arc::new(ObjectMapping::new(&self.member)?);
        *shared = Arc::downgrade(&mapping);
        Ok(mapping)
    }
}

/// A range that is taken, and given back unless memory is bound to it.
struct Range<'a> {
    ranges: &'a Arc<Mutex<Ranges>>,
    offset: u64,
}

impl<'a> Range<'a> {
    fn take(ranges: &'a Arc<Mutex<Ranges>>, length: u64, align: u64) -> Option<Self> {
        let mut all = ranges.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = all.take(length, align)?;
        Some(Self { ranges, offset })
    }

    fn bind(self, member: &Arc<Member>, memory: Memory) -> Result<Binding, Unavailable> {
        let ranges = Some(Arc::clone(self.ranges));
        let binding = Binding::new(member, memory, self.offset, ranges)?;
        // The binding gives it back.
        core::mem::forget(self);
        Ok(binding)
    }
}

impl Drop for Range<'_> {
    fn drop(&mut self) {
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        ranges.give(self.offset);
    }
}

/// Memory that every member has bound at the same range of an object. Dropping
/// it unbinds this member's; the last buffer unmaps the object before that. It
/// may outlive its [`Connection`].
#[derive(Debug)]
pub struct BoundBuffer {
    // Dropped in this order.
    mapping: Arc<ObjectMapping>,
    binding: Binding,
}

impl BoundBuffer {
    /// The multicast address.
    #[must_use]
    pub fn device_ptr(&self) -> CuDevicePtr {
        self.mapping.base() + self.binding.offset()
    }

    /// Where it begins in the object, on every member.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.binding.offset()
    }

    /// Bytes that were bound.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // nothing empty is ever bound
    pub const fn len(&self) -> u64 {
        self.binding.size()
    }

    /// As the drop, but says what failed first. The rest is undone in any case; a
    /// range that stays bound is not given out again.
    ///
    /// # Errors
    /// [`Error::MulticastUnavailable`] at [`Stage::Unmap`] or [`Stage::Unbind`].
    pub fn close(self) -> Result<(), Error> {
        let Self {
            mapping,
            mut binding,
        } = self;
        // Of the buffer that was the last only: the others still use it.
        let unmapped = Arc::into_inner(mapping).map_or(Ok(()), |mut mapping| mapping.undo());
        let unbound = binding
            .undo()
            .map_err(|error| Unavailable::driver(Stage::Unbind, &error));
        Ok(unmapped.and(unbound)?)
    }
}
