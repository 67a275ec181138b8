//! Our CUDA types against a real `cuda.h`, where `GPUIPC_CUDA_HEADER` names one:
//! a C compiler compares each size, place and value. Nothing is fetched here.

use crate::compiler::{Compiler, Language};
use crate::programs::Folders;
use crate::skip;
use gpuipc::sys::{
    ALLOCATION_TYPE_PINNED, CuContext, CuDevice, CuDevicePtr, CuGraph, CuIpcMemHandle,
    CuMemAccessDesc, CuMemAllocFlags, CuMemAllocationProp, CuMemFabricHandle, CuMemHandle,
    CuMemLocation, CuMemPool, CuMemPoolProps, CuMemPoolPtrExportData, CuMulticastObjectProp,
    CuResult, CuStream, CuUuid, IPC_MEM_LAZY_ENABLE_PEER_ACCESS, MEMHOSTALLOC_PORTABLE,
    RANGE_HANDLE_TYPE_DMA_BUF_FD, STREAM_NON_BLOCKING, access, capture_mode, capture_status,
    device_attribute, granularity, handle_type, location, memory_type, multicast_granularity,
    pointer_attribute,
};
use std::fmt::Write;
use std::mem::{align_of, offset_of, size_of};
use std::path::PathBuf;

/// The path of a `cuda.h`.
const VARIABLE: &str = "GPUIPC_CUDA_HEADER";

/// `_Static_assert`s of what our types are, in the header's words.
struct Asserts(String);

impl Asserts {
    fn holds(&mut self, condition: &str) {
        writeln!(self.0, "_Static_assert({condition}, \"{condition}\");").expect("a string");
    }

    fn number(&mut self, theirs: &str, ours: impl Into<i64>) {
        self.holds(&format!("(long long){theirs} == {}", ours.into()));
    }
}

/// Size, alignment, and the place of each field.
macro_rules! same_struct {
    ($asserts:ident, $ours:ty, $theirs:literal $(, $our_field:ident = $their_field:literal)*) => {
        $asserts.holds(&format!("sizeof({}) == {}", $theirs, size_of::<$ours>()));
        $asserts.holds(&format!("_Alignof({}) == {}", $theirs, align_of::<$ours>()));
        $($asserts.holds(&format!(
            "offsetof({}, {}) == {}", $theirs, $their_field, offset_of!($ours, $our_field)
        ));)*
    };
}

macro_rules! same_values {
    ($asserts:ident, $prefix:literal, $module:ident: $($name:ident),*) => {
        $($asserts.number(concat!($prefix, stringify!($name)), $module::$name);)*
    };
}

macro_rules! symbols {
    ($($field:ident: $symbol:literal, $version:literal, $need:ident, ($($arg:ident: $ty:ty),*);)*) => {
        [$(($symbol, $version)),*]
    };
}

fn structs(asserts: &mut Asserts) {
    same_struct!(asserts, CuDevice, "CUdevice");
    same_struct!(asserts, CuDevicePtr, "CUdeviceptr");
    same_struct!(asserts, CuMemHandle, "CUmemGenericAllocationHandle");
    same_struct!(asserts, CuContext, "CUcontext");
    same_struct!(asserts, CuStream, "CUstream");
    same_struct!(asserts, CuGraph, "CUgraph");
    same_struct!(asserts, CuMemPool, "CUmemoryPool");
    same_struct!(asserts, CuResult, "CUresult");
    same_struct!(asserts, CuUuid, "CUuuid", bytes = "bytes");
    same_struct!(
        asserts,
        CuIpcMemHandle,
        "CUipcMemHandle",
        reserved = "reserved"
    );
    same_struct!(
        asserts,
        CuMemFabricHandle,
        "CUmemFabricHandle",
        data = "data"
    );
    same_struct!(
        asserts,
        CuMemLocation,
        "CUmemLocation",
        kind = "type",
        id = "id"
    );
    same_struct!(
        asserts,
        CuMemAllocationProp,
        "CUmemAllocationProp",
        kind = "type",
        requested_handle_types = "requestedHandleTypes",
        location = "location",
        win32_handle_meta_data = "win32HandleMetaData",
        alloc_flags = "allocFlags"
    );
    for (field, at) in [
        (
            "compressionType",
            offset_of!(CuMemAllocFlags, compression_type),
        ),
        (
            "gpuDirectRDMACapable",
            offset_of!(CuMemAllocFlags, gpu_direct_rdma_capable),
        ),
        ("usage", offset_of!(CuMemAllocFlags, usage)),
        ("reserved", offset_of!(CuMemAllocFlags, reserved)),
    ] {
        let at = at + offset_of!(CuMemAllocationProp, alloc_flags);
        asserts.holds(&format!(
            "offsetof(CUmemAllocationProp, allocFlags.{field}) == {at}"
        ));
    }
    same_struct!(
        asserts,
        CuMemAccessDesc,
        "CUmemAccessDesc",
        location = "location",
        flags = "flags"
    );
    // Newer headers take fields from its reserved bytes (13.5 does), so where these
    // start is not compared.
    same_struct!(
        asserts,
        CuMemPoolProps,
        "CUmemPoolProps",
        kind = "allocType",
        handle_types = "handleTypes",
        location = "location",
        win32_security_attributes = "win32SecurityAttributes",
        max_size = "maxSize",
        usage = "usage"
    );
    same_struct!(
        asserts,
        CuMemPoolPtrExportData,
        "CUmemPoolPtrExportData",
        reserved = "reserved"
    );
}

fn values(asserts: &mut Asserts) {
    let named = (0..1000)
        .map(CuResult)
        .filter_map(|code| Some((code.name()?, code.0)));
    let mut codes = 0;
    for (name, number) in named {
        asserts.number(name, number);
        codes += 1;
    }
    assert!(codes > 20, "the list of codes is understood");
    asserts.number("CU_MEM_ALLOCATION_TYPE_PINNED", ALLOCATION_TYPE_PINNED);
    asserts.number(
        "CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS",
        IPC_MEM_LAZY_ENABLE_PEER_ACCESS,
    );
    asserts.number("CU_MEMHOSTALLOC_PORTABLE", MEMHOSTALLOC_PORTABLE);
    asserts.number(
        "CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD",
        RANGE_HANDLE_TYPE_DMA_BUF_FD,
    );
    asserts.number("CU_STREAM_NON_BLOCKING", STREAM_NON_BLOCKING);
    same_values!(asserts, "CU_MEM_LOCATION_TYPE_", location: DEVICE, HOST, HOST_NUMA);
    same_values!(asserts, "CU_MEM_HANDLE_TYPE_", handle_type: NONE, POSIX_FILE_DESCRIPTOR, FABRIC);
    asserts.number("CU_MEM_ACCESS_FLAGS_PROT_NONE", access::NONE);
    asserts.number("CU_MEM_ACCESS_FLAGS_PROT_READ", access::READ);
    asserts.number("CU_MEM_ACCESS_FLAGS_PROT_READWRITE", access::READ_WRITE);
    same_values!(asserts, "CU_MEM_ALLOC_GRANULARITY_", granularity: MINIMUM, RECOMMENDED);
    same_values!(asserts, "CU_STREAM_CAPTURE_MODE_", capture_mode: GLOBAL, THREAD_LOCAL, RELAXED);
    same_values!(asserts, "CU_STREAM_CAPTURE_STATUS_", capture_status: NONE, ACTIVE, INVALIDATED);
    same_values!(asserts, "CU_MEMORYTYPE_", memory_type: HOST, DEVICE);
    same_values!(
        asserts, "CU_POINTER_ATTRIBUTE_", pointer_attribute: CONTEXT, MEMORY_TYPE, BUFFER_ID,
        IS_MANAGED, DEVICE_ORDINAL, IS_LEGACY_CUDA_IPC_CAPABLE, RANGE_START_ADDR, RANGE_SIZE, MAPPED,
        ALLOWED_HANDLE_TYPES, MEMPOOL_HANDLE, MAPPING_SIZE, MAPPING_BASE_ADDR, MEMORY_BLOCK_ID
    );
    same_values!(
        asserts, "CU_DEVICE_ATTRIBUTE_", device_attribute: COMPUTE_MODE, PCI_BUS_ID,
        UNIFIED_ADDRESSING, VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, MEMORY_POOLS_SUPPORTED,
        MEMPOOL_SUPPORTED_HANDLE_TYPES, DMA_BUF_SUPPORTED, IPC_EVENT_SUPPORTED,
        HANDLE_TYPE_FABRIC_SUPPORTED, MULTICAST_SUPPORTED, HOST_NUMA_ID,
        HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    );
}

#[test]
fn our_cuda_types_and_values_are_those_of_a_real_cuda_h() {
    let Some(header) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
        return skip(&format!("no cuda.h: {VARIABLE} names one"));
    };
    let Some(compiler) = Compiler::find(Language::C) else {
        return skip(Language::C.missing());
    };
    let mut asserts = Asserts(format!(
        "#include <stddef.h>\n#include \"{}\"\n",
        header.display()
    ));
    structs(&mut asserts);
    values(&mut asserts);
    asserts.0.push_str("#if CUDA_VERSION >= 12010\n");
    same_struct!(
        asserts,
        CuMulticastObjectProp,
        "CUmulticastObjectProp",
        num_devices = "numDevices",
        size = "size",
        handle_types = "handleTypes",
        flags = "flags"
    );
    same_values!(asserts, "CU_MULTICAST_GRANULARITY_", multicast_granularity: MINIMUM, RECOMMENDED);
    asserts.0.push_str("#endif\n");
    // Every call of the list is declared, under the symbol's own name.
    let calls = gpuipc::sys::driver_calls!(symbols);
    // But for the one by which the emulated driver is known.
    let of_cuda = calls.iter().filter(|(symbol, _)| symbol.starts_with("cu"));
    for (index, (symbol, version)) in of_cuda.enumerate() {
        writeln!(
            asserts.0,
            "#if CUDA_VERSION >= {version}\nextern __typeof__({symbol}) *call_{index};\n#endif"
        )
        .expect("a string");
    }
    let folders = Folders::new();
    let source = folders.made.join("cuda_header.c");
    std::fs::write(&source, asserts.0).expect("a file");
    compiler.check_foreign_syntax(&source);
}
