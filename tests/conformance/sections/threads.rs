//! What belongs to a thread and what to the process.

use super::Scene;
use super::contexts::current;
use crate::call::Ask;
use crate::memory::{Kind, MARK, MIB, make, make_legacy};
use crate::rows::{code, right, same};
use gpuipc::sys::IPC_MEM_LAZY_ENABLE_PEER_ACCESS as LAZY;

pub(super) fn threads(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(known) = scene.ready(0) else { return };
    let Some(exporter) = scene.process(0) else {
        return;
    };
    let Some((_, handle)) = scene.set_up("memory", make_legacy(&exporter, 2 * MIB)) else {
        return;
    };
    let (one, other) = (scene.thread(), scene.thread());
    rows.row("current in a new thread", current(&one, known));
    rows.row("pop in a new thread", code(&one.pop()));
    rows.row("set in it", one.set_current(known));
    rows.row("set in it: current", current(&one, known));
    rows.row("set in it: current in another", current(&other, known));
    let opened = one.open(&handle, LAZY);
    let Some(base) = rows.got("open in it", opened) else {
        return;
    };
    rows.row("data in this one", right(here.read(base), MARK));
    rows.row("open in this one", same(here.open(&handle, LAZY), base));
    rows.row("close in one without context", other.close(base));
    rows.row("close in this one", here.close(base));
    rows.row("data after that", code(&here.read(base)));
    let set = other.set_current(known);
    rows.row("set in the other", set);
    rows.row("close in the other", other.close(base));
    rows.row("close in the first", one.close(base));
    rows.row("data after the last close", code(&here.read(base)));
    let memory = make(&one, Kind::Malloc, MIB, None);
    if let Some(made) = scene.set_up("memory of a thread", memory) {
        rows.row("cuMemAlloc memory: data", right(here.read(made.base), MARK));
        rows.row("cuMemAlloc memory: free here", here.free(made.base));
    }
    let memory = make(&one, Kind::VMM_FD, MIB, None);
    if let Some(made) = scene.set_up("VMM memory of a thread", memory) {
        rows.row("VMM memory: data", right(here.read(made.base), MARK));
        drop(one);
        rows.row(
            "VMM memory, its thread gone: data",
            right(here.read(made.base), MARK),
        );
        rows.row("VMM memory: unmap here", here.unmap(made.base, made.size));
    }
    rows.row("current here", current(here, known));
}
