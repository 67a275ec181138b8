//! Imported allocations side by side in one reservation, and in each other's place.

use super::Scene;
use super::pointer::range;
use crate::call::{Ask, Got};
use crate::memory::{Kind, MARK, MIB, make_fd};
use crate::rows::{code, right, same};
use gpuipc::sys::{access, location, pointer_attribute};
use std::os::fd::AsFd;

const UNIT: u64 = 2 * MIB;

pub(super) fn imported(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.ready(0).is_none() {
        return;
    }
    let Some(exporter) = scene.process(0) else {
        return;
    };
    let make = |mark| -> Got<_> {
        let (made, exported) = make_fd(&exporter, Kind::VMM_FD, UNIT)?;
        exporter.put(made.base, mark)?;
        Ok((made, here.import_fd(exported.fd.as_fd())?))
    };
    let Some((one_made, one)) = scene.set_up("one", make(MARK)) else {
        return;
    };
    let Some((_, two)) = scene.set_up("another", make(MARK + 1)) else {
        return;
    };
    let Some(base) = scene.set_up("reservation", here.reserve(2 * UNIT, 0)) else {
        return;
    };
    let (all, second) = (access::READ_WRITE, base + UNIT);
    rows.row("map one", here.map(base, UNIT, 0, one));
    rows.row(
        "rights over it and nothing",
        here.set_access(base, 2 * UNIT, 0, all),
    );
    rows.row("map the other there", here.map(base, UNIT, 0, two));
    rows.row("map the other beside it", here.map(second, UNIT, 0, two));
    rows.row("rights over both", here.set_access(base, 2 * UNIT, 0, all));
    for (name, at, mark) in [("one", base, MARK), ("the other", second, MARK + 1)] {
        rows.row(format!("{name}: data"), right(here.read(at), mark));
        rows.row(
            format!("{name}: rights"),
            here.get_access(at, location::DEVICE, 0),
        );
        rows.row(
            format!("{name}: cuMemGetAddressRange"),
            range(here, at, base),
        );
        let size = here.attribute(pointer_attribute::RANGE_SIZE, at);
        rows.row(format!("{name}: RANGE_SIZE"), size);
    }
    rows.row("write across the seam", here.put(second - 4, MARK));
    rows.row("read across the seam", right(here.read(second - 4), MARK));
    // The seam lies in the other's mark.
    let _ = here.put(second, MARK + 1);
    rows.row("unmap both in one call", here.unmap(base, 2 * UNIT));
    rows.row("data after that", code(&here.read(base)));
    // In each other's place.
    let id = |at| here.attribute(pointer_attribute::BUFFER_ID, at);
    rows.row("the other in one's place", here.map(base, UNIT, 0, two));
    rows.row(
        "its rights before any",
        here.get_access(base, location::DEVICE, 0),
    );
    rows.row("its rights", here.set_access(base, UNIT, 0, all));
    rows.row("its data", right(here.read(base), MARK + 1));
    let before = id(base);
    rows.row("unmap it", here.unmap(base, UNIT));
    rows.row("one in its place", here.map(base, UNIT, 0, one));
    rows.row(
        "one's rights before any",
        here.get_access(base, location::DEVICE, 0),
    );
    rows.row("one's rights", here.set_access(base, UNIT, 0, all));
    rows.row("one's data", right(here.read(base), MARK));
    rows.row(
        "BUFFER_ID as before",
        before.and_then(|before| same(id(base), before)),
    );
    rows.row("write", here.put(base, MARK + 2));
    rows.row(
        "the exporter reads what was written",
        right(exporter.read(one_made.base), MARK + 2),
    );
    rows.row("one once more beside it", here.map(second, UNIT, 0, one));
    rows.row(
        "rights over one twice",
        here.set_access(base, 2 * UNIT, 0, all),
    );
    rows.row(
        "data of the second mapping",
        right(here.read(second), MARK + 2),
    );
    rows.row(
        "release both",
        here.release(one).and_then(|()| here.release(two)),
    );
    rows.row("data after the release", right(here.read(second), MARK + 2));
    rows.row("unmap all", here.unmap(base, 2 * UNIT));
    rows.row("address free", here.address_free(base, 2 * UNIT));
}
