//! What lies at an address.

use crate::blocks::Spot;
use crate::header::Place;
use crate::storage::Storage;
use gpuipc_sys::{CuMemLocation, access, location};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Memory at addresses of this process.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Bytes; of `cuMemAlloc` memory as asked.
    pub(crate) size: u64,
    /// Never reused in this process.
    pub(crate) buffer_id: u64,
    /// The file.
    pub(crate) storage: Arc<Storage>,
    /// How it came here.
    pub(crate) origin: Origin,
}

/// How memory came to its addresses.
#[derive(Debug)]
pub(crate) enum Origin {
    /// `cuMemAlloc`, in a device's context.
    Alloc { device: usize, spot: Spot },
    /// `cuMemHostAlloc`, in a device's context.
    Host { device: usize, spot: Spot },
    /// `cuMemAllocManaged`, in a device's context.
    Managed { device: usize, spot: Spot },
    /// `cuIpcOpenMemHandle`, in a device's context.
    Opened {
        device: usize,
        spot: Spot,
        key: OpenKey,
        count: u64,
    },
    /// Memory of a pool, own or imported.
    Pooled {
        pool: u64,
        spot: Spot,
        /// Where it begins in the pool's file.
        offset: u64,
        /// Its pointer was exported.
        exported: bool,
        /// Another process made it.
        imported: bool,
    },
    /// `cuMemMap`.
    Mapped {
        handle: u64,
        reservation: u64,
        access: Access,
    },
}

/// What makes two opens of legacy handles the same mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OpenKey {
    /// The handle itself: a stale one and a new one are two, even where both
    /// mean the same memory.
    pub(crate) handle: [u8; 64],
    /// The opener's device.
    pub(crate) device: usize,
}

/// The machine's one host node.
const NODE: (u32, i32) = (location::HOST_NUMA, 0);

/// Whether these flags let somebody read, or also write.
pub(crate) fn allow(flags: u32, write: bool) -> bool {
    flags == access::READ_WRITE || flags == access::READ && !write
}

/// Who may do what with a mapping or a pool, by location kind and number.
#[derive(Debug, Default)]
pub(crate) struct Access(BTreeMap<(u32, i32), u32>);

impl Access {
    /// Sets one location's flags. The CPU without a node is the CPU of the one
    /// node (seen on an H200, driver 580).
    pub(crate) fn set(&mut self, location: CuMemLocation, flags: u32) {
        let place = match location.kind {
            location::HOST => NODE,
            kind => (kind, location.id),
        };
        self.0.insert(place, flags);
    }

    /// One location's flags.
    pub(crate) fn of(&self, location: CuMemLocation) -> u32 {
        self.0
            .get(&(location.kind, location.id))
            .copied()
            .unwrap_or(access::NONE)
    }

    /// Whether a device may read, or also write.
    pub(crate) fn allows(&self, device: usize, write: bool) -> bool {
        let flags = self.of(CuMemLocation {
            kind: location::DEVICE,
            id: i32::try_from(device).unwrap_or(-1),
        });
        allow(flags, write)
    }

    /// What the program on the CPU may do.
    pub(crate) fn of_node(&self) -> u32 {
        self.0.get(&NODE).copied().unwrap_or(access::NONE)
    }

    /// What the driver itself may do on the CPU with host memory, by which its
    /// copies go: as the program, or, before anybody spoke of that, as a device
    /// (seen on an H200, driver 580).
    pub(crate) fn of_driver(&self) -> u32 {
        let most = || self.0.values().copied().max().unwrap_or(access::NONE);
        self.0.get(&NODE).copied().unwrap_or_else(most)
    }
}

impl Piece {
    /// Whether the memory lies in a GPU.
    pub(crate) fn on_gpu(&self) -> bool {
        matches!(self.storage.header().place, Place::Gpu(_) | Place::Switch)
    }

    /// The allocation that `cuMemMap` mapped.
    pub(crate) fn mapped_handle(&self) -> Option<u64> {
        match self.origin {
            Origin::Mapped { handle, .. } => Some(handle),
            _ => None,
        }
    }

    /// The spot of memory that lies in the driver's blocks.
    pub(crate) fn spot(&self) -> Option<&Spot> {
        match &self.origin {
            Origin::Alloc { spot, .. }
            | Origin::Host { spot, .. }
            | Origin::Managed { spot, .. }
            | Origin::Opened { spot, .. }
            | Origin::Pooled { spot, .. } => Some(spot),
            Origin::Mapped { .. } => None,
        }
    }

    /// The device in whose context the memory was made or opened.
    pub(crate) fn context_device(&self) -> Option<usize> {
        match &self.origin {
            Origin::Alloc { device, .. }
            | Origin::Host { device, .. }
            | Origin::Managed { device, .. }
            | Origin::Opened { device, .. } => Some(*device),
            Origin::Mapped { .. } | Origin::Pooled { .. } => None,
        }
    }

    /// Whether this process made it and its GPU's memory counts for it; VMM
    /// memory is counted apart.
    pub(crate) fn is_own(&self) -> bool {
        matches!(
            self.origin,
            Origin::Alloc { .. }
                | Origin::Pooled {
                    imported: false,
                    ..
                }
        )
    }

    /// Whether it is memory of this pool.
    pub(crate) fn lies_in(&self, handle: u64) -> bool {
        matches!(self.origin, Origin::Pooled { pool, .. } if pool == handle)
    }

    /// Where the memory begins in its file's.
    pub(crate) fn file_offset(&self) -> u64 {
        match self.origin {
            Origin::Pooled { offset, .. } => offset,
            _ => 0,
        }
    }
}
