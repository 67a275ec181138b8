//! Several pieces of VMM memory in one reservation.

use super::Scene;
use super::pointer::{attributes, range};
use crate::call::{Ask, Got, shareable};
use crate::memory::{MARK, MIB};
use crate::rows::{code, right, same};
use gpuipc::sys::{access, location, pointer_attribute};

/// The least length of a piece.
const UNIT: u64 = 2 * MIB;

/// A piece of one unit, a piece of two, a hole of one, a piece of one.
struct Row {
    base: u64,
    handles: [u64; 3],
}

const STARTS: [u64; 3] = [0, UNIT, 4 * UNIT];
const LENGTHS: [u64; 3] = [UNIT, 2 * UNIT, UNIT];
const HOLE: u64 = 3 * UNIT;
const WHOLE: u64 = 5 * UNIT;

fn lay(scene: &Scene) -> Option<Row> {
    let here = &scene.raw;
    let base = scene.set_up("reservation", here.reserve(WHOLE, 0))?;
    let mut handles = [0; 3];
    for (index, handle) in handles.iter_mut().enumerate() {
        let created = here.create(LENGTHS[index], &shareable(0));
        *handle = scene.set_up("piece", created)?;
        let mapped = here.map(base + STARTS[index], LENGTHS[index], 0, *handle);
        scene.set_up("map", mapped)?;
    }
    Some(Row { base, handles })
}

pub(super) fn pieces(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(context) = scene.ready(0) else {
        return;
    };
    let Some(Row { base, handles }) = lay(scene) else {
        return;
    };
    let all = access::READ_WRITE;
    rows.row(
        "rights over pieces and hole",
        here.set_access(base, WHOLE, 0, all),
    );
    rows.row("data after that", code(&here.put(base, MARK)));
    rows.row(
        "rights over two pieces",
        here.set_access(base, HOLE, 0, all),
    );
    rows.row(
        "rights over the last piece",
        here.set_access(base + 4 * UNIT, UNIT, 0, all),
    );
    rows.row(
        "rights over a part of a piece",
        here.set_access(base + UNIT, UNIT, 0, all),
    );
    let seam = base + UNIT - 4;
    rows.row("write across the seam", here.put(seam, MARK));
    rows.row("read across the seam", right(here.read(seam), MARK));
    rows.row(
        "fill across the seam",
        here.fill(base + UNIT - 4096, 7, 8192),
    );
    rows.row(
        "read across the edge of the hole",
        code(&here.read(base + HOLE - 4)),
    );
    for (index, start) in STARTS.into_iter().enumerate() {
        let ptr = base + start + 4096;
        let place = format!("piece {index}");
        attributes(rows, here, &place, ptr, base, context);
        rows.row(
            format!("{place}: cuMemGetAddressRange"),
            range(here, ptr, base),
        );
        let retained = here.retain(ptr);
        rows.row(
            format!("{place}: retain, the created handle"),
            same(retained, handles[index]),
        );
        if let Ok(retained) = retained {
            let _ = here.release(retained);
        }
    }
    let id = |at| here.attribute(pointer_attribute::BUFFER_ID, base + at);
    if let Ok(first) = id(0) {
        rows.row("BUFFER_ID of piece 1 as of piece 0", same(id(UNIT), first));
    }
    if let Ok(second) = id(UNIT) {
        rows.row("BUFFER_ID inside piece 1", same(id(2 * UNIT), second));
    }
    let hole = base + HOLE;
    rows.row("hole: BUFFER_ID", code(&id(HOLE)));
    rows.row("hole: cuMemGetAddressRange", code(&here.range(hole)));
    rows.row("hole: retain", code(&here.retain(hole)));
    rows.row("hole: cuMemcpyDtoH", code(&here.read(hole)));
    rows.row(
        "hole: cuMemGetAccess",
        here.get_access(hole, location::DEVICE, 0),
    );
    rows.row("hole: unmap", here.unmap(hole, UNIT));
    rows.row("unmap a part of piece 1", here.unmap(base + UNIT, UNIT));
    rows.row(
        "unmap piece 0 and a part of piece 1",
        here.unmap(base, 2 * UNIT),
    );
    rows.row("piece 0 after that", code(&here.read(base)));
    rows.row("address free of a piece", here.address_free(base, UNIT));
    rows.row("unmap pieces and hole", here.unmap(base, WHOLE));
    rows.row("piece 0 after the unmap", code(&here.read(base)));
    rows.row("piece 2 after the unmap", code(&here.read(base + 4 * UNIT)));
    rows.row("unmap two pieces in one call", here.unmap(base, HOLE));
    rows.row("unmap the last piece", here.unmap(base + 4 * UNIT, UNIT));
    rows.row("address free", here.address_free(base, WHOLE));
}

/// Each piece has rights of its own.
pub(super) fn rights(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.ready(0).is_none() {
        return;
    }
    let Some(Row { base, .. }) = lay(scene) else {
        return;
    };
    let asked = |at| here.get_access(base + at, location::DEVICE, 0);
    rows.row(
        "piece 0 read-only",
        here.set_access(base, UNIT, 0, access::READ),
    );
    rows.row(
        "piece 1 all",
        here.set_access(base + UNIT, 2 * UNIT, 0, access::READ_WRITE),
    );
    rows.row("piece 0: asked", asked(0));
    rows.row("piece 1: asked", asked(UNIT));
    rows.row("piece 2: asked", asked(4 * UNIT));
    rows.row("piece 0: cuMemcpyDtoH", code(&here.read(base)));
    rows.row("piece 0: cuMemcpyHtoD", here.put(base, MARK));
    rows.row("piece 1: cuMemcpyHtoD", here.put(base + UNIT, MARK));
    rows.row("piece 2: cuMemcpyDtoH", code(&here.read(base + 4 * UNIT)));
    rows.row(
        "write across the seam to the read-only piece",
        here.put(base + UNIT - 4, MARK),
    );
    rows.row("read across the seam", code(&here.read(base + UNIT - 4)));
}

pub(super) fn alias(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(context) = scene.ready(0) else {
        return;
    };
    let Some(base) = scene.set_up("reservation", here.reserve(2 * UNIT, 0)) else {
        return;
    };
    let Some(handle) = scene.set_up("memory", here.create(UNIT, &shareable(0))) else {
        return;
    };
    let give = |at| here.set_access(base + at, UNIT, 0, access::READ_WRITE);
    let id = |at| here.attribute(pointer_attribute::BUFFER_ID, base + at);
    let block = |at| here.attribute(pointer_attribute::MEMORY_BLOCK_ID, base + at);
    let retained = |at| -> Got<u64> {
        let handle = here.retain(base + at)?;
        let _ = here.release(handle);
        Ok(handle)
    };
    rows.row(
        "map",
        here.map(base, UNIT, 0, handle).and_then(|()| give(0)),
    );
    rows.row(
        "alias: map",
        here.map(base + UNIT, UNIT, 0, handle)
            .and_then(|()| give(UNIT)),
    );
    attributes(rows, here, "alias", base + UNIT, base, context);
    if let (Ok(first_id), Ok(first_block)) = (id(0), block(0)) {
        rows.row("alias: BUFFER_ID as the first", same(id(UNIT), first_id));
        rows.row(
            "alias: MEMORY_BLOCK_ID as the first",
            same(block(UNIT), first_block),
        );
    }
    rows.row("alias: retain, the handle", same(retained(UNIT), handle));
    rows.row("write to the first", here.put(base, MARK));
    rows.row("alias: data", right(here.read(base + UNIT), MARK));
    let Ok(before) = id(0) else { return };
    rows.row("unmap the first", here.unmap(base, UNIT));
    rows.row(
        "alias after that: data",
        right(here.read(base + UNIT), MARK),
    );
    rows.row("BUFFER_ID of nothing", code(&id(0)));
    rows.row(
        "the same memory there again",
        here.map(base, UNIT, 0, handle).and_then(|()| give(0)),
    );
    rows.row("the same memory: BUFFER_ID as before", same(id(0), before));
    rows.row(
        "the same memory: retain, the handle",
        same(retained(0), handle),
    );
    rows.row("the same memory: data", right(here.read(base), MARK));
    let Ok(before) = id(0) else { return };
    let Some(other) = scene.set_up("other memory", here.create(UNIT, &shareable(0))) else {
        return;
    };
    rows.row("unmap again", here.unmap(base, UNIT));
    rows.row(
        "other memory there",
        here.map(base, UNIT, 0, other).and_then(|()| give(0)),
    );
    rows.row("other memory: BUFFER_ID as before", same(id(0), before));
    rows.row(
        "other memory: retain, the first handle",
        same(retained(0), handle),
    );
    rows.row("other memory: data", right(here.read(base), MARK));
}
