//! Memory pools of this process, own and imported.
//!
//! A pool that can be shared is one file in which its allocations lie, so that
//! whoever has its descriptor reaches them all. An allocation's place in the
//! file is never given out again, though its address is: the old pointer data
//! finds the old bytes, also after the memory was freed (seen on an H200,
//! driver 580). What was freed and exported keeps its bytes for a while.

use crate::Answer;
use crate::fabric::FabricName;
use crate::header::{Kind, Place};
use crate::piece::{Access, Origin, Piece};
use crate::state::{State, machine_number};
use crate::storage::Storage;
use crate::store::Store;
use gpuipc::sys::{CuMemLocation, CuResult, access, location};
use std::collections::VecDeque;
use std::sync::Arc;

/// Freed pointers that were exported and keep their bytes.
const MOST_STALE: usize = 8;
/// In front of each allocation in the file lies a page that says whether it is
/// freed.
const MARK_BYTES: u64 = 4096;

/// How a pool came here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// A device's own, which cannot be shared or destroyed.
    Default,
    /// `cuMemPoolCreate`.
    Created,
    /// `cuMemPoolImportFromShareableHandle`.
    Imported,
}

/// One pool.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) role: Role,
    /// The device whose memory it holds, by the machine's number.
    pub(crate) machine: u32,
    /// Handle types asked for; none if imported.
    pub(crate) handle_types: u32,
    /// Most bytes of all allocations together; 0 is no limit.
    pub(crate) max_size: u64,
    /// Who reaches it.
    pub(crate) access: Access,
    /// The file, if it can be shared.
    pub(crate) file: Option<Arc<Storage>>,
    /// A descriptor or fabric handle of it was given out.
    pub(crate) exported: bool,
    /// Its name in the fabric domain, once exported so.
    pub(crate) fabric: Option<FabricName>,
    /// `cuMemPoolDestroy` was called; it goes with its last allocation.
    destroyed: bool,
    /// Pieces that lie in it.
    pieces: u64,
    /// Where the file is free.
    next_offset: u64,
    stale: VecDeque<(u64, u64)>,
}

impl Pool {
    /// A pool that only one device reaches so far, or none.
    pub(crate) fn new(
        role: Role,
        machine: u32,
        device: Option<usize>,
        file: Option<Storage>,
    ) -> Self {
        let mut access = Access::default();
        if let Some(id) = device.and_then(|device| i32::try_from(device).ok()) {
            let kind = location::DEVICE;
            access.set(CuMemLocation { kind, id }, access::READ_WRITE);
        }
        Self {
            role,
            machine,
            handle_types: 0,
            max_size: 0,
            access,
            file: file.map(Arc::new),
            exported: false,
            fabric: None,
            destroyed: false,
            pieces: 0,
            next_offset: 0,
            stale: VecDeque::new(),
        }
    }

    /// Memory for an allocation, and where it begins in its file.
    fn take(&mut self, store: &Store, size: u64) -> Answer<(Arc<Storage>, u64)> {
        let Some(file) = &self.file else {
            let place = Place::Gpu(self.machine);
            let own = Storage::create(store, Kind::Alloc, place, size, 0)?;
            return Ok((Arc::new(own), 0));
        };
        let pages = size.checked_next_multiple_of(MARK_BYTES);
        let room = pages.and_then(|pages| pages.checked_add(MARK_BYTES));
        let room = room.ok_or(CuResult::OUT_OF_MEMORY)?;
        file.take_room(self.next_offset, room)?;
        let offset = self.next_offset + MARK_BYTES;
        self.next_offset += room;
        Ok((Arc::clone(file), offset))
    }

    /// Gives an allocation's memory back; exported memory later than other.
    fn give(&mut self, offset: u64, size: u64, exported: bool) {
        let Some(file) = &self.file else { return };
        if exported {
            file.mark(offset - MARK_BYTES);
            self.stale.push_back((offset, size));
        } else {
            file.give_room(offset - MARK_BYTES, size + MARK_BYTES);
        }
        if self.stale.len() > MOST_STALE
            && let Some((offset, size)) = self.stale.pop_front()
        {
            // Its mark stays.
            file.give_room(offset, size);
        }
    }
}

/// Whether the exporter has freed the memory at an offset of a pool's file.
pub(crate) fn is_freed(file: &Storage, offset: u64) -> bool {
    offset >= MARK_BYTES && file.is_marked(offset - MARK_BYTES)
}

impl State {
    /// Adds a pool and gives its handle.
    pub(crate) fn add_pool(&mut self, pool: Pool) -> u64 {
        let handle = self.next_handle();
        self.pools.insert(handle, pool);
        handle
    }

    /// A pool by a handle that is in use.
    pub(crate) fn pool(&mut self, handle: u64) -> Answer<&mut Pool> {
        let found = self.pools.get_mut(&handle).filter(|pool| !pool.destroyed);
        found.ok_or(CuResult::INVALID_VALUE)
    }

    /// A device's default pool.
    pub(crate) fn default_pool(&mut self, device: usize) -> Answer<u64> {
        let machine = machine_number(device)?;
        let is_it = |pool: &Pool| pool.role == Role::Default && pool.machine == machine;
        let found = self.pools.iter().find(|(_, pool)| is_it(pool));
        Ok(match found {
            Some((handle, _)) => *handle,
            None => self.add_pool(Pool::new(Role::Default, machine, Some(device), None)),
        })
    }

    /// New memory of a pool.
    pub(crate) fn allocate_from(&mut self, handle: u64, size: u64) -> Answer<u64> {
        let pool = self.pool(handle)?;
        if pool.role == Role::Imported {
            return Err(CuResult::INVALID_VALUE);
        }
        let (machine, most) = (pool.machine, pool.max_size);
        let used: u64 = self
            .pieces
            .values()
            .filter(|piece| piece.lies_in(handle))
            .map(|piece| piece.size)
            .sum();
        if most != 0 && used.saturating_add(size) > most {
            return Err(CuResult::OUT_OF_MEMORY);
        }
        self.check_room(machine, size)?;
        let spot = self
            .blocks
            .take_for_pool(handle, size)
            .ok_or(CuResult::OUT_OF_MEMORY)?;
        let session = self.session.as_ref().ok_or(CuResult::NOT_INITIALIZED)?;
        let pool = self.pools.get_mut(&handle).ok_or(CuResult::INVALID_VALUE)?;
        let (storage, offset) = match pool.take(&session.store, size) {
            Ok(taken) => taken,
            Err(code) => {
                self.blocks.give(&spot);
                return Err(code);
            }
        };
        pool.pieces += 1;
        let origin = Origin::Pooled {
            pool: handle,
            spot,
            offset,
            exported: false,
            imports: 0,
        };
        self.add_piece(spot.address, size, storage, origin);
        Ok(spot.address)
    }

    /// Shows memory of an imported pool at an address: the same one as before
    /// if it is there already.
    pub(crate) fn import_pooled(&mut self, handle: u64, place: PooledPlace) -> Answer<u64> {
        let here =
            |piece: &&mut Piece| piece.lies_in(handle) && piece.file_offset() == place.offset;
        if let Some(piece) = self.pieces.values_mut().find(here)
            && let Origin::Pooled { imports, spot, .. } = &mut piece.origin
        {
            *imports += 1;
            return Ok(spot.address);
        }
        let spot = self
            .blocks
            .take_as(place.block_size, place.block_offset, place.size)
            .ok_or(CuResult::OUT_OF_MEMORY)?;
        let pool = self.pools.get_mut(&handle).ok_or(CuResult::INVALID_VALUE)?;
        let storage = pool.file.clone().ok_or(CuResult::INVALID_VALUE)?;
        pool.pieces += 1;
        let origin = Origin::Pooled {
            pool: handle,
            spot,
            offset: place.offset,
            exported: false,
            imports: 1,
        };
        self.add_piece(spot.address, place.size, storage, origin);
        Ok(spot.address)
    }

    /// Frees memory of a pool; an imported pointer as often as it was imported.
    pub(crate) fn free_pooled(&mut self, start: u64) -> Answer {
        let piece = self.pieces.get_mut(&start).ok_or(CuResult::INVALID_VALUE)?;
        let size = piece.size;
        let Origin::Pooled {
            pool: handle,
            offset,
            exported,
            imports,
            ..
        } = &mut piece.origin
        else {
            return Err(CuResult::INVALID_VALUE);
        };
        if *imports > 1 {
            *imports -= 1;
            return Ok(());
        }
        let (handle, offset, exported, own) = (*handle, *offset, *exported, *imports == 0);
        self.remove_piece(start);
        if let Some(pool) = self.pools.get_mut(&handle) {
            pool.pieces -= 1;
            if own {
                pool.give(offset, size, exported);
            }
        }
        self.drop_pool_if_unused(handle);
        Ok(())
    }

    /// Ends a pool, at once or with its last allocation.
    pub(crate) fn destroy_pool(&mut self, handle: u64) -> Answer {
        let pool = self.pool(handle)?;
        if pool.role == Role::Default {
            return Err(CuResult::INVALID_VALUE);
        }
        pool.destroyed = true;
        self.drop_pool_if_unused(handle);
        Ok(())
    }

    fn drop_pool_if_unused(&mut self, handle: u64) {
        let unused = self
            .pools
            .get(&handle)
            .is_some_and(|pool| pool.destroyed && pool.pieces == 0);
        if !unused {
            return;
        }
        self.blocks.forget_pool(handle);
        if let Some(name) = self.pools.remove(&handle).and_then(|pool| pool.fabric) {
            name.remove();
        }
    }
}

/// Where an allocation lies in its pool's file, and where its maker shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PooledPlace {
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) block_offset: u64,
    pub(crate) block_size: u64,
}
