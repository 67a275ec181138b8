//! Two GPUs: memory of one, used from the other. Without a second GPU these
//! sections have no rows.

use super::Scene;
use super::pointer::{ordinal, properties, range};
use crate::call::{Ask, Got};
use crate::memory::{Kind, MARK, MIB, make, make_fd, make_legacy, map, ready};
use crate::rows::{code, context, right, same};
use gpuipc::sys::{
    IPC_MEM_LAZY_ENABLE_PEER_ACCESS as LAZY, access, handle_type, location, pointer_attribute,
};
use std::os::fd::AsFd;

const BYTES: u64 = 2 * MIB;

pub(super) fn peers(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if !scene.has_two_gpus() {
        return;
    }
    rows.row("0 reaches 1", here.can_access_peer(0, 1));
    rows.row("1 reaches 0", here.can_access_peer(1, 0));
    let other = here.uuid(1, 2);
    rows.row("UUIDs", here.uuid(0, 2).and_then(|uuid| same(other, uuid)));
}

pub(super) fn legacy(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if !scene.has_two_gpus() {
        return;
    }
    let Some(first) = scene.ready(0) else { return };
    let Some(second) = scene.ready(1) else { return };
    let Some(exporter) = scene.process(0) else {
        return;
    };
    let Some((made, handle)) = scene.set_up("memory", make_legacy(&exporter, BYTES)) else {
        return;
    };
    rows.row("flags 0 from GPU 1", code(&here.open(&handle, 0)));
    let Some(base) = rows.got("lazily from GPU 1", here.open(&handle, LAZY)) else {
        return;
    };
    rows.row("from GPU 1: data", right(here.read(base), MARK));
    rows.row("from GPU 1: ordinal", ordinal(here, base));
    rows.row(
        "from GPU 1: CONTEXT",
        context(here.attribute(pointer_attribute::CONTEXT, base), second),
    );
    rows.row("from GPU 1: cuMemGetAddressRange", range(here, base, base));
    rows.row("from GPU 1: again", same(here.open(&handle, LAZY), base));
    rows.row("from GPU 1: write", here.put(base, MARK + 1));
    rows.row(
        "from GPU 1: the exporter's data",
        right(exporter.read(made.base), MARK + 1),
    );
    let _ = here.set_current(first);
    rows.row(
        "with GPU 0's context: data",
        right(here.read(base), MARK + 1),
    );
    rows.row(
        "with GPU 0's context: cuMemGetAddressRange",
        range(here, base, base),
    );
    let own = here.open(&handle, LAZY);
    rows.row("open from GPU 0, too: address", same(own, base));
    if let Ok(own) = own {
        rows.row("open from GPU 0, too: ordinal", ordinal(here, own));
        rows.row(
            "open from GPU 0, too: data",
            right(here.read(own), MARK + 1),
        );
        rows.row("close in GPU 0's context", here.close(own));
        rows.row("GPU 1's mapping: data", right(here.read(base), MARK + 1));
    }
    rows.row("close GPU 1's mapping in GPU 0's context", here.close(base));
    rows.row("data after that", right(here.read(base), MARK + 1));
    let _ = here.set_current(second);
    rows.row("close in GPU 1's context", here.close(base));
    rows.row("close in GPU 1's context again", here.close(base));
    rows.row("close in GPU 1's context once more", here.close(base));
    let _ = exporter.set_current(0);
    let there = ready(&exporter, 1).and_then(|_| make_legacy(&exporter, BYTES));
    if let Some((_, handle)) = scene.set_up("memory of GPU 1", there) {
        let _ = here.set_current(first);
        let base = here.open(&handle, LAZY);
        rows.row("memory of GPU 1 from GPU 0", code(&base));
        if let Ok(base) = base {
            rows.row("memory of GPU 1 from GPU 0: ordinal", ordinal(here, base));
            rows.row(
                "memory of GPU 1 from GPU 0: data",
                right(here.read(base), MARK),
            );
            rows.row("memory of GPU 1 from GPU 0: close", here.close(base));
        }
    }
}

pub(super) fn vmm(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if !scene.has_two_gpus() {
        return;
    }
    let Some(first) = scene.ready(0) else { return };
    let Some(second) = scene.ready(1) else { return };
    let Some(exporter) = scene.process(0) else {
        return;
    };
    let made = make_fd(&exporter, Kind::VMM_FD, BYTES);
    let Some((made, exported)) = scene.set_up("memory", made) else {
        return;
    };
    let Some(handle) = rows.got("import", here.import_fd(exported.fd.as_fd())) else {
        return;
    };
    rows.row("properties", properties(here, handle));
    let size = made.size;
    let mapped = map(here, handle, size, 1, access::READ_WRITE);
    let Some(base) = rows.got("map for GPU 1", mapped) else {
        return;
    };
    let asked = |device| here.get_access(base, location::DEVICE, device);
    rows.row("for GPU 1: data", right(here.read(base), MARK));
    rows.row("for GPU 1: ordinal", ordinal(here, base));
    rows.row("for GPU 1: rights of GPU 0", asked(0));
    rows.row("for GPU 1: rights of GPU 1", asked(1));
    rows.row("for GPU 1: cuMemGetAddressRange", range(here, base, base));
    let both = here.set_access_of_two(base, size, [0, 1], access::READ_WRITE);
    rows.row("rights for both", both);
    rows.row("for both: rights of GPU 0", asked(0));
    rows.row("for both: rights of GPU 1", asked(1));
    rows.row(
        "for both: data in GPU 1's context",
        right(here.read(base), MARK),
    );
    let _ = here.set_current(first);
    rows.row(
        "for both: data in GPU 0's context",
        right(here.read(base), MARK),
    );
    rows.row(
        "for both: cuMemGetAddressRange in GPU 0's context",
        range(here, base, base),
    );
    let mixed = here.set_access(base, size, 1, access::READ);
    rows.row("read-only for GPU 1", mixed);
    rows.row("read-only for GPU 1: rights of GPU 0", asked(0));
    rows.row("read-only for GPU 1: rights of GPU 1", asked(1));
    rows.row(
        "read-only for GPU 1: write in GPU 0's context",
        here.put(base, MARK + 1),
    );
    // Own memory of GPU 1 seen with the context of GPU 0.
    let kind = Kind::Vmm(1, handle_type::POSIX_FILE_DESCRIPTOR);
    let _ = here.set_current(second);
    let own = make(here, kind, BYTES, None);
    let Some(own) = scene.set_up("own memory of GPU 1", own) else {
        return;
    };
    let _ = here.set_current(first);
    rows.row("own memory of GPU 1: ordinal", ordinal(here, own.base));
    rows.row(
        "own memory of GPU 1: cuMemGetAddressRange in GPU 0's context",
        range(here, own.base, own.base),
    );
    let more = here.set_access(own.base, own.size, 0, access::READ_WRITE);
    rows.row("own memory of GPU 1: rights for GPU 0", more);
    rows.row(
        "own memory of GPU 1: data in GPU 0's context",
        right(here.read(own.base), MARK),
    );
    rows.row(
        "own memory of GPU 1: rights of GPU 1",
        here.get_access(own.base, location::DEVICE, 1),
    );
}

/// Copies in the context of a GPU that has no rights: by themselves, since this
/// can break a context.
pub(super) fn without_rights(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if !scene.has_two_gpus() {
        return;
    }
    let Some(second) = scene.ready(1) else { return };
    let Some(first) = scene.ready(0) else { return };
    let made = make(here, Kind::VMM_FD, BYTES, None);
    let Some(made) = scene.set_up("memory", made) else {
        return;
    };
    rows.row(
        "rights of GPU 1",
        here.get_access(made.base, location::DEVICE, 1),
    );
    let _ = here.set_current(second);
    rows.row(
        "cuMemcpyDtoH in GPU 1's context",
        right(here.read(made.base), MARK),
    );
    rows.row(
        "cuMemcpyHtoD in GPU 1's context",
        here.put(made.base, MARK + 1),
    );
    rows.row("GPU 1's context after that", code(&here.alloc(MIB)));
    let _ = here.set_current(first);
    rows.row(
        "data in GPU 0's context",
        right(here.read(made.base), MARK + 1),
    );
}

/// `cuMemAlloc` memory of GPU 1 with GPU 0's context current.
pub(super) fn contexts(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if !scene.has_two_gpus() {
        return;
    }
    let Some(first) = scene.ready(0) else { return };
    let Some(second) = scene.ready(1) else { return };
    rows.row("the contexts", same(Ok(second), first));
    let Some(made) = scene.set_up("memory", make(here, Kind::Malloc, BYTES, None)) else {
        return;
    };
    let Some(handle) = scene.set_up("handle", here.legacy_handle(made.base)) else {
        return;
    };
    let _ = here.set_current(first);
    rows.row("ordinal", ordinal(here, made.base));
    rows.row(
        "CONTEXT",
        context(
            here.attribute(pointer_attribute::CONTEXT, made.base),
            second,
        ),
    );
    rows.row("cuMemGetAddressRange", range(here, made.base, made.base));
    rows.row(
        "cuIpcGetMemHandle, the handle",
        same(here.legacy_handle(made.base), handle),
    );
    rows.row("cuMemcpyDtoH", right(here.read(made.base), MARK));
    rows.row("cuMemcpyHtoD", here.put(made.base, MARK + 1));
    rows.row("cuMemsetD8", here.fill(made.base + 64, 1, 8));
    rows.row("push GPU 1's", here.push(second));
    rows.row("push GPU 1's: device", here.current_device());
    rows.row("push GPU 1's: data", right(here.read(made.base), MARK + 1));
    rows.row("pop", context(here.pop(), second));
    rows.row("pop: device", here.current_device());
    rows.row("set GPU 1's", here.set_current(second));
    rows.row("set GPU 1's: pop", context(here.pop(), second));
    rows.row(
        "set GPU 1's: current after pop",
        context(here.current(), first),
    );
    let _ = here.set_current(first);
    rows.row("cuMemFree", here.free(made.base));
    rows.row("GPU 1's primary context, released", here.primary_release(1));
    rows.row("GPU 1's primary context, active", here.primary_active(1));
    rows.row("GPU 0's primary context, active", here.primary_active(0));
    rows.row("push GPU 1's, which is gone", here.push(second));
}

/// A legacy handle that was got while another GPU's context was current.
pub(super) fn legacy_handle(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if !scene.has_two_gpus() || scene.ready(0).is_none() {
        return;
    }
    let Some(exporter) = scene.process(0) else {
        return;
    };
    let made = make(&exporter, Kind::Malloc, BYTES, None);
    let Some(made) = scene.set_up("memory", made) else {
        return;
    };
    if scene
        .set_up("GPU 1's context", ready(&exporter, 1))
        .is_none()
    {
        return;
    }
    let handle = exporter.legacy_handle(made.base);
    let Some(handle) = rows.got("handle in GPU 1's context", handle) else {
        return;
    };
    for device in [0, 1] {
        if scene.set_up("context", ready(here, device)).is_none() {
            return;
        }
        let row = |question: &str, answer: Got<String>| {
            rows.row(format!("from GPU {device}: {question}"), answer);
        };
        let base = here.open(&handle, LAZY);
        rows.row(format!("from GPU {device}"), code(&base));
        let Ok(base) = base else { continue };
        row(
            "ordinal",
            ordinal(here, base).map(|ordinal| ordinal.to_string()),
        );
        row("data", right(here.read(base), MARK).map(str::to_owned));
        row("cuMemGetAddressRange", range(here, base, base));
        rows.row(format!("from GPU {device}: close"), here.close(base));
    }
    let first = ready(&exporter, 0).and_then(|_| exporter.legacy_handle(made.base));
    rows.row("handle in GPU 0's context", same(first, handle));
}
