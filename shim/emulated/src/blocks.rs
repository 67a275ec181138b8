//! Addresses for `cuMemAlloc`, `cuMemHostAlloc` and opened legacy memory.
//!
//! The driver takes memory in blocks of 2 MiB: an allocation above 1 MiB has
//! blocks of its own, smaller ones of a device lie in one block side by side.
//! An address that was freed is given out again soon (seen on an H200, driver
//! 580: the same or half the size allocated again gets the same address), which
//! is what makes stale handles dangerous.

use crate::owner::OwnerId;
use crate::space::Region;
use std::collections::BTreeMap;

/// The driver's block, and the granularity of VMM memory.
pub(crate) const BLOCK: u64 = 2 << 20;
/// A pool takes memory in blocks of this size.
const POOL_BLOCK: u64 = 32 << 20;
/// Allocations up to here share a block.
const SMALL: u64 = 1 << 20;
/// Small allocations begin at multiples of this.
pub(crate) const SPACING: u64 = 512;
/// Freed addresses kept for the next allocation.
const MOST_IDLE: usize = 256;

/// An address and the block around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Spot {
    /// Where the allocation begins.
    pub(crate) address: u64,
    /// Where its block begins.
    pub(crate) block: u64,
    /// Bytes of the block.
    pub(crate) block_size: u64,
    /// The block's number: `MEMORY_BLOCK_ID`.
    pub(crate) block_id: u64,
}

#[derive(Debug)]
struct Block {
    region: Region,
    /// Bytes in use from the region's beginning on; it may be longer.
    size: u64,
    id: u64,
    /// Whose allocations lie here side by side; `None` if it is one's own.
    shared_by: Option<Sharer>,
    /// Offset and length of each allocation.
    used: BTreeMap<u64, u64>,
}

/// Whose allocations share blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sharer {
    Device(usize),
    Pool(u64),
    Foreign(ForeignBlock),
    /// A block of an imported pool, by the pool's handle and where the block begins
    /// in the pool's file.
    Imported(u64, u64),
}

/// A block of another process, of which allocations are open here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ForeignBlock {
    /// The other process.
    pub(crate) owner: OwnerId,
    /// Where the block begins there.
    pub(crate) start: u64,
    /// The opener's device.
    pub(crate) device: usize,
}

/// Bytes of the block around memory that begins `offset` into it, if it is as
/// small as it can be.
pub(crate) fn room(size: u64, offset: u64) -> Option<u64> {
    size.checked_add(offset)?.checked_next_multiple_of(BLOCK)
}

impl Sharer {
    fn pool(sharer: Option<Self>) -> Option<u64> {
        match sharer {
            Some(Self::Pool(pool)) => Some(pool),
            _ => None,
        }
    }
}

/// All blocks of this process.
#[derive(Debug)]
pub(crate) struct Blocks {
    blocks: BTreeMap<u64, Block>,
    /// Addresses for the next allocation; a pool's only for its own.
    idle: Vec<(Option<u64>, Region)>,
    last_id: u64,
}

impl Blocks {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Self {
            blocks: BTreeMap::new(),
            idle: Vec::new(),
            last_id: 0x31,
        }
    }

    /// A number for a block; VMM memory takes from the same sequence.
    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Addresses for a device's allocation of `size` bytes.
    pub(crate) fn take(&mut self, device: usize, size: u64) -> Option<Spot> {
        if size > SMALL {
            return self.take_whole(size);
        }
        self.take_shared(Sharer::Device(device), size, BLOCK)
    }

    /// Addresses for an allocation of a pool.
    pub(crate) fn take_for_pool(&mut self, pool: u64, size: u64) -> Option<Spot> {
        self.take_shared(Sharer::Pool(pool), size, POOL_BLOCK)
    }

    fn take_shared(&mut self, sharer: Sharer, size: u64, block: u64) -> Option<Spot> {
        let length = size.checked_next_multiple_of(SPACING)?;
        let fits = self
            .blocks
            .iter()
            .filter(|(_, block)| block.shared_by == Some(sharer));
        let (start, offset) = match fits
            .filter_map(|(start, block)| Some((*start, block.hole(length)?)))
            .next()
        {
            Some(found) => found,
            None => {
                let room = length.checked_next_multiple_of(block)?;
                (self.add(room, Some(sharer))?, 0)
            }
        };
        self.enter(start, offset, length)
    }

    /// Addresses in blocks of their own.
    pub(crate) fn take_whole(&mut self, size: u64) -> Option<Spot> {
        let start = self.add(room(size, 0)?, None)?;
        self.enter(start, 0, size)
    }

    /// Addresses for another process's memory, `offset` into its block. What is
    /// open of the same block lies as far away as it does there (seen on an H200,
    /// driver 580), unless older memory is still open at this place.
    pub(crate) fn take_opened(
        &mut self,
        from: ForeignBlock,
        size: u64,
        offset: u64,
    ) -> Option<Spot> {
        self.take_at(Sharer::Foreign(from), room(size, offset)?, offset, size)
    }

    /// Addresses for memory of an imported pool, `offset` into its block: as
    /// [`Self::take_opened`].
    pub(crate) fn take_imported(
        &mut self,
        pool: u64,
        block: u64,
        block_size: u64,
        offset: u64,
        size: u64,
    ) -> Option<Spot> {
        if offset.checked_add(size)? > block_size || !block_size.is_multiple_of(BLOCK) {
            return None;
        }
        self.take_at(Sharer::Imported(pool, block), block_size, offset, size)
    }

    fn take_at(&mut self, sharer: Sharer, room: u64, offset: u64, size: u64) -> Option<Spot> {
        let sharer = Some(sharer);
        let fits = |block: &Block| {
            block.shared_by == sharer && block.size == room && block.is_free(offset, size)
        };
        let found = self.blocks.iter().find(|(_, block)| fits(block));
        let start = match found.map(|(start, _)| *start) {
            Some(start) => start,
            None => self.add(room, sharer)?,
        };
        self.enter(start, offset, size)
    }

    /// Gives addresses back.
    pub(crate) fn give(&mut self, spot: &Spot) {
        let Some(block) = self.blocks.get_mut(&spot.block) else {
            return;
        };
        block.used.remove(&(spot.address - spot.block));
        if !block.used.is_empty() {
            return;
        }
        if let Some(block) = self.blocks.remove(&spot.block) {
            self.idle
                .push((Sharer::pool(block.shared_by), block.region));
        }
        if self.idle.len() > MOST_IDLE {
            self.idle.remove(0);
        }
    }

    /// Gives up what was kept for a pool that is gone.
    pub(crate) fn forget_pool(&mut self, pool: u64) {
        self.idle.retain(|(kept_for, _)| *kept_for != Some(pool));
    }

    /// The addresses of a block, to show host memory in them.
    pub(crate) fn region(&self, spot: &Spot) -> Option<&Region> {
        self.blocks.get(&spot.block).map(|block| &block.region)
    }

    fn add(&mut self, size: u64, shared_by: Option<Sharer>) -> Option<u64> {
        let pool = Sharer::pool(shared_by);
        let idle = |fits: &dyn Fn(u64) -> bool| {
            let mut found = self.idle.iter();
            found.rposition(|(kept_for, region)| *kept_for == pool && fits(region.size()))
        };
        // A pool's blocks have few sizes; it keeps to them.
        let larger = || idle(&|kept| kept > size).filter(|_| pool.is_none());
        let region = match idle(&|kept| kept == size).or_else(larger) {
            Some(index) => self.idle.remove(index).1,
            None => Region::new(size, BLOCK, None)?,
        };
        let (start, id) = (region.base(), self.next_id());
        self.blocks.insert(
            start,
            Block {
                region,
                size,
                id,
                shared_by,
                used: BTreeMap::new(),
            },
        );
        Some(start)
    }

    fn enter(&mut self, start: u64, offset: u64, length: u64) -> Option<Spot> {
        let block = self.blocks.get_mut(&start)?;
        block.used.insert(offset, length);
        Some(Spot {
            address: start + offset,
            block: start,
            block_size: block.size,
            block_id: block.id,
        })
    }
}

impl Block {
    /// The first free place for `length` bytes.
    fn hole(&self, length: u64) -> Option<u64> {
        let mut free = 0;
        for (offset, used) in &self.used {
            if offset - free >= length {
                break;
            }
            free = offset + used;
        }
        (free + length <= self.size).then_some(free)
    }

    /// Whether nothing lies in `length` bytes at `offset`.
    fn is_free(&self, offset: u64, length: u64) -> bool {
        let before = self.used.range(..offset + length).next_back();
        before.is_none_or(|(start, used)| start + used <= offset)
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, Blocks, ForeignBlock};
    use crate::owner::OwnerId;

    #[test]
    fn small_allocations_lie_side_by_side_and_a_freed_place_is_taken_again() {
        let mut blocks = Blocks::new();
        let a = blocks.take(0, 4096).expect("a");
        let b = blocks.take(0, 4096).expect("b");
        let other = blocks.take(1, 4096).expect("another device's");
        assert_eq!(b.address - a.address, 4096);
        assert_eq!(a.block_id, b.block_id);
        assert_ne!(other.block, a.block);
        blocks.give(&a);
        assert_eq!(blocks.take(0, 100).expect("again").address, a.address);
    }

    #[test]
    fn a_large_allocation_comes_back_at_its_address_with_another_block_number() {
        let mut blocks = Blocks::new();
        let first = blocks.take(0, 3 << 20).expect("first");
        assert_eq!((first.address, first.block_size), (first.block, 2 * BLOCK));
        blocks.give(&first);
        let second = blocks.take(0, 3 << 20).expect("second");
        assert_eq!(second.address, first.address);
        assert_ne!(second.block_id, first.block_id);
    }

    #[test]
    fn a_smaller_allocation_takes_a_freed_place_too() {
        let mut blocks = Blocks::new();
        let first = blocks.take(0, 8 << 20).expect("first");
        blocks.give(&first);
        let half = blocks.take(0, 4 << 20).expect("half");
        assert_eq!((half.address, half.block_size), (first.address, 4 << 20));
        blocks.give(&half);
        let whole = blocks.take(0, 8 << 20).expect("whole");
        assert_eq!((whole.address, whole.block_size), (first.address, 8 << 20));
    }

    #[test]
    fn what_is_open_of_one_block_lies_as_in_its_process() {
        let mut blocks = Blocks::new();
        let from = ForeignBlock {
            owner: OwnerId(1),
            start: BLOCK,
            device: 0,
        };
        let second = blocks.take_opened(from, 4096, 4096).expect("second");
        let first = blocks.take_opened(from, 4096, 0).expect("first");
        assert_eq!(second.address - first.address, 4096);
        assert_eq!(second.block_id, first.block_id);
        let taken = blocks.take_opened(from, 8192, 0).expect("another block");
        assert_ne!(taken.block, first.block);
        let other = ForeignBlock { device: 1, ..from };
        let other = blocks.take_opened(other, 4096, 8192).expect("device 1's");
        assert_ne!(other.block, first.block);
    }
}
