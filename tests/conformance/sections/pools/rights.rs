//! Rights to an imported pool, and changes of them.

use super::super::Scene;
use super::imported;
use crate::call::Ask;
use crate::memory::MARK;
use crate::pool::AskPools;
use crate::rows::{code, right};
use gpuipc::sys::{access, location};

pub(in super::super) fn read_only(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some((exporter, pool, base)) = imported(scene) else {
        return;
    };
    let asked = || here.pool_get_access(pool, 0);
    let given = |device, flags| here.pool_set_access(pool, device, flags);
    rows.row("asked", asked());
    rows.row("for device 99", given(99, access::READ_WRITE));
    rows.row("write only", given(0, 2));
    rows.row("all rights", given(0, access::READ_WRITE));
    rows.row("all rights: asked", asked());
    rows.row("all rights: data", right(here.read(base), MARK));
    rows.row("read-only", given(0, access::READ));
    rows.row("read-only: asked", asked());
    let of_pointer = here.get_access(base, location::DEVICE, 0);
    rows.row("read-only: cuMemGetAccess", of_pointer);
    rows.row("read-only: data", right(here.read(base), MARK));
    rows.row("read-only: write", here.put(base, MARK + 1));
    rows.row(
        "read-only: the exporter's data is as it was",
        right(exporter.process.read(exporter.made.base), MARK),
    );
    rows.row("all rights again", given(0, access::READ_WRITE));
    rows.row("all rights again: write", here.put(base, MARK + 2));
    rows.row(
        "all rights again: the exporter's data",
        right(exporter.process.read(exporter.made.base), MARK + 2),
    );
}

/// Read-only before any pointer is imported.
pub(in super::super) fn read_only_first(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some((exporter, pool, base)) = imported(scene) else {
        return;
    };
    rows.row("free", here.free(base));
    rows.row("read-only", here.pool_set_access(pool, 0, access::READ));
    rows.row("asked", here.pool_get_access(pool, 0));
    let base = here.import_pointer(pool, &exporter.made.data);
    let Some(base) = rows.got("import the pointer", base) else {
        return;
    };
    rows.row("asked after that", here.pool_get_access(pool, 0));
    rows.row("data", right(here.read(base), MARK));
    rows.row("write", here.put(base, MARK + 1));
    rows.row("the context after that", here.synchronize());
}

/// No rights at all, and then a read: by itself, since this can break a context.
pub(in super::super) fn none(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some((exporter, pool, base)) = imported(scene) else {
        return;
    };
    rows.row("no rights", here.pool_set_access(pool, 0, access::NONE));
    rows.row("asked", here.pool_get_access(pool, 0));
    rows.row("cuMemcpyDtoH", code(&here.read(base)));
    rows.row("cuMemcpyHtoD", here.put(base, MARK + 1));
    rows.row("the context after that", here.synchronize());
    let data = exporter.process.read(exporter.made.base);
    rows.row("the exporter's data is as it was", right(data, MARK));
}
