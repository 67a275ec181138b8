//! Memory on a host node: rights of the CPU, and the CPU's own use of it.
//!
//! The CPU touches memory only after the driver said that it has rights there;
//! a section each, since that can end a process all the same.

use super::Scene;
use super::pointer::range;
use crate::call::{Ask, Got};
use crate::memory::{INSIDE, Kind, MARK, MIB, Made, make, make_fd};
use crate::other::Process;
use crate::rows::right;
use gpuipc::sys::{access, location};
use std::os::fd::AsFd;

const BYTES: u64 = 3 * MIB;
const ALL: u32 = access::READ_WRITE;
const GPU: (u32, i32) = (location::DEVICE, 0);
const NODE: (u32, i32) = (location::HOST_NUMA, 0);
const HOST: (u32, i32) = (location::HOST, 0);
const PLACES: [(&str, (u32, i32)); 3] = [("GPU 0", GPU), ("host node 0", NODE), ("host", HOST)];

/// Who has which rights.
fn asked(scene: &Scene, state: &str, base: u64) {
    for (name, (kind, id)) in PLACES {
        let rights = scene.raw.get_access(base, kind, id);
        scene.rows.row(format!("{state}: rights of {name}"), rights);
    }
}

/// The CPU reads the mark and writes another one, which `exporter` finds at `at`.
fn by_cpu(scene: &Scene, base: u64, owner: &dyn Ask, at: u64) {
    let (rows, here) = (&scene.rows, &scene.raw);
    rows.row("CPU: data", right(here.cpu_read(base), MARK));
    let inside = here.cpu_read(base + INSIDE);
    rows.row("CPU: data inside", right(inside, MARK + INSIDE));
    rows.row("CPU: write", here.cpu_write(base, MARK + 1));
    rows.row("data after that", right(here.read(base), MARK + 1));
    rows.row(
        "the owner's data after that",
        right(owner.read(at), MARK + 1),
    );
    rows.row("write by the driver", here.put(base, MARK + 2));
    rows.row("CPU: data of that", right(here.cpu_read(base), MARK + 2));
}

/// Host memory of another process, mapped here without rights.
fn mapped(scene: &Scene) -> Option<(Process, Made, u64)> {
    let here = &scene.raw;
    scene.ready(0)?;
    let exporter = scene.process(0)?;
    let made = make_fd(&exporter, Kind::HostNuma, BYTES);
    let (made, exported) = scene.set_up("memory", made)?;
    let mapped = here.import_fd(exported.fd.as_fd()).and_then(|handle| {
        let base = here.reserve(made.size, 0)?;
        here.map(base, made.size, 0, handle)?;
        here.release(handle)?;
        Ok(base)
    });
    let base = scene.set_up("import and map", mapped)?;
    Some((exporter, made, base))
}

/// GPU and node in one call.
pub(super) fn both(scene: &Scene) {
    with_rights(scene, |here, base, size| {
        here.set_access_of_places(base, size, [GPU, NODE], ALL)
    });
}

/// First the GPU, then the node.
pub(super) fn one_by_one(scene: &Scene) {
    with_rights(scene, |here, base, size| {
        here.set_access_at(base, size, GPU.0, GPU.1, ALL)?;
        here.set_access_at(base, size, NODE.0, NODE.1, ALL)
    });
}

/// The node alone.
pub(super) fn node_only(scene: &Scene) {
    with_rights(scene, |here, base, size| {
        here.set_access_at(base, size, NODE.0, NODE.1, ALL)
    });
}

/// GPU and "host", the location without a node.
pub(super) fn with_host(scene: &Scene) {
    with_rights(scene, |here, base, size| {
        here.set_access_of_places(base, size, [GPU, HOST], ALL)
    });
}

fn with_rights(scene: &Scene, give: fn(&dyn Ask, u64, u64) -> Got) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some((exporter, made, base)) = mapped(scene) else {
        return;
    };
    asked(scene, "mapped", base);
    let given = give(here, base, made.size);
    rows.row("rights", given);
    asked(scene, "after that", base);
    if given.is_err() {
        return;
    }
    by_cpu(scene, base, &exporter, made.base);
    rows.row("unmap", here.unmap(base, made.size));
    rows.row("address free", here.address_free(base, made.size));
}

/// Read-only for the node.
pub(super) fn read_only(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some((_exporter, made, base)) = mapped(scene) else {
        return;
    };
    let (gpu, node) = (ALL, access::READ);
    let given = here
        .set_access_at(base, made.size, GPU.0, GPU.1, gpu)
        .and_then(|()| here.set_access_at(base, made.size, NODE.0, NODE.1, node));
    rows.row("rights", given);
    asked(scene, "after that", base);
    if given.is_ok() {
        rows.row("CPU: data", right(here.cpu_read(base), MARK));
        rows.row("write by the driver", here.put(base, MARK + 1));
    }
}

/// The owner's own CPU.
pub(super) fn owner(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.ready(0).is_none() {
        return;
    }
    let made = make(here, Kind::HostNuma, BYTES, None);
    let Some(made) = scene.set_up("memory", made) else {
        return;
    };
    asked(scene, "rights for GPU 0 only", made.base);
    let given = here.set_access_of_places(made.base, made.size, [GPU, NODE], ALL);
    rows.row("rights", given);
    asked(scene, "after that", made.base);
    rows.row("cuMemGetAddressRange", range(here, made.base, made.base));
    if given.is_ok() {
        by_cpu(scene, made.base, here, made.base);
    }
}
