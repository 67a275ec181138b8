//! What C holds pointers to.

use crate::failure::Failure;
use crate::logger;
use crate::options::ImportOptions;
use gpuipc::{
    Attempt, Driver, Error, ExportOptions, GpuIpcMem, GpuIpcMemHandle, HANDLE_BYTES, Ipc, Status,
};

/// The library, opened: what exports and imports are made with.
#[derive(Debug)]
pub struct Library {
    ipc: Ipc,
}

/// Memory on offer to other processes. While it lives, importers can map the
/// memory.
#[derive(Debug)]
pub struct Exported {
    exported: gpuipc::Exported,
}

/// Memory of another process, mapped here.
#[derive(Debug)]
pub struct Mem {
    pub(crate) mem: GpuIpcMem,
}

const fn usable_from_any_thread<T: Send + Sync>() {}
const _: () = usable_from_any_thread::<Library>();
const _: () = usable_from_any_thread::<Exported>();
const _: () = usable_from_any_thread::<Mem>();

impl Library {
    pub(crate) fn open() -> Result<Self, Failure> {
        // First of all: in a forked child a lock may be held for ever.
        if gpuipc::is_forked() {
            return Err(Error::Forked.into());
        }
        logger::install()?;
        let driver = Driver::load().map_err(Error::from)?;
        let ipc = Ipc::new(driver)?;
        Ok(Self { ipc })
    }

    pub(crate) fn export(&self, ptr: u64, len: usize) -> Result<Exported, Failure> {
        let exported = self.ipc.export(ptr, len, &ExportOptions::default())?;
        Ok(Exported { exported })
    }

    pub(crate) fn import(
        &self,
        handles: &[u8],
        options: Option<&ImportOptions>,
    ) -> Result<Mem, Failure> {
        let options = options.map_or_else(
            || Ok(gpuipc::ImportOptions::default()),
            ImportOptions::check,
        )?;
        let mem = self.ipc.import(&decode(handles)?, &options)?;
        Ok(Mem { mem })
    }
}

impl Exported {
    pub(crate) fn handles(&self) -> &[GpuIpcMemHandle] {
        self.exported.handles()
    }

    pub(crate) fn handle_bytes(&self, index: usize) -> Result<[u8; HANDLE_BYTES], Failure> {
        let handles = self.handles();
        let handle = handles.get(index).ok_or_else(|| {
            Failure::argument(format!(
                "index is {index}, but the number of handles is {}",
                handles.len()
            ))
        })?;
        Ok(handle.encode())
    }

    pub(crate) fn attempts(&self) -> String {
        lines(self.exported.attempts())
    }
}

impl Mem {
    pub(crate) fn attempts(&self) -> String {
        lines(self.mem.attempts())
    }
}

/// The handles that stand one after the other in `bytes`.
pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<GpuIpcMemHandle>, Failure> {
    let (handles, rest) = bytes.as_chunks::<HANDLE_BYTES>();
    if handles.is_empty() || !rest.is_empty() {
        return Err(Failure {
            status: Status::HANDLE_LENGTH,
            text: format!(
                "length is {} bytes, but handles are {HANDLE_BYTES} bytes each and at least one: \
                 pass on all of the exporter's bytes",
                bytes.len()
            ),
        });
    }
    let mut decoded = Vec::with_capacity(handles.len());
    for handle in handles {
        decoded.push(GpuIpcMemHandle::decode(handle)?);
    }
    Ok(decoded)
}

/// One line an attempt.
fn lines(attempts: &[Attempt]) -> String {
    let lines: Vec<String> = attempts.iter().map(Attempt::to_string).collect();
    lines.join("\n")
}
