//! The driver's calls with values instead of places for them.

use gpuipc_sys::{
    CuContext, CuIpcMemHandle, CuMemAccessDesc, CuMemAllocationProp, CuMemFabricHandle,
    CuMemLocation, CuResult, handle_type, location, pointer_attribute,
};
use std::ffi::c_void;

pub(crate) const MIB: usize = 1 << 20;
pub(crate) type Answer<T = ()> = Result<T, CuResult>;

/// Calls an entry of the table.
#[macro_export]
macro_rules! cu {
    ($field:ident($($arg:expr),*)) => {{
        let entry = gpuipc_emulated::table().$field.expect("the symbol is there");
        #[allow(clippy::macro_metavars_in_unsafe)] // Arguments are places and numbers.
        // SAFETY: every place passed lives across the call and has the type
        // that `cuda.h` gives the argument.
        unsafe {
            entry($($arg),*)
        }
    }};
}
pub(crate) use crate::cu;

pub(crate) fn ok(code: CuResult) -> Answer {
    if code == CuResult::SUCCESS {
        Ok(())
    } else {
        Err(code)
    }
}

/// `cuInit` and a current context of `device`.
pub(crate) fn start_on(device: i32) {
    assert_eq!(cu!(init(0)), CuResult::SUCCESS);
    use_device(device);
}

pub(crate) fn use_device(device: i32) -> CuContext {
    let mut context = CuContext::NULL;
    assert_eq!(
        cu!(primary_ctx_retain(&mut context, device)),
        CuResult::SUCCESS
    );
    assert_eq!(cu!(ctx_set_current(context)), CuResult::SUCCESS);
    context
}

pub(crate) fn alloc(bytes: usize) -> Answer<u64> {
    let mut ptr = 0;
    ok(cu!(mem_alloc(&mut ptr, bytes))).map(|()| ptr)
}

pub(crate) fn free(ptr: u64) -> Answer {
    ok(cu!(mem_free(ptr)))
}

pub(crate) fn write(ptr: u64, value: u32) -> Answer {
    ok(cu!(memcpy_htod(ptr, (&raw const value).cast(), 4)))
}

pub(crate) fn read(ptr: u64) -> Answer<u32> {
    let mut value = 0_u32;
    ok(cu!(memcpy_dtoh((&raw mut value).cast(), ptr, 4))).map(|()| value)
}

/// Eight zero bytes, then the answer: narrow answers leave the rest zero.
pub(crate) fn attribute(ptr: u64, attribute: u32) -> Answer<u64> {
    let mut value = 0_u64;
    ok(cu!(pointer_get_attribute(
        (&raw mut value).cast(),
        attribute,
        ptr
    )))
    .map(|()| value)
}

pub(crate) fn buffer_id(ptr: u64) -> u64 {
    attribute(ptr, pointer_attribute::BUFFER_ID).expect("a piece of memory")
}

pub(crate) fn range(ptr: u64) -> Answer<(u64, usize)> {
    let (mut base, mut size) = (0, 0);
    ok(cu!(mem_get_address_range(&mut base, &mut size, ptr))).map(|()| (base, size))
}

pub(crate) fn ipc_handle(ptr: u64) -> Answer<CuIpcMemHandle> {
    let mut handle = CuIpcMemHandle { reserved: [0; 64] };
    ok(cu!(ipc_get_mem_handle(&mut handle, ptr))).map(|()| handle)
}

pub(crate) fn ipc_open(handle: CuIpcMemHandle, flags: u32) -> Answer<u64> {
    let mut ptr = 0;
    ok(cu!(ipc_open_mem_handle(&mut ptr, handle, flags))).map(|()| ptr)
}

pub(crate) fn ipc_close(ptr: u64) -> Answer {
    ok(cu!(ipc_close_mem_handle(ptr)))
}

pub(crate) fn prop(kind: u32, id: i32, types: u32) -> CuMemAllocationProp {
    CuMemAllocationProp {
        kind: 1,
        requested_handle_types: types,
        location: CuMemLocation { kind, id },
        ..CuMemAllocationProp::default()
    }
}

pub(crate) fn create(bytes: usize, prop: CuMemAllocationProp) -> Answer<u64> {
    let mut handle = 0;
    ok(cu!(mem_create(&mut handle, bytes, &prop, 0))).map(|()| handle)
}

/// Device 0's memory, exportable as a descriptor.
pub(crate) fn create_fd(bytes: usize) -> u64 {
    create(
        bytes,
        prop(location::DEVICE, 0, handle_type::POSIX_FILE_DESCRIPTOR),
    )
    .expect("memory")
}

pub(crate) fn release(handle: u64) -> Answer {
    ok(cu!(mem_release(handle)))
}

pub(crate) fn retain(ptr: u64) -> Answer<u64> {
    let mut handle = 0;
    ok(cu!(mem_retain_allocation_handle(
        &mut handle,
        ptr as *mut c_void
    )))
    .map(|()| handle)
}

pub(crate) fn reserve(bytes: usize) -> Answer<u64> {
    let mut ptr = 0;
    ok(cu!(mem_address_reserve(&mut ptr, bytes, 0, 0, 0))).map(|()| ptr)
}

pub(crate) fn unreserve(ptr: u64, bytes: usize) -> Answer {
    ok(cu!(mem_address_free(ptr, bytes)))
}

pub(crate) fn map(ptr: u64, bytes: usize, offset: usize, handle: u64) -> Answer {
    ok(cu!(mem_map(ptr, bytes, offset, handle, 0)))
}

pub(crate) fn unmap(ptr: u64, bytes: usize) -> Answer {
    ok(cu!(mem_unmap(ptr, bytes)))
}

pub(crate) fn set_access(ptr: u64, bytes: usize, kind: u32, id: i32, flags: u32) -> Answer {
    let desc = CuMemAccessDesc {
        location: CuMemLocation { kind, id },
        flags,
    };
    ok(cu!(mem_set_access(ptr, bytes, &desc, 1)))
}

pub(crate) fn access_of(ptr: u64, kind: u32, id: i32) -> Answer<u64> {
    let (mut flags, location) = (99, CuMemLocation { kind, id });
    ok(cu!(mem_get_access(&mut flags, &location, ptr))).map(|()| flags)
}

/// A reservation of its own with `handle` mapped for `device`.
pub(crate) fn map_for(handle: u64, bytes: usize, device: i32, flags: u32) -> Answer<u64> {
    let ptr = reserve(bytes)?;
    map(ptr, bytes, 0, handle)?;
    set_access(ptr, bytes, location::DEVICE, device, flags)?;
    Ok(ptr)
}

pub(crate) fn unmap_all(ptr: u64, bytes: usize) {
    assert_eq!(unmap(ptr, bytes), Ok(()));
    assert_eq!(unreserve(ptr, bytes), Ok(()));
}

pub(crate) fn export_fd(handle: u64) -> Answer<i32> {
    let mut fd = -1_i32;
    let kind = handle_type::POSIX_FILE_DESCRIPTOR;
    ok(cu!(mem_export_to_shareable_handle(
        (&raw mut fd).cast(),
        handle,
        kind,
        0
    )))
    .map(|()| fd)
}

pub(crate) fn import_fd(fd: i32) -> Answer<u64> {
    let mut handle = 0;
    let value = fd as u32 as usize as *mut c_void;
    ok(cu!(mem_import_from_shareable_handle(
        &mut handle,
        value,
        handle_type::POSIX_FILE_DESCRIPTOR
    )))
    .map(|()| handle)
}

pub(crate) fn export_fabric(handle: u64) -> Answer<CuMemFabricHandle> {
    let mut bytes = CuMemFabricHandle { data: [0; 64] };
    ok(cu!(mem_export_to_shareable_handle(
        (&raw mut bytes).cast(),
        handle,
        handle_type::FABRIC,
        0
    )))
    .map(|()| bytes)
}

pub(crate) fn import_fabric(mut bytes: CuMemFabricHandle) -> Answer<u64> {
    let mut handle = 0;
    let place = (&raw mut bytes).cast();
    ok(cu!(mem_import_from_shareable_handle(
        &mut handle,
        place,
        handle_type::FABRIC
    )))
    .map(|()| handle)
}

pub(crate) fn properties(handle: u64) -> Answer<CuMemAllocationProp> {
    let mut prop = CuMemAllocationProp::default();
    ok(cu!(mem_get_allocation_properties(&mut prop, handle))).map(|()| prop)
}

pub(crate) fn close_fd(fd: i32) {
    // SAFETY: the test owns this number, which the driver gave it.
    assert_eq!(unsafe { libc::close(fd) }, 0);
}
