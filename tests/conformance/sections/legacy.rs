//! Legacy handles (`cuIpc*`) in the importer.

use super::Scene;
use super::pointer::{attributes, range};
use crate::call::Ask;
use crate::memory::{INSIDE, MARK, MIB, make_legacy, ready};
use crate::rows::{code, right, same};
use gpuipc::sys::{IPC_MEM_LAZY_ENABLE_PEER_ACCESS as LAZY, pointer_attribute};

const BYTES: u64 = 3 * MIB;

pub(super) fn imported(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(context) = scene.ready(0) else {
        return;
    };
    let Some(exporter) = scene.process(0) else {
        return;
    };
    let Some((made, handle)) = scene.set_up("memory", make_legacy(&exporter, BYTES)) else {
        return;
    };
    rows.row("open with unknown flags", code(&here.open(&handle, 2)));
    let Some(base) = rows.got("open", here.open(&handle, LAZY)) else {
        return;
    };
    rows.row("data at the base", right(here.read(base), MARK));
    rows.row(
        "data inside",
        right(here.read(base + INSIDE), MARK + INSIDE),
    );
    rows.row("data past the end", code(&here.read(base + BYTES)));
    attributes(rows, here, "base", base, base, context);
    attributes(rows, here, "interior", base + INSIDE, base, context);
    rows.row(
        "interior: cuMemGetAddressRange",
        range(here, base + INSIDE, base),
    );
    rows.row("cuIpcGetMemHandle", code(&here.legacy_handle(base)));
    rows.row("cuMemRetainAllocationHandle", code(&here.retain(base)));
    rows.row("write", here.put(base, MARK + 1));
    rows.row(
        "the exporter reads what was written",
        right(exporter.read(made.base), MARK + 1),
    );
    rows.row("open again", same(here.open(&handle, LAZY), base));
    rows.row("close, one open left", here.close(base));
    rows.row("data after that", right(here.read(base), MARK + 1));
    rows.row("close", here.close(base));
    rows.row("close once more", here.close(base));
    rows.row("data after the last close", code(&here.read(base)));
    let kind = here.attribute(pointer_attribute::MEMORY_TYPE, base);
    rows.row("MEMORY_TYPE after the last close", code(&kind));
    let again = here.open(&handle, LAZY);
    rows.row("open after the last close", code(&again));
    if let Ok(again) = again {
        rows.row("data of that", right(here.read(again), MARK + 1));
        rows.row("close of that", here.close(again));
    }
    rows.row("the exporter opens it", code(&exporter.open(&handle, LAZY)));
}

/// Without the flag that CUDA asks for: by itself, so that what it does to a mapping
/// is seen.
pub(super) fn without_flag(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.ready(0).is_none() {
        return;
    }
    let Some(exporter) = scene.process(0) else {
        return;
    };
    let Some((_, handle)) = scene.set_up("memory", make_legacy(&exporter, BYTES)) else {
        return;
    };
    let first = here.open(&handle, 0);
    rows.row("open", code(&first));
    if let Ok(base) = first {
        rows.row("close", here.close(base));
    }
    let Some(base) = rows.got("open lazily", here.open(&handle, LAZY)) else {
        return;
    };
    rows.row("open while open", same(here.open(&handle, 0), base));
    rows.row("data after that", right(here.read(base), MARK));
    rows.row("close after that", here.close(base));
    rows.row("data after the close", code(&here.read(base)));
    rows.row("close once more", here.close(base));
}

/// Two small allocations, which share a block of the driver's.
pub(super) fn small(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(context) = scene.ready(0) else {
        return;
    };
    let Some(exporter) = scene.process(0) else {
        return;
    };
    let made =
        make_legacy(&exporter, 4096).and_then(|first| Ok((first, make_legacy(&exporter, 4096)?)));
    let Some(((one, one_handle), (two, two_handle))) = scene.set_up("memory", made) else {
        return;
    };
    rows.row(
        "distance of the two",
        crate::rows::distance(Ok(two.base), one.base),
    );
    rows.row("their handles", same(Ok(one_handle), two_handle));
    let _ = exporter.put(two.base, MARK + 2);
    let Some(second) = rows.got("open the second", here.open(&two_handle, LAZY)) else {
        return;
    };
    rows.row("data of the second", right(here.read(second), MARK + 2));
    attributes(rows, here, "second", second, second, context);
    rows.row(
        "second: cuMemGetAddressRange",
        range(here, second + 8, second),
    );
    rows.row(
        "the first through the second's mapping",
        code(&here.read(second.wrapping_sub(two.base.wrapping_sub(one.base)))),
    );
    let first = here.open(&one_handle, LAZY);
    rows.row("open the first", code(&first));
    if let Ok(first) = first {
        rows.row("data of the first", right(here.read(first), MARK));
        rows.row(
            "distance of the two mappings",
            same(Ok(second.wrapping_sub(first)), two.base - one.base),
        );
        rows.row("close the first", here.close(first));
    }
    rows.row(
        "data of the second after that",
        right(here.read(second), MARK + 2),
    );
    rows.row("close the second", here.close(second));
}

/// Ends of an opened mapping that are none.
pub(super) fn wrong_end(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.ready(0).is_none() {
        return;
    }
    let Some(exporter) = scene.process(0) else {
        return;
    };
    let Some((made, handle)) = scene.set_up("memory", make_legacy(&exporter, BYTES)) else {
        return;
    };
    let Some(base) = scene.set_up("open", here.open(&handle, LAZY)) else {
        return;
    };
    rows.row(
        "cuIpcCloseMemHandle of an interior address",
        here.close(base + INSIDE),
    );
    rows.row("cuMemUnmap", here.unmap(base, BYTES));
    rows.row("cuMemAddressFree", here.address_free(base, BYTES));
    rows.row("cuMemFreeHost", here.free_host(base));
    rows.row("data after that", right(here.read(base), MARK));
    rows.row("cuMemFree", here.free(base));
    rows.row("data after cuMemFree", code(&here.read(base)));
    rows.row("the exporter's data", right(exporter.read(made.base), MARK));
    rows.row("cuIpcCloseMemHandle", here.close(base));
}

pub(super) fn same_process(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.set_up("context", ready(here, 0)).is_none() {
        return;
    }
    let Some((made, handle)) = scene.set_up("memory", make_legacy(here, BYTES)) else {
        return;
    };
    rows.row("open", code(&here.open(&handle, LAZY)));
    rows.row("open with flags 0", code(&here.open(&handle, 0)));
    rows.row(
        "the handle asked for again",
        same(here.legacy_handle(made.base), handle),
    );
    rows.row("data after that", right(here.read(made.base), MARK));
    rows.row("cuMemFree", here.free(made.base));
    rows.row("open after cuMemFree", code(&here.open(&handle, LAZY)));
}
