//! What is to be expected of an import, as C gets to know it.

use super::{Library, decode};
use crate::attempts::CAttempt;
use crate::failure::Failure;
use gpuipc::{Feasible, HandleType, ImportOptions};
use std::mem::offset_of;

/// What `gpuipc_can_import` found out.
#[derive(Debug)]
pub struct Feasibility {
    feasibility: gpuipc::Feasibility,
}

const fn usable_from_any_thread<T: Send + Sync>() {}
const _: () = usable_from_any_thread::<Feasibility>();

/// An answer that has no number in this header.
pub const GPUIPC_FEASIBLE_OTHER: u32 = 0;
/// Everything but the mapping was tried, and worked; or another range of the allocation is
/// mapped already, which an import would share.
pub const GPUIPC_FEASIBLE_YES: u32 = 1;
/// Nothing speaks against it, but only an import can tell.
pub const GPUIPC_FEASIBLE_UNKNOWN: u32 = 2;
/// It would fail: see the attempt.
pub const GPUIPC_FEASIBLE_NO: u32 = 3;

/// What is to be expected of one type of sharing. Of 104 bytes for ever.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TypeFeasibility {
    /// The type: `GPUIPC_TYPE_...`.
    pub handle_type: u32,
    /// `GPUIPC_FEASIBLE_...`.
    pub feasible: u32,
    /// With `GPUIPC_FEASIBLE_NO`, how it would fail; else zeros and empty texts.
    pub attempt: CAttempt,
}

const _: () = assert!(
    size_of::<TypeFeasibility>() == 104 && offset_of!(TypeFeasibility, attempt) == 8,
    "C callers were compiled with these places, which leave no padding"
);

impl TypeFeasibility {
    pub(crate) fn of((handle_type, feasible): &(HandleType, Feasible)) -> Self {
        let (feasible, attempt) = match feasible {
            Feasible::Yes => (GPUIPC_FEASIBLE_YES, CAttempt::none()),
            Feasible::Unknown => (GPUIPC_FEASIBLE_UNKNOWN, CAttempt::none()),
            Feasible::No(attempt) => (GPUIPC_FEASIBLE_NO, CAttempt::of(attempt)),
        };
        Self {
            handle_type: handle_type.flag().bits().into(),
            feasible,
            attempt,
        }
    }
}

impl Library {
    pub(crate) fn can_import(
        &self,
        handles: &[u8],
        options: &ImportOptions,
    ) -> Result<Feasibility, Failure> {
        let feasibility = self.ipc.can_import(&decode(handles)?, options);
        Ok(Feasibility { feasibility })
    }
}

impl Feasibility {
    pub(crate) const fn is_own(&self) -> bool {
        self.feasibility.is_own
    }

    pub(crate) fn is_importable(&self) -> bool {
        self.feasibility.is_importable()
    }

    pub(crate) fn types(&self) -> &[(HandleType, Feasible)] {
        &self.feasibility.types
    }

    pub(crate) fn problem(&self) -> Option<Failure> {
        self.feasibility.problem.clone().map(Failure::from)
    }
}
