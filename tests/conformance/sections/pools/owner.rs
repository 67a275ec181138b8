//! Pools and their memory, seen by their owner.

use super::super::Scene;
use super::super::pointer::{attributes, range};
use super::{BYTES, id, range_size};
use crate::call::Ask;
use crate::memory::{INSIDE, MARK};
use crate::pool::{AskPools, make_pooled, pooled};
use crate::rows::{code, distance, right, same};
use gpuipc::sys::{handle_type, location, pointer_attribute};

const POSIX: u32 = handle_type::POSIX_FILE_DESCRIPTOR;

pub(in super::super) fn pool(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(context) = scene.ready(0) else {
        return;
    };
    let Some(pool) = rows.got("cuMemPoolCreate", here.pool(POSIX, 0)) else {
        return;
    };
    rows.row("rights of device 0", here.pool_get_access(pool, 0));
    rows.row("rights of device 99", here.pool_get_access(pool, 99));
    let base = here.pool_alloc(BYTES, pool, 0);
    let Some(base) = rows.got("cuMemAllocFromPoolAsync", base) else {
        return;
    };
    rows.row("cuCtxSynchronize", here.synchronize());
    rows.row("no bytes", code(&here.pool_alloc(0, pool, 0)));
    rows.row(
        "export the pointer before the pool",
        code(&here.export_pointer(base)),
    );
    rows.row("cuMemcpyHtoD", here.put(base, MARK));
    rows.row("data", right(here.read(base), MARK));
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
        rows.row(
            format!("{place}: cuIpcGetMemHandle"),
            code(&here.legacy_handle(ptr)),
        );
        rows.row(
            format!("{place}: cuMemRetainAllocationHandle"),
            code(&here.retain(ptr)),
        );
        for (name, kind) in [("device 0", location::DEVICE), ("host", location::HOST)] {
            rows.row(
                format!("{place}: cuMemGetAccess of {name}"),
                here.get_access(ptr, kind, 0),
            );
        }
    }
    exports(scene, pool, base);
    more_memory(scene, pool, base);
    rows.row("cuMemFree of an interior address", here.free(base + INSIDE));
    rows.row("cuIpcCloseMemHandle", here.close(base));
    rows.row("cuMemUnmap", here.unmap(base, BYTES));
    rows.row("data before cuMemPoolDestroy", right(here.read(base), MARK));
    rows.row("cuMemPoolDestroy while in use", here.pool_destroy(pool));
    rows.row("data after that", right(here.read(base), MARK));
    rows.row("BUFFER_ID after that", code(&id(here, base)));
    rows.row(
        "export the pointer after that",
        code(&here.export_pointer(base)),
    );
    rows.row("cuMemFree", here.free(base));
    rows.row("cuMemFree again", here.free(base));
    let kind = here.attribute(pointer_attribute::MEMORY_TYPE, base);
    rows.row("MEMORY_TYPE afterwards", code(&kind));
}

fn exports(scene: &Scene, pool: u64, base: u64) {
    let (rows, here) = (&scene.rows, &scene.raw);
    for (name, kind, flags) in [
        ("as fabric handle", handle_type::FABRIC, 0),
        ("without a type", handle_type::NONE, 0),
        ("as an unknown type", 64, 0),
        ("as both types", 9, 0),
        ("with flags 1", POSIX, 1),
    ] {
        rows.row(
            format!("export {name}"),
            here.pool_export(pool, kind, flags),
        );
    }
    rows.row(
        "export the pointer after refused exports",
        code(&here.export_pointer(base)),
    );
    let exported = here.pool_export_fd(pool);
    rows.row("export as descriptor", code(&exported));
    if let Ok(exported) = &exported {
        rows.row(
            "export as descriptor, close-on-exec",
            exported.close_on_exec,
        );
    }
    rows.row(
        "export as descriptor again",
        code(&here.pool_export_fd(pool)),
    );
    let data = here.export_pointer(base);
    rows.row("export the pointer", code(&data));
    let Ok(data) = data else { return };
    rows.row("the pointer again", same(here.export_pointer(base), data));
    rows.row(
        "an interior pointer",
        same(here.export_pointer(base + INSIDE), data),
    );
    rows.row(
        "the last byte's pointer",
        same(here.export_pointer(base + BYTES - 1), data),
    );
    let other = pooled(here, pool, BYTES);
    rows.row("memory after the export", code(&other));
    let Ok(other) = other else { return };
    rows.row("its distance", distance(Ok(other), base));
    rows.row("its pointer", same(here.export_pointer(other), data));
    rows.row(
        "its BUFFER_ID",
        id(here, base).and_then(|first| same(id(here, other), first)),
    );
    rows.row("its RANGE_SIZE", range_size(here, other));
    rows.row("its end", here.free(other));
}

fn more_memory(scene: &Scene, pool: u64, base: u64) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(stream) = rows.got("own stream", here.stream()) else {
        return;
    };
    let made = here.pool_alloc(4096, pool, stream);
    rows.row("own stream: 4 KiB", code(&made));
    rows.row("own stream: synchronize", here.stream_synchronize(stream));
    if let Ok(ptr) = made {
        rows.row("own stream: distance", distance(Ok(ptr), base));
        rows.row("own stream: write", here.put(ptr, MARK + 1));
        rows.row("own stream: data", right(here.read(ptr), MARK + 1));
        rows.row("own stream: RANGE_SIZE", range_size(here, ptr));
        rows.row("own stream: export", code(&here.export_pointer(ptr)));
        rows.row("own stream: cuMemFreeAsync", here.free_async(ptr, stream));
        rows.row(
            "own stream: synchronize again",
            here.stream_synchronize(stream),
        );
        rows.row("own stream: BUFFER_ID after that", code(&id(here, ptr)));
    }
    rows.row("own stream: destroy", here.stream_destroy(stream));
}

/// Memory whose owner has freed it; read last.
pub(in super::super) fn freed(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.ready(0).is_none() {
        return;
    }
    let Some(made) = scene.set_up("pool", make_pooled(here, 0, BYTES)) else {
        return;
    };
    rows.row("cuMemFree", here.free(made.base));
    rows.row("BUFFER_ID", code(&id(here, made.base)));
    rows.row("RANGE_SIZE", range_size(here, made.base));
    rows.row("cuMemGetAddressRange", range(here, made.base, made.base));
    rows.row("export the pointer", code(&here.export_pointer(made.base)));
    rows.row("cuMemFreeAsync", here.free_async(made.base, 0));
    rows.row("cuCtxSynchronize", here.synchronize());
    rows.row("cuMemFree again", here.free(made.base));
    let again = pooled(here, made.pool, BYTES);
    rows.row("allocated again: address", same(again, made.base));
    if let Ok(again) = again {
        rows.row(
            "allocated again: pointer",
            same(here.export_pointer(again), made.data),
        );
        rows.row("allocated again: free", here.free(again));
    }
    rows.row("cuMemPoolDestroy", here.pool_destroy(made.pool));
    rows.row("cuMemcpyDtoH", code(&here.read(made.base)));
    rows.row("the context after that", here.synchronize());
}

pub(in super::super) fn default(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(context) = scene.ready(0) else {
        return;
    };
    let Some(pool) = rows.got("cuDeviceGetDefaultMemPool", here.default_pool(0)) else {
        return;
    };
    rows.row("asked again", same(here.default_pool(0), pool));
    rows.row("of device 99", code(&here.default_pool(99)));
    rows.row("rights of device 0", here.pool_get_access(pool, 0));
    let Some(base) = rows.got("cuMemAllocAsync", here.alloc_async(BYTES, 0)) else {
        return;
    };
    rows.row("cuCtxSynchronize", here.synchronize());
    rows.row("cuMemcpyHtoD", here.put(base, MARK));
    attributes(rows, here, "base", base, base, context);
    let pool_of = here.attribute(pointer_attribute::MEMPOOL_HANDLE, base);
    rows.row("MEMPOOL_HANDLE, the pool", same(pool_of, pool));
    rows.row("cuIpcGetMemHandle", code(&here.legacy_handle(base)));
    not_shared(scene, pool, base);
    rows.row("cuMemFreeAsync", here.free_async(base, 0));
    rows.row("cuCtxSynchronize again", here.synchronize());
    rows.row("cuMemPoolDestroy", here.pool_destroy(pool));
}

pub(in super::super) fn without_type(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(context) = scene.ready(0) else {
        return;
    };
    let pool = here.pool(handle_type::NONE, 0);
    let Some(pool) = rows.got("cuMemPoolCreate", pool) else {
        return;
    };
    let Some(base) = rows.got("memory", pooled(here, pool, BYTES)) else {
        return;
    };
    attributes(rows, here, "base", base, base, context);
    not_shared(scene, pool, base);
    rows.row("cuMemFree", here.free(base));
    rows.row("cuMemPoolDestroy", here.pool_destroy(pool));
}

fn not_shared(scene: &Scene, pool: u64, base: u64) {
    let (rows, here) = (&scene.rows, &scene.raw);
    for (name, kind) in [
        ("as descriptor", POSIX),
        ("as fabric handle", handle_type::FABRIC),
        ("without a type", handle_type::NONE),
    ] {
        rows.row(format!("export {name}"), here.pool_export(pool, kind, 0));
    }
    rows.row("export the pointer", code(&here.export_pointer(base)));
}

/// Which pools there can be.
pub(in super::super) fn creation(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.ready(0).is_none() {
        return;
    }
    let (device, node) = (location::DEVICE, location::HOST_NUMA);
    for (name, types, kind, id) in [
        ("fabric", handle_type::FABRIC, device, 0),
        (
            "descriptor and fabric",
            POSIX | handle_type::FABRIC,
            device,
            0,
        ),
        ("an unknown type", 64, device, 0),
        ("device 99", POSIX, device, 99),
        ("device -1", POSIX, device, -1),
        ("host node 0", POSIX, node, 0),
        ("host", POSIX, location::HOST, 0),
    ] {
        let pool = here.pool_at(types, kind, id);
        rows.row(name, code(&pool));
        if let Ok(pool) = pool {
            rows.row(format!("{name}: destroy"), here.pool_destroy(pool));
        }
    }
    let destroyed = |pool| here.pool_destroy(pool).map(|()| pool);
    let first = here.pool(POSIX, 0).and_then(destroyed);
    let Some(first) = rows.got("create and destroy", first) else {
        return;
    };
    rows.row("create again: handle", same(here.pool(POSIX, 0), first));
}

/// An own pool, imported.
pub(in super::super) fn same_process(scene: &Scene) {
    use std::os::fd::AsFd;
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(context) = scene.ready(0) else {
        return;
    };
    let Some(made) = scene.set_up("pool", make_pooled(here, 0, BYTES)) else {
        return;
    };
    let pool = here.pool_import(made.fd.as_fd());
    rows.row("import the pool", same(pool, made.pool));
    let Ok(pool) = pool else { return };
    let base = here.import_pointer(pool, &made.data);
    rows.row("import the pointer", code(&base));
    let Ok(base) = base else { return };
    rows.row("its address", same(Ok(base), made.base));
    rows.row("data", right(here.read(base), MARK));
    rows.row(
        "data inside",
        right(here.read(base + INSIDE), MARK + INSIDE),
    );
    attributes(rows, here, "base", base, base, context);
    let own = id(here, made.base);
    rows.row(
        "BUFFER_ID as of the original",
        own.and_then(|own| same(id(here, base), own)),
    );
    rows.row("write", here.put(base, MARK + 1));
    rows.row("the original's data", right(here.read(made.base), MARK + 1));
    rows.row(
        "import again",
        same(here.import_pointer(pool, &made.data), base),
    );
    rows.row("cuMemFree", here.free(base));
    rows.row("BUFFER_ID of the original", code(&id(here, made.base)));
    rows.row("BUFFER_ID of the imported", code(&id(here, base)));
    rows.row("cuMemFree again", here.free(base));
    rows.row(
        "BUFFER_ID of the original after that",
        code(&id(here, made.base)),
    );
    rows.row(
        "BUFFER_ID of the imported after that",
        code(&id(here, base)),
    );
    rows.row("cuMemPoolDestroy of the imported", here.pool_destroy(pool));
    rows.row("the original, freed", here.free(made.base));
    rows.row(
        "cuMemPoolDestroy of the original",
        here.pool_destroy(made.pool),
    );
}

/// A pointer imported into the very pool that it is of, without an import of the
/// pool.
pub(in super::super) fn into_itself(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.ready(0).is_none() {
        return;
    }
    let Some(made) = scene.set_up("pool", make_pooled(here, 0, BYTES)) else {
        return;
    };
    let base = here.import_pointer(made.pool, &made.data);
    rows.row("import the pointer", code(&base));
    if let Ok(base) = base {
        rows.row("its address", same(Ok(base), made.base));
        rows.row("its data", right(here.read(base), MARK));
    }
    rows.row("the original's data", right(here.read(made.base), MARK));
    rows.row("cuMemFree", here.free(made.base));
    rows.row("BUFFER_ID after that", code(&id(here, made.base)));
}
