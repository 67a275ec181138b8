//! RegisteredMemory: one buffer of a runtime with every way to reach it.
//! [`gpuipc_core::RegisteredMemoryRef`] defines its bytes.

#![allow(unsafe_code)]

use crate::error::Error;
use crate::export::{Exported, WHOLE_ALLOCATION};
use crate::import::mem::GpuIpcMem;
use crate::import::range::RangeHandles;
use crate::import::{import_own, import_range, own_memory, wait_of};
use crate::options::{ExportOptions, ImportOptions};
use crate::process::identity;
use crate::session::Ipc;
use crate::sys::CuDevicePtr;
use core::fmt;
use gpuipc_core::{
    GpuIpcMemHandle, RegisteredFields, RegisteredMemoryRef, TransportInfo, registered_len,
};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// A buffer that its owner has registered, or that another process has described.
///
/// In the owner it holds the export; elsewhere the mapping. Dropping it ends the one
/// or undoes the other; the transports are the runtime's business.
pub struct RegisteredMemory {
    fields: RegisteredFields,
    transports: Vec<TransportInfo>,
    handles: Vec<GpuIpcMemHandle>,
    data: Option<CuDevicePtr>,
    gpu_error: Option<Error>,
    role: Role,
}

/// What this object holds.
#[derive(Debug)]
enum Role {
    /// Registered here: the export, unless there is none.
    Owner {
        _exported: Option<Exported>,
        _entry: Entry,
    },
    /// Another process's, mapped here, or only to be reached by a transport.
    Described { mapping: Option<GpuIpcMem> },
}

impl RegisteredMemory {
    /// The bytes to ship to importers ([`registered_len`]). Whoever has them may ask
    /// for the memory.
    ///
    /// # Errors
    /// [`Error::Register`] says which rule of the form is broken; an object that
    /// exists breaks none.
    pub fn serialize(&self) -> Result<Vec<u8>, Error> {
        let len = registered_len(self.transports.len(), self.handles.len());
        let mut bytes = vec![0; len.unwrap_or(0)];
        let written = self
            .fields
            .encode(&self.transports, &self.handles, &mut bytes)
            .map_err(Error::Register)?;
        bytes.truncate(written);
        Ok(bytes)
    }

    /// The buffer's first byte in this process: the original pointer in its owner,
    /// the mapping's elsewhere; `None` where no type of sharing leads to it, so that
    /// only a transport does.
    #[must_use]
    pub const fn data(&self) -> Option<CuDevicePtr> {
        self.data
    }

    /// Its address in the owner, as the owner says: for transports that name
    /// remote memory by it. Never to be touched here.
    #[must_use]
    pub const fn original_pointer(&self) -> CuDevicePtr {
        self.fields.pointer
    }

    /// Bytes of the buffer.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // never empty
    pub const fn len(&self) -> u64 {
        self.fields.len
    }

    /// Who owns it, and where.
    #[must_use]
    pub const fn fields(&self) -> RegisteredFields {
        self.fields
    }

    /// The other transports.
    #[must_use]
    pub fn transports(&self) -> &[TransportInfo] {
        &self.transports
    }

    /// The transport of this kind.
    #[must_use]
    pub fn transport(&self, kind: u32) -> Option<TransportInfo> {
        self.transports
            .iter()
            .copied()
            .find(|info| info.kind() == kind)
    }

    /// The GPU handles, one a segment; none for memory that cannot be shared.
    #[must_use]
    pub fn handles(&self) -> &[GpuIpcMemHandle] {
        &self.handles
    }

    /// The mapping of another process's memory.
    #[must_use]
    pub const fn mapping(&self) -> Option<&GpuIpcMem> {
        match &self.role {
            Role::Described { mapping } => mapping.as_ref(),
            Role::Owner { .. } => None,
        }
    }

    /// Why the memory could not be exported, or not be mapped, where that was left
    /// to another transport.
    #[must_use]
    pub const fn gpu_error(&self) -> Option<&Error> {
        self.gpu_error.as_ref()
    }
}

impl fmt::Debug for RegisteredMemory {
    /// Tokens and the transports' bytes are not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredMemory")
            .field("fields", &self.fields)
            .field("transports", &self.transports)
            .field("handles", &self.handles.len())
            .field("data", &self.data)
            .field("gpu_error", &self.gpu_error)
            .field("role", &self.role)
            .finish()
    }
}

/// See [`Ipc::register`].
///
/// # Safety
/// As for [`Ipc::export`].
pub(crate) unsafe fn register(
    ipc: &Ipc,
    ptr: CuDevicePtr,
    len: usize,
    transports: &[TransportInfo],
    options: &ExportOptions,
) -> Result<RegisteredMemory, Error> {
    // SAFETY: as the caller says.
    let exported = unsafe { ipc.export(ptr, len, options) };
    let (exported, gpu_error) = match exported {
        Ok(exported) => (Some(exported), None),
        // Of memory that is not known there is no whole allocation.
        Err(error @ Error::NotExportable(_))
            if !transports.is_empty() && len != WHOLE_ALLOCATION =>
        {
            log::info!(target: "gpuipc::gpu", "registered for other transports only: {error}");
            (None, Some(error))
        }
        Err(error) => return Err(error),
    };
    let len = exported.as_ref().map_or(len as u64, Exported::len);
    owned(ipc, ptr, len, transports, exported, gpu_error)
}

/// See [`Ipc::register_transports`].
pub(crate) fn register_transports(
    ipc: &Ipc,
    ptr: CuDevicePtr,
    len: usize,
    transports: &[TransportInfo],
) -> Result<RegisteredMemory, Error> {
    if len == WHOLE_ALLOCATION {
        return Err(Error::Argument {
            name: "len",
            rule: "a buffer for transports alone has a length of its own",
        });
    }
    owned(ipc, ptr, len as u64, transports, None, None)
}

/// See [`Ipc::own_fields`].
pub(crate) fn own_fields(ipc: &Ipc) -> Result<RegisteredFields, Error> {
    let process_id = identity::process_id()?;
    let identity = ipc.identity();
    Ok(RegisteredFields {
        pointer: 0,
        len: 0,
        process_id,
        host_id: identity.host,
        pid: identity.pid,
        pid_namespace: identity.pid_namespace,
    })
}

/// A buffer of this process.
fn owned(
    ipc: &Ipc,
    ptr: CuDevicePtr,
    len: u64,
    transports: &[TransportInfo],
    exported: Option<Exported>,
    gpu_error: Option<Error>,
) -> Result<RegisteredMemory, Error> {
    let fields = RegisteredFields {
        pointer: ptr,
        len,
        ..own_fields(ipc)?
    };
    let handles = exported
        .as_ref()
        .map_or(Vec::new(), |exported| exported.handles().to_vec());
    let memory = RegisteredMemory {
        fields,
        transports: transports.to_vec(),
        handles,
        data: Some(ptr),
        gpu_error,
        role: Role::Owner {
            _exported: exported,
            _entry: Entry::new(ptr, fields.len),
        },
    };
    // What the form does not allow shows here, and not in the first importer.
    memory.serialize()?;
    Ok(memory)
}

/// See [`Ipc::deserialize`].
pub(crate) fn deserialize(
    ipc: &Ipc,
    bytes: &[u8],
    options: &ImportOptions,
) -> Result<RegisteredMemory, Error> {
    identity::process_id()?;
    let form = RegisteredMemoryRef::decode(bytes).map_err(Error::Registered)?;
    let fields = form.fields();
    let transports: Vec<TransportInfo> = form.transports().collect();
    let handles: Vec<GpuIpcMemHandle> = form.handles().collect();
    let (reached, gpu_error) = match reach(ipc, &fields, &handles, options) {
        Ok(reached) => (reached, None),
        Err(error) if !transports.is_empty() && is_of_sharing(&error) => {
            log::info!(target: "gpuipc::gpu", "left to another transport: {error}");
            (Reached::Nothing, Some(error))
        }
        Err(error) => return Err(error),
    };
    let (data, mapping) = match reached {
        Reached::Own(ptr) => (Some(ptr), None),
        Reached::Mapped(mem) => (Some(mem.device_ptr()), Some(*mem)),
        Reached::Nothing => (None, None),
    };
    Ok(RegisteredMemory {
        fields,
        transports,
        handles,
        data,
        gpu_error,
        role: Role::Described { mapping },
    })
}

enum Reached {
    /// This process's own memory.
    Own(CuDevicePtr),
    Mapped(Box<GpuIpcMem>),
    /// There is only a transport.
    Nothing,
}

fn reach(
    ipc: &Ipc,
    fields: &RegisteredFields,
    handles: &[GpuIpcMemHandle],
    options: &ImportOptions,
) -> Result<Reached, Error> {
    if handles.is_empty() {
        let is_own = fields.process_id == ipc.identity().process
            && Entry::is_there(fields.pointer, fields.len);
        return Ok(if is_own {
            Reached::Own(fields.pointer)
        } else {
            Reached::Nothing
        });
    }
    let range = RangeHandles::of(handles)?;
    let wait = wait_of(ipc, options);
    if let Some(own) = own_memory(ipc, &range, &wait) {
        let mem = import_own(ipc, &range, options, &wait, own)?;
        return Ok(Reached::Own(mem.device_ptr()));
    }
    import_range(ipc, &range, options, &wait).map(|mem| Reached::Mapped(Box::new(mem)))
}

/// Whether the way through the GPU failed, and not the process or its arguments.
const fn is_of_sharing(error: &Error) -> bool {
    matches!(
        error,
        Error::Import(_)
            | Error::Driver(_)
            | Error::Unsupported { .. }
            | Error::DeviceNotVisible(_)
    )
}

/// A buffer registered in this process, so that its bytes, coming back, give its
/// address: bytes alone never do.
#[derive(Debug)]
struct Entry(CuDevicePtr, u64);

impl Entry {
    fn new(ptr: CuDevicePtr, len: u64) -> Self {
        *registered().entry((ptr, len)).or_default() += 1;
        Self(ptr, len)
    }

    fn is_there(ptr: CuDevicePtr, len: u64) -> bool {
        registered().contains_key(&(ptr, len))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if identity::is_forked() {
            return;
        }
        let mut all = registered();
        if let Some(count) = all.get_mut(&(self.0, self.1)) {
            *count -= 1;
            if *count == 0 {
                all.remove(&(self.0, self.1));
            }
        }
    }
}

fn registered() -> MutexGuard<'static, HashMap<(CuDevicePtr, u64), usize>> {
    static ALL: LazyLock<Mutex<HashMap<(CuDevicePtr, u64), usize>>> = LazyLock::new(Mutex::default);
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}
