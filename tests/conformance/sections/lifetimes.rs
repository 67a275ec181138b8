//! Who goes first: the memory, its owner, or who opened it.

use super::Scene;
use super::pointer::range;
use crate::call::{Ask, Exported, Got};
use crate::memory::{Kind, MARK, MIB, Made, make_fd, make_legacy, map};
use crate::other::Process;
use crate::rows::{code, right, same};
use gpuipc::sys::{IPC_MEM_LAZY_ENABLE_PEER_ACCESS as LAZY, access, pointer_attribute};
use std::os::fd::AsFd;

const BYTES: u64 = 8 * MIB;

/// An exporter with memory of both ways of sharing.
struct Exporter {
    process: Process,
    legacy: (Made, [u8; 64]),
    vmm: (Made, Exported),
}

fn exporter(scene: &Scene) -> Option<Exporter> {
    scene.ready(0)?;
    let process = scene.process(0)?;
    let legacy = scene.set_up("memory", make_legacy(&process, BYTES))?;
    let vmm = scene.set_up("VMM memory", make_fd(&process, Kind::VMM_FD, BYTES))?;
    Some(Exporter {
        process,
        legacy,
        vmm,
    })
}

pub(super) fn freed(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(exporter) = exporter(scene) else {
        return;
    };
    let (made, handle) = exporter.legacy;
    rows.row("free", exporter.process.free(made.base));
    rows.row("open after the free", code(&here.open(&handle, LAZY)));
    rows.row("open with flags 0", code(&here.open(&handle, 0)));
}

pub(super) fn freed_while_open(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(exporter) = exporter(scene) else {
        return;
    };
    let (made, handle) = exporter.legacy;
    let Some(base) = rows.got("open", here.open(&handle, LAZY)) else {
        return;
    };
    rows.row("free", exporter.process.free(made.base));
    rows.row("data", right(here.read(base), MARK));
    rows.row("cuMemGetAddressRange", range(here, base, base));
    rows.row("open again", same(here.open(&handle, LAZY), base));
    rows.row("close", here.close(base));
    rows.row("close again", here.close(base));
    rows.row("open after the close", code(&here.open(&handle, LAZY)));
}

/// Memory is freed and other memory comes to lie at its address.
pub(super) fn address_again(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(exporter) = exporter(scene) else {
        return;
    };
    let owner = &exporter.process;
    let (made, old) = exporter.legacy;
    let id = || owner.attribute(pointer_attribute::BUFFER_ID, made.base);
    let Some(old_id) = scene.set_up("BUFFER_ID", id()) else {
        return;
    };
    let mut lying = made.base;
    for (name, bytes) in [("same size", BYTES), ("half the size", BYTES / 2)] {
        let row = |question: &str, answer: Got<&'static str>| {
            rows.row(format!("{name}: {question}"), answer);
        };
        let again = owner.free(lying).and_then(|()| make_legacy(owner, bytes));
        row("allocated again", again.map(|_| "CUDA_SUCCESS"));
        let Ok((again, new)) = again else { return };
        lying = again.base;
        let _ = owner.put(again.base, MARK + bytes);
        row("address", same(Ok(again.base), made.base));
        row("BUFFER_ID as before", same(id(), old_id));
        row("handle as before", same(Ok(new), old));
        let opened = here.open(&old, LAZY);
        row("the old handle opens", opened.map(|_| "CUDA_SUCCESS"));
        let Ok(base) = opened else { continue };
        let size = here.attribute(pointer_attribute::RANGE_SIZE, base);
        rows.row(format!("{name}: RANGE_SIZE of that"), size);
        row("the new data", right(here.read(base), MARK + bytes));
        row("the new handle opens", same(here.open(&new, LAZY), base));
        row("close", here.close(base).map(|()| "CUDA_SUCCESS"));
        row("close again", here.close(base).map(|()| "CUDA_SUCCESS"));
    }
    rows.row("freed for good", owner.free(lying));
    rows.row("freed for good: open", code(&here.open(&old, LAZY)));
}

pub(super) fn exporter_ends(scene: &Scene) {
    after_its_end(scene, Process::end);
}

pub(super) fn exporter_killed(scene: &Scene) {
    after_its_end(scene, Process::kill);
}

fn after_its_end(scene: &Scene, end: impl FnOnce(&mut Process) -> bool) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(mut exporter) = exporter(scene) else {
        return;
    };
    let (made, handle) = exporter.legacy;
    let unopened = make_legacy(&exporter.process, BYTES);
    let Some((_, unopened)) = scene.set_up("memory not opened", unopened) else {
        return;
    };
    let (vmm, exported) = exporter.vmm;
    let fd = exported.fd.as_fd();
    let Some(base) = rows.got("open", here.open(&handle, LAZY)) else {
        return;
    };
    let mapped = |size| {
        let handle = here.import_fd(fd)?;
        map(here, handle, size, 0, access::READ_WRITE)
    };
    let Some(vmm_base) = rows.got("VMM: import and map", mapped(vmm.size)) else {
        return;
    };
    rows.row("the exporter has ended", end(&mut exporter.process));
    rows.row("data", right(here.read(base), MARK));
    rows.row("write", here.put(base, MARK + 1));
    rows.row("open again", same(here.open(&handle, LAZY), base));
    rows.row("open what was not open", code(&here.open(&unopened, LAZY)));
    rows.row("close", here.close(base));
    rows.row("open after the close", code(&here.open(&handle, LAZY)));
    rows.row("VMM: data", right(here.read(vmm_base), MARK));
    rows.row("VMM: unmap", here.unmap(vmm_base, vmm.size));
    let again = mapped(made.size);
    rows.row("VMM: import and map after that", code(&again));
    rows.row(
        "VMM: data after that",
        again.and_then(|base| right(here.read(base), MARK)),
    );
}

/// VMM memory that its owner frees.
pub(super) fn vmm(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(exporter) = exporter(scene) else {
        return;
    };
    let (made, exported) = exporter.vmm;
    let owner = &exporter.process;
    let import = || {
        let handle = here.import_fd(exported.fd.as_fd())?;
        let base = map(here, handle, made.size, 0, access::READ_WRITE)?;
        here.release(handle)?;
        Ok(base)
    };
    let Some(base) = rows.got("import and map", import()) else {
        return;
    };
    let freed = owner
        .unmap(made.base, made.size)
        .and_then(|()| owner.address_free(made.base, made.size))
        .and_then(|()| owner.release(made.handle));
    rows.row("the owner frees it", freed);
    rows.row("data", right(here.read(base), MARK));
    rows.row("write", here.put(base, MARK + 1));
    rows.row("unmap", here.unmap(base, made.size));
    let again = import();
    rows.row("import by the descriptor alone", code(&again));
    rows.row(
        "data by the descriptor alone",
        again.and_then(|base| right(here.read(base), MARK + 1)),
    );
    let back = owner
        .import_fd(exported.fd.as_fd())
        .and_then(|handle| map(owner, handle, made.size, 0, access::READ_WRITE));
    rows.row("the owner imports it", code(&back));
    rows.row(
        "the owner's data",
        back.and_then(|base| right(owner.read(base), MARK + 1)),
    );
}
