//! Memory pools of this process, own and imported.
//!
//! A pool that can be shared is one file in which its allocations lie, so that
//! whoever has its descriptor reaches them all. An importer has one pool and one
//! pointer however often it imports them, and one end of it ends them (seen on
//! an H200, driver 580).

use crate::Answer;
use crate::blocks::Spot;
use crate::fabric::FabricName;
use crate::header::{Kind, Place};
use crate::piece::{Access, Origin, Piece};
use crate::pool_file::PoolFile;
use crate::state::{State, machine_number};
use crate::storage::Storage;
use crate::store::Store;
use gpuipc_sys::{CuMemLocation, CuResult, access, location};
use std::sync::Arc;

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
    /// Whose memory it holds.
    pub(crate) place: Place,
    /// Handle types asked for; none if imported.
    pub(crate) handle_types: u32,
    /// Most bytes of all allocations together; 0 is no limit.
    pub(crate) max_size: u64,
    /// Who reaches it.
    pub(crate) access: Access,
    /// In a process that does not see the pool's GPU: the device that reaches its
    /// memory without rights that anybody could ask about (seen on two H200,
    /// driver 580).
    pub(crate) stand_in: Option<usize>,
    /// The file, if it can be shared.
    pub(crate) file: Option<PoolFile>,
    /// A descriptor or fabric handle of it was given out.
    pub(crate) exported: bool,
    /// Its name in the fabric domain, once exported so.
    pub(crate) fabric: Option<FabricName>,
    /// `cuMemPoolDestroy` was called; it goes with its last allocation.
    destroyed: bool,
    /// Pieces that lie in it.
    pieces: u64,
}

impl Pool {
    /// A pool that only its own device reaches so far, if this process sees it.
    pub(crate) fn new(
        role: Role,
        place: Place,
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
            place,
            handle_types: 0,
            max_size: 0,
            access,
            stand_in: None,
            file: file.map(PoolFile::new),
            exported: false,
            fabric: None,
            destroyed: false,
            pieces: 0,
        }
    }

    /// Memory for an allocation, and where it begins in its file.
    fn take(&mut self, store: &Store, spot: &Spot, size: u64) -> Answer<(Arc<Storage>, u64)> {
        if let Some(file) = &mut self.file {
            let offset = file.take(spot, size)?;
            return Ok((Arc::clone(file.storage()), offset));
        }
        let own = Storage::create(store, Kind::Alloc, self.place, size, 0)?;
        Ok((Arc::new(own), 0))
    }
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
        let place = Place::Gpu(machine_number(device)?);
        let is_it = |pool: &Pool| pool.role == Role::Default && pool.place == place;
        let found = self.pools.iter().find(|(_, pool)| is_it(pool));
        Ok(match found {
            Some((handle, _)) => *handle,
            None => self.add_pool(Pool::new(Role::Default, place, Some(device), None)),
        })
    }

    /// The pool that imports of this file gave, if it is still there.
    pub(crate) fn imported_pool(&self, file: &Storage) -> Option<u64> {
        let id = file.header().id;
        let found = self.pools.iter().find(|(_, pool)| {
            let file = pool.file.as_ref().map(PoolFile::storage);
            pool.role == Role::Imported && file.is_some_and(|file| file.header().id == id)
        });
        found.map(|(handle, _)| *handle)
    }

    /// New memory of a pool; no bytes are no memory, which is no failure.
    pub(crate) fn allocate_from(&mut self, handle: u64, size: u64) -> Answer<u64> {
        let pool = self.pool(handle)?;
        if pool.role == Role::Imported {
            return Err(CuResult::INVALID_VALUE);
        }
        if size == 0 {
            return Ok(0);
        }
        let (place, most) = (pool.place, pool.max_size);
        let Place::Gpu(machine) = place else {
            return Err(CuResult::NOT_SUPPORTED);
        };
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
        let (storage, offset) = match pool.take(&session.store, &spot, size) {
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
            imported: false,
        };
        self.add_piece(spot.address, size, storage, origin);
        Ok(spot.address)
    }

    /// Shows memory of an imported pool at an address: the same one as before
    /// if something that begins there is shown already, even if its size was
    /// another one (seen on an H200, driver 580).
    pub(crate) fn import_pooled(&mut self, handle: u64, place: PooledPlace) -> Answer<u64> {
        let here = |(_, piece): &(&u64, &Piece)| {
            piece.lies_in(handle) && piece.file_offset() == place.offset
        };
        if let Some((start, _)) = self.pieces.iter().find(here) {
            return Ok(*start);
        }
        let pool = self.pools.get_mut(&handle).ok_or(CuResult::INVALID_VALUE)?;
        let file = pool.file.as_ref().ok_or(CuResult::INVALID_VALUE)?;
        let storage = Arc::clone(file.storage());
        let block = place.offset.wrapping_sub(place.block_offset);
        let spot = self.blocks.take_imported(
            handle,
            block,
            place.block_size,
            place.block_offset,
            place.size,
        );
        let spot = spot.ok_or(CuResult::OUT_OF_MEMORY)?;
        pool.pieces += 1;
        let origin = Origin::Pooled {
            pool: handle,
            spot,
            offset: place.offset,
            exported: false,
            imported: true,
        };
        self.add_piece(spot.address, place.size, storage, origin);
        Ok(spot.address)
    }

    /// Frees memory of a pool; an imported pointer at once, however often it was
    /// imported.
    pub(crate) fn free_pooled(&mut self, start: u64) -> Answer {
        let piece = self.pieces.get(&start).ok_or(CuResult::INVALID_VALUE)?;
        let size = piece.size;
        let Origin::Pooled {
            pool: handle,
            spot,
            offset,
            exported,
            imported,
        } = piece.origin
        else {
            return Err(CuResult::INVALID_VALUE);
        };
        self.remove_piece(start);
        if let Some(pool) = self.pools.get_mut(&handle) {
            pool.pieces -= 1;
            if let Some(file) = pool.file.as_mut().filter(|_| !imported) {
                file.give(&spot, offset, size, exported);
            }
        }
        self.drop_pool_if_unused(handle);
        Ok(())
    }

    /// Ends a pool, at once or with its last allocation; an imported one not
    /// before its last pointer, but then however often it was imported.
    pub(crate) fn destroy_pool(&mut self, handle: u64) -> Answer {
        let pool = self.pool(handle)?;
        if pool.role == Role::Default || pool.role == Role::Imported && pool.pieces > 0 {
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
