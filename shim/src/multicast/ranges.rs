//! The used bytes of an object: first fit, aligned, free ranges are merged.
//!
//! Members that take and free ranges in the same order get the same ranges.

use std::collections::BTreeMap;

/// The ranges of `size` bytes.
///
/// ```
/// let mut ranges = gpuipc::multicast::Ranges::new(100);
/// assert_eq!(ranges.take(30, 1), Some(0));
/// assert_eq!(ranges.take(10, 32), Some(32));
/// assert_eq!(ranges.give(0), Some(30));
/// assert_eq!(ranges.free(), [(0, 32), (42, 58)]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges {
    size: u64,
    /// Start and length, never side by side.
    free: BTreeMap<u64, u64>,
    /// Start and length.
    taken: BTreeMap<u64, u64>,
}

impl Ranges {
    /// `size` bytes, all free.
    #[must_use]
    pub fn new(size: u64) -> Self {
        Self {
            size,
            free: (size > 0).then_some((0, size)).into_iter().collect(),
            taken: BTreeMap::new(),
        }
    }

    /// Takes the first `length` free bytes that begin at a multiple of `align`.
    /// `None` where there are none, and for a length or an alignment of 0.
    pub fn take(&mut self, length: u64, align: u64) -> Option<u64> {
        if length == 0 || align == 0 {
            return None;
        }
        let fits = |(start, room): (&u64, &u64)| {
            let at = start.checked_next_multiple_of(align)?;
            let fits = at.checked_add(length)? <= start + room;
            fits.then_some((*start, *room, at))
        };
        let (start, room, at) = self.free.iter().find_map(fits)?;
        self.free.remove(&start);
        let end = start + room;
        for (from, to) in [(start, at), (at + length, end)] {
            if from < to {
                self.free.insert(from, to - from);
            }
        }
        self.taken.insert(at, length);
        Some(at)
    }

    /// Gives back the range that begins at `start`; its length. `None` where
    /// none does.
    pub fn give(&mut self, start: u64) -> Option<u64> {
        let length = self.taken.remove(&start)?;
        let (mut from, mut to) = (start, start + length);
        if let Some((before, room)) = self.free.range(..start).next_back().map(copied)
            && before + room == from
        {
            self.free.remove(&before);
            from = before;
        }
        if let Some(room) = self.free.remove(&to) {
            to += room;
        }
        self.free.insert(from, to - from);
        Some(length)
    }

    /// All bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The free ranges, start and length, in order.
    #[must_use]
    pub fn free(&self) -> Vec<(u64, u64)> {
        self.free.iter().map(copied).collect()
    }

    /// The ranges that are taken, start and length, in order.
    #[must_use]
    pub fn taken(&self) -> Vec<(u64, u64)> {
        self.taken.iter().map(copied).collect()
    }
}

const fn copied((start, length): (&u64, &u64)) -> (u64, u64) {
    (*start, *length)
}
