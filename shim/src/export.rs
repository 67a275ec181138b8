//! Export: from a device pointer to a handle with every way of sharing that the
//! memory allows, decided from the pointer's attributes and by trial, never by guess.

use crate::attempt::{Attempt, Failure, Reason, Step};
use crate::broker::Broker;
use crate::context::{DeviceContext, with_context};
use crate::driver::{AllocationHandle, Driver, DriverError};
use crate::error::{Error, MemoryKind, NotExportable};
use crate::identity;
use crate::ipc::Ipc;
use crate::ledger::Entry;
use crate::offer::Offer;
use crate::options::ExportOptions;
use crate::private_fd::PrivateFd;
use crate::sys::{
    CuContext, CuDevice, CuDevicePtr, CuResult, handle_type, memory_type, pointer_attribute,
};
use gpuipc_core::{GpuIpcMemHandle, HandleFields, HandleType, Ticket, Token, TypeFlags, Window};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Memory on offer. Dropping it ends the offer, unless the same allocation is
/// exported elsewhere in this process, too: importers that have mapped it
/// keep their mappings, new ones find it withdrawn.
///
/// While it lives, VMM memory stays allocated, whatever its owner frees. Legacy
/// memory (`cuMemAlloc`) it does not keep: its owner must.
#[derive(Debug)]
pub struct Exported {
    offer: Arc<Offer>,
    handles: Vec<GpuIpcMemHandle>,
}

impl Exported {
    /// The handles to ship: one for memory inside one allocation.
    #[must_use]
    pub fn handles(&self) -> &[GpuIpcMemHandle] {
        &self.handles
    }

    /// The types that the memory was made for but that did not work here, and why.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.offer.attempts
    }
}

/// See [`Ipc::export`].
pub(crate) fn export(
    ipc: &Ipc,
    ptr: CuDevicePtr,
    len: usize,
    options: &ExportOptions,
) -> Result<Exported, Error> {
    identity::process_id()?;
    let driver = ipc.driver();
    let allocation = Allocation::around(driver, ptr)?;
    let offset_from_base = ptr.wrapping_sub(allocation.base);
    let length = len as u64;
    if length == 0 {
        return Err(Error::Argument {
            name: "len",
            rule: "at least one byte must be shared",
        });
    }
    if offset_from_base
        .checked_add(length)
        .is_none_or(|end| end > allocation.size)
    {
        return Err(not_exportable(MemoryKind::BeyondAllocation, Vec::new()));
    }
    let broker = ipc.broker()?;
    let types = options.flags();
    let known = Offer::of_allocation(driver, allocation.id, broker.endpoint(), types);
    let offer = match known {
        Some(offer) => offer,
        None => allocation.offer(driver, broker, types)?.register(),
    };
    let handle = handle_of(ipc, &offer, offset_from_base, length)?;
    log::debug!(target: "gpuipc::gpu", "exported {length} bytes at +{offset_from_base}: {handle:?}");
    Ok(Exported {
        offer,
        handles: vec![handle],
    })
}

fn handle_of(
    ipc: &Ipc,
    offer: &Offer,
    offset_from_base: u64,
    length: u64,
) -> Result<GpuIpcMemHandle, Error> {
    static NEXT_WINDOW: AtomicU64 = AtomicU64::new(1);
    let identity = ipc.identity();
    let fields = HandleFields {
        base_size: offer.size,
        offset_from_base,
        length,
        allocation_id: offer.allocation_id,
        window: Window {
            id: NEXT_WINDOW.fetch_add(1, Ordering::Relaxed),
            length,
            offset: 0,
            segment_index: 0,
            segment_count: 1,
        },
        device_uuid: offer.device_uuid,
        process_id: identity.process,
        host_id: identity.host,
        pid: identity.pid,
        pid_namespace: identity.pid_namespace,
        net_namespace: identity.net_namespace,
        runtime_ipc: offer.runtime_ipc,
        ticket: Some(Ticket {
            endpoint: offer.broker.endpoint(),
            token: offer.token,
            fd: offer.fd.as_ref().map(|fd| fd.as_fd().as_raw_fd()),
            ledger: offer.entry.as_ref().map(Entry::describe),
        }),
        posix_fd: offer.fd.is_some(),
        fabric: offer.fabric,
        ..HandleFields::default()
    };
    Ok(GpuIpcMemHandle::new(&fields)?)
}

const fn not_exportable(kind: MemoryKind, attempts: Vec<Attempt>) -> Error {
    Error::NotExportable(NotExportable { kind, attempts })
}

/// The allocation around a pointer, and how it can be shared.
struct Allocation {
    id: u64,
    base: CuDevicePtr,
    size: u64,
    device: CuDevice,
    way: Way,
}

enum Way {
    /// `cuMemAlloc`: a legacy handle, made in the context that allocated.
    Legacy { context: CuContext },
    /// `cuMemCreate`: exports of the allocation, by a sum of `handle_type`s.
    Vmm {
        handle: AllocationHandle,
        allowed: u64,
    },
}

impl Way {
    /// The types that the memory was made for.
    fn types(&self) -> TypeFlags {
        match self {
            Self::Legacy { .. } => TypeFlags::RUNTIME_IPC,
            Self::Vmm { allowed, .. } => {
                let has = |kind: u32| allowed & u64::from(kind) != 0;
                let mut types = TypeFlags::empty();
                types.set(TypeFlags::POSIX_FD, has(handle_type::POSIX_FILE_DESCRIPTOR));
                types.set(TypeFlags::FABRIC, has(handle_type::FABRIC));
                types
            }
        }
    }
}

impl Allocation {
    /// Asks the driver what is at `ptr`. Needs no current context.
    fn around(driver: Driver, ptr: CuDevicePtr) -> Result<Self, Error> {
        let attribute = |attribute| driver.pointer_attribute(attribute, ptr);
        // An attribute that an older driver does not know counts as zero.
        let or_zero = |number| match attribute(number) {
            Err(error) if error.code() == Some(CuResult::INVALID_VALUE) => Ok(0),
            answer => answer,
        };
        let memory = match attribute(pointer_attribute::MEMORY_TYPE) {
            Err(error) if error.code() == Some(CuResult::INVALID_VALUE) => {
                return Err(not_exportable(MemoryKind::NotCuda, Vec::new()));
            }
            answer => answer?,
        };
        if or_zero(pointer_attribute::IS_MANAGED)? != 0 {
            return Err(not_exportable(MemoryKind::Managed, Vec::new()));
        }
        // 64 bits: the driver writes eight bytes.
        let allowed = or_zero(pointer_attribute::ALLOWED_HANDLE_TYPES)?;
        if or_zero(pointer_attribute::MEMPOOL_HANDLE)? != 0 {
            let kind = if allowed == 0 {
                MemoryKind::PoolWithoutHandleType
            } else {
                MemoryKind::Pool
            };
            return Err(not_exportable(kind, Vec::new()));
        }
        if memory == u64::from(memory_type::HOST) {
            let kind = if driver.mem_retain(ptr).is_ok() {
                MemoryKind::HostNuma
            } else {
                MemoryKind::PinnedHost
            };
            return Err(not_exportable(kind, Vec::new()));
        }
        let id = attribute(pointer_attribute::BUFFER_ID)?;
        let device = i32::try_from(attribute(pointer_attribute::DEVICE_ORDINAL)?).unwrap_or(-1);
        if or_zero(pointer_attribute::IS_LEGACY_CUDA_IPC_CAPABLE)? != 0 {
            // The range is what cuMemAlloc returned; the mapping around it may
            // be larger and hold other allocations.
            return Ok(Self {
                id,
                base: attribute(pointer_attribute::RANGE_START_ADDR)?,
                size: attribute(pointer_attribute::RANGE_SIZE)?,
                device,
                way: Way::Legacy {
                    context: context_number(attribute(pointer_attribute::CONTEXT)?),
                },
            });
        }
        let handle = match driver.mem_retain(ptr) {
            Ok(handle) => handle,
            Err(error) if error.code() == Some(CuResult::INVALID_VALUE) => {
                return Err(not_exportable(MemoryKind::Imported, Vec::new()));
            }
            Err(error) => return Err(error.into()),
        };
        if allowed == 0 {
            return Err(not_exportable(MemoryKind::VmmWithoutHandleType, Vec::new()));
        }
        // Of VMM memory the range is the whole reservation, the mapping the
        // piece. Drivers before CUDA 11.7 know the piece by another call only.
        let piece = attribute(pointer_attribute::MAPPING_BASE_ADDR)
            .and_then(|base| Ok((base, attribute(pointer_attribute::MAPPING_SIZE)?)));
        let (base, size) = match piece {
            Err(error) if error.code() == Some(CuResult::INVALID_VALUE) => {
                let context = DeviceContext::for_device(driver, device)?;
                let (base, size) = context.with(|| driver.address_range(ptr))?;
                (base, size as u64)
            }
            piece => piece?,
        };
        Ok(Self {
            id,
            base,
            size,
            device,
            way: Way::Vmm { handle, allowed },
        })
    }

    /// Makes every handle that the allocation and `types` allow.
    fn offer(self, driver: Driver, broker: Arc<Broker>, types: TypeFlags) -> Result<Offer, Error> {
        let mut offer = Offer {
            driver,
            types,
            allocation_id: self.id,
            token: Token::new(identity::random_bytes()?),
            base: self.base,
            size: self.size,
            device_uuid: driver.device_uuid(self.device)?,
            runtime_ipc: None,
            fabric: None,
            entry: None,
            fd: None,
            reference: None,
            attempts: Vec::new(),
            broker,
        };
        let made_for = self.way.types();
        match self.way {
            Way::Legacy { context } => {
                offer.runtime_ipc = offer.attempt(HandleType::RuntimeIpc, || {
                    if context == CuContext::NULL {
                        DeviceContext::for_device(driver, self.device)?
                            .with(|| driver.ipc_get_mem_handle(self.base))
                    } else {
                        with_context(driver, context, || driver.ipc_get_mem_handle(self.base))
                    }
                })?;
            }
            Way::Vmm { handle, .. } => {
                if made_for.contains(TypeFlags::POSIX_FD) {
                    offer.fd = offer
                        .attempt(HandleType::PosixFd, || driver.mem_export_fd(&handle))?
                        .map(PrivateFd::new);
                }
                if made_for.contains(TypeFlags::FABRIC) {
                    offer.fabric =
                        offer.attempt(HandleType::Fabric, || driver.mem_export_fabric(&handle))?;
                }
                // Neither the fabric bytes nor the ticket hold a reference.
                offer.reference = Some(handle);
            }
        }
        if offer.runtime_ipc.is_none() && offer.fd.is_none() && offer.fabric.is_none() {
            let excluded = HandleType::ALL.into_iter().filter(|handle_type| {
                let flag = handle_type.flag();
                made_for.contains(flag) && !types.contains(flag)
            });
            let refused = Failure::refused(Step::Select, Reason::NotAllowed);
            let mut attempts = core::mem::take(&mut offer.attempts);
            attempts.extend(excluded.map(|excluded| refused.attempt(excluded, Duration::ZERO)));
            return Err(not_exportable(offer.kind(), attempts));
        }
        // Before the first handle exists.
        offer.entry = offer.broker.enter(
            &offer.token,
            offer.fd.as_ref().map(|fd| fd.as_fd().as_raw_fd()),
        );
        Ok(offer)
    }
}

impl Offer {
    /// Tries one type. A refusal drops the type and is kept as an attempt; only
    /// out-of-memory, which says nothing about the type, ends the export.
    fn attempt<T>(
        &mut self,
        handle_type: HandleType,
        export: impl FnOnce() -> Result<T, DriverError>,
    ) -> Result<Option<T>, Error> {
        if !self.types.contains(handle_type.flag()) {
            return Ok(None);
        }
        let start = Instant::now();
        match export() {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.code() == Some(CuResult::OUT_OF_MEMORY) => Err(error.into()),
            Err(error) => {
                let attempt = Failure::driver(Step::Export, handle_type, &error)
                    .attempt(handle_type, start.elapsed());
                log::debug!(target: "gpuipc::gpu", "export: {attempt}");
                self.attempts.push(attempt);
                Ok(None)
            }
        }
    }

    const fn kind(&self) -> MemoryKind {
        if self.reference.is_some() {
            MemoryKind::Vmm
        } else {
            MemoryKind::CudaMalloc
        }
    }
}

/// A context as the attribute CONTEXT gives it.
fn context_number(value: u64) -> CuContext {
    usize::try_from(value).map_or(CuContext::NULL, CuContext)
}
