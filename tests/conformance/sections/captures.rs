//! Which calls a stream capture in the process refuses, and which invalidate it.

use super::Scene;
use crate::call::{Ask, Exported, Got, shareable};
use crate::memory::{Kind, MARK, MIB, Made, make, make_fd, make_legacy};
use crate::other::Thread;
use crate::pool::{AskPools, Pooled, make_pooled};
use crate::rows::code;
use gpuipc::sys::{
    IPC_MEM_LAZY_ENABLE_PEER_ACCESS as LAZY, STREAM_NON_BLOCKING, access, capture_mode,
    granularity, handle_type, pointer_attribute,
};
use std::os::fd::AsFd;

const SIZE: u64 = 2 * MIB;

/// A call by its name, and what it needs: made before the capture begins.
type Call<T> = (&'static str, fn(&dyn Ask, &T) -> Got);

/// Arguments of the calls. One set a row: a call may use them up.
struct Things {
    malloc: Made,
    vmm: Made,
    exported: Exported,
    /// An allocation and an empty reservation.
    unmapped: (u64, u64),
    /// An allocation that is mapped, and one that is nowhere.
    mapped: Made,
    created: u64,
    /// A stream of one's own.
    stream: u64,
    /// Memory of another process; where it is open.
    foreign: ([u8; 64], u64),
}

fn things(here: &dyn Ask, foreign: &[u8; 64]) -> Got<Things> {
    let (vmm, exported) = make_fd(here, Kind::VMM_FD, SIZE)?;
    Ok(Things {
        malloc: make(here, Kind::Malloc, SIZE, None)?,
        vmm,
        exported,
        unmapped: (here.create(SIZE, &shareable(0))?, here.reserve(SIZE, 0)?),
        mapped: make(here, Kind::VMM_FD, SIZE, None)?,
        created: here.create(SIZE, &shareable(0))?,
        stream: here.stream()?,
        foreign: (*foreign, here.open(foreign, LAZY)?),
    })
}

/// Gives back what a row's call left, without asking how it went.
fn give_back(here: &dyn Ask, things: Things) {
    let _ = here.stream_destroy(things.stream);
    let _ = here.close(things.foreign.1);
    let _ = here.free(things.malloc.base);
    for at in [things.vmm.base, things.mapped.base, things.unmapped.1] {
        let _ = here.unmap(at, SIZE);
        let _ = here.address_free(at, SIZE);
    }
}

const CALLS: &[Call<Things>] = &[
    ("cuDeviceGetCount", |who, _| who.device_count().map(drop)),
    ("cuCtxGetCurrent", |who, _| who.current().map(drop)),
    ("cuCtxSynchronize", |who, _| who.synchronize()),
    ("cuDevicePrimaryCtxRetain", |who, _| {
        who.primary_retain(0).map(drop)
    }),
    ("cuDevicePrimaryCtxRelease", |who, _| who.primary_release(0)),
    ("cuMemGetInfo", |who, _| who.mem_info().map(drop)),
    ("cuMemAlloc", |who, _| who.alloc(4096).map(drop)),
    ("cuMemFree", |who, things| who.free(things.malloc.base)),
    ("cuMemHostAlloc", |who, _| who.host_alloc(4096).map(drop)),
    ("cuPointerGetAttribute", |who, things| {
        who.attribute(pointer_attribute::BUFFER_ID, things.malloc.base)
            .map(drop)
    }),
    ("cuMemGetAddressRange", |who, things| {
        who.range(things.malloc.base).map(drop)
    }),
    ("cuIpcGetMemHandle", |who, things| {
        who.legacy_handle(things.malloc.base).map(drop)
    }),
    ("cuIpcOpenMemHandle", |who, things| {
        who.open(&things.foreign.0, LAZY).map(drop)
    }),
    ("cuIpcCloseMemHandle", |who, things| {
        who.close(things.foreign.1)
    }),
    ("cuMemGetAllocationGranularity", |who, _| {
        who.granularity(&shareable(0), granularity::MINIMUM)
            .map(drop)
    }),
    ("cuMemCreate", |who, _| {
        who.create(SIZE, &shareable(0)).map(drop)
    }),
    ("cuMemRelease", |who, things| who.release(things.created)),
    ("cuMemRetainAllocationHandle", |who, things| {
        who.retain(things.vmm.base).map(drop)
    }),
    ("cuMemGetAllocationPropertiesFromHandle", |who, things| {
        who.properties(things.vmm.handle).map(drop)
    }),
    ("cuMemExportToShareableHandle", |who, things| {
        who.export_fd(things.vmm.handle).map(drop)
    }),
    ("cuMemImportFromShareableHandle", |who, things| {
        who.import_fd(things.exported.fd.as_fd()).map(drop)
    }),
    ("cuMemAddressReserve", |who, _| {
        who.reserve(SIZE, 0).map(drop)
    }),
    ("cuMemMap", |who, things| {
        who.map(things.unmapped.1, SIZE, 0, things.unmapped.0)
    }),
    ("cuMemSetAccess", |who, things| {
        who.set_access(things.mapped.base, SIZE, 0, access::READ_WRITE)
    }),
    ("cuMemUnmap", |who, things| {
        who.unmap(things.mapped.base, SIZE)
    }),
    ("cuMemAddressFree", |who, things| {
        who.address_free(things.unmapped.1, SIZE)
    }),
];

/// Copies, and waits for them.
const COPIES: &[Call<Things>] = &[
    ("cuMemcpyDtoH, cuMemAlloc memory", |who, things| {
        who.read(things.malloc.base).map(drop)
    }),
    ("cuMemcpyHtoD, cuMemAlloc memory", |who, things| {
        who.write(things.malloc.base, MARK)
    }),
    ("cuMemcpyDtoH, VMM memory", |who, things| {
        who.read(things.vmm.base).map(drop)
    }),
    ("cuMemcpyHtoD, VMM memory", |who, things| {
        who.write(things.vmm.base, MARK)
    }),
    ("cuStreamSynchronize, default stream", |who, _| {
        who.stream_synchronize(0)
    }),
    ("cuStreamIsCapturing, default stream", |who, _| {
        who.is_capturing(0).map(drop)
    }),
    ("cuStreamCreate and cuStreamDestroy", |who, _| {
        let stream = who.stream()?;
        who.stream_destroy(stream)
    }),
    ("cuStreamSynchronize, own stream", |who, things| {
        who.stream_synchronize(things.stream)
    }),
    ("cuMemcpyAsync to the GPU, own stream", |who, things| {
        who.write_on(things.stream, things.vmm.base, MARK)
    }),
    ("cuMemcpyAsync from the GPU, own stream", |who, things| {
        who.read_on(things.stream, things.vmm.base).map(drop)
    }),
];

/// Who asks, during which capture, in which mode of its own.
const CASES: [(&str, u32, bool, Option<u32>); 7] = [
    ("global", capture_mode::GLOBAL, true, None),
    (
        "global, relaxed",
        capture_mode::GLOBAL,
        true,
        Some(capture_mode::RELAXED),
    ),
    ("global, other thread", capture_mode::GLOBAL, false, None),
    (
        "global, other thread, relaxed",
        capture_mode::GLOBAL,
        false,
        Some(capture_mode::RELAXED),
    ),
    ("thread-local", capture_mode::THREAD_LOCAL, true, None),
    (
        "thread-local, relaxed",
        capture_mode::THREAD_LOCAL,
        true,
        Some(capture_mode::RELAXED),
    ),
    (
        "thread-local, other thread",
        capture_mode::THREAD_LOCAL,
        false,
        None,
    ),
];

/// A row a call and case: the call's code, and that of the capture's end.
fn matrix<T>(
    scene: &Scene,
    other: &Thread,
    (stream_flags, calls): (u32, &[Call<T>]),
    set_up: impl Fn() -> Got<T>,
    done: impl Fn(T),
) {
    let (rows, here) = (&scene.rows, &scene.raw);
    let Some(stream) = scene.set_up("stream", here.stream_with(stream_flags)) else {
        return;
    };
    for (call, ask) in calls {
        for (case, mode, is_here, own_mode) in CASES {
            let Some(things) = scene.set_up("memory", set_up()) else {
                return;
            };
            let who: &dyn Ask = if is_here { here } else { other };
            if scene
                .set_up("capture", here.capture_begin(stream, mode))
                .is_none()
            {
                return;
            }
            let before = own_mode.map(|mode| who.capture_mode(mode));
            let answer = ask(who, &things);
            if let Some(Ok(before)) = before {
                let _ = who.capture_mode(u32::try_from(before).unwrap_or_default());
            }
            let end = here.capture_end(stream);
            rows.row(format!("{case}: {call}"), (code(&answer), code(&end)));
            done(things);
        }
    }
}

fn with_things(scene: &Scene, calls: &[(u32, &[Call<Things>])]) {
    let here = &scene.raw;
    let Some(context) = scene.ready(0) else {
        return;
    };
    let Some(exporter) = scene.process(0) else {
        return;
    };
    let Some((_, handle)) = scene.set_up("memory", make_legacy(&exporter, SIZE)) else {
        return;
    };
    let other = scene.thread();
    if scene
        .set_up("context", other.set_current(context))
        .is_none()
    {
        return;
    }
    // The releases that are asked for leave the context in use.
    for _ in CASES {
        let _ = here.primary_retain(0);
    }
    for calls in calls {
        matrix(
            scene,
            &other,
            *calls,
            || things(here, &handle),
            |things| give_back(here, things),
        );
    }
}

pub(super) fn calls(scene: &Scene) {
    with_things(
        scene,
        &[(STREAM_NON_BLOCKING, CALLS), (STREAM_NON_BLOCKING, COPIES)],
    );
}

/// The captured stream waits for the default one, and it for that.
pub(super) fn blocking(scene: &Scene) {
    with_things(scene, &[(0, COPIES)]);
}

/// A pool of this process, and another process's with one of its pointers.
struct Pools {
    own: Pooled,
    imported: u64,
    pointer: u64,
    made: Pooled,
}

const POOL_CALLS: &[Call<Pools>] = &[
    ("cuMemPoolCreate", |who, _| {
        who.pool(handle_type::POSIX_FILE_DESCRIPTOR, 0).map(drop)
    }),
    ("cuMemAllocFromPoolAsync", |who, pools| {
        who.pool_alloc(4096, pools.own.pool, 0).map(drop)
    }),
    ("cuMemPoolExportToShareableHandle", |who, pools| {
        who.pool_export_fd(pools.own.pool).map(drop)
    }),
    ("cuMemPoolExportPointer", |who, pools| {
        who.export_pointer(pools.own.base).map(drop)
    }),
    ("cuMemPoolImportFromShareableHandle", |who, pools| {
        who.pool_import(pools.made.fd.as_fd()).map(drop)
    }),
    ("cuMemPoolImportPointer", |who, pools| {
        who.import_pointer(pools.imported, &pools.made.data)
            .map(drop)
    }),
    ("cuMemPoolSetAccess", |who, pools| {
        who.pool_set_access(pools.imported, 0, access::READ_WRITE)
    }),
    ("cuMemcpyDtoH, imported memory", |who, pools| {
        who.read(pools.pointer).map(drop)
    }),
    ("cuMemcpyHtoD, imported memory", |who, pools| {
        who.write(pools.pointer, MARK)
    }),
    ("cuMemFree, imported memory", |who, pools| {
        who.free(pools.pointer)
    }),
    ("cuMemFree", |who, pools| who.free(pools.own.base)),
    ("cuMemPoolDestroy", |who, pools| {
        who.pool_destroy(pools.own.pool)
    }),
    ("cuMemPoolDestroy, imported pool", |who, pools| {
        who.pool_destroy(pools.imported)
    }),
];

pub(super) fn pools(scene: &Scene) {
    let here = &scene.raw;
    let Some(context) = scene.ready(0) else {
        return;
    };
    let Some(exporter) = scene.process(0) else {
        return;
    };
    let other = scene.thread();
    if scene
        .set_up("context", other.set_current(context))
        .is_none()
    {
        return;
    }
    let set_up = || {
        let own = make_pooled(here, 0, SIZE)?;
        let made = make_pooled(&exporter, 0, SIZE)?;
        let imported = here.pool_import(made.fd.as_fd())?;
        let pointer = here.import_pointer(imported, &made.data)?;
        here.pool_set_access(imported, 0, access::READ_WRITE)?;
        Ok(Pools {
            own,
            imported,
            pointer,
            made,
        })
    };
    // The emulated memory of every row is kept until the process ends.
    matrix(
        scene,
        &other,
        (STREAM_NON_BLOCKING, POOL_CALLS),
        set_up,
        |_| {},
    );
}
