//! Pools and pointers in the importer.

use super::super::Scene;
use super::super::pointer::{attributes, range};
use super::{BYTES, exporter, id, imported, range_size};
use crate::call::Ask;
use crate::memory::{INSIDE, MARK};
use crate::pool::{AskPools, make_pooled, pooled};
use crate::rows::{code, distance, right, same};
use gpuipc::sys::{handle_type, location, pointer_attribute};
use std::os::fd::AsFd;

pub(in super::super) fn pool(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(context) = scene.ready(0) else {
        return;
    };
    let Some(exporter) = exporter(scene) else {
        return;
    };
    let (owner, made) = (&exporter.process, &exporter.made);
    let fd = made.fd.as_fd();
    let posix = handle_type::POSIX_FILE_DESCRIPTOR;
    let Some(pool) = rows.got("import", here.pool_import(fd)) else {
        return;
    };
    let second = here.pool_import(fd);
    rows.row("import again", same(second, pool));
    rows.row("rights of device 0", here.pool_get_access(pool, 0));
    rows.row("rights of device 99", here.pool_get_access(pool, 99));
    let base = here.import_pointer(pool, &made.data);
    let Some(base) = rows.got("import the pointer", base) else {
        return;
    };
    rows.row(
        "rights of device 0 after that",
        here.pool_get_access(pool, 0),
    );
    rows.row("data at the base", right(here.read(base), MARK));
    rows.row(
        "data inside",
        right(here.read(base + INSIDE), MARK + INSIDE),
    );
    for (place, at) in [("base", 0), ("interior", INSIDE), ("last byte", BYTES - 1)] {
        let ptr = base + at;
        attributes(rows, here, place, ptr, base, context);
        rows.row(
            format!("{place}: cuMemGetAddressRange"),
            range(here, ptr, base),
        );
        let pool_of = here.attribute(pointer_attribute::MEMPOOL_HANDLE, ptr);
        rows.row(
            format!("{place}: MEMPOOL_HANDLE, the pool"),
            same(pool_of, pool),
        );
    }
    rows.row("cuIpcGetMemHandle", code(&here.legacy_handle(base)));
    rows.row("cuMemRetainAllocationHandle", code(&here.retain(base)));
    rows.row("cuMemGetAccess", here.get_access(base, location::DEVICE, 0));
    rows.row("write", here.put(base, MARK + 1));
    rows.row(
        "the exporter reads what was written",
        right(owner.read(made.base), MARK + 1),
    );
    rows.row("export the pool", here.pool_export(pool, posix, 0));
    rows.row("export the pointer", code(&here.export_pointer(base)));
    rows.row(
        "memory of the imported pool",
        code(&here.pool_alloc(4096, pool, 0)),
    );
    // A second pointer of the pool, made after the import.
    let other =
        pooled(owner, made.pool, 4096).and_then(|other| Ok((other, owner.export_pointer(other)?)));
    let Some((other, data)) = scene.set_up("second memory", other) else {
        return;
    };
    let imported = here.import_pointer(pool, &data);
    rows.row("a second pointer", code(&imported));
    if let Ok(imported) = imported {
        rows.row(
            "a second pointer: distance as of the originals",
            same(
                Ok(imported.wrapping_sub(base)),
                other.wrapping_sub(made.base),
            ),
        );
        rows.row("a second pointer: data", right(here.read(imported), MARK));
        rows.row("a second pointer: RANGE_SIZE", range_size(here, imported));
        rows.row("a second pointer: free", here.free(imported));
        rows.row(
            "the first one's data after that",
            right(here.read(base), MARK + 1),
        );
    }
    if let Ok(second) = second
        && second != pool
    {
        let base_of_second = here.import_pointer(second, &made.data);
        rows.row("by the second import: address", same(base_of_second, base));
        if let Ok(other) = base_of_second
            && other != base
        {
            rows.row(
                "by the second import: data",
                right(here.read(other), MARK + 1),
            );
            rows.row("by the second import: free", here.free(other));
            rows.row("data by the first import", right(here.read(base), MARK + 1));
        }
    }
    for (name, kind, flags) in [
        ("with flags 1", posix, 1),
        ("without a type", handle_type::NONE, 0),
        ("as an unknown type", 64, 0),
    ] {
        let pool = here.pool_import_as(fd, kind, flags);
        rows.row(format!("import {name}"), code(&pool));
    }
}

/// The same pointer twice, and frees until there is nothing.
pub(in super::super) fn frees(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some((exporter, pool, base)) = imported(scene) else {
        return;
    };
    let data = &exporter.made.data;
    rows.row(
        "import again: address",
        same(here.import_pointer(pool, data), base),
    );
    rows.row("free", here.free(base));
    rows.row("free: BUFFER_ID", code(&id(here, base)));
    if id(here, base).is_ok() {
        rows.row("free: data", right(here.read(base), MARK));
    }
    rows.row("free again", here.free(base));
    rows.row("free again: BUFFER_ID", code(&id(here, base)));
    rows.row("free a third time", here.free(base));
    rows.row(
        "the exporter's data",
        right(exporter.process.read(exporter.made.base), MARK),
    );
    let again = here.import_pointer(pool, data);
    rows.row("import after that", code(&again));
    if let Ok(again) = again {
        rows.row("import after that: address", same(Ok(again), base));
        rows.row("import after that: data", right(here.read(again), MARK));
        rows.row("import after that: RANGE_SIZE", range_size(here, again));
        rows.row("import after that: free", here.free(again));
    }
    rows.row("destroy", here.pool_destroy(pool));
}

/// Memory that is freed, read: by itself, since this can break a context.
pub(in super::super) fn read_after_free(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some((_exporter, _, base)) = imported(scene) else {
        return;
    };
    rows.row("free", here.free(base));
    rows.row("cuMemcpyDtoH", code(&here.read(base)));
    rows.row("the context after that", here.synchronize());
}

/// One pointer through two imports of a pool, and frees.
pub(in super::super) fn twice(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some((exporter, pool, base)) = imported(scene) else {
        return;
    };
    let second = here.pool_import(exporter.made.fd.as_fd());
    rows.row("import the pool again", same(second, pool));
    let Ok(second) = second else { return };
    let other = here.import_pointer(second, &exporter.made.data);
    rows.row("import the pointer again: address", same(other, base));
    let Ok(other) = other else { return };
    rows.row("its data", right(here.read(other), MARK));
    rows.row("free the first", here.free(base));
    rows.row("BUFFER_ID of the first", code(&id(here, base)));
    rows.row("BUFFER_ID of the second", code(&id(here, other)));
    if id(here, other).is_ok() {
        rows.row("data of the second", right(here.read(other), MARK));
    }
    rows.row("destroy the first pool", here.pool_destroy(pool));
    if id(here, other).is_ok() {
        rows.row(
            "data of the second after that",
            right(here.read(other), MARK),
        );
    }
    rows.row("free the second", here.free(other));
    if second != pool {
        rows.row("destroy the second pool", here.pool_destroy(second));
    }
}

/// A pointer of one pool put to another.
pub(in super::super) fn another_pool(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some((exporter, pool, base)) = imported(scene) else {
        return;
    };
    let other = make_pooled(&exporter.process, 0, BYTES);
    let Some(other) = scene.set_up("another pool", other) else {
        return;
    };
    let wrong = here.import_pointer(pool, &other.data);
    rows.row("a pointer of another pool", code(&wrong));
    if let Ok(wrong) = wrong {
        rows.row(
            "a pointer of another pool: address",
            distance(Ok(wrong), base),
        );
        rows.row(
            "a pointer of another pool: RANGE_SIZE",
            range_size(here, wrong),
        );
    }
    rows.row("BUFFER_ID", code(&id(here, base)));
    rows.row("data", right(here.read(base), MARK));
    let right_one = here.pool_import(other.fd.as_fd());
    rows.row("the other pool", code(&right_one));
    if let Ok(pool) = right_one {
        let base = here.import_pointer(pool, &other.data);
        rows.row("its pointer", code(&base));
        if let Ok(base) = base {
            rows.row("its data", right(here.read(base), MARK));
        }
    }
}

/// Bytes that are no pointer's.
pub(in super::super) fn no_bytes(scene: &Scene) {
    made_up(scene, |_| [0; 64]);
}

/// See [`no_bytes`].
pub(in super::super) fn changed_bytes(scene: &Scene) {
    made_up(scene, |data| {
        let mut data = *data;
        data[63] ^= 1;
        data
    });
}

fn made_up(scene: &Scene, change: fn(&[u8; 64]) -> [u8; 64]) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some((exporter, pool, base)) = imported(scene) else {
        return;
    };
    let made_up = here.import_pointer(pool, &change(&exporter.made.data));
    rows.row("import", code(&made_up));
    rows.row(
        "data of what was imported before",
        right(here.read(base), MARK),
    );
}

/// What lies behind an imported pointer's end: by itself, since this can break a
/// context.
pub(in super::super) fn past_the_end(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some((_exporter, _, base)) = imported(scene) else {
        return;
    };
    let end = base + BYTES;
    rows.row("BUFFER_ID", code(&id(here, end)));
    rows.row("RANGE_SIZE", range_size(here, end));
    rows.row("cuMemGetAddressRange", range(here, end, base));
    rows.row("across the end: cuMemcpyDtoH", code(&here.read(end - 4)));
    rows.row("cuMemcpyDtoH", code(&here.read(end)));
    rows.row("the context after that", here.synchronize());
}
