//! The driver's calls for pools and streams with values instead of places.

use crate::driver::*;
use gpuipc_sys::{
    CuMemAccessDesc, CuMemFabricHandle, CuMemLocation, CuMemPool, CuMemPoolProps,
    CuMemPoolPtrExportData, CuStream, STREAM_NON_BLOCKING, handle_type, location,
};

pub(crate) fn create_pool(device: i32, types: u32) -> Answer<CuMemPool> {
    let props = CuMemPoolProps {
        kind: 1,
        handle_types: types,
        location: CuMemLocation {
            kind: location::DEVICE,
            id: device,
        },
        ..CuMemPoolProps::default()
    };
    create_pool_as(props)
}

pub(crate) fn create_pool_as(props: CuMemPoolProps) -> Answer<CuMemPool> {
    let mut pool = CuMemPool::NULL;
    ok(cu!(mem_pool_create(&mut pool, &props))).map(|()| pool)
}

pub(crate) fn default_pool(device: i32) -> Answer<CuMemPool> {
    let mut pool = CuMemPool::NULL;
    ok(cu!(device_get_default_mem_pool(&mut pool, device))).map(|()| pool)
}

pub(crate) fn destroy_pool(pool: CuMemPool) -> Answer {
    ok(cu!(mem_pool_destroy(pool)))
}

pub(crate) fn alloc_from(pool: CuMemPool, bytes: usize) -> Answer<u64> {
    let mut ptr = 0;
    let stream = CuStream::DEFAULT;
    ok(cu!(mem_alloc_from_pool_async(
        &mut ptr, bytes, pool, stream
    )))
    .map(|()| ptr)
}

pub(crate) fn alloc_async(bytes: usize) -> Answer<u64> {
    let mut ptr = 0;
    ok(cu!(mem_alloc_async(&mut ptr, bytes, CuStream::DEFAULT))).map(|()| ptr)
}

pub(crate) fn free_async(ptr: u64) -> Answer {
    ok(cu!(mem_free_async(ptr, CuStream::DEFAULT)))
}

pub(crate) fn export_pool(pool: CuMemPool) -> Answer<i32> {
    let mut fd = -1_i32;
    let kind = handle_type::POSIX_FILE_DESCRIPTOR;
    ok(cu!(mem_pool_export_to_shareable_handle(
        (&raw mut fd).cast(),
        pool,
        kind,
        0
    )))
    .map(|()| fd)
}

pub(crate) fn import_pool(fd: i32) -> Answer<CuMemPool> {
    let mut pool = CuMemPool::NULL;
    let value = fd as u32 as usize as *mut std::ffi::c_void;
    ok(cu!(mem_pool_import_from_shareable_handle(
        &mut pool,
        value,
        handle_type::POSIX_FILE_DESCRIPTOR,
        0
    )))
    .map(|()| pool)
}

pub(crate) fn export_pool_fabric(pool: CuMemPool) -> Answer<CuMemFabricHandle> {
    let mut bytes = CuMemFabricHandle { data: [0; 64] };
    ok(cu!(mem_pool_export_to_shareable_handle(
        (&raw mut bytes).cast(),
        pool,
        handle_type::FABRIC,
        0
    )))
    .map(|()| bytes)
}

pub(crate) fn import_pool_fabric(mut bytes: CuMemFabricHandle) -> Answer<CuMemPool> {
    let mut pool = CuMemPool::NULL;
    ok(cu!(mem_pool_import_from_shareable_handle(
        &mut pool,
        (&raw mut bytes).cast(),
        handle_type::FABRIC,
        0
    )))
    .map(|()| pool)
}

pub(crate) fn export_pointer(ptr: u64) -> Answer<CuMemPoolPtrExportData> {
    let mut data = CuMemPoolPtrExportData { reserved: [0; 64] };
    ok(cu!(mem_pool_export_pointer(&mut data, ptr))).map(|()| data)
}

pub(crate) fn import_pointer(pool: CuMemPool, mut data: CuMemPoolPtrExportData) -> Answer<u64> {
    let mut ptr = 0;
    ok(cu!(mem_pool_import_pointer(&mut ptr, pool, &mut data))).map(|()| ptr)
}

pub(crate) fn pool_access(pool: CuMemPool, device: i32, flags: u32) -> Answer {
    let desc = CuMemAccessDesc {
        location: CuMemLocation {
            kind: location::DEVICE,
            id: device,
        },
        flags,
    };
    ok(cu!(mem_pool_set_access(pool, &desc, 1)))
}

pub(crate) fn pool_access_of(pool: CuMemPool, device: i32) -> Answer<u32> {
    let mut flags = 99;
    let mut place = CuMemLocation {
        kind: location::DEVICE,
        id: device,
    };
    ok(cu!(mem_pool_get_access(&mut flags, pool, &mut place))).map(|()| flags)
}

pub(crate) fn create_stream() -> Answer<CuStream> {
    let mut stream = CuStream::DEFAULT;
    ok(cu!(stream_create(&mut stream, STREAM_NON_BLOCKING))).map(|()| stream)
}

pub(crate) fn destroy_stream(stream: CuStream) -> Answer {
    ok(cu!(stream_destroy(stream)))
}

pub(crate) fn dma_buf(ptr: u64, bytes: usize) -> Answer<i32> {
    let mut fd = -1_i32;
    let place = (&raw mut fd).cast();
    ok(cu!(mem_get_handle_for_address_range(
        place, ptr, bytes, 1, 0
    )))
    .map(|()| fd)
}
