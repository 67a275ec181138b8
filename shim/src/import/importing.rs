//! One import: each type is tried until one gives an accessible address.

use crate::attempt::{Code, Failure, GpuPair, Reason, Step};
use crate::gpu::driver::{self, AllocationHandle, device_uuid};
use crate::gpu::mapping::VmmMapping;
use crate::import::devices::{self, AccessDevices};
use crate::import::exporter::{Descriptors, Exporter};
use crate::import::imported_pool::PooledMapping;
use crate::import::legacy::LegacyMapping;
use crate::import::mem::{Liveness, Mapping};
use crate::import::range::RangeHandles;
use crate::options::ImportOptions;
use crate::process::identity::Host;
use crate::process::wait::Wait;
use crate::session::Ipc;
use crate::sys::{CuDevice, CuMemAccessDesc, CuResult};
use gpuipc_core::{Attributes, GpuIpcMemHandle, HandleType};
use std::os::fd::BorrowedFd;

/// What an import goes by.
pub(crate) struct Import<'a> {
    pub(crate) ipc: &'a Ipc,
    pub(crate) range: &'a RangeHandles<'a>,
    pub(crate) options: &'a ImportOptions,
    pub(crate) access: &'a AccessDevices,
    pub(crate) wait: &'a Wait,
}

/// What a type led to.
type Imported = Result<(Mapping, Liveness), Failure>;

impl Import<'_> {
    /// Goes one way, to its end or to the step that fails. `note` hears of ways
    /// inside it that failed before.
    pub(crate) fn by(&self, handle_type: HandleType, note: &mut dyn FnMut(Failure)) -> Imported {
        self.check(handle_type)?;
        let imported = match handle_type {
            HandleType::RuntimeIpc => self.open(),
            _ if self.is_pooled() => self.import_pooled(handle_type, note),
            HandleType::PosixFd => {
                let mut descriptors = Descriptors::of(self.range, self.ipc, self.wait)?;
                self.map(handle_type, |at, _| {
                    // The driver has its own reference then; the descriptor goes.
                    let driver = self.ipc.driver();
                    let take = |fd: BorrowedFd<'_>| AllocationHandle::import_fd(driver, fd);
                    Ok(descriptors.get(at, note)?.give(take))
                })
            }
            HandleType::Fabric => self.map(handle_type, |_, segment| {
                let bytes = segment
                    .fabric()
                    .ok_or(Failure::refused(Step::Select, Reason::NotCreatedFor))?;
                Ok(AllocationHandle::import_fabric(self.ipc.driver(), bytes))
            }),
        };
        imported.map_err(|failure| self.name_gpu_pair(failure))
    }

    pub(crate) fn is_pooled(&self) -> bool {
        self.is(Attributes::MEM_POOL)
    }

    fn is(&self, attribute: Attributes) -> bool {
        self.range.first().attributes().contains(attribute)
    }

    /// What a type cannot do at all is refused before anything is done.
    pub(crate) fn check(&self, handle_type: HandleType) -> Result<(), Failure> {
        let refused = |reason| Err(Failure::refused(Step::Select, reason));
        let is_legacy = handle_type == HandleType::RuntimeIpc;
        let is_vmm = !is_legacy && !self.is_pooled();
        let segments = self.range.segments();
        let all_host = segments
            .iter()
            .all(|segment| segment.attributes().contains(Attributes::HOST_NUMA));
        if !is_vmm && !self.range.is_whole() {
            refused(Reason::CannotBeSegmented)
        } else if !is_vmm && self.access.are_read_only() {
            refused(Reason::CannotBeReadOnly)
        } else if !is_vmm && self.options.place.is_some() {
            refused(Reason::CannotBePlaced)
        } else if is_legacy && !self.access.more.is_empty() {
            refused(Reason::OneDeviceOnly)
        } else if self.access.host && !(is_vmm && all_host) {
            refused(Reason::NotHostMemory)
        } else {
            Ok(())
        }
    }

    /// Maps every segment side by side, then gives access to all at once. A
    /// reference that `import` gave goes once its mapping has its own.
    fn map(
        &self,
        handle_type: HandleType,
        mut import: impl FnMut(
            usize,
            &GpuIpcMemHandle,
        ) -> Result<driver::Result<AllocationHandle>, Failure>,
    ) -> Imported {
        let failed = |step| move |error| Failure::driver(step, handle_type, &error);
        let whole = self
            .range
            .mapped_size()
            .ok_or(Failure::refused(Step::Reserve, Reason::SizeMismatch))?;
        // A made-up size must not reserve: what is mapped first is known to be there.
        let mut mapping = None;
        let mut offsets = Vec::with_capacity(self.range.segments().len());
        for (at, segment) in self.range.segments().iter().enumerate() {
            let here = |failure: Failure| failure.at_segment(self.range.number_of(at));
            let handle = import(at, segment)
                .map_err(here)?
                .map_err(failed(Step::Import))
                .map_err(here)?;
            let mapping: &mut VmmMapping = match &mut mapping {
                Some(mapping) => mapping,
                none => none.insert(self.room(handle_type, whole)?),
            };
            // Part of `whole`, which is a usize.
            let size = usize::try_from(segment.base_size()).unwrap_or(usize::MAX);
            mapping
                .append(&handle, size)
                .map_err(failed(Step::Map))
                .map_err(|failure| here(self.at_place(failure)))?;
            offsets.push((at, size));
        }
        let Some(mapping) = mapping else {
            return Err(Failure::refused(Step::Select, Reason::NotCreatedFor));
        };
        mapping
            .give_access(&self.rights())
            .map_err(failed(Step::SetAccess))?;
        let mut offset = 0;
        for (at, size) in offsets {
            let here = |failure: Failure| failure.at_segment(self.range.number_of(at));
            let is_right = mapping
                .has_size(offset, size)
                .map_err(failed(Step::Compare))
                .map_err(here)?;
            if !is_right {
                let refused = Failure::refused(Step::Compare, Reason::SizeMismatch);
                return Err(here(refused));
            }
            offset += size;
        }
        Ok((Mapping::Vmm(mapping), Liveness::Referenced))
    }

    /// Address space for the whole range.
    fn room(&self, handle_type: HandleType, size: usize) -> Result<VmmMapping, Failure> {
        let driver = self.ipc.driver();
        match &self.options.place {
            None => VmmMapping::reserve(driver, size)
                .map_err(|error| Failure::driver(Step::Reserve, handle_type, &error)),
            Some(place) => VmmMapping::at(driver, place, size)
                .ok_or(Failure::refused(Step::Reserve, Reason::PlaceTooSmall)),
        }
    }

    /// What the driver's refusal to map means where the caller chose the place:
    /// in a reservation made for the memory, no place is taken.
    fn at_place(&self, failure: Failure) -> Failure {
        if self.options.place.is_some() && failure.code == Code::Driver(CuResult::INVALID_VALUE) {
            Failure {
                reason: Reason::PlaceTaken,
                ..failure
            }
        } else {
            failure
        }
    }

    fn rights(&self) -> Vec<CuMemAccessDesc> {
        self.access.rights(self.range.first().numa_node())
    }

    /// Opens a legacy handle, and asks the exporter whether what it leads to is
    /// still what was exported: after a free, the driver opens whatever lies at
    /// that address now, with success.
    fn open(&self) -> Imported {
        self.prove_host()?;
        let handle = self.range.first();
        let exporter = self.exporter_to_ask()?;
        let bytes = handle
            .runtime_ipc()
            .ok_or(Failure::refused(Step::Select, Reason::NotCreatedFor))?;
        let mapping = LegacyMapping::open(
            self.ipc.driver(),
            bytes,
            handle.base_size(),
            self.access.first,
            self.wait,
        )
        .map_err(|failure| Failure {
            reason: self.why_not_opened(&failure, exporter.as_ref()),
            ..failure
        })?;
        let liveness = self.liveness(exporter)?;
        Ok((Mapping::Legacy(mapping), liveness))
    }

    /// What a failed open means, beyond what the code alone says.
    fn why_not_opened(&self, failure: &Failure, exporter: Option<&Exporter<'_>>) -> Reason {
        let same_pid = self.range.first().pid() == self.ipc.identity().pid;
        match (failure.reason, exporter) {
            (Reason::ContextRefused, _) if same_pid => Reason::SamePid,
            // The driver says so of an exporter that it no longer knows: the exporter
            // itself may know better.
            (Reason::ExporterGone, Some(exporter)) => match exporter.liveness(false) {
                Ok(Liveness::Unknown) => Reason::ExporterGone,
                Ok(_) => Reason::Driver,
                Err(said) => said.reason,
            },
            (reason, _) => reason,
        }
    }

    /// Imports a pool, once for each token, and a pointer in it; asks as
    /// [`Import::open`] does, since a freed pointer imports, too, and reading it
    /// can break the context.
    fn import_pooled(&self, handle_type: HandleType, note: &mut dyn FnMut(Failure)) -> Imported {
        let exporter = self.exporter_to_ask()?;
        let mapping = PooledMapping::import(self, handle_type, &self.rights(), || {
            let mut descriptors = Descriptors::of(self.range, self.ipc, self.wait)?;
            descriptors.get(0, note)
        })?;
        let liveness = self.liveness(exporter)?;
        Ok((Mapping::Pooled(mapping), liveness))
    }

    /// Whom to ask whether memory is unchanged; nobody without a ticket, and
    /// nobody on another host.
    pub(crate) fn exporter_to_ask(&self) -> Result<Option<Exporter<'_>>, Failure> {
        let handle = self.range.first();
        let is_here = self.ipc.identity().host_of(handle) != Host::Other;
        let exporter = is_here
            .then(|| Exporter::of(handle, self.ipc, self.wait).ok())
            .flatten();
        if exporter.is_none() && self.options.require_live {
            return Err(Failure::refused(Step::Liveness, Reason::LivenessUnknown));
        }
        Ok(exporter)
    }

    pub(crate) fn liveness(&self, exporter: Option<Exporter<'_>>) -> Result<Liveness, Failure> {
        match exporter {
            Some(exporter) => exporter.liveness(self.options.require_live),
            None => Ok(Liveness::Unknown),
        }
    }

    /// Before a legacy handle is opened, which on another host can lead to unrelated
    /// memory: where the host ids do not say that this is the exporter's host, whoever
    /// answers for the handle's token does.
    pub(crate) fn prove_host(&self) -> Result<(), Failure> {
        if self.ipc.identity().host_of(self.range.first()) != Host::Unknown {
            return Ok(());
        }
        match self.liveness(self.exporter_to_ask()?)? {
            Liveness::Unknown => Err(Failure::refused(Step::Liveness, Reason::OtherHost)),
            _ => Ok(()),
        }
    }

    /// Says between which GPUs there is no way; and that the memory's GPU is
    /// hidden, where that is the reason.
    fn name_gpu_pair(&self, failure: Failure) -> Failure {
        let is_of_device = failure.reason == Reason::PeerUnsupported
            || failure.code == Code::Driver(CuResult::INVALID_DEVICE);
        if !is_of_device {
            return failure;
        }
        let driver = self.ipc.driver();
        let at = failure.segment.and_then(|at| usize::try_from(at).ok());
        let handle = at
            .and_then(|at| self.range.segments().get(at).copied())
            .unwrap_or(self.range.first());
        let to = handle.device_uuid();
        let Ok(owner) = devices::with_uuid(driver, to) else {
            return failure;
        };
        let from = self
            .without_way(owner)
            .and_then(|device| device_uuid(driver, device).ok());
        Failure {
            reason: match owner {
                None => Reason::DeviceNotVisible,
                Some(_) => failure.reason,
            },
            gpu_pair: from.map(|from| GpuPair { from, to }),
            ..failure
        }
    }

    /// The importing device that is no peer of the memory's, as far as the driver
    /// says; else the first that is not the memory's own.
    fn without_way(&self, owner: Option<CuDevice>) -> Option<CuDevice> {
        let no_peer = owner.and_then(|owner| self.access.without_way_to(self.ipc.driver(), owner));
        let mut others = self.access.devices();
        no_peer.or_else(|| others.find(|device| Some(*device) != owner))
    }
}
