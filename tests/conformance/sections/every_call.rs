//! The code of every call of the library, with good arguments but in a state in
//! which it may be refused.

use super::Scene;
use crate::call::{Ask, Exported, Got, shareable};
use crate::memory::{Kind, MARK, MIB, Made, make, make_fd, make_legacy, ready};
use crate::other::Process;
use crate::rows::{Rows, code, context, right};
use core::fmt::Display;
use gpuipc::sys::{
    IPC_MEM_LAZY_ENABLE_PEER_ACCESS as LAZY, access, device_attribute, granularity, handle_type,
    location, pointer_attribute,
};
use std::os::fd::AsFd;

/// Arguments of every call, made while all is well.
struct Things {
    malloc: Made,
    spare: Made,
    host: Made,
    vmm: Made,
    exported: Exported,
    /// An allocation and an empty reservation, to be mapped.
    unmapped: (u64, u64),
    /// A handle that may be released.
    retained: u64,
    /// Memory of another process, and where it is open here.
    foreign: ([u8; 64], u64),
    _exporter: Process,
}

const SIZE: u64 = 2 * MIB;

fn things(scene: &Scene) -> Option<Things> {
    let here = &scene.raw;
    let exporter = scene.process(0)?;
    let (_, handle) = scene.set_up("memory of another process", make_legacy(&exporter, SIZE))?;
    let opened = scene.set_up("open", here.open(&handle, LAZY))?;
    let make = |kind| make(here, kind, SIZE, None);
    let (vmm, exported) = scene.set_up("VMM memory", make_fd(here, Kind::VMM_FD, SIZE))?;
    let created = here.create(SIZE, &shareable(0));
    Some(Things {
        malloc: scene.set_up("memory", make(Kind::Malloc))?,
        spare: scene.set_up("memory to free", make(Kind::Malloc))?,
        host: scene.set_up("host memory", make(Kind::HostPinned))?,
        vmm,
        exported,
        unmapped: (
            scene.set_up("allocation", created)?,
            scene.set_up("reservation", here.reserve(SIZE, 0))?,
        ),
        retained: scene.set_up("retain", here.retain(vmm.base))?,
        foreign: (handle, opened),
        _exporter: exporter,
    })
}

/// Asks every call. `place` goes in front of each question.
fn every(rows: &Rows, who: &dyn Ask, place: impl Display, things: &Things) {
    let row = |call: &str, answer: Got| rows.row(format!("{place}{call}"), answer);
    without_memory(rows, who, &place);

    let memory = [("cuMemAlloc", &things.malloc), ("VMM", &things.vmm)];
    for (name, &Made { base, .. }) in memory {
        let row = |call: &str, answer| row(&format!("{call}, {name} memory"), answer);
        let kind = who.attribute(pointer_attribute::MEMORY_TYPE, base);
        row("cuPointerGetAttribute", kind.map(drop));
        row("cuMemGetAddressRange", who.range(base).map(drop));
        row("cuMemcpyDtoH", who.read(base).map(drop));
        row("cuMemcpyHtoD", who.write(base, MARK));
        row("cuMemsetD8", who.fill(base + 64, 1, 8));
        row("cuIpcGetMemHandle", who.legacy_handle(base).map(drop));
        row(
            "cuMemRetainAllocationHandle",
            who.retain(base).and_then(|handle| who.release(handle)),
        );
    }
    let (handle, opened) = &things.foreign;
    row("cuIpcOpenMemHandle", who.open(handle, LAZY).map(drop));
    row("cuMemcpyDtoH, opened memory", who.read(*opened).map(drop));
    row("cuIpcCloseMemHandle", who.close(*opened));

    let (created, reserved) = things.unmapped;
    row(
        "cuMemGetAllocationPropertiesFromHandle",
        who.properties(created).map(drop),
    );
    row(
        "cuMemExportToShareableHandle",
        who.export_fd(created).map(drop),
    );
    row(
        "cuMemImportFromShareableHandle",
        who.import_fd(things.exported.fd.as_fd()).map(drop),
    );
    row("cuMemMap", who.map(reserved, SIZE, 0, created));
    row(
        "cuMemSetAccess",
        who.set_access(reserved, SIZE, 0, access::READ_WRITE),
    );
    row(
        "cuMemGetAccess",
        who.get_access(things.vmm.base, location::DEVICE, 0)
            .map(drop),
    );
    row("cuMemUnmap", who.unmap(reserved, SIZE));
    row("cuMemAddressFree", who.address_free(reserved, SIZE));
    row("cuMemRelease", who.release(things.retained));
    row("cuMemFree", who.free(things.spare.base));
    row("cuMemFreeHost", who.free_host(things.host.base));
}

/// The calls that need no memory.
fn without_memory(rows: &Rows, who: &dyn Ask, place: &dyn Display) {
    let row = |call: &str, answer: Got| rows.row(format!("{place}{call}"), answer);
    let vmm = device_attribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    row("cuDeviceGetCount", who.device_count().map(drop));
    row("cuDeviceGet", who.device(0).map(drop));
    row("cuDeviceGetUuid_v2", who.uuid(0, 2).map(drop));
    row(
        "cuDeviceGetAttribute",
        who.device_attribute(vmm, 0).map(drop),
    );
    row("cuDeviceCanAccessPeer", who.can_access_peer(0, 0).map(drop));
    row(
        "cuDevicePrimaryCtxGetState",
        who.primary_active(0).map(drop),
    );
    row("cuCtxGetCurrent", who.current().map(drop));
    row("cuCtxGetDevice", who.current_device().map(drop));
    row("cuCtxSynchronize", who.synchronize());
    row("cuMemGetInfo", who.mem_info().map(drop));
    row("cuMemAlloc", who.alloc(4096).and_then(|ptr| who.free(ptr)));
    row(
        "cuMemHostAlloc",
        who.host_alloc(4096).and_then(|ptr| who.free_host(ptr)),
    );
    row(
        "cuMemGetAllocationGranularity",
        who.granularity(&shareable(0), granularity::MINIMUM)
            .map(drop),
    );
    row(
        "cuMemCreate",
        who.create(SIZE, &shareable(0))
            .and_then(|handle| who.release(handle)),
    );
    row(
        "cuMemAddressReserve",
        who.reserve(SIZE, 0)
            .and_then(|ptr| who.address_free(ptr, SIZE)),
    );
}

pub(super) fn before_init(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    without_memory(rows, here, &"");
    rows.row("cuDevicePrimaryCtxRetain", code(&here.primary_retain(0)));
    rows.row("cuDevicePrimaryCtxRelease", here.primary_release(0));
    rows.row("cuCtxSetCurrent of null", here.set_current(0));
    rows.row("cuCtxPushCurrent of null", here.push(0));
    rows.row("cuCtxPopCurrent", code(&here.pop()));
    let kind = here.attribute(pointer_attribute::MEMORY_TYPE, 0x1000);
    rows.row("cuPointerGetAttribute", code(&kind));
    rows.row("cuMemGetAddressRange", code(&here.range(0x1000)));
    rows.row("cuIpcGetMemHandle", code(&here.legacy_handle(0x1000)));
    rows.row("cuIpcOpenMemHandle", code(&here.open(&[0; 64], LAZY)));
    rows.row("cuIpcCloseMemHandle", here.close(0x1000));
    rows.row("cuMemRetainAllocationHandle", code(&here.retain(0x1000)));
    let posix = handle_type::POSIX_FILE_DESCRIPTOR;
    rows.row(
        "cuMemImportFromShareableHandle",
        code(&here.import_number(0, posix)),
    );
    rows.row("cuMemUnmap", here.unmap(0x1000, SIZE));
    rows.row("cuMemFree", here.free(0x1000));
}

pub(super) fn no_context(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(context) = scene.ready(0) else {
        return;
    };
    let Some(things) = things(scene) else { return };
    rows.row("cuCtxSetCurrent of null", here.set_current(0));
    every(rows, here, "", &things);
    rows.row("cuCtxPopCurrent", code(&here.pop()));
    rows.row("the context again", here.set_current(context));
    let data = here.read(things.malloc.base);
    rows.row("data after all that", right(data, MARK));
}

pub(super) fn other_thread(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(known) = scene.ready(0) else { return };
    let Some(things) = things(scene) else { return };
    let thread = scene.thread();
    rows.row("current", context(thread.current(), known));
    every(rows, &thread, "", &things);
    rows.row("current here", context(here.current(), known));
}

pub(super) fn forked(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(context) = scene.ready(0) else {
        return;
    };
    let Some(things) = things(scene) else { return };
    let Some(child) = scene.fork() else { return };
    rows.row("cuInit", child.init(0));
    rows.row("cuDriverGetVersion", code(&child.version()));
    rows.row("cuDevicePrimaryCtxRetain", code(&child.primary_retain(0)));
    rows.row("cuCtxSetCurrent", child.set_current(context));
    rows.row("cuCtxPushCurrent", child.push(context));
    rows.row("cuCtxPopCurrent", code(&child.pop()));
    every(rows, &child, "", &things);
    rows.row("cuDevicePrimaryCtxRelease", child.primary_release(0));
    drop(child);
    let data = here.read(things.malloc.base);
    rows.row("the parent's data after that", right(data, MARK));
    let data = here.read(things.vmm.base);
    rows.row("the parent's VMM data after that", right(data, MARK));
    let opened = here.read(things.foreign.1);
    rows.row("the parent's opened data after that", right(opened, MARK));
    rows.row("the parent closes it", here.close(things.foreign.1));
}

pub(super) fn context_gone(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(context) = scene.ready(0) else {
        return;
    };
    let Some(things) = things(scene) else { return };
    rows.row("cuDevicePrimaryCtxRelease", here.primary_release(0));
    rows.row("current", super::contexts::current(here, context));
    every(rows, here, "", &things);
    rows.row("cuCtxPushCurrent", here.push(context));
    rows.row("cuCtxSetCurrent", here.set_current(context));
    rows.row("cuCtxPopCurrent", code(&here.pop()));
    rows.row("cuDevicePrimaryCtxRelease again", here.primary_release(0));
}

pub(super) fn other_context(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if !scene.has_two_gpus() || scene.ready(0).is_none() {
        return;
    }
    let Some(things) = things(scene) else { return };
    if scene.set_up("the other context", ready(here, 1)).is_some() {
        every(rows, here, "", &things);
    }
}
