//! Primary contexts and each thread's current one.

use super::Scene;
use crate::call::{Ask, Got};
use crate::memory::{Kind, MARK, MIB, make, make_legacy, ready};
use crate::rows::{code, context, right, same};
use gpuipc::sys::{IPC_MEM_LAZY_ENABLE_PEER_ACCESS as LAZY, pointer_attribute};

/// This thread's context in words.
pub(super) fn current(who: &dyn Ask, known: u64) -> Got<&'static str> {
    context(who.current(), known)
}

pub(super) fn stack(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.set_up("cuInit", here.init(0)).is_none() {
        return;
    }
    rows.row("current at first", current(here, 1));
    rows.row("pop from an empty stack", code(&here.pop()));
    rows.row("set null on an empty stack", here.set_current(0));
    rows.row("push null", here.push(0));
    rows.row("pop after that", code(&here.pop()));
    let Some(known) = scene.set_up("retain", here.primary_retain(0)) else {
        return;
    };
    let now = || current(here, known);
    rows.row("current after retain", now());
    rows.row("push", here.push(known));
    rows.row("push: current", now());
    rows.row("push: device", here.current_device());
    rows.row("push again", here.push(known));
    rows.row("pop", context(here.pop(), known));
    rows.row("pop: current", now());
    rows.row("set null", here.set_current(0));
    rows.row("set null: current", now());
    rows.row("set null: pop", code(&here.pop()));
    rows.row("set", here.set_current(known));
    rows.row("set: current", now());
    rows.row("set again", here.set_current(known));
    rows.row("set again: pop", context(here.pop(), known));
    rows.row("set again: current after pop", now());
    let two = here.push(known).and_then(|()| here.push(known));
    rows.row("push twice", two);
    rows.row("push twice: set null", here.set_current(0));
    rows.row("push twice: current", now());
    rows.row("push twice: pop", context(here.pop(), known));
    rows.row("push twice: pop again", context(here.pop(), known));
    rows.row(
        "push, then push null",
        here.push(known).and_then(|()| here.push(0)),
    );
    rows.row("push, then push null: current", now());
    let deep = (0..40).try_for_each(|_| here.push(known));
    rows.row("push 40 times", deep);
}

pub(super) fn primary(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.set_up("cuInit", here.init(0)).is_none() {
        return;
    }
    rows.row("active at first", here.primary_active(0));
    rows.row("release without retain", here.primary_release(0));
    let Some(known) = rows.got("retain", here.primary_retain(0)) else {
        return;
    };
    rows.row("retain: active", here.primary_active(0));
    rows.row("retain again", same(here.primary_retain(0), known));
    rows.row("set", here.set_current(known));
    let memory = make(here, Kind::Malloc, MIB, None);
    if let Some(made) = scene.set_up("memory", memory) {
        rows.row(
            "the memory's CONTEXT",
            context(here.attribute(pointer_attribute::CONTEXT, made.base), known),
        );
    }
    rows.row("release, one use left", here.primary_release(0));
    rows.row("release, one use left: active", here.primary_active(0));
    rows.row("release", here.primary_release(0));
    rows.row("release: active", here.primary_active(0));
    rows.row("release: current", current(here, known));
    rows.row("release once more", here.primary_release(0));
    rows.row("set null after that", here.set_current(0));
    rows.row("set null after that: current", current(here, known));
    rows.row("retain after that", same(here.primary_retain(0), known));
    rows.row("retain after that: active", here.primary_active(0));
}

/// What becomes of memory when its context goes.
pub(super) fn memory_after(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(known) = scene.ready(0) else { return };
    let make = |kind| make(here, kind, 2 * MIB, None);
    let Some(malloc) = scene.set_up("memory", make(Kind::Malloc)) else {
        return;
    };
    let Some(vmm) = scene.set_up("VMM memory", make(Kind::VMM_FD)) else {
        return;
    };
    let Some(host) = scene.set_up("host memory", make(Kind::HostPinned)) else {
        return;
    };
    let memory = [("cuMemAlloc", malloc), ("VMM", vmm), ("host", host)];
    let kind = |ptr| code(&here.attribute(pointer_attribute::MEMORY_TYPE, ptr));
    rows.row("release", here.primary_release(0));
    for (name, made) in memory {
        rows.row(format!("{name} memory: MEMORY_TYPE"), kind(made.base));
    }
    let again = here.primary_retain(0);
    rows.row("retain again", same(again, known));
    let Ok(again) = again else { return };
    rows.row("retain again: current", current(here, known));
    rows.row("set", here.set_current(again));
    for (name, made) in memory {
        rows.row(
            format!("{name} memory, context again: MEMORY_TYPE"),
            kind(made.base),
        );
        rows.row(
            format!("{name} memory, context again: data"),
            right(here.read(made.base), MARK),
        );
    }
    rows.row("cuMemFree of the cuMemAlloc memory", here.free(malloc.base));
    rows.row(
        "cuMemUnmap of the VMM memory",
        here.unmap(vmm.base, vmm.size),
    );
    rows.row("cuMemAlloc", code(&here.alloc(MIB)));
}

/// What becomes of an opened legacy handle when the importer's context goes.
pub(super) fn importer(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.ready(0).is_none() {
        return;
    }
    let Some(exporter) = scene.process(0) else {
        return;
    };
    let Some((made, handle)) = scene.set_up("memory", make_legacy(&exporter, 2 * MIB)) else {
        return;
    };
    let Some(base) = scene.set_up("open", here.open(&handle, LAZY)) else {
        return;
    };
    rows.row("release", here.primary_release(0));
    let kind = || here.attribute(pointer_attribute::MEMORY_TYPE, base);
    rows.row("MEMORY_TYPE", code(&kind()));
    rows.row("close", here.close(base));
    let again = ready(here, 0);
    rows.row("context again", code(&again));
    rows.row("context again: MEMORY_TYPE", code(&kind()));
    rows.row("context again: data", code(&here.read(base)));
    rows.row("context again: close", here.close(base));
    let opened = here.open(&handle, LAZY);
    rows.row("context again: open", code(&opened));
    rows.row(
        "context again: data of that",
        opened.and_then(|base| right(here.read(base), MARK)),
    );
    rows.row("the exporter's data", right(exporter.read(made.base), MARK));
}

/// What an importer sees when the exporter's context goes.
pub(super) fn exporter(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.ready(0).is_none() {
        return;
    }
    let Some(exporter) = scene.process(0) else {
        return;
    };
    let Some((_, handle)) = scene.set_up("memory", make_legacy(&exporter, 2 * MIB)) else {
        return;
    };
    let Some(base) = scene.set_up("open", here.open(&handle, LAZY)) else {
        return;
    };
    rows.row("the exporter releases", exporter.primary_release(0));
    rows.row("data", right(here.read(base), MARK));
    rows.row("open again", same(here.open(&handle, LAZY), base));
    rows.row("close", here.close(base));
    rows.row("open after that", code(&here.open(&handle, LAZY)));
}
