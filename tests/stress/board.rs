//! What all processes know of each other: one page of atomics that all map. To look at it takes
//! no descriptor and no system call, so it works in a process that is starved of them.

use crate::system;
use gpuipc::{GpuIpcMemHandle, HANDLE_BYTES, Memory};
use rustix::fs::{CWD, Mode, OFlags, ftruncate, openat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};

/// Worker processes at the same time.
pub(crate) const MOST_WORKERS: usize = 64;
/// Allocations that a worker has at the same time.
pub(crate) const GROUPS: usize = 24;
/// Ranges of an allocation.
pub(crate) const RANGES: usize = 3;
/// Segments of a range.
const MOST_HANDLES: usize = 4;
const WORDS: usize = 3 + MOST_HANDLES * HANDLE_BYTES / 8;
/// What a disturbance did to a request on its way shows a little later.
const SLACK: u64 = 100_000_000;

/// A named list of counters.
macro_rules! list {
    ($(#[$doc:meta])* $name:ident { $($item:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name { $($item),* }
        impl $name {
            pub(crate) const ALL: &[Self] = &[$(Self::$item),*];
        }
    };
}

list! {
    /// What is counted: first what threads do, then what is done to them and what came of it.
    Count {
        Allocate, Export, Revoke, Free, FreeWhileExported, Import, ImportInOwner, ImportStale,
        Verify, Unmap, Fork, NewIpc,
        BytesVerified, WrongBytes, Kills, Stops, Signals, DriverFaults, LowFileLimits,
        FullFileTables, NormalEnds, Hangs,
    }
}

list! {
    /// What is done to a process for a while.
    Disturbance { Stop, Files, Faults }
}

/// All of it. Zeros are a board on which nothing has happened.
#[repr(C)]
pub(crate) struct Board {
    /// Not 0: all workers are to end.
    pub(crate) ending: AtomicU64,
    /// How often it was done, and refused for a reason.
    counts: [[AtomicU64; 2]; Count::ALL.len()],
    places: [Place; MOST_WORKERS],
}

/// Of one worker and its successors.
#[repr(C)]
pub(crate) struct Place {
    /// Which of them is the one that runs; changes before the one before is killed.
    pub(crate) incarnation: AtomicU64,
    /// Until when each disturbance lasted; the largest number while it does.
    disturbed: [AtomicU64; Disturbance::ALL.len()],
    groups: [Group; GROUPS],
}

/// An allocation. The numbers are its serial number, or 0.
#[repr(C)]
struct Group {
    /// Until all of it is given back.
    held: AtomicU64,
    /// Until its owner begins to free it, which may be while it is exported.
    allocated: AtomicU64,
    ranges: [Range; RANGES],
}

/// An exported range: read without a lock, and only whole.
#[repr(C)]
struct Range {
    /// The export's serial number; 0 while there is none, or it is being written.
    serial: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// One run of one worker's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Who {
    pub(crate) worker: usize,
    pub(crate) incarnation: u64,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.worker, self.incarnation)
    }
}

impl std::str::FromStr for Who {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.split_once('.').and_then(|(worker, incarnation)| {
            Some((worker.parse().ok()?, incarnation.parse().ok()?))
        });
        let (worker, incarnation) = numbers.ok_or("WORKER.INCARNATION")?;
        Ok(Self {
            worker,
            incarnation,
        })
    }
}

/// Where a group or a range is on the board, and which one it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupId {
    pub(crate) who: Who,
    pub(crate) slot: usize,
    pub(crate) serial: u64,
}

/// An exported range, as importers know it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Export {
    pub(crate) group: GroupId,
    pub(crate) range: usize,
    /// Also the seed of the bytes: no two ranges have the same.
    pub(crate) serial: u64,
    pub(crate) memory: Memory,
    pub(crate) len: usize,
    pub(crate) handles: Vec<GpuIpcMemHandle>,
}

/// A number that nothing else on the board has, made of one that is new in its process.
pub(crate) const fn serial_of(who: Who, next: u64) -> u64 {
    (who.worker as u64 + 1) << 56 | (who.incarnation & 0xffff) << 40 | next
}

/// Who made it. What a place says may be its successor's already.
const fn owner_of(serial: u64) -> Who {
    Who {
        worker: (serial >> 56) as usize - 1,
        incarnation: serial >> 40 & 0xffff,
    }
}

/// Nanoseconds of a clock that all processes share.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

impl Board {
    /// Maps the one in this file, which is made if there is none.
    pub(crate) fn open(path: &Path) -> Result<&'static Self, Errno> {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)?;
        ftruncate(&file, size_of::<Self>() as u64)?;
        system::map_board(&file)
    }

    pub(crate) fn done(&self, what: Count) {
        self.add(what, 1);
    }

    pub(crate) fn add(&self, what: Count, more: u64) {
        self.counts[what as usize][0].fetch_add(more, Relaxed);
    }

    pub(crate) fn refused(&self, what: Count) {
        self.counts[what as usize][1].fetch_add(1, Relaxed);
    }

    /// How often it was done, and refused.
    pub(crate) fn count(&self, what: Count) -> [u64; 2] {
        [0, 1].map(|which: usize| self.counts[what as usize][which].load(Relaxed))
    }

    pub(crate) fn place(&self, who: Who) -> &Place {
        &self.places[who.worker]
    }

    /// Begins or ends a disturbance of this process.
    pub(crate) fn disturb(&self, who: Who, what: Disturbance, lasts: bool) {
        let until = if lasts { u64::MAX } else { now() };
        self.place(who).disturbed[what as usize].store(until, SeqCst);
    }

    /// Whether it was done to this process at any time since `start`.
    pub(crate) fn was_disturbed(&self, who: Who, what: Disturbance, start: u64) -> bool {
        let until = self.place(who).disturbed[what as usize].load(SeqCst);
        until.saturating_add(SLACK) >= start && until != 0
    }

    /// Whether this run of a worker was killed.
    pub(crate) fn is_killed(&self, who: Who) -> bool {
        self.place(who).incarnation.load(SeqCst) != who.incarnation
    }

    /// Forgets what a dead worker was doing and exporting.
    pub(crate) fn bury(&self, who: Who) {
        let place = self.place(who);
        for group in &place.groups {
            group
                .ranges
                .iter()
                .for_each(|range| range.serial.store(0, SeqCst));
            group.allocated.store(0, SeqCst);
            group.held.store(0, SeqCst);
        }
        place
            .disturbed
            .iter()
            .for_each(|until| until.store(0, SeqCst));
    }

    fn group(&self, group: GroupId) -> &Group {
        &self.place(group.who).groups[group.slot]
    }

    /// Takes a slot for a new allocation. Two threads of a worker must not call it at once.
    pub(crate) fn new_group(&self, who: Who, serial: u64) -> Option<GroupId> {
        let free = |group: &Group| group.held.load(SeqCst) == 0;
        let slot = self.place(who).groups.iter().position(free)?;
        let group = GroupId { who, slot, serial };
        self.group(group).allocated.store(serial, SeqCst);
        self.group(group).held.store(serial, SeqCst);
        Some(group)
    }

    /// To be called before its owner frees the memory.
    pub(crate) fn freed(&self, group: GroupId) {
        self.group(group).allocated.store(0, SeqCst);
    }

    /// To be called when all of it is given back.
    pub(crate) fn end_group(&self, group: GroupId) {
        self.group(group).held.store(0, SeqCst);
    }

    /// Whether its owner still has the memory.
    pub(crate) fn is_allocated(&self, group: GroupId) -> bool {
        self.group(group).allocated.load(SeqCst) == group.serial
    }

    fn range(&self, export: &Export) -> &Range {
        &self.group(export.group).ranges[export.range]
    }

    /// Lets others see it.
    pub(crate) fn publish(&self, export: &Export) {
        let range = self.range(export);
        range.serial.store(0, Relaxed);
        fence(Release);
        for (word, value) in range.words.iter().zip(export.encode()) {
            word.store(value, Relaxed);
        }
        range.serial.store(export.serial, Release);
    }

    /// To be called before it is revoked.
    pub(crate) fn revoke(&self, export: &Export) {
        self.range(export).serial.store(0, SeqCst);
    }

    /// Whether it is exported still.
    pub(crate) fn stands(&self, export: &Export) -> bool {
        self.range(export).serial.load(SeqCst) == export.serial
    }

    /// Whether its owner has let go of the whole allocation.
    pub(crate) fn is_over(&self, export: &Export) -> bool {
        !self.stands(export) && self.group(export.group).held.load(SeqCst) != export.group.serial
    }

    /// The export at a place, if there is one.
    pub(crate) fn read(&self, worker: usize, slot: usize, range: usize) -> Option<Export> {
        let group = &self.places[worker].groups[slot];
        let at = &group.ranges[range];
        let serial = at.serial.load(Acquire);
        if serial == 0 {
            return None;
        }
        let held = group.held.load(SeqCst);
        let words: Vec<u64> = at.words.iter().map(|word| word.load(Relaxed)).collect();
        fence(Acquire);
        if at.serial.load(Relaxed) != serial || held == 0 {
            return None;
        }
        let who = owner_of(serial);
        let group = GroupId {
            who,
            slot,
            serial: held,
        };
        Export::decode(group, range, serial, &words)
    }
}

impl Export {
    fn encode(&self) -> Vec<u64> {
        let memory = Memory::ALL.iter().position(|memory| *memory == self.memory);
        let mut words = vec![memory.map_or(0, |at| at as u64), self.len as u64];
        words.push(self.handles.len() as u64);
        assert!(self.handles.len() <= MOST_HANDLES, "too long for the board");
        for handle in &self.handles {
            let bytes = handle.encode();
            let words_of_it = bytes.as_chunks::<8>().0.iter();
            words.extend(words_of_it.map(|word| u64::from_le_bytes(*word)));
        }
        words
    }

    fn decode(group: GroupId, range: usize, serial: u64, words: &[u64]) -> Option<Self> {
        let (&[memory, len, count], rest) = words.split_first_chunk()?;
        let bytes: Vec<u8> = rest.iter().flat_map(|word| word.to_le_bytes()).collect();
        let handles = bytes
            .chunks(HANDLE_BYTES)
            .take(usize::try_from(count).ok()?);
        Some(Self {
            group,
            range,
            serial,
            memory: *Memory::ALL.get(usize::try_from(memory).ok()?)?,
            len: usize::try_from(len).ok()?,
            handles: handles
                .map(GpuIpcMemHandle::decode)
                .collect::<Result<_, _>>()
                .ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: Who = Who {
        worker: 2,
        incarnation: 0,
    };

    /// A board of its own.
    fn board(name: &str) -> &'static Board {
        let path = std::env::temp_dir().join(format!("gpuipc-board-{name}-{}", std::process::id()));
        let board = Board::open(&path).expect("a new file");
        std::fs::remove_file(path).expect("it is there");
        board
    }

    #[test]
    fn an_export_arrives_whole_and_is_over_after_its_end() {
        let board = board("exports");
        let group = board
            .new_group(WHO, serial_of(WHO, 77))
            .expect("an empty board");
        let memory = Memory::Segments;
        let export = Export {
            group,
            range: 1,
            serial: serial_of(WHO, 9),
            memory,
            len: 4097,
            handles: Vec::new(),
        };
        assert_eq!(board.read(2, group.slot, 1), None);
        board.publish(&export);
        assert_eq!(board.read(2, group.slot, 1), Some(export.clone()));
        assert!(board.stands(&export) && board.is_allocated(group));
        board.freed(group);
        assert!(board.stands(&export) && !board.is_allocated(group));
        board.revoke(&export);
        assert!(!board.stands(&export) && !board.is_over(&export));
        board.end_group(group);
        assert!(board.is_over(&export));
    }

    #[test]
    fn a_disturbance_is_seen_while_it_lasts_and_not_by_what_begins_later() {
        let (board, hour) = (board("disturbances"), 3_600_000_000_000);
        let seen = |start| board.was_disturbed(WHO, Disturbance::Stop, start);
        let before = now();
        assert!(!seen(before));
        board.disturb(WHO, Disturbance::Stop, true);
        assert!(seen(before + hour));
        board.disturb(WHO, Disturbance::Stop, false);
        assert!(seen(before) && !seen(before + hour));
        assert!(!board.was_disturbed(WHO, Disturbance::Files, before));
    }
}
