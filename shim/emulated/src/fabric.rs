//! Fabric handles: a folder in the directory plays the IMEX domain.
//!
//! The bytes of a handle hold no reference: the memory's name in the folder
//! goes with the exporter's last own reference, or is swept after its death.

use crate::Answer;
use crate::config::config;
use crate::header::Kind;
use crate::ipc::check;
use crate::owner::{self, OwnerId};
use crate::storage::Storage;
use crate::store::{self, Store};
use gpuipc_sys::{CuMemFabricHandle, CuResult};
use rustix::fd::{AsFd, OwnedFd};

const MAGIC: &[u8; 8] = b"emufabri";
const FOLDER: &str = "imex-";

/// Layout of the handle, little-endian.
mod field {
    use core::ops::Range;
    pub(super) const MAGIC: Range<usize> = 0..8;
    pub(super) const DOMAIN: Range<usize> = 8..16;
    pub(super) const OWNER: Range<usize> = 16..24;
    pub(super) const ID: Range<usize> = 24..40;
    pub(super) const CHECK: Range<usize> = 56..64;
    pub(super) const CHECKED: Range<usize> = 0..56;
}

/// This process's domain as a number; the name may be any text.
fn domain() -> Option<u64> {
    config().imex.as_ref().map(|name| check(name.as_bytes()))
}

fn folder_name(domain: u64) -> String {
    format!("{FOLDER}{domain:016x}")
}

/// The folders of all domains, for the sweep.
pub(crate) fn folders(store: &Store) -> Vec<OwnedFd> {
    let names = store::names(store.dir())
        .into_iter()
        .filter(|name| name.starts_with(FOLDER));
    names.filter_map(|name| store.folder(&name).ok()).collect()
}

fn memory_name(owner: OwnerId, id: &[u8; 16]) -> String {
    format!("{:016x}-{:032x}", owner.0, u128::from_be_bytes(*id))
}

/// Exported memory's name in the domain.
#[derive(Debug)]
pub(crate) struct FabricName {
    folder: OwnedFd,
    name: String,
    bytes: CuMemFabricHandle,
}

impl FabricName {
    /// Makes memory findable in this process's domain.
    pub(crate) fn publish(store: &Store, owner: OwnerId, storage: &Storage) -> Answer<Self> {
        let domain = domain().ok_or(CuResult::NOT_PERMITTED)?;
        let id = store::random();
        let name = memory_name(owner, &id);
        let published = store.folder(&folder_name(domain)).and_then(|folder| {
            store::name_file(storage.file(), folder.as_fd(), &name)?;
            Ok(folder)
        });
        let folder = published.map_err(|error| {
            log::error!("the memory cannot be named in the fabric domain: {error}");
            CuResult::OPERATING_SYSTEM
        })?;
        Ok(Self {
            folder,
            name,
            bytes: encode(domain, owner, &id),
        })
    }

    /// The handle.
    pub(crate) fn bytes(&self) -> CuMemFabricHandle {
        self.bytes
    }

    /// Takes the name away.
    pub(crate) fn remove(self) {
        store::remove_name(self.folder.as_fd(), &self.name);
    }
}

fn encode(domain: u64, owner: OwnerId, id: &[u8; 16]) -> CuMemFabricHandle {
    let mut data = [0; 64];
    data[field::MAGIC].copy_from_slice(MAGIC);
    data[field::DOMAIN].copy_from_slice(&domain.to_le_bytes());
    data[field::OWNER].copy_from_slice(&owner.0.to_le_bytes());
    data[field::ID].copy_from_slice(id);
    let check = check(&data[field::CHECKED]);
    data[field::CHECK].copy_from_slice(&check.to_le_bytes());
    CuMemFabricHandle { data }
}

/// Opens a handle of this process's domain; anything else is `None`.
pub(crate) fn open(store: &Store, handle: &CuMemFabricHandle, kinds: &[Kind]) -> Option<Storage> {
    let data = &handle.data;
    let long = |at: core::ops::Range<usize>| data[at].try_into().map(u64::from_le_bytes).ok();
    if &data[field::MAGIC] != MAGIC || long(field::CHECK)? != check(&data[field::CHECKED]) {
        return None;
    }
    let domain = domain().filter(|own| long(field::DOMAIN) == Some(*own))?;
    let owner = OwnerId(long(field::OWNER)?);
    if !owner::lives(store, owner) {
        return None;
    }
    let id = data[field::ID].try_into().ok()?;
    let folder = store.folder(&folder_name(domain)).ok()?;
    let file = store::open_name(folder.as_fd(), &memory_name(owner, id)).ok()?;
    Storage::open(store, file.as_fd()).filter(|found| kinds.contains(&found.header().kind))
}
