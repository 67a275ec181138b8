//! Export: from a device pointer to handles with every type that the memory allows. The
//! range gets one handle for each allocation that it touches.

#![allow(unsafe_code)]

pub(crate) mod allocation;
pub(crate) mod descriptor;
pub(crate) mod exported_allocation;
pub(crate) mod exporting;
mod left;
pub(crate) mod reference;
pub(crate) mod registry;
pub(crate) mod shared_pool;

use self::allocation::{Allocation, AllocationKind, id_at, not_exportable};
use self::exported_allocation::{ExportShare, ExportedAllocation};
use crate::attempt::Attempt;
use crate::error::{Error, MemoryKind, NotExportable};
use crate::gpu::device_memory::Keeper;
use crate::options::ExportOptions;
use crate::process::identity;
use crate::session::Ipc;
use crate::sys::CuDevicePtr;
use gpuipc_core::{GpuIpcMemHandle, HandleFields, SharedRange, TypeFlags};
use std::sync::atomic::{AtomicU64, Ordering};

/// As the length of an export: from the pointer to the end of the allocation around it, by
/// one handle.
pub const WHOLE_ALLOCATION: usize = usize::MAX;

/// Exported memory. Dropping it revokes the export, unless the same allocation is
/// exported elsewhere in this process, too: importers that have mapped it
/// keep their mappings, new ones find it revoked. A fabric handle alone leads to
/// the memory as long as that is allocated: the driver asks nobody.
///
/// While it lives, VMM memory stays allocated, whatever its owner frees. Legacy
/// memory (`cuMemAlloc`) and memory of a pool it does not keep: its owner must.
///
/// Its drop waits for the broker's thread, a second at most, if that is in a driver
/// call about the memory, and releases the driver's reference itself.
#[derive(Debug)]
pub struct Exported {
    segments: Vec<Segment>,
    handles: Vec<GpuIpcMemHandle>,
    /// Dropped after the references above are released.
    pub(crate) _keeper: Option<Keeper>,
}

impl Exported {
    /// The handles to ship: one for each allocation that the range lies in, in
    /// the order of their addresses. An importer needs all of them.
    #[must_use]
    pub fn handles(&self) -> &[GpuIpcMemHandle] {
        &self.handles
    }

    /// Bytes that are shared.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> u64 {
        self.segments.iter().map(|segment| segment.length).sum()
    }

    /// Lets the export live without this object, until the memory is freed or the process
    /// ends: for owners who cannot say when every importer has imported.
    ///
    /// A process that exports again and again keeps nothing of what it has freed: each
    /// export and each call of this looks at a few of those that were left, and ends the
    /// ones whose memory is gone. VMM memory that its owner has unmapped and released stays
    /// allocated until then.
    ///
    /// # Safety
    /// From now on no thread unmaps VMM memory that was left (`cuMemUnmap`) while another one
    /// exports memory, or leaves an export: those may release the driver's reference.
    pub unsafe fn leave(self) {
        left::keep(self.segments.into_iter().map(|segment| segment.export));
    }

    /// The types that the memory was made for but that did not work here, and
    /// why: of the first segment that has some.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        self.segments
            .iter()
            .map(|segment| &*segment.export.attempts)
            .find(|attempts| !attempts.is_empty())
            .unwrap_or_default()
    }
}

/// The part of a range that lies in one allocation.
#[derive(Debug)]
struct Segment {
    export: ExportShare,
    offset_from_base: u64,
    length: u64,
}

/// See [`Ipc::export`].
///
/// # Safety
/// As for [`Ipc::export`].
pub(crate) unsafe fn export(
    ipc: &Ipc,
    ptr: CuDevicePtr,
    len: usize,
    options: &ExportOptions,
) -> Result<Exported, Error> {
    identity::process_id()?;
    left::end_some();
    let end = match len {
        0 => {
            return Err(Error::Argument {
                name: "len",
                rule: "at least one byte must be shared",
            });
        }
        WHOLE_ALLOCATION => None,
        _ => Some(
            ptr.checked_add(len as u64)
                .ok_or_else(|| not_exportable(MemoryKind::BeyondAllocation))?,
        ),
    };
    let mut segments: Vec<Segment> = Vec::with_capacity(1);
    let mut at = ptr;
    while segments.is_empty() || end.is_some_and(|end| at < end) {
        // SAFETY: as the caller says.
        let segment =
            unsafe { segment(ipc, options, at, end) }.map_err(|error| at_seam(error, at != ptr))?;
        at += segment.length;
        let is_all = segments.is_empty() && end.is_none_or(|end| at == end);
        if !is_all && !segment.export.reference.is_held() {
            // Only VMM mappings can lie side by side in an importer, too.
            return Err(not_exportable(MemoryKind::BeyondAllocation));
        }
        segments.push(segment);
    }
    check_one_type(&segments)?;
    let length = at - ptr;
    let handles = handles_of(ipc, &segments, length)?;
    log::debug!(
        target: "gpuipc::gpu",
        "exported {length} bytes at {ptr:#x} in {} handle(s), {:?}",
        handles.len(),
        segments[0].export.types_made()
    );
    Ok(Exported {
        segments,
        handles,
        _keeper: None,
    })
}

/// The part of `at .. end` that lies in the allocation at its begin, which comes
/// exported if it is not yet. Without an end: all that it has from `at` on.
///
/// # Safety
/// As for [`Ipc::export`].
unsafe fn segment(
    ipc: &Ipc,
    options: &ExportOptions,
    at: CuDevicePtr,
    end: Option<CuDevicePtr>,
) -> Result<Segment, Error> {
    let driver = ipc.driver();
    let types = options.flags();
    let wanted = end.map(|end| end - at);
    let id = id_at(driver, at)?.ok_or_else(|| not_exportable(MemoryKind::NotCuda))?;
    let known = ipc
        .running_broker()
        .and_then(|broker| ExportedAllocation::of_allocation(driver, id, broker.endpoint(), types));
    let export = match known {
        Some(export) => export,
        None => {
            // SAFETY: as the caller says.
            let allocation = unsafe { Allocation::around(driver, at, id) }?;
            // A pool's and a legacy allocation that is too short must not come
            // exported first.
            let short = allocation
                .behind(at)
                .is_none_or(|left| wanted.is_some_and(|wanted| wanted > left));
            if short && !matches!(allocation.kind, AllocationKind::Vmm { .. }) {
                return Err(not_exportable(MemoryKind::BeyondAllocation));
            }
            exporting::export(driver, ipc.broker()?, allocation, options)?.register()
        }
    };
    let left = allocation::behind(export.base, export.size, at)
        .ok_or_else(|| not_exportable(MemoryKind::NotCuda))?;
    Ok(Segment {
        offset_from_base: at.wrapping_sub(export.base),
        length: wanted.map_or(left, |wanted| wanted.min(left)),
        export,
    })
}

/// What it means that behind the first segment there is nothing, or nothing that
/// could lie side by side with it.
fn at_seam(error: Error, is_behind_first: bool) -> Error {
    match error {
        Error::NotExportable(NotExportable {
            kind:
                MemoryKind::NotCuda
                | MemoryKind::PoolWithoutHandleType
                | MemoryKind::Managed
                | MemoryKind::PinnedHost,
            ..
        }) if is_behind_first => not_exportable(MemoryKind::BeyondAllocation),
        error => error,
    }
}

/// An importer maps the whole range by one type: all segments must have one in
/// common.
fn check_one_type(segments: &[Segment]) -> Result<(), Error> {
    let common = segments
        .iter()
        .map(|segment| segment.export.types_made())
        .fold(TypeFlags::all(), TypeFlags::intersection);
    if !common.is_empty() {
        return Ok(());
    }
    let attempts = segments.iter().flat_map(|segment| &segment.export.attempts);
    Err(Error::NotExportable(NotExportable {
        kind: MemoryKind::Vmm,
        attempts: attempts.cloned().collect(),
    }))
}

fn handles_of(
    ipc: &Ipc,
    segments: &[Segment],
    range_length: u64,
) -> Result<Vec<GpuIpcMemHandle>, Error> {
    static NEXT_RANGE: AtomicU64 = AtomicU64::new(1);
    let segment_count = u32::try_from(segments.len()).map_err(|_| Error::Argument {
        name: "len",
        rule: "a range spans at most 4294967295 allocations",
    })?;
    let mut range = SharedRange {
        id: NEXT_RANGE.fetch_add(1, Ordering::Relaxed),
        length: range_length,
        offset: 0,
        segment_index: 0,
        segment_count,
    };
    let mut handles = Vec::with_capacity(segments.len());
    for segment in segments {
        handles.push(handle_of(ipc, segment, range)?);
        range.offset += segment.length;
        range.segment_index += 1;
    }
    Ok(handles)
}

fn handle_of(ipc: &Ipc, segment: &Segment, range: SharedRange) -> Result<GpuIpcMemHandle, Error> {
    let fields = HandleFields {
        offset_from_base: segment.offset_from_base,
        length: segment.length,
        range,
        ..segment.export.fields(ipc.identity())
    };
    Ok(GpuIpcMemHandle::new(&fields)?)
}
