//! A multicast object as each member has it, the creator included.

#![allow(unsafe_code)]

use super::created::granularity;
use super::member::{Member, Object};
use super::phases::Joined;
use super::team::{Ballot, Team};
use super::{Reason, Stage, Unavailable};
use crate::attempt::{Attempt, Code, Failure, Step};
use crate::error::{Error, ImportError};
use crate::export::exported_allocation::ExportedAllocation;
use crate::gpu::driver::{AllocationHandle, Driver};
use crate::import::exporter::Exporter;
use crate::options::ImportOptions;
use crate::process::identity::Host;
use crate::process::wait::Wait;
use crate::session::Ipc;
use crate::sys::{CuDevice, CuMulticastObjectProp, device_attribute, multicast_granularity};
use gpuipc_core::{Attributes, GpuIpcMemHandle, HandleType};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A timeout longer than this is this: a deadline must be a time that exists.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// A multicast object that was imported. Its member has not joined yet.
#[derive(Debug)]
pub struct Imported {
    object: Object,
}

impl Imported {
    /// Bytes that each member can bind.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.object.size
    }

    /// Members that the object is for.
    #[must_use]
    pub const fn num_devices(&self) -> u16 {
        self.object.num_devices
    }

    /// Lengths and places of what is bound are multiples of this.
    #[must_use]
    pub const fn granularity(&self) -> u64 {
        self.object.unit
    }

    /// Adds the GPU with this ordinal to the object (`cuMulticastAddDevice`), for
    /// as long as the object lives, and waits until every member of `team` says
    /// the same: only then can anything be bound without waiting for ever.
    ///
    /// A failure is told to the others, which then fail, too, at once.
    ///
    /// # Errors
    /// [`Error::MulticastUnavailable`] for this member's own failure,
    /// [`Error::MulticastTeam`] with the member that failed or is gone,
    /// [`Error::Argument`] for a team of another size than the object's.
    pub fn add_device(self, ordinal: i32, team: &mut Team<'_>) -> Result<Joined, Error> {
        let ballot = Ballot {
            stage: Stage::AddDevice,
            object: self.object.identity,
            offset: 0,
            length: self.object.size,
        };
        let added = if team.size() == usize::from(self.object.num_devices) {
            self.add(ordinal)
        } else {
            Err(Error::Argument {
                name: "team",
                rule: "it has as many members as the object has devices",
            })
        };
        let device = team.agree(&ballot, added)?;
        Ok(Joined::new(Arc::new(Member {
            object: self.object,
            device,
        })))
    }

    fn add(&self, ordinal: i32) -> Result<CuDevice, Error> {
        let driver = self.object.driver;
        let device = driver.device(ordinal)?;
        let has = driver
            .device_attribute(device_attribute::MULTICAST_SUPPORTED, device)
            .map_err(Unavailable::at(Stage::Capability))?;
        if has == 0 {
            return Err(Unavailable::refused(Stage::Capability, Reason::NotSupported).into());
        }
        // SAFETY: the reference lives.
        unsafe { driver.multicast_add_device(self.object.handle.raw(), device) }
            .map_err(Unavailable::at(Stage::AddDevice))?;
        Ok(device)
    }
}

/// See [`Ipc::import_multicast`].
pub(super) fn import(
    ipc: &Ipc,
    handle: &GpuIpcMemHandle,
    options: &ImportOptions,
) -> Result<Imported, Error> {
    super::allowed(ipc)?;
    if !handle.attributes().contains(Attributes::MULTICAST) {
        return Err(Error::Argument {
            name: "handle",
            rule: "it is not of a multicast object",
        });
    }
    let driver = ipc.driver();
    let size = usize::try_from(handle.base_size()).map_err(|_| Error::Argument {
        name: "handle",
        rule: "its object is larger than the address space",
    })?;
    let prop = CuMulticastObjectProp {
        num_devices: handle.num_devices().into(),
        size,
        ..CuMulticastObjectProp::default()
    };
    let unit = granularity(driver, &prop, multicast_granularity::MINIMUM)? as u64;
    if handle.offset_from_base() != 0
        || handle.length() != handle.base_size()
        || !handle.base_size().is_multiple_of(unit)
    {
        return Err(Error::Argument {
            name: "handle",
            rule: "a multicast object is shared whole, in multiples of its granularity",
        });
    }
    Ok(Imported {
        object: Object {
            driver,
            handle: reference(ipc, handle, options)?,
            size: handle.base_size(),
            unit,
            num_devices: handle.num_devices(),
            identity: (handle.process_id().0, handle.allocation_id()),
        },
    })
}

/// One more reference to the object, by the first type that works.
fn reference(
    ipc: &Ipc,
    handle: &GpuIpcMemHandle,
    options: &ImportOptions,
) -> Result<AllocationHandle, Error> {
    let timeout = options.timeout.unwrap_or(ipc.settings().timeout);
    let wait = Wait {
        deadline: Instant::now() + timeout.min(LONGEST_TIMEOUT),
        cancel: options.cancel.clone(),
    };
    let this_host = ipc.identity().host_of(handle) != Host::Other;
    let mut order = options
        .types
        .clone()
        .unwrap_or_else(|| ipc.settings().types.clone());
    order.retain(|handle_type| handle.types().contains(handle_type.flag()));
    let mut attempts: Vec<Attempt> = Vec::new();
    for handle_type in order {
        let start = Instant::now();
        let mut note = |failure: Failure| {
            let attempt = failure.attempt(handle_type, start.elapsed());
            log::debug!(target: "gpuipc::gpu", "import of a multicast object: {attempt}");
            attempts.push(attempt);
        };
        let imported = if handle_type == HandleType::Fabric || this_host {
            by(ipc, handle, handle_type, &wait, &mut note)
        } else {
            let other_host = crate::attempt::Reason::OtherHost;
            Err(Failure::refused(Step::Select, other_host))
        };
        match imported {
            Ok(object) => return Ok(object),
            Err(failure) => note(failure),
        }
    }
    // Where every way led to the driver, what it says of the object counts.
    let by_driver = |attempt: &Attempt| {
        attempt.step == Step::Import
            && matches!(attempt.code, Code::Driver(_) | Code::MissingSymbol(_))
    };
    match attempts.first() {
        Some(first) if attempts.iter().all(by_driver) => {
            Err(Unavailable::with_code(Stage::Import, first.code).into())
        }
        _ => Err(Error::Import(ImportError { attempts })),
    }
}

fn by(
    ipc: &Ipc,
    handle: &GpuIpcMemHandle,
    handle_type: HandleType,
    wait: &Wait,
    note: &mut dyn FnMut(Failure),
) -> Result<AllocationHandle, Failure> {
    let driver: Driver = ipc.driver();
    let imported = match (handle_type, handle.fabric()) {
        (HandleType::Fabric, Some(bytes)) => AllocationHandle::import_fabric(driver, bytes),
        _ => match own_export(ipc, handle) {
            Some(fd) => AllocationHandle::import_fd(driver, fd.as_fd()),
            None => {
                let fd = Exporter::of(handle, ipc, wait)?.descriptor(note)?;
                fd.give(|fd| AllocationHandle::import_fd(driver, fd))
            }
        },
    };
    imported.map_err(|error| Failure::driver(Step::Import, handle_type, &error))
}

/// The descriptor of an object that this very process exports.
fn own_export(ipc: &Ipc, handle: &GpuIpcMemHandle) -> Option<OwnedFd> {
    if handle.process_id() != ipc.identity().process {
        return None;
    }
    let ticket = handle.ticket()?;
    let id = handle.allocation_id();
    let export = ExportedAllocation::under_token(ipc.driver(), id, ticket.endpoint, &ticket.token)?;
    let given = export.give_descriptor().ok()??;
    given.as_fd().try_clone_to_owned().ok()
}
