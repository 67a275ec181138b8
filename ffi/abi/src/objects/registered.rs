//! Registered memory, as C holds it.

#![allow(unsafe_code)]

use super::Library;
use crate::failure::Failure;
use core::fmt;
use gpuipc::core::RegisteredFields;
use gpuipc::{ExportOptions, GpuIpcMemHandle, ImportOptions, RegisteredMemory, TransportInfo};
use std::mem::offset_of;

/// A buffer that this process registered, or that another process has described.
#[derive(Debug)]
pub struct Registered {
    pub(crate) memory: RegisteredMemory,
}

const fn usable_from_any_thread<T: Send + Sync>() {}
const _: () = usable_from_any_thread::<Registered>();

/// The most bytes of a transport.
pub const GPUIPC_TRANSPORT_BYTES: usize = 64;
/// The most transports of a registered memory.
pub const GPUIPC_TRANSPORTS: usize = 16;

const _: () = assert!(
    GPUIPC_TRANSPORT_BYTES == gpuipc::core::TRANSPORT_DATA_BYTES
        && GPUIPC_TRANSPORTS == gpuipc::core::MAX_TRANSPORTS,
    "the header's sizes are the form's"
);

/// Another way to reach a registered memory than the GPU's, such as an InfiniBand
/// address and its rkey. What it is and what its bytes mean is the caller's
/// business. Of 72 bytes for ever.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CTransport {
    /// The caller's number of this kind of transport; one memory has it once.
    pub kind: u32,
    /// How many of `bytes` are in use, 0 to `GPUIPC_TRANSPORT_BYTES`.
    pub len: u32,
    /// The caller's bytes; 0 from `len` on.
    pub bytes: [u8; GPUIPC_TRANSPORT_BYTES],
}

/// Who registered a memory, and where. Of 40 bytes for ever.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct COwner {
    /// The process, as the handles name it.
    pub process_id: [u8; 16],
    /// Its host.
    pub host_id: [u8; 16],
    /// Its pid in its own namespace. For messages, never an identity.
    pub pid: u32,
    /// The inode of that namespace. For messages.
    pub pid_namespace: u32,
}

const _: () = assert!(
    size_of::<CTransport>() == 72
        && offset_of!(CTransport, bytes) == 8
        && size_of::<COwner>() == 40
        && offset_of!(COwner, pid) == 32,
    "C callers were compiled with these places, which leave no padding"
);

impl fmt::Debug for CTransport {
    /// Without its bytes, since who has them may use the memory.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CTransport")
            .field("kind", &self.kind)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl CTransport {
    /// The library's transport; `index` is for the error.
    fn check(&self, index: usize) -> Result<TransportInfo, Failure> {
        let length = usize::try_from(self.len).unwrap_or(usize::MAX);
        let made = self.bytes.get(..length);
        let made = made.and_then(|bytes| TransportInfo::new(self.kind, bytes).ok());
        let made = made.ok_or_else(|| {
            Failure::argument(format!(
                "len of transports[{index}] is {length}, but a transport has at most \
                 {GPUIPC_TRANSPORT_BYTES} bytes"
            ))
        })?;
        if self.bytes[length..].iter().any(|byte| *byte != 0) {
            return Err(Failure::argument(format!(
                "bytes of transports[{index}] go on after len, which is {length}: they must be 0 there"
            )));
        }
        Ok(made)
    }

    pub(crate) fn of(transport: &TransportInfo) -> Self {
        Self {
            kind: transport.kind(),
            // At most 64.
            len: u32::try_from(transport.bytes().len()).unwrap_or_default(),
            bytes: *transport.data(),
        }
    }
}

impl COwner {
    fn of(fields: &RegisteredFields) -> Self {
        Self {
            process_id: fields.process_id.0,
            host_id: fields.host_id.0,
            pid: fields.pid,
            pid_namespace: fields.pid_namespace,
        }
    }
}

/// The library's transports.
fn check(transports: &[CTransport]) -> Result<Vec<TransportInfo>, Failure> {
    let transports = transports.iter().enumerate();
    transports
        .map(|(index, transport)| transport.check(index))
        .collect()
}

impl Library {
    /// # Safety
    /// As for [`Ipc::register`](gpuipc::Ipc::register).
    pub(crate) unsafe fn register(
        &self,
        ptr: u64,
        len: usize,
        transports: &[CTransport],
        options: &ExportOptions,
    ) -> Result<Registered, Failure> {
        let transports = check(transports)?;
        // SAFETY: as the caller says.
        let memory = unsafe { self.ipc.register(ptr, len, &transports, options) }?;
        Ok(Registered { memory })
    }

    pub(crate) fn register_transports(
        &self,
        ptr: u64,
        len: usize,
        transports: &[CTransport],
    ) -> Result<Registered, Failure> {
        let transports = check(transports)?;
        let memory = self.ipc.register_transports(ptr, len, &transports)?;
        Ok(Registered { memory })
    }

    pub(crate) fn own(&self) -> Result<COwner, Failure> {
        Ok(COwner::of(&self.ipc.own_fields()?))
    }

    pub(crate) fn deserialize(
        &self,
        bytes: &[u8],
        options: &ImportOptions,
    ) -> Result<Registered, Failure> {
        let memory = self.ipc.deserialize(bytes, options)?;
        Ok(Registered { memory })
    }
}

impl Registered {
    pub(crate) fn handles(&self) -> Vec<u8> {
        let handles = self.memory.handles().iter();
        handles.flat_map(GpuIpcMemHandle::encode).collect()
    }

    pub(crate) fn owner(&self) -> COwner {
        COwner::of(&self.memory.fields())
    }

    /// Why there is no way by the GPU, where there is none.
    pub(crate) fn gpu_failure(&self) -> Option<Failure> {
        self.memory.gpu_error().cloned().map(Failure::from)
    }
}
