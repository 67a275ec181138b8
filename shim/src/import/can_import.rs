//! Whether handles could be imported here, answered by type with reasons, without
//! mapping anything.

use crate::attempt::{Attempt, Failure, GpuPair, Reason, Step};
use crate::error::Error;
use crate::gpu::driver::{AllocationHandle, device_uuid};
use crate::import::cache;
use crate::import::devices::{self, AccessDevices};
use crate::import::exporter::{Descriptors, Exporter};
use crate::import::importing::Import;
use crate::import::own_access;
use crate::import::range::RangeHandles;
use crate::import::{order_of, own_memory, wait_of};
use crate::options::ImportOptions;
use crate::process::identity;
use crate::session::Ipc;
use gpuipc_core::{GpuIpcMemHandle, HandleType};
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// What is to be expected of an import.
#[derive(Clone, Debug)]
pub struct Feasibility {
    /// The memory is this process's own: an import gives the original pointer.
    pub is_own: bool,
    /// By type, in the order in which an import would try them; those that it
    /// would not try come first.
    pub types: Vec<(HandleType, Feasible)>,
    /// Why no import could succeed, whatever the type: the handles are not one
    /// range, a device is not there, the process was forked.
    pub problem: Option<Error>,
}

/// What is to be expected of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feasible {
    /// Everything but the mapping was tried, and worked; or another range of the
    /// allocation is mapped already, which an import would share.
    Yes,
    /// Nothing speaks against it, but only an import can tell.
    Unknown,
    /// It would fail, in this way.
    No(Attempt),
}

impl Feasibility {
    /// Whether an import is worth trying.
    #[must_use]
    pub fn is_importable(&self) -> bool {
        self.is_own
            || self
                .types
                .iter()
                .any(|(_, feasible)| !matches!(feasible, Feasible::No(_)))
    }

    fn never(problem: Error) -> Self {
        Self {
            is_own: false,
            types: Vec::new(),
            problem: Some(problem),
        }
    }
}

/// See [`Ipc::can_import`].
pub(crate) fn can_import(
    ipc: &Ipc,
    handles: &[GpuIpcMemHandle],
    options: &ImportOptions,
) -> Feasibility {
    feasibility(ipc, handles, options).unwrap_or_else(Feasibility::never)
}

fn feasibility(
    ipc: &Ipc,
    handles: &[GpuIpcMemHandle],
    options: &ImportOptions,
) -> Result<Feasibility, Error> {
    identity::process_id()?;
    let range = RangeHandles::of(handles)?;
    let wait = wait_of(ipc, options);
    if let Some(own) = own_memory(ipc, &range, &wait) {
        let start = Instant::now();
        let access = AccessDevices::of(ipc.driver(), &range, options)?;
        let owner = devices::with_uuid(ipc.driver(), range.first().device_uuid())?;
        let own = own.and_then(|_| own_access::check(&range, options, &access, owner));
        let feasible = |handle_type| match own {
            Ok(()) => Feasible::Yes,
            Err(failure) => Feasible::No(failure.attempt(handle_type, start.elapsed())),
        };
        let types = range.types().into_iter();
        return Ok(Feasibility {
            is_own: own.is_ok(),
            types: types.map(|found| (found, feasible(found))).collect(),
            problem: None,
        });
    }
    let access = AccessDevices::of(ipc.driver(), &range, options)?;
    let import = Import {
        ipc,
        range: &range,
        options,
        access: &access,
        wait: &wait,
    };
    let (order, attempts) = order_of(ipc, &range, options);
    let mut types: Vec<(HandleType, Feasible)> = attempts
        .into_iter()
        .map(|attempt| (attempt.handle_type, Feasible::No(attempt)))
        .collect();
    let found = cache::found(&import, &order);
    for handle_type in order {
        let start = Instant::now();
        let tried = if found == Some(handle_type) {
            Ok(Feasible::Yes)
        } else {
            import.try_without_mapping(handle_type)
        };
        let feasible = tried
            .unwrap_or_else(|failure| Feasible::No(failure.attempt(handle_type, start.elapsed())));
        types.push((handle_type, feasible));
    }
    Ok(Feasibility {
        is_own: false,
        types,
        problem: None,
    })
}

impl Import<'_> {
    /// Tries what changes nothing. Of several segments the first stands for all.
    fn try_without_mapping(&self, handle_type: HandleType) -> Result<Feasible, Failure> {
        self.check(handle_type)?;
        self.check_peers()?;
        let driver = self.ipc.driver();
        let handle = self.range.first();
        let failed = |error| Failure::driver(Step::Import, handle_type, &error);
        let fetch = || {
            let mut descriptors = Descriptors::of(self.range, self.ipc, self.wait)?;
            descriptors.get(0, &mut |_| {})
        };
        match handle_type {
            // Importing a pool a second time could not be undone by itself: the
            // driver gives the one that is there already.
            HandleType::PosixFd if self.is_pooled() => {
                fetch()?;
                self.ask_liveness()?;
                Ok(Feasible::Unknown)
            }
            HandleType::Fabric if self.is_pooled() => {
                self.ask_liveness()?;
                Ok(Feasible::Unknown)
            }
            HandleType::PosixFd => {
                let take = |fd: BorrowedFd<'_>| AllocationHandle::import_fd(driver, fd);
                fetch()?.give(take).map_err(failed)?;
                Ok(Feasible::Yes)
            }
            HandleType::Fabric => {
                let bytes = handle
                    .fabric()
                    .ok_or(Failure::refused(Step::Select, Reason::NotCreatedFor))?;
                AllocationHandle::import_fabric(driver, bytes).map_err(failed)?;
                Ok(Feasible::Yes)
            }
            HandleType::RuntimeIpc => {
                if handle.pid() == self.ipc.identity().pid {
                    return Err(Failure::refused(Step::Open, Reason::SamePid));
                }
                self.prove_host()?;
                self.ask_liveness()?;
                Ok(Feasible::Unknown)
            }
        }
    }

    /// Asks whether the memory is unchanged, where somebody can be asked.
    fn ask_liveness(&self) -> Result<(), Failure> {
        let exporter: Option<Exporter<'_>> = self.exporter_to_ask()?;
        self.liveness(exporter).map(drop)
    }

    /// Whether every importing device is a peer of the memory's GPU, as far as
    /// this process sees that one.
    fn check_peers(&self) -> Result<(), Failure> {
        let driver = self.ipc.driver();
        let to = self.range.first().device_uuid();
        let Ok(Some(owner)) = devices::with_uuid(driver, to) else {
            return Ok(());
        };
        match self.access.without_way_to(driver, owner) {
            None => Ok(()),
            Some(device) => Err(Failure {
                gpu_pair: device_uuid(driver, device)
                    .ok()
                    .map(|from| GpuPair { from, to }),
                ..Failure::refused(Step::SetAccess, Reason::PeerUnsupported)
            }),
        }
    }
}
