//! Descriptors of VMM memory in the importer.

use super::Scene;
use super::pointer::{attributes, properties, range};
use crate::call::{Ask, Exported};
use crate::memory::{INSIDE, Kind, MARK, MIB, Made, make_fd, map};
use crate::rows::{code, right, same};
use gpuipc::sys::{access, handle_type, location, memory_type, pointer_attribute};
use std::os::fd::AsFd;

const BYTES: u64 = 3 * MIB;

pub(super) fn imported(scene: &Scene) {
    in_another_process(scene, Kind::VMM_FD);
}

pub(super) fn host_numa(scene: &Scene) {
    in_another_process(scene, Kind::HostNuma);
}

pub(super) fn same_process(scene: &Scene) {
    let here = &scene.raw;
    let Some(context) = scene.ready(0) else {
        return;
    };
    if let Some((made, exported)) = scene.set_up("memory", make_fd(here, Kind::VMM_FD, BYTES)) {
        import(scene, here, &made, &exported, context);
        let mapped = here
            .import_fd(exported.fd.as_fd())
            .and_then(|handle| map(here, handle, made.size, 0, access::READ_WRITE));
        let Some(base) = scene.set_up("mapping", mapped) else {
            return;
        };
        let id = |ptr| here.attribute(pointer_attribute::BUFFER_ID, ptr);
        let same_id = id(made.base).and_then(|own| same(id(base), own));
        scene.rows.row("BUFFER_ID as of the original", same_id);
        let handle = here.retain(base);
        let same_handle = same(handle, made.handle);
        scene.rows.row("retain, the original's handle", same_handle);
    }
}

fn in_another_process(scene: &Scene, kind: Kind) {
    let Some(context) = scene.ready(0) else {
        return;
    };
    let Some(exporter) = scene.process(0) else {
        return;
    };
    if let Some((made, exported)) = scene.set_up("memory", make_fd(&exporter, kind, BYTES)) {
        import(scene, &exporter, &made, &exported, context);
    }
}

/// Host memory without rights, read: by itself, since a driver may copy it by the
/// CPU, which may not reach it.
pub(super) fn host_numa_without_rights(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.ready(0).is_none() {
        return;
    }
    let Some(exporter) = scene.process(0) else {
        return;
    };
    let made = make_fd(&exporter, Kind::HostNuma, BYTES);
    let Some((made, exported)) = scene.set_up("memory", made) else {
        return;
    };
    let mapped = here.import_fd(exported.fd.as_fd()).and_then(|handle| {
        let base = here.reserve(made.size, 0)?;
        here.map(base, made.size, 0, handle)?;
        Ok(base)
    });
    let Some(base) = rows.got("import and map", mapped) else {
        return;
    };
    rows.row("cuMemcpyDtoH", code(&here.read(base)));
}

fn import(scene: &Scene, exporter: &dyn Ask, made: &Made, exported: &Exported, context: u64) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let (fd, size) = (exported.fd.as_fd(), made.size);
    let Some(handle) = rows.got("import", here.import_fd(fd)) else {
        return;
    };
    rows.row("properties", properties(here, handle));
    let Some(base) = rows.got("reserve", here.reserve(size * 2, 0)) else {
        return;
    };
    rows.row("map half the size", here.map(base, size / 2, 0, handle));
    rows.row("map twice the size", here.map(base, size * 2, 0, handle));
    rows.row(
        "map half the size from the middle",
        here.map(base, size / 2, size / 2, handle),
    );
    rows.row(
        "map the whole from the middle",
        here.map(base, size, size / 2, handle),
    );
    rows.row("map no bytes", here.map(base, 0, 0, handle));
    rows.row(
        "map at an unaligned address",
        here.map(base + 4096, size, 0, handle),
    );
    rows.row(
        "map outside any reservation",
        here.map(MIB * 2, size, 0, handle),
    );
    rows.row(
        "cuMemSetAccess before mapping",
        here.set_access(base, size, 0, access::READ_WRITE),
    );
    if rows.got("map", here.map(base, size, 0, handle)).is_none() {
        return;
    }
    rows.row("map there again", here.map(base, size, 0, handle));
    let kind = here.attribute(pointer_attribute::MEMORY_TYPE, base);
    rows.row("before rights: MEMORY_TYPE", code(&kind));
    // See `host_numa_without_rights`.
    if kind == Ok(memory_type::DEVICE.into()) {
        rows.row("before rights: cuMemcpyDtoH", code(&here.read(base)));
    }
    rows.row(
        "before rights: cuMemGetAccess",
        here.get_access(base, location::DEVICE, 0),
    );
    rows.row(
        "rights for device 99",
        here.set_access(base, size, 99, access::READ_WRITE),
    );
    rows.row(
        "rights for device -1",
        here.set_access(base, size, -1, access::READ_WRITE),
    );
    rows.row("write only", here.set_access(base, size, 0, 2));
    rows.row("rights for no bytes", here.set_access(base, 0, 0, 3));
    rows.row("rights for half", here.set_access(base, size / 2, 0, 3));
    rows.row("rights", here.set_access(base, size, 0, access::READ_WRITE));
    rows.row("rights, asked", here.get_access(base, location::DEVICE, 0));
    let node = location::HOST_NUMA;
    rows.row(
        "rights for host node 0",
        here.set_access_at(base, size, node, 0, access::READ_WRITE),
    );
    rows.row(
        "rights for host node 0, asked",
        here.get_access(base, node, 0),
    );
    rows.row("data at the base", right(here.read(base), MARK));
    rows.row(
        "data inside",
        right(here.read(base + INSIDE), MARK + INSIDE),
    );
    attributes(rows, here, "base", base, base, context);
    attributes(rows, here, "interior", base + INSIDE, base, context);
    rows.row(
        "interior: cuMemGetAddressRange",
        range(here, base + INSIDE, base),
    );
    rows.row("write", here.put(base, MARK + 1));
    rows.row(
        "the exporter reads what was written",
        right(exporter.read(made.base), MARK + 1),
    );
    let retained = here.retain(base + INSIDE);
    rows.row("retain", same(retained, handle));
    if let Ok(retained) = retained {
        rows.row(
            "retained: export as descriptor",
            code(&here.export_fd(retained)),
        );
        rows.row("retained: release", here.release(retained));
    }
    let second = here.import_fd(fd);
    rows.row("import again", same(second, handle));
    if let Ok(second) = second {
        rows.row("second import: properties", properties(here, second));
        rows.row("second import: release", here.release(second));
    }
    rows.row("export as descriptor", code(&here.export_fd(handle)));
    rows.row(
        "export as fabric handle",
        here.export(handle, handle_type::FABRIC, 0),
    );
    rows.row("cuIpcGetMemHandle", code(&here.legacy_handle(base)));
    rows.row("release", here.release(handle));
    rows.row("data after the release", right(here.read(base), MARK + 1));
    rows.row(
        "address free while mapped",
        here.address_free(base, size * 2),
    );
    rows.row("unmap", here.unmap(base, size));
    rows.row("unmap again", here.unmap(base, size));
    rows.row("data after the unmap", code(&here.read(base)));
    rows.row("address free of a part", here.address_free(base, size));
    rows.row("address free", here.address_free(base, size * 2));
    rows.row("address free again", here.address_free(base, size * 2));
    let last = here.import_fd(fd);
    rows.row("import after all was freed", code(&last));
    if let Ok(last) = last {
        let again = map(here, last, size, 0, access::READ_WRITE);
        rows.row("map after all was freed", code(&again));
        rows.row(
            "data after all was freed",
            again.and_then(|base| right(here.read(base), MARK + 1)),
        );
    }
}

/// Less than all rights, and rights that change.
pub(super) fn rights(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.ready(0).is_none() {
        return;
    }
    let Some(exporter) = scene.process(0) else {
        return;
    };
    let made = make_fd(&exporter, Kind::VMM_FD, BYTES);
    let Some((made, exported)) = scene.set_up("memory", made) else {
        return;
    };
    let size = made.size;
    let imported = here.import_fd(exported.fd.as_fd());
    let Some(handle) = scene.set_up("import", imported) else {
        return;
    };
    let mapped = map(here, handle, size, 0, access::READ);
    let Some(base) = rows.got("map read-only", mapped) else {
        return;
    };
    let asked = || here.get_access(base, location::DEVICE, 0);
    rows.row("read-only: asked", asked());
    rows.row("read-only: data", right(here.read(base), MARK));
    rows.row("read-only: cuMemcpyHtoD", here.put(base, MARK + 1));
    rows.row("read-only: data after that", right(here.read(base), MARK));
    let all = here.set_access(base, size, 0, access::READ_WRITE);
    rows.row("all rights after that", all);
    rows.row("all rights: asked", asked());
    rows.row("all rights: cuMemcpyHtoD", here.put(base, MARK + 1));
    rows.row(
        "the exporter reads what was written",
        right(exporter.read(made.base), MARK + 1),
    );
    let none = here.set_access(base, size, 0, access::NONE);
    rows.row("no rights after that", none);
    rows.row("no rights: asked", asked());
    rows.row("no rights: cuMemcpyDtoH", code(&here.read(base)));
    rows.row(
        "read-only after that",
        here.set_access(base, size, 0, access::READ),
    );
    rows.row("read-only again: data", right(here.read(base), MARK + 1));
    // A second mapping of the same memory with other rights.
    let second = map(here, handle, size, 0, access::READ_WRITE);
    rows.row("second mapping with all rights", code(&second));
    if let Ok(second) = second {
        rows.row("second mapping: cuMemcpyHtoD", here.put(second, MARK + 2));
        rows.row("first mapping: data", right(here.read(base), MARK + 2));
        rows.row("first mapping: asked", asked());
        rows.row("second mapping: unmap", here.unmap(second, size));
    }
    rows.row("first mapping: unmap", here.unmap(base, size));
    rows.row("release", here.release(handle));
}
