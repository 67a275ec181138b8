//! Conversions from and to the plain types of the crate `cuda-driver-sys`, and
//! proof that both crates see the same layouts and values.
//!
//! That crate is of CUDA 10.2 and gives result codes as a Rust enum, so none of
//! its functions is called and no code of a driver is ever turned into its
//! enum; its plain types serve those who hold them already.

use super::types::*;
use core::mem::{align_of, offset_of, size_of};
use cuda_driver_sys as other;

/// Same size, alignment and field offsets.
macro_rules! same_struct {
    ($ours:ty, $theirs:ty $(, $our_field:ident = $their_field:ident)*) => {
        const _: () = {
            assert!(size_of::<$ours>() == size_of::<$theirs>());
            assert!(align_of::<$ours>() == align_of::<$theirs>());
            $(assert!(offset_of!($ours, $our_field) == offset_of!($theirs, $their_field));)*
        };
    };
}

/// Same number.
macro_rules! same_value {
    ($($ours:expr => $theirs:expr;)*) => {
        $(const _: () = assert!($ours as i64 == $theirs as i64);)*
    };
}

same_struct!(CuUuid, other::CUuuid, bytes = bytes);
same_struct!(CuIpcMemHandle, other::CUipcMemHandle, reserved = reserved);
same_struct!(CuContext, other::CUcontext);
same_struct!(CuResult, other::CUresult);
same_struct!(CuDevicePtr, other::CUdeviceptr);
same_struct!(CuDevice, other::CUdevice);

use other::{
    CUdevice_attribute_enum as attribute, CUipcMem_flags_enum as ipc, CUmemorytype_enum as memory,
    CUpointer_attribute_enum as pointer, cudaError_enum as code,
};
same_value! {
    CuResult::SUCCESS.0 => code::CUDA_SUCCESS;
    CuResult::INVALID_VALUE.0 => code::CUDA_ERROR_INVALID_VALUE;
    CuResult::OUT_OF_MEMORY.0 => code::CUDA_ERROR_OUT_OF_MEMORY;
    CuResult::NOT_INITIALIZED.0 => code::CUDA_ERROR_NOT_INITIALIZED;
    CuResult::DEINITIALIZED.0 => code::CUDA_ERROR_DEINITIALIZED;
    CuResult::NO_DEVICE.0 => code::CUDA_ERROR_NO_DEVICE;
    CuResult::INVALID_DEVICE.0 => code::CUDA_ERROR_INVALID_DEVICE;
    CuResult::INVALID_CONTEXT.0 => code::CUDA_ERROR_INVALID_CONTEXT;
    CuResult::MAP_FAILED.0 => code::CUDA_ERROR_MAP_FAILED;
    CuResult::ALREADY_MAPPED.0 => code::CUDA_ERROR_ALREADY_MAPPED;
    CuResult::PEER_ACCESS_UNSUPPORTED.0 => code::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    CuResult::OPERATING_SYSTEM.0 => code::CUDA_ERROR_OPERATING_SYSTEM;
    CuResult::INVALID_HANDLE.0 => code::CUDA_ERROR_INVALID_HANDLE;
    CuResult::ILLEGAL_STATE.0 => code::CUDA_ERROR_ILLEGAL_STATE;
    CuResult::NOT_FOUND.0 => code::CUDA_ERROR_NOT_FOUND;
    CuResult::NOT_READY.0 => code::CUDA_ERROR_NOT_READY;
    CuResult::ILLEGAL_ADDRESS.0 => code::CUDA_ERROR_ILLEGAL_ADDRESS;
    CuResult::CONTEXT_IS_DESTROYED.0 => code::CUDA_ERROR_CONTEXT_IS_DESTROYED;
    CuResult::TOO_MANY_PEERS.0 => code::CUDA_ERROR_TOO_MANY_PEERS;
    CuResult::LAUNCH_FAILED.0 => code::CUDA_ERROR_LAUNCH_FAILED;
    CuResult::NOT_PERMITTED.0 => code::CUDA_ERROR_NOT_PERMITTED;
    CuResult::NOT_SUPPORTED.0 => code::CUDA_ERROR_NOT_SUPPORTED;
    CuResult::SYSTEM_NOT_READY.0 => code::CUDA_ERROR_SYSTEM_NOT_READY;
    CuResult::UNKNOWN.0 => code::CUDA_ERROR_UNKNOWN;
    IPC_MEM_LAZY_ENABLE_PEER_ACCESS => ipc::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
    memory_type::HOST => memory::CU_MEMORYTYPE_HOST;
    memory_type::DEVICE => memory::CU_MEMORYTYPE_DEVICE;
    pointer_attribute::CONTEXT => pointer::CU_POINTER_ATTRIBUTE_CONTEXT;
    pointer_attribute::MEMORY_TYPE => pointer::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    pointer_attribute::BUFFER_ID => pointer::CU_POINTER_ATTRIBUTE_BUFFER_ID;
    pointer_attribute::IS_MANAGED => pointer::CU_POINTER_ATTRIBUTE_IS_MANAGED;
    pointer_attribute::DEVICE_ORDINAL => pointer::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    device_attribute::COMPUTE_MODE => attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE;
    device_attribute::PCI_BUS_ID => attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID;
    device_attribute::UNIFIED_ADDRESSING => attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING;
}

impl From<other::CUipcMemHandle> for CuIpcMemHandle {
    fn from(from: other::CUipcMemHandle) -> Self {
        Self {
            reserved: from.reserved.map(|byte| byte as u8),
        }
    }
}

impl From<CuIpcMemHandle> for other::CUipcMemHandle {
    fn from(from: CuIpcMemHandle) -> Self {
        Self {
            reserved: from.reserved.map(|byte| byte as _),
        }
    }
}

impl From<other::CUuuid> for CuUuid {
    fn from(from: other::CUuuid) -> Self {
        Self {
            bytes: from.bytes.map(|byte| byte as u8),
        }
    }
}

impl From<CuUuid> for other::CUuuid {
    fn from(from: CuUuid) -> Self {
        Self {
            bytes: from.bytes.map(|byte| byte as _),
        }
    }
}

impl From<other::CUresult> for CuResult {
    fn from(from: other::CUresult) -> Self {
        Self(from as u32)
    }
}
