//! Where a pool's memory lies in its file.
//!
//! Each of a pool's blocks has an area in the file: a byte for every place where
//! an allocation can begin, which says that what began there was freed, and then
//! the block's bytes. An area goes with the block's addresses: memory at an
//! address that came back lies where the old memory lay, and an old pointer
//! shows the new memory (seen on an H200, driver 580). What was exported keeps
//! its bytes for a while after it was freed, or until they are written anew.

use crate::Answer;
use crate::blocks::{SPACING, Spot};
use crate::header::Kind;
use crate::piece::{Origin, Piece};
use crate::storage::Storage;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Freed pointers that were exported and keep their bytes.
const MOST_STALE: usize = 8;

/// A pool's file.
#[derive(Debug)]
pub(crate) struct PoolFile {
    storage: Arc<Storage>,
    /// Where a block's bytes begin, by its address and size; none in an importer.
    areas: BTreeMap<(u64, u64), u64>,
    /// Where the next area begins.
    next: u64,
    /// Offset and size of what was freed and keeps its bytes.
    stale: VecDeque<(u64, u64)>,
}

/// Bytes in front of a block's own.
pub(crate) fn marks(block_size: u64) -> u64 {
    block_size / SPACING
}

/// Where the byte lies that says whether the memory at `offset` was freed.
fn mark_of(spot: &Spot, offset: u64) -> u64 {
    let inside = spot.address - spot.block;
    let block = offset - inside;
    block - marks(spot.block_size) + inside / SPACING
}

/// What is left of a range in front of another one, and behind it.
fn outside(
    (start, size): (u64, u64),
    (taken, length): (u64, u64),
) -> impl Iterator<Item = (u64, u64)> {
    let (end, taken_end) = (start + size, taken + length);
    let before = (start, taken.min(end).saturating_sub(start));
    let from = taken_end.max(start);
    let behind = (from, end.saturating_sub(from));
    [before, behind].into_iter().filter(|(_, left)| *left > 0)
}

impl PoolFile {
    /// A file in which nothing lies that this process knows of.
    pub(crate) fn new(storage: Storage) -> Self {
        Self {
            storage: Arc::new(storage),
            areas: BTreeMap::new(),
            next: 0,
            stale: VecDeque::new(),
        }
    }

    /// The file itself.
    pub(crate) fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }

    /// Room for an allocation, and where it begins in the file.
    pub(crate) fn take(&mut self, spot: &Spot, size: u64) -> Answer<u64> {
        let next = &mut self.next;
        let area = self.areas.entry((spot.block, spot.block_size));
        let block = *area.or_insert_with(|| {
            let block = *next + marks(spot.block_size);
            *next = block + spot.block_size;
            block
        });
        let offset = block + (spot.address - spot.block);
        self.storage.take_room(offset, size)?;
        let stale = core::mem::take(&mut self.stale).into_iter();
        self.stale = stale.flat_map(|old| outside(old, (offset, size))).collect();
        self.storage.mark(mark_of(spot, offset), false);
        Ok(offset)
    }

    /// Gives an allocation's room back; exported memory's later than other's.
    pub(crate) fn give(&mut self, spot: &Spot, offset: u64, size: u64, exported: bool) {
        if !exported {
            self.storage.give_room(offset, size);
            return;
        }
        self.storage.mark(mark_of(spot, offset), true);
        self.stale.push_back((offset, size));
        if self.stale.len() > MOST_STALE
            && let Some((offset, size)) = self.stale.pop_front()
        {
            self.storage.give_room(offset, size);
        }
    }
}

/// Whether a pool's memory was freed by its maker and lies as it was left.
pub(crate) fn is_freed(piece: &Piece) -> bool {
    match &piece.origin {
        Origin::Pooled { spot, offset, .. } if piece.storage.header().kind == Kind::Pool => {
            piece.storage.is_marked(mark_of(spot, *offset))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::outside;

    #[test]
    fn what_is_taken_of_a_range_leaves_its_ends() {
        let left = |range, taken| outside(range, taken).collect::<Vec<_>>();
        assert_eq!(left((10, 10), (10, 10)), []);
        assert_eq!(left((10, 10), (0, 100)), []);
        assert_eq!(left((10, 10), (12, 3)), [(10, 2), (15, 5)]);
        assert_eq!(left((10, 10), (5, 7)), [(12, 8)]);
        assert_eq!(left((10, 10), (18, 7)), [(10, 8)]);
        assert_eq!(left((10, 10), (0, 10)), [(10, 10)]);
        assert_eq!(left((10, 10), (20, 10)), [(10, 10)]);
    }
}
