//! Ends of imported pools and pointers that are not a plain `cuMemFree`.

use super::super::Scene;
use super::{id, imported, range_size};
use crate::call::Ask;
use crate::memory::{INSIDE, MARK};
use crate::pool::{AskPools, import_pooled};
use crate::rows::{code, right, same};
use gpuipc::sys::pointer_attribute;

/// The pool goes before its pointer.
pub(in super::super) fn destroyed(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some((exporter, pool, base)) = imported(scene) else {
        return;
    };
    rows.row("destroy while a pointer is in use", here.pool_destroy(pool));
    rows.row("BUFFER_ID", code(&id(here, base)));
    rows.row("RANGE_SIZE", range_size(here, base));
    let pool_of = here.attribute(pointer_attribute::MEMPOOL_HANDLE, base);
    rows.row("MEMPOOL_HANDLE, the pool", same(pool_of, pool));
    rows.row("data", right(here.read(base), MARK));
    rows.row("write", here.put(base, MARK + 1));
    let again = import_pooled(here, &exporter.made);
    rows.row("import both again", code(&again));
    if let Ok((_, other)) = again {
        rows.row("import both again: address", same(Ok(other), base));
        rows.row("import both again: data", right(here.read(other), MARK + 1));
    }
    rows.row("free", here.free(base));
    rows.row("BUFFER_ID after that", code(&id(here, base)));
    if let Ok((pool, other)) = again {
        rows.row("the other: BUFFER_ID", code(&id(here, other)));
        rows.row("the other: free", here.free(other));
        rows.row("the other: destroy", here.pool_destroy(pool));
    }
    rows.row("free again", here.free(base));
    let last = import_pooled(here, &exporter.made);
    rows.row("import after all that", code(&last));
    if let Ok((_, base)) = last {
        rows.row(
            "import after all that: data",
            right(here.read(base), MARK + 1),
        );
    }
}

pub(in super::super) fn free_async(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some((exporter, pool, base)) = imported(scene) else {
        return;
    };
    rows.row("cuMemFreeAsync", here.free_async(base, 0));
    rows.row("cuCtxSynchronize", here.synchronize());
    rows.row("BUFFER_ID", code(&id(here, base)));
    rows.row("cuMemFree after that", here.free(base));
    let data = exporter.process.read(exporter.made.base);
    rows.row("the exporter's data", right(data, MARK));
    let again = here.import_pointer(pool, &exporter.made.data);
    rows.row("import again", code(&again));
    let Ok(again) = again else { return };
    rows.row("import again: data", right(here.read(again), MARK));
    let Some(stream) = scene.set_up("stream", here.stream()) else {
        return;
    };
    rows.row(
        "cuMemFreeAsync on an own stream",
        here.free_async(again, stream),
    );
    rows.row("its cuStreamSynchronize", here.stream_synchronize(stream));
    rows.row("BUFFER_ID after that", code(&id(here, again)));
    rows.row("destroy", here.pool_destroy(pool));
}

/// Ends that are none.
pub(in super::super) fn wrong(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some((_exporter, _, base)) = imported(scene) else {
        return;
    };
    rows.row("cuIpcCloseMemHandle", here.close(base));
    rows.row("cuMemFreeHost", here.free_host(base));
    rows.row("cuMemUnmap", here.unmap(base, super::BYTES));
    rows.row("cuMemAddressFree", here.address_free(base, super::BYTES));
    rows.row("cuMemFree of an interior address", here.free(base + INSIDE));
    rows.row("BUFFER_ID", code(&id(here, base)));
    rows.row("data", right(here.read(base), MARK));
}
