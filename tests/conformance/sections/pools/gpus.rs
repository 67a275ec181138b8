//! Two GPUs and pools. Without a second GPU these sections have no rows.

use super::super::Scene;
use super::super::pointer::{attributes, ordinal, range};
use super::{BYTES, exporter, range_size};
use crate::call::Ask;
use crate::memory::{MARK, ready};
use crate::pool::{AskPools, make_pooled, pooled};
use crate::rows::{code, right, same};
use gpuipc::sys::access;
use std::os::fd::AsFd;

/// A pool of GPU 0, imported with GPU 1's context.
pub(in super::super) fn imported(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if !scene.has_two_gpus() {
        return;
    }
    let Some(first) = scene.ready(0) else { return };
    let Some(second) = scene.ready(1) else { return };
    let Some(exporter) = exporter(scene) else {
        return;
    };
    let made = &exporter.made;
    let Some(pool) = rows.got("import", here.pool_import(made.fd.as_fd())) else {
        return;
    };
    let asked = |state: &str| {
        for device in [0, 1] {
            rows.row(
                format!("{state}: rights of GPU {device}"),
                here.pool_get_access(pool, device),
            );
        }
    };
    asked("imported");
    let base = here.import_pointer(pool, &made.data);
    let Some(base) = rows.got("import the pointer", base) else {
        return;
    };
    rows.row("ordinal", ordinal(here, base));
    rows.row("RANGE_SIZE", range_size(here, base));
    asked("pointer imported");
    let all = access::READ_WRITE;
    rows.row("rights for GPU 1", here.pool_set_access(pool, 1, all));
    asked("for both");
    attributes(rows, here, "for both", base, base, second);
    rows.row("for both: cuMemGetAddressRange", range(here, base, base));
    rows.row(
        "for both: data in GPU 1's context",
        right(here.read(base), MARK),
    );
    rows.row(
        "for both: write in GPU 1's context",
        here.put(base, MARK + 1),
    );
    rows.row(
        "for both: the exporter's data",
        right(exporter.process.read(made.base), MARK + 1),
    );
    let again = here.import_pointer(pool, &made.data);
    rows.row("for both: import again", same(again, base));
    rows.row("for both: free, one import left", here.free(base));
    let _ = here.set_current(first);
    rows.row(
        "for both: data in GPU 0's context",
        right(here.read(base), MARK + 1),
    );
    rows.row("for both: free in GPU 0's context", here.free(base));
    let _ = here.set_current(second);
    rows.row(
        "read-only for GPU 1",
        here.pool_set_access(pool, 1, access::READ),
    );
    asked("read-only for GPU 1");
    rows.row(
        "none for GPU 1",
        here.pool_set_access(pool, 1, access::NONE),
    );
    asked("none for GPU 1");
    rows.row("destroy", here.pool_destroy(pool));
}

/// Copies in GPU 1's context before it has rights: by themselves, since this can
/// break a context.
pub(in super::super) fn without_rights(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if !scene.has_two_gpus() || scene.ready(1).is_none() {
        return;
    }
    let Some(exporter) = exporter(scene) else {
        return;
    };
    let Some(pool) = rows.got("import", here.pool_import(exporter.made.fd.as_fd())) else {
        return;
    };
    let base = here.import_pointer(pool, &exporter.made.data);
    let Some(base) = rows.got("import the pointer", base) else {
        return;
    };
    rows.row("rights of GPU 1", here.pool_get_access(pool, 1));
    rows.row("GPU 0's primary context, active", here.primary_active(0));
    rows.row("cuMemcpyDtoH", right(here.read(base), MARK));
    rows.row("cuMemcpyHtoD", here.put(base, MARK + 1));
    rows.row("the context after that", here.synchronize());
    rows.row("cuMemFree", here.free(base));
}

/// An own pool of GPU 0 while GPU 1's context is current.
pub(in super::super) fn own(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if !scene.has_two_gpus() {
        return;
    }
    let Some(first) = scene.ready(0) else { return };
    let Some(second) = scene.ready(1) else { return };
    let Some(importer) = scene.process(0) else {
        return;
    };
    rows.row("default pools", {
        let other = here.default_pool(1);
        here.default_pool(0).and_then(|pool| same(other, pool))
    });
    let made = make_pooled(here, 1, BYTES);
    let Some(made) = scene.set_up("pool of GPU 1", made) else {
        return;
    };
    let _ = here.set_current(first);
    rows.row("ordinal", ordinal(here, made.base));
    attributes(
        rows,
        here,
        "in GPU 0's context",
        made.base,
        made.base,
        second,
    );
    rows.row(
        "export the pointer",
        same(here.export_pointer(made.base), made.data),
    );
    rows.row("rights of GPU 0", here.pool_get_access(made.pool, 0));
    rows.row("rights of GPU 1", here.pool_get_access(made.pool, 1));
    let memory = here.pool_alloc(4096, made.pool, 0);
    rows.row("memory in GPU 0's context", code(&memory));
    rows.row("cuCtxSynchronize", here.synchronize());
    if let Ok(memory) = memory {
        rows.row("memory in GPU 0's context: ordinal", ordinal(here, memory));
        rows.row("memory in GPU 0's context: free", here.free(memory));
    }
    let pool = importer.pool_import(made.fd.as_fd());
    rows.row("import in GPU 0's context", code(&pool));
    if let Ok(pool) = pool {
        for device in [0, 1] {
            rows.row(
                format!("import in GPU 0's context: rights of GPU {device}"),
                importer.pool_get_access(pool, device),
            );
        }
        let base = importer.import_pointer(pool, &made.data);
        rows.row("import the pointer in GPU 0's context", code(&base));
        if let Ok(base) = base {
            rows.row("its ordinal", ordinal(&importer, base));
            let given = importer.pool_set_access(pool, 0, access::READ_WRITE);
            rows.row("rights for GPU 0", given);
            rows.row("data in GPU 0's context", right(importer.read(base), MARK));
            let ready = ready(&importer, 1);
            rows.row("GPU 1's context", code(&ready));
            rows.row("data in GPU 1's context", right(importer.read(base), MARK));
            rows.row("free in GPU 1's context", importer.free(base));
        }
    }
    rows.row("cuMemFree in GPU 0's context", here.free(made.base));
}

/// A process that sees GPU 1 only imports a pool of GPU 0.
pub(in super::super) fn unseen(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if !scene.has_two_gpus() || scene.ready(0).is_none() {
        return;
    }
    let Some(made) = scene.set_up("pool", make_pooled(here, 0, BYTES)) else {
        return;
    };
    let Some(importer) = scene.process_seeing("1") else {
        return;
    };
    if scene.set_up("its context", ready(&importer, 0)).is_none() {
        return;
    }
    let pool = importer.pool_import(made.fd.as_fd());
    let Some(pool) = rows.got("import", pool) else {
        return;
    };
    rows.row("rights of its device 0", importer.pool_get_access(pool, 0));
    rows.row("rights of its device 1", importer.pool_get_access(pool, 1));
    let base = importer.import_pointer(pool, &made.data);
    let Some(base) = rows.got("import the pointer", base) else {
        return;
    };
    rows.row("ordinal", ordinal(&importer, base));
    rows.row("RANGE_SIZE", range_size(&importer, base));
    rows.row("data", right(importer.read(base), MARK));
    let given = importer.pool_set_access(pool, 0, access::READ_WRITE);
    rows.row("rights for its device 0", given);
    rows.row("data after that", right(importer.read(base), MARK));
    rows.row("write", importer.put(base, MARK + 1));
    rows.row("the exporter's data", right(here.read(made.base), MARK + 1));
    rows.row("free", importer.free(base));
    rows.row(
        "memory of the exporter's after that",
        code(&pooled(here, made.pool, 4096)),
    );
}
