//! Each kind of memory, seen by its owner.

use super::Scene;
use super::pointer::{attributes, properties, range};
use crate::call::{Ask, Got};
use crate::memory::{INSIDE, Kind, MARK, MIB, Made, make};
use crate::rows::{Rows, code, right, same};
use core::fmt::Display;
use gpuipc::sys::{granularity, handle_type, location, pointer_attribute};

/// No multiple of the granularity.
const BYTES: u64 = 3 * MIB;

pub(super) fn malloc(scene: &Scene) {
    owner(scene, Kind::Malloc, BYTES);
}

pub(super) fn small_malloc(scene: &Scene) {
    owner(scene, Kind::Malloc, 4096);
}

pub(super) fn vmm(scene: &Scene) {
    owner(scene, Kind::Vmm(0, handle_type::NONE), BYTES);
}

pub(super) fn vmm_fd(scene: &Scene) {
    owner(scene, Kind::VMM_FD, BYTES);
}

pub(super) fn vmm_fabric(scene: &Scene) {
    owner(scene, Kind::Vmm(0, handle_type::FABRIC), BYTES);
}

pub(super) fn vmm_fd_fabric(scene: &Scene) {
    let types = handle_type::POSIX_FILE_DESCRIPTOR | handle_type::FABRIC;
    owner(scene, Kind::Vmm(0, types), BYTES);
}

pub(super) fn host_numa(scene: &Scene) {
    owner(scene, Kind::HostNuma, BYTES);
}

pub(super) fn host_pinned(scene: &Scene) {
    owner(scene, Kind::HostPinned, BYTES);
}

pub(super) fn managed(scene: &Scene) {
    owner(scene, Kind::Managed, BYTES);
}

fn owner(scene: &Scene, kind: Kind, bytes: u64) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(context) = scene.ready(0) else {
        return;
    };
    if let Some(prop) = kind.property() {
        for (name, option) in [
            ("minimum", granularity::MINIMUM),
            ("recommended", granularity::RECOMMENDED),
        ] {
            rows.row(
                format!("granularity, {name}"),
                here.granularity(&prop, option),
            );
        }
    }
    let Ok(made) = make(here, kind, bytes, Some(rows)) else {
        return;
    };
    rows.row("data", right(here.read(made.base), MARK));
    for (place, at) in [
        ("base", 0),
        ("interior", INSIDE),
        ("last byte", made.size - 1),
    ] {
        let ptr = made.base + at;
        attributes(rows, here, place, ptr, made.base, context);
        rows.row(
            format!("{place}: cuMemGetAddressRange"),
            range(here, ptr, made.base),
        );
        sharing(rows, here, place, ptr, &made);
    }
    let id = |at| here.attribute(pointer_attribute::BUFFER_ID, made.base + at);
    if let Ok(first) = id(0) {
        rows.row("BUFFER_ID inside", same(id(INSIDE), first));
        rows.row("BUFFER_ID asked again", same(id(0), first));
    }
    if matches!(kind, Kind::Malloc) {
        let next = made.base + made.size;
        rows.row("past the end: BUFFER_ID", code(&id(made.size)));
        rows.row(
            "past the end: cuMemGetAddressRange",
            range(here, next, made.base),
        );
        rows.row("past the end: cuMemcpyDtoH", code(&here.read(next)));
        rows.row("across the end: cuMemcpyDtoH", code(&here.read(next - 4)));
    }
    if made.handle != 0 {
        exports(rows, here, &made);
    }
    end(rows, here, kind, &made);
}

/// What the calls that share memory say to an address.
fn sharing(rows: &Rows, here: &dyn Ask, place: impl Display, ptr: u64, made: &Made) {
    let handle = here.legacy_handle(ptr);
    rows.row(format!("{place}: cuIpcGetMemHandle"), code(&handle));
    if let (Ok(handle), Ok(first)) = (handle, here.legacy_handle(made.base)) {
        rows.row(
            format!("{place}: cuIpcGetMemHandle, the base's handle"),
            same(Ok(handle), first),
        );
    }
    let retained = here.retain(ptr);
    rows.row(
        format!("{place}: cuMemRetainAllocationHandle"),
        code(&retained),
    );
    if let Ok(handle) = retained {
        rows.row(
            format!("{place}: cuMemRetainAllocationHandle, the created handle"),
            same(Ok(handle), made.handle),
        );
        rows.row(
            format!("{place}: properties of the retained handle"),
            properties(here, handle),
        );
        rows.row(
            format!("{place}: cuMemRelease of the retained handle"),
            here.release(handle),
        );
    }
}

fn exports(rows: &Rows, here: &dyn Ask, made: &Made) {
    let handle = made.handle;
    rows.row("properties of the created handle", properties(here, handle));
    let exported = here.export_fd(handle);
    rows.row("export as descriptor", code(&exported));
    if let Ok(exported) = exported {
        rows.row(
            "export as descriptor, close-on-exec",
            exported.close_on_exec,
        );
        rows.row("export as descriptor again", code(&here.export_fd(handle)));
    }
    for (name, kind, flags) in [
        ("as fabric handle", handle_type::FABRIC, 0),
        ("without a type", handle_type::NONE, 0),
        ("as Win32 handle", 2, 0),
        ("as an unknown type", 64, 0),
        ("as both types", 9, 0),
        ("with flags 1", handle_type::POSIX_FILE_DESCRIPTOR, 1),
    ] {
        rows.row(format!("export {name}"), here.export(handle, kind, flags));
    }
    for (name, kind, id) in [
        ("device 0", location::DEVICE, 0),
        ("device 99", location::DEVICE, 99),
        ("host node 0", location::HOST_NUMA, 0),
    ] {
        rows.row(
            format!("cuMemGetAccess of {name}"),
            here.get_access(made.base, kind, id),
        );
    }
}

/// The ways to free it, the wrong ones first.
fn end(rows: &Rows, here: &dyn Ask, kind: Kind, made: &Made) {
    let &Made { base, size, handle } = made;
    let interior = base + INSIDE;
    let attribute = || code(&here.attribute(pointer_attribute::MEMORY_TYPE, base));
    let is_there = |here: &dyn Ask| -> Got<&'static str> { right(here.read(base), MARK) };
    rows.row("cuMemFree of an interior address", here.free(interior));
    rows.row("cuIpcCloseMemHandle of it", here.close(base));
    if handle == 0 {
        rows.row("cuMemAddressFree of it", here.address_free(base, size));
    }
    match kind {
        Kind::Malloc | Kind::Managed => {
            rows.row("cuMemFreeHost of it", here.free_host(base));
            rows.row("cuMemUnmap of it", here.unmap(base, size));
            rows.row("data before cuMemFree", is_there(here));
            rows.row("cuMemFree", here.free(base));
            rows.row("cuMemFree again", here.free(base));
        }
        Kind::HostPinned => {
            rows.row(
                "cuMemFreeHost of an interior address",
                here.free_host(interior),
            );
            rows.row("cuMemFree of it", here.free(base));
            rows.row("cuMemFreeHost", here.free_host(base));
            rows.row("cuMemFreeHost again", here.free_host(base));
        }
        Kind::Vmm(..) | Kind::HostNuma => {
            rows.row("cuMemFree of it", here.free(base));
            rows.row("cuMemRelease while mapped", here.release(handle));
            rows.row("data after cuMemRelease", is_there(here));
            let retained = here.retain(interior);
            rows.row("retain after cuMemRelease", code(&retained));
            if let Ok(handle) = retained {
                rows.row("that handle's release", here.release(handle));
            }
            rows.row("cuMemUnmap of a part", here.unmap(base, size / 2));
            rows.row("cuMemUnmap", here.unmap(base, size));
            rows.row("cuMemUnmap again", here.unmap(base, size));
            rows.row("data after cuMemUnmap", code(&here.read(base)));
            rows.row("retain after cuMemUnmap", code(&here.retain(base)));
            rows.row("MEMORY_TYPE after cuMemUnmap", attribute());
            rows.row("cuMemAddressFree", here.address_free(base, size));
            rows.row("cuMemAddressFree again", here.address_free(base, size));
        }
    }
    rows.row("MEMORY_TYPE afterwards", attribute());
    rows.row("cuMemGetAddressRange afterwards", code(&here.range(base)));
    rows.row(
        "cuIpcGetMemHandle afterwards",
        code(&here.legacy_handle(base)),
    );
}
