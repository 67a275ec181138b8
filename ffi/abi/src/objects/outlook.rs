//! What is to be expected of an import, as C gets to know it.

use super::{Library, decode};
use crate::attempts::CAttempt;
use crate::failure::Failure;
use gpuipc::{HandleType, ImportOptions, Verdict};
use std::mem::offset_of;

/// What `gpuipc_can_import` found out.
#[derive(Debug)]
pub struct Outlook {
    outlook: gpuipc::Outlook,
}

const fn usable_from_any_thread<T: Send + Sync>() {}
const _: () = usable_from_any_thread::<Outlook>();

/// A verdict that has no number in this header.
pub const GPUIPC_VERDICT_OTHER: u32 = 0;
/// Everything but the mapping was tried, and worked; or another window of the allocation is
/// mapped already, which an import would share.
pub const GPUIPC_VERDICT_YES: u32 = 1;
/// Nothing speaks against it, but only an import can tell.
pub const GPUIPC_VERDICT_PERHAPS: u32 = 2;
/// It would fail: see the attempt.
pub const GPUIPC_VERDICT_NO: u32 = 3;

/// What is to be expected of one type of sharing. Of 104 bytes for ever.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TypeOutlook {
    /// The type: `GPUIPC_TYPE_...`.
    pub handle_type: u32,
    /// `GPUIPC_VERDICT_...`.
    pub verdict: u32,
    /// With `GPUIPC_VERDICT_NO`, how it would fail; else zeros and empty texts.
    pub attempt: CAttempt,
}

const _: () = assert!(
    size_of::<TypeOutlook>() == 104 && offset_of!(TypeOutlook, attempt) == 8,
    "C callers were compiled with these places, which leave no padding"
);

impl TypeOutlook {
    pub(crate) fn of((handle_type, verdict): &(HandleType, Verdict)) -> Self {
        let (verdict, attempt) = match verdict {
            Verdict::Yes => (GPUIPC_VERDICT_YES, CAttempt::none()),
            Verdict::Perhaps => (GPUIPC_VERDICT_PERHAPS, CAttempt::none()),
            Verdict::No(attempt) => (GPUIPC_VERDICT_NO, CAttempt::of(attempt)),
        };
        Self {
            handle_type: handle_type.flag().bits().into(),
            verdict,
            attempt,
        }
    }
}

impl Library {
    pub(crate) fn can_import(
        &self,
        handles: &[u8],
        options: &ImportOptions,
    ) -> Result<Outlook, Failure> {
        let outlook = self.ipc.can_import(&decode(handles)?, options);
        Ok(Outlook { outlook })
    }
}

impl Outlook {
    pub(crate) const fn is_own(&self) -> bool {
        self.outlook.is_own
    }

    pub(crate) fn is_importable(&self) -> bool {
        self.outlook.is_importable()
    }

    pub(crate) fn types(&self) -> &[(HandleType, Verdict)] {
        &self.outlook.types
    }

    pub(crate) fn problem(&self) -> Option<Failure> {
        self.outlook.problem.clone().map(Failure::from)
    }
}
