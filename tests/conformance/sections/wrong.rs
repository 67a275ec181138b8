//! Wrong input to each call.

use super::Scene;
use crate::call::{Ask, Got, property, shareable};
use crate::memory::{Kind, MARK, MIB, make, make_fd, make_legacy};
use crate::rows::{code, right, same};
use gpuipc::sys::{
    IPC_MEM_LAZY_ENABLE_PEER_ACCESS as LAZY, access, granularity, handle_type, location,
    pointer_attribute,
};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// A number that no descriptor has.
const CLOSED: u64 = 900_000;

pub(super) fn handles(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.ready(0).is_none() {
        return;
    }
    for (name, bytes) in [
        ("zeros", [0; 64]),
        ("0x5a", [0x5a; 64]),
        ("0xff", [0xff; 64]),
    ] {
        rows.row(format!("legacy, {name}"), code(&here.open(&bytes, LAZY)));
        rows.row(
            format!("legacy, {name}, flags 0"),
            code(&here.open(&bytes, 0)),
        );
        rows.row(format!("fabric, {name}"), code(&here.import_fabric(&bytes)));
    }
    let posix = handle_type::POSIX_FILE_DESCRIPTOR;
    let memfd = rustix::fs::memfd_create("conformance", rustix::fs::MemfdFlags::CLOEXEC);
    let null = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null");
    let program = std::fs::File::open("/proc/self/exe");
    let folder = std::fs::File::open("/");
    let pipe = std::io::pipe();
    let files: [(&str, Option<OwnedFd>); 5] = [
        ("/dev/null", null.ok().map(OwnedFd::from)),
        ("an empty memfd", memfd.ok()),
        ("a regular file", program.ok().map(OwnedFd::from)),
        ("a folder", folder.ok().map(OwnedFd::from)),
        ("a pipe", pipe.ok().map(|(reader, _)| OwnedFd::from(reader))),
    ];
    for (name, fd) in files {
        if let Some(fd) = scene.set_up(name, fd.ok_or(crate::call::GONE)) {
            rows.row(
                format!("descriptor, {name}"),
                code(&here.import_fd(fd.as_fd())),
            );
        }
    }
    for (name, number) in [("-1", u64::MAX), ("closed", CLOSED)] {
        rows.row(
            format!("descriptor, {name}"),
            code(&here.import_number(number, posix)),
        );
    }
    let Some((_, exported)) = scene.set_up("memory", make_fd(here, Kind::VMM_FD, MIB)) else {
        return;
    };
    let number = u64::from(exported.fd.as_raw_fd().cast_unsigned());
    for (name, kind) in [("no type", 0), ("Win32", 2), ("an unknown type", 64)] {
        rows.row(
            format!("descriptor imported as {name}"),
            code(&here.import_number(number, kind)),
        );
    }
}

/// Addresses that CUDA does not know, by name.
fn strangers() -> [(&'static str, u64); 3] {
    // Left allocated, and never looked at again by Rust.
    let heap = Box::into_raw(Box::new([0_u64; 1024])).addr() as u64;
    [("null", 0), ("0x1000", 0x1000), ("host heap", heap)]
}

pub(super) fn pointers(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.ready(0).is_none() {
        return;
    }
    let reserved = here.reserve(2 * MIB, 0);
    let reserved = reserved.ok().map(|ptr| ("reserved, not mapped", ptr));
    for (name, ptr) in strangers().into_iter().chain(reserved) {
        let attributes = [
            ("MEMORY_TYPE", pointer_attribute::MEMORY_TYPE),
            ("IS_MANAGED", pointer_attribute::IS_MANAGED),
            ("MEMPOOL_HANDLE", pointer_attribute::MEMPOOL_HANDLE),
            (
                "ALLOWED_HANDLE_TYPES",
                pointer_attribute::ALLOWED_HANDLE_TYPES,
            ),
            (
                "IS_LEGACY_CUDA_IPC_CAPABLE",
                pointer_attribute::IS_LEGACY_CUDA_IPC_CAPABLE,
            ),
            ("BUFFER_ID", pointer_attribute::BUFFER_ID),
            ("DEVICE_ORDINAL", pointer_attribute::DEVICE_ORDINAL),
            ("RANGE_SIZE", pointer_attribute::RANGE_SIZE),
            ("MAPPED", pointer_attribute::MAPPED),
            ("MAPPING_SIZE", pointer_attribute::MAPPING_SIZE),
        ];
        for (attribute, number) in attributes {
            rows.row(format!("{name}: {attribute}"), here.attribute(number, ptr));
        }
        let row = |call: &str, answer: Got| rows.row(format!("{name}: {call}"), answer);
        row("cuMemGetAddressRange", here.range(ptr).map(drop));
        row("cuIpcGetMemHandle", here.legacy_handle(ptr).map(drop));
        row("cuIpcCloseMemHandle", here.close(ptr));
        row("cuMemRetainAllocationHandle", here.retain(ptr).map(drop));
        row("cuMemUnmap", here.unmap(ptr, 2 * MIB));
        row(
            "cuMemSetAccess",
            here.set_access(ptr, 2 * MIB, 0, access::READ_WRITE),
        );
        row(
            "cuMemGetAccess",
            here.get_access(ptr, location::DEVICE, 0).map(drop),
        );
        row("cuMemFreeHost", here.free_host(ptr));
        row("cuMemFree", here.free(ptr));
        if name != "reserved, not mapped" {
            row("cuMemAddressFree", here.address_free(ptr, 2 * MIB));
        }
    }
    if let Some((made, _)) = scene.set_up("memory", make_legacy(here, MIB)) {
        rows.row(
            "an unknown pointer attribute",
            code(&here.attribute(9999, made.base)),
        );
        rows.row(
            "cuIpcCloseMemHandle of one's own memory",
            here.close(made.base),
        );
        rows.row("data after all that", right(here.read(made.base), MARK));
    }
}

/// Copies from addresses that CUDA does not know: by themselves, since a driver
/// may take them for host memory.
pub(super) fn copies(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.ready(0).is_none() {
        return;
    }
    let reserved = here.reserve(2 * MIB, 0);
    if let Ok(ptr) = reserved {
        rows.row("reserved, not mapped: cuMemcpyDtoH", code(&here.read(ptr)));
        rows.row("reserved, not mapped: cuMemcpyHtoD", here.put(ptr, MARK));
        rows.row("reserved, not mapped: cuMemsetD8", here.fill(ptr, 1, 8));
    }
    let [null, low, heap] = strangers();
    for (name, ptr) in [heap, null, low] {
        rows.row(format!("{name}: cuMemcpyDtoH"), code(&here.read(ptr)));
        rows.row(format!("{name}: cuMemcpyHtoD"), here.put(ptr, MARK));
        rows.row(format!("{name}: cuMemsetD8"), here.fill(ptr, 1, 8));
    }
    rows.row("the context after all that", code(&here.alloc(MIB)));
}

pub(super) fn sizes(scene: &Scene) {
    let (rows, here) = (&scene.rows, &scene.raw);
    if scene.ready(0).is_none() {
        return;
    }
    const HUGE: u64 = 1 << 50;
    rows.row("cuMemAlloc of 0", code(&here.alloc(0)));
    rows.row("cuMemAlloc of 1 PiB", code(&here.alloc(HUGE)));
    if let Some(ptr) = rows.got("cuMemHostAlloc of 0", here.host_alloc(0)) {
        let pointer = if ptr == 0 { "null" } else { "set" };
        rows.row("cuMemHostAlloc of 0: pointer", pointer);
    }
    let one = here.alloc(1);
    rows.row("cuMemAlloc of 1", code(&one));
    if let Ok(one) = one {
        let size = pointer_attribute::RANGE_SIZE;
        rows.row("cuMemAlloc of 1: RANGE_SIZE", here.attribute(size, one));
        rows.row("cuMemAlloc of 1: read 8 bytes", code(&here.read(one)));
    }
    let gpu = shareable(0);
    for (name, size) in [
        ("0", 0),
        ("4096", 4096),
        ("1 MiB", MIB),
        ("3 MiB", 3 * MIB),
        ("1 PiB", HUGE),
    ] {
        created(
            scene,
            &format!("cuMemCreate of {name}"),
            here.create(size, &gpu),
        );
    }
    let mut no_type = gpu;
    no_type.kind = 0;
    for (name, prop) in [
        ("no allocation type", no_type),
        ("device 99", shareable(99)),
        ("device -1", shareable(-1)),
        ("location kind 0", property(0, 0, 1)),
        ("location kind 99", property(99, 0, 1)),
        ("host node 99", property(location::HOST_NUMA, 99, 1)),
        ("handle type Win32", property(location::DEVICE, 0, 2)),
        ("handle type 64", property(location::DEVICE, 0, 64)),
    ] {
        created(
            scene,
            &format!("cuMemCreate with {name}"),
            here.create(2 * MIB, &prop),
        );
        rows.row(
            format!("granularity with {name}"),
            here.granularity(&prop, granularity::MINIMUM),
        );
    }
    rows.row("granularity, unknown option", here.granularity(&gpu, 7));
    for (name, size, alignment) in [
        ("0 bytes", 0, 0),
        ("12345 bytes", 12345, 0),
        ("4096 bytes", 4096, 0),
        ("64 KiB", MIB / 16, 0),
        ("1 MiB", MIB, 0),
        ("2 MiB", 2 * MIB, 0),
        ("3 MiB", 3 * MIB, 0),
        ("2 MiB, aligned to 3", 2 * MIB, 3),
        ("2 MiB, aligned to 4096", 2 * MIB, 4096),
        ("2 MiB, aligned to 3 MiB", 2 * MIB, 3 * MIB),
        ("2 MiB, aligned to 1 GiB", 2 * MIB, 1024 * MIB),
        ("2^62 bytes", 1 << 62, 0),
    ] {
        let reserved = here.reserve(size, alignment);
        rows.row(format!("reserve {name}"), code(&reserved));
        if let Ok(ptr) = reserved {
            rows.row(
                format!("reserve {name}: at a multiple of 2 MiB"),
                ptr % (2 * MIB) == 0,
            );
            if alignment > 0 {
                rows.row(
                    format!("reserve {name}: aligned"),
                    same(Ok(ptr % alignment), 0),
                );
            }
            rows.row(
                format!("reserve {name}: free of another size"),
                here.address_free(ptr, size + 2 * MIB),
            );
            rows.row(
                format!("reserve {name}: free from inside"),
                here.address_free(ptr + 4096, size - 4096),
            );
            rows.row(
                format!("reserve {name}: free"),
                here.address_free(ptr, size),
            );
        }
    }
    if let Some(made) = scene.set_up("memory", make(here, Kind::VMM_FD, 2 * MIB, None)) {
        let size = made.size;
        rows.row("unmap of 0 bytes", here.unmap(made.base, 0));
        rows.row("unmap of half", here.unmap(made.base, size / 2));
        rows.row("unmap of twice", here.unmap(made.base, size * 2));
        rows.row("unmap from inside", here.unmap(made.base + 4096, size));
        rows.row("data after that", right(here.read(made.base), MARK));
    }
}

/// A row, and the memory back if there is some.
fn created(scene: &Scene, question: &str, answer: Got<u64>) {
    scene.rows.row(question, code(&answer));
    if let Ok(handle) = answer {
        let _ = scene.raw.release(handle);
    }
}
