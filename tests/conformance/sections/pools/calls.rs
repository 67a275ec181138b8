//! The calls of pools without a context.

use super::super::Scene;
use super::{BYTES, exporter, id, imported};
use crate::call::Ask;
use crate::memory::MARK;
use crate::pool::{AskPools, make_pooled};
use crate::rows::{code, right};
use gpuipc::sys::{access, handle_type};
use std::os::fd::AsFd;

const POSIX: u32 = handle_type::POSIX_FILE_DESCRIPTOR;

/// With a context that is not current.
pub(in super::super) fn no_current(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some((exporter, pool, base)) = imported(scene) else {
        return;
    };
    let Ok(context) = here.current() else { return };
    let Some(own) = scene.set_up("own pool", make_pooled(here, 0, BYTES)) else {
        return;
    };
    rows.row("cuCtxSetCurrent of null", here.set_current(0));
    rows.row("cuDeviceGetDefaultMemPool", code(&here.default_pool(0)));
    let created = here.pool(POSIX, 0);
    rows.row("cuMemPoolCreate", code(&created));
    rows.row("cuMemPoolGetAccess", here.pool_get_access(own.pool, 0));
    let all = access::READ_WRITE;
    rows.row("cuMemPoolSetAccess", here.pool_set_access(own.pool, 0, all));
    let memory = here.pool_alloc(4096, own.pool, 0);
    rows.row("cuMemAllocFromPoolAsync", code(&memory));
    rows.row("cuMemAllocAsync", code(&here.alloc_async(4096, 0)));
    let exported = here.pool_export_fd(own.pool);
    rows.row("cuMemPoolExportToShareableHandle", code(&exported));
    rows.row(
        "cuMemPoolExportPointer",
        code(&here.export_pointer(own.base)),
    );
    let second = here.pool_import(exporter.made.fd.as_fd());
    rows.row("cuMemPoolImportFromShareableHandle", code(&second));
    rows.row(
        "cuMemPoolGetAccess, imported pool",
        here.pool_get_access(pool, 0),
    );
    let given = here.pool_set_access(pool, 0, all);
    rows.row("cuMemPoolSetAccess, imported pool", given);
    let again = here.import_pointer(pool, &exporter.made.data);
    rows.row("cuMemPoolImportPointer", code(&again));
    rows.row("BUFFER_ID of the imported pointer", code(&id(here, base)));
    rows.row(
        "cuMemcpyDtoH of the imported pointer",
        code(&here.read(base)),
    );
    rows.row("cuMemFree of the imported pointer", here.free(base));
    rows.row("cuMemFree of the own pointer", here.free(own.base));
    if let Ok(second) = second {
        rows.row("cuMemPoolDestroy, imported pool", here.pool_destroy(second));
    }
    if let Ok(created) = created {
        rows.row("cuMemPoolDestroy", here.pool_destroy(created));
    }
    rows.row("the context again", here.set_current(context));
    let data = exporter.process.read(exporter.made.base);
    rows.row("the exporter's data after all that", right(data, MARK));
}

/// In a process that initialized the driver and has no context of any GPU.
pub(in super::super) fn no_context_at_all(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(exporter) = exporter(scene) else {
        return;
    };
    if scene.set_up("cuInit", here.init(0)).is_none() {
        return;
    }
    rows.row("cuDeviceGetDefaultMemPool", code(&here.default_pool(0)));
    let created = here.pool(POSIX, 0);
    rows.row("cuMemPoolCreate", code(&created));
    if let Ok(created) = created {
        let exported = here.pool_export_fd(created);
        rows.row("cuMemPoolExportToShareableHandle", code(&exported));
        rows.row("cuMemPoolDestroy", here.pool_destroy(created));
    }
    let pool = here.pool_import(exporter.made.fd.as_fd());
    rows.row("cuMemPoolImportFromShareableHandle", code(&pool));
    let Ok(pool) = pool else { return };
    rows.row("cuMemPoolGetAccess", here.pool_get_access(pool, 0));
    let given = here.pool_set_access(pool, 0, access::READ_WRITE);
    rows.row("cuMemPoolSetAccess", given);
    let base = here.import_pointer(pool, &exporter.made.data);
    rows.row("cuMemPoolImportPointer", code(&base));
    rows.row("primary context, active", here.primary_active(0));
    if scene.ready(0).is_none() {
        return;
    }
    if let Ok(base) = base {
        rows.row("with a context: data", right(here.read(base), MARK));
        rows.row("with a context: cuMemFree", here.free(base));
    }
    let again = here.import_pointer(pool, &exporter.made.data);
    rows.row("with a context: cuMemPoolImportPointer", code(&again));
    let data = again.and_then(|base| right(here.read(base), MARK));
    rows.row("with a context: data of that", data);
}
