//! The table in a multicast object's file: its members and what each has bound.
//! Every process that has the object reads and changes the same table.
//!
//! Who changes it holds a lock on the file for that moment. Each record is
//! written by one small write, so that a process that is killed in between
//! leaves a whole record or none.

use crate::Answer;
use crate::multicast_store::MemoryId;
use crate::owner::{self, OwnerId};
use crate::storage::{HEADER_BYTES, Storage};
use gpuipc_sys::CuResult;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{pread, pwrite};

/// Most members of an object.
pub(crate) const MOST_MEMBERS: usize = 64;
/// Most bindings to an object, of all members.
const MOST_BINDINGS: usize = 512;
/// The byte of the file that is locked for a change.
const CHANGING: i64 = 1;

/// Layout of the table, little-endian; it begins where other files have memory.
mod field {
    use core::ops::Range;
    pub(super) const NUM_DEVICES: Range<usize> = 0..4;
    pub(super) const HAS_SLOT: Range<usize> = 4..8;
    /// One more than the machine's number of each member's GPU; 0 is none yet.
    pub(super) const MEMBERS: usize = 64;
    pub(super) const MEMBER: usize = 4;
    pub(super) const BINDINGS: usize = 1024;
    pub(super) const BINDING: usize = 64;
    /// Inside a binding; one that is not used is zeros.
    pub(super) mod binding {
        use core::ops::Range;
        pub(in super::super) const USED: Range<usize> = 0..4;
        pub(in super::super) const MACHINE: Range<usize> = 4..8;
        pub(in super::super) const OFFSET: Range<usize> = 8..16;
        pub(in super::super) const MEMORY_OFFSET: Range<usize> = 16..24;
        pub(in super::super) const SIZE: Range<usize> = 24..32;
        pub(in super::super) const OWNER: Range<usize> = 32..40;
        pub(in super::super) const MEMORY: Range<usize> = 40..48;
    }
}

/// Bytes of the table.
pub(crate) const TABLE_BYTES: usize = field::BINDINGS + MOST_BINDINGS * field::BINDING;

/// Memory that a member has bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Binding {
    /// The machine's number of the member's GPU.
    pub(crate) machine: u32,
    /// Where it begins in the object.
    pub(crate) offset: u64,
    /// Where it begins in the memory.
    pub(crate) memory_offset: u64,
    /// Bytes.
    pub(crate) size: u64,
    /// The memory.
    pub(crate) memory: MemoryId,
}

impl Binding {
    /// Whether it has bytes in this part of the object.
    pub(crate) fn overlaps(&self, offset: u64, size: u64) -> bool {
        self.offset < offset.saturating_add(size) && offset < self.offset.saturating_add(self.size)
    }

    fn encode(&self) -> [u8; field::BINDING] {
        use field::binding as at;
        let mut bytes = [0; field::BINDING];
        bytes[at::USED].copy_from_slice(&1_u32.to_le_bytes());
        bytes[at::MACHINE].copy_from_slice(&self.machine.to_le_bytes());
        bytes[at::OFFSET].copy_from_slice(&self.offset.to_le_bytes());
        bytes[at::MEMORY_OFFSET].copy_from_slice(&self.memory_offset.to_le_bytes());
        bytes[at::SIZE].copy_from_slice(&self.size.to_le_bytes());
        bytes[at::OWNER].copy_from_slice(&self.memory.owner.0.to_le_bytes());
        bytes[at::MEMORY].copy_from_slice(&self.memory.id.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        use field::binding as at;
        (small(bytes, at::USED)? == 1).then_some(Self {
            machine: small(bytes, at::MACHINE)?,
            offset: large(bytes, at::OFFSET)?,
            memory_offset: large(bytes, at::MEMORY_OFFSET)?,
            size: large(bytes, at::SIZE)?,
            memory: MemoryId {
                owner: OwnerId(large(bytes, at::OWNER)?),
                id: large(bytes, at::MEMORY)?,
            },
        })
    }
}

fn small(bytes: &[u8], at: core::ops::Range<usize>) -> Option<u32> {
    bytes.get(at)?.try_into().map(u32::from_le_bytes).ok()
}

fn large(bytes: &[u8], at: core::ops::Range<usize>) -> Option<u64> {
    bytes.get(at)?.try_into().map(u64::from_le_bytes).ok()
}

/// The table as it was read.
#[derive(Debug)]
pub(crate) struct Table {
    bytes: Vec<u8>,
}

impl Table {
    /// Writes the table of a new object.
    pub(crate) fn create(storage: &Storage, num_devices: u32) -> Answer {
        write(storage.file(), 0, &num_devices.to_le_bytes())
    }

    /// Reads it.
    pub(crate) fn read(storage: &Storage) -> Answer<Self> {
        let mut bytes = vec![0; TABLE_BYTES];
        let read =
            pread(storage.file(), &mut bytes, HEADER_BYTES).map_err(|_| CuResult::UNKNOWN)?;
        if read == TABLE_BYTES {
            Ok(Self { bytes })
        } else {
            Err(CuResult::UNKNOWN)
        }
    }

    /// How many members it is for.
    pub(crate) fn num_devices(&self) -> u32 {
        small(&self.bytes, field::NUM_DEVICES).unwrap_or(0)
    }

    /// Whether it has a slot of the switches.
    pub(crate) fn has_slot(&self) -> bool {
        small(&self.bytes, field::HAS_SLOT) == Some(1)
    }

    /// The machine's numbers of the members' GPUs.
    pub(crate) fn members(&self) -> Vec<u32> {
        let places = (0..MOST_MEMBERS).map(|nth| field::MEMBERS + nth * field::MEMBER);
        let written = places.filter_map(|at| small(&self.bytes, at..at + field::MEMBER));
        written.filter_map(|number| number.checked_sub(1)).collect()
    }

    /// Whether all were added.
    pub(crate) fn is_complete(&self) -> bool {
        self.members().len() as u64 >= u64::from(self.num_devices())
    }

    fn record(&self, nth: usize) -> Option<Binding> {
        let at = field::BINDINGS + nth * field::BINDING;
        Binding::decode(self.bytes.get(at..at + field::BINDING)?)
    }

    /// What is bound.
    pub(crate) fn bindings(&self) -> impl Iterator<Item = Binding> {
        (0..MOST_BINDINGS).filter_map(|nth| self.record(nth))
    }
}

/// The table, locked for a change.
#[derive(Debug)]
pub(crate) struct Locked {
    /// An open file of its own: the lock is no other process's.
    file: OwnedFd,
    /// As it is now.
    pub(crate) table: Table,
}

impl Locked {
    /// Takes the lock and reads the table.
    pub(crate) fn take(storage: &Storage) -> Answer<Self> {
        let own = format!("/proc/self/fd/{}", storage.file().as_raw_fd());
        let file = rustix::fs::open(own, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|_| CuResult::OPERATING_SYSTEM)?;
        if !owner::wait_lock(file.as_fd(), CHANGING) {
            return Err(CuResult::OPERATING_SYSTEM);
        }
        let table = Table::read(storage)?;
        Ok(Self { file, table })
    }

    /// Adds a member.
    pub(crate) fn add_member(&self, machine: u32) -> Answer {
        let nth = self.table.members().len();
        let at = field::MEMBERS + nth * field::MEMBER;
        write(self.file.as_fd(), at, &(machine + 1).to_le_bytes())
    }

    /// Notes that the object has its slot.
    pub(crate) fn set_slot(&self) -> Answer {
        write(
            self.file.as_fd(),
            field::HAS_SLOT.start,
            &1_u32.to_le_bytes(),
        )
    }

    /// Adds a binding; no room is out of memory.
    pub(crate) fn bind(&self, binding: &Binding) -> Answer {
        let free = (0..MOST_BINDINGS).find(|nth| self.table.record(*nth).is_none());
        let nth = free.ok_or(CuResult::OUT_OF_MEMORY)?;
        let at = field::BINDINGS + nth * field::BINDING;
        write(self.file.as_fd(), at, &binding.encode())
    }

    /// Removes the bindings that are meant; how many there were.
    pub(crate) fn unbind(&mut self, meant: impl Fn(&Binding) -> bool) -> Answer<usize> {
        let mut removed = 0;
        for nth in 0..MOST_BINDINGS {
            if self.table.record(nth).is_some_and(|record| meant(&record)) {
                let at = field::BINDINGS + nth * field::BINDING;
                write(self.file.as_fd(), at, &[0; field::BINDING])?;
                self.table.bytes[at..at + field::BINDING].fill(0);
                removed += 1;
            }
        }
        Ok(removed)
    }
}

fn write(file: rustix::fd::BorrowedFd<'_>, at: usize, bytes: &[u8]) -> Answer {
    match pwrite(file, bytes, HEADER_BYTES + at as u64) {
        Ok(written) if written == bytes.len() => Ok(()),
        _ => Err(CuResult::OPERATING_SYSTEM),
    }
}
