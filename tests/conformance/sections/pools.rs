//! Memory pools (`cuMemPool*`) and stream-ordered allocation, a subject a file.
//!
//! Handles of pools that are gone are not used: nothing says that a driver
//! looks at more than what they point to.

pub(super) mod calls;
pub(super) mod ends;
pub(super) mod gpus;
pub(super) mod imported;
pub(super) mod lifetimes;
pub(super) mod owner;
pub(super) mod rights;

use super::Scene;
use crate::call::{Ask, Got};
use crate::memory::MIB;
use crate::other::Process;
use crate::pool::{Pooled, import_pooled, make_pooled};
use gpuipc::sys::pointer_attribute;

/// No multiple of the least allocation.
const BYTES: u64 = 3 * MIB;

/// An exporter with memory of a pool of GPU 0.
struct Exporter {
    process: Process,
    made: Pooled,
}

fn exporter(scene: &Scene) -> Option<Exporter> {
    let process = scene.process(0)?;
    let made = scene.set_up("pool", make_pooled(&process, 0, BYTES))?;
    Some(Exporter { process, made })
}

/// Such memory, imported here; the pool and the address.
fn imported(scene: &Scene) -> Option<(Exporter, u64, u64)> {
    scene.ready(0)?;
    let exporter = exporter(scene)?;
    let imported = import_pooled(&scene.raw, &exporter.made);
    let (pool, base) = scene.set_up("import", imported)?;
    Some((exporter, pool, base))
}

fn id(who: &dyn Ask, ptr: u64) -> Got<u64> {
    who.attribute(pointer_attribute::BUFFER_ID, ptr)
}

fn range_size(who: &dyn Ask, ptr: u64) -> Got<u64> {
    who.attribute(pointer_attribute::RANGE_SIZE, ptr)
}
