//! A new multicast object, exported to its members.

use super::{Reason, Stage, Unavailable};
use crate::error::Error;
use crate::export::descriptor::{Descriptor, FdQuota, KeptFd};
use crate::export::exported_allocation::{ExportShare, ExportedAllocation};
use crate::export::reference::Reference;
use crate::gpu::driver::{AllocationHandle, Driver};
use crate::options::ExportOptions;
use crate::session::Ipc;
use crate::sys::{CuMulticastObjectProp, CuResult, handle_type, multicast_granularity};
use gpuipc_core::{GpuIpcMemHandle, HandleFields, SharedRange, TypeFlags};
use std::sync::atomic::{AtomicU64, Ordering};

/// A multicast object that this process made and exports to the members. It holds
/// the first reference: keep it until this process's own member is
/// [`Joined`](super::Joined), for then all members have imported. Dropping it
/// revokes the export; the object lives as long as a member has it.
#[derive(Debug)]
pub struct Created {
    export: ExportShare,
    handle: GpuIpcMemHandle,
}

impl Created {
    /// The handle to ship to every member, this process's own too.
    #[must_use]
    pub const fn handle(&self) -> &GpuIpcMemHandle {
        &self.handle
    }

    /// Bytes that each member can bind.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.export.size
    }
}

/// An object is no memory and has no BUFFER_ID; the driver's own numbers are
/// nowhere near these.
static NEXT_OBJECT: AtomicU64 = AtomicU64::new(1 << 63);

/// See [`Ipc::create_multicast`].
pub(super) fn create(
    ipc: &Ipc,
    size: usize,
    num_devices: u16,
    options: &ExportOptions,
) -> Result<Created, Error> {
    super::allowed(ipc)?;
    let refused = |name, rule| Err(Error::Argument { name, rule });
    if size == 0 {
        return refused("size", "at least one byte must have room");
    }
    if num_devices == 0 {
        return refused("num_devices", "an object has at least one member");
    }
    let driver = ipc.driver();
    let types = options.flags() & (TypeFlags::POSIX_FD | TypeFlags::FABRIC);
    let mut prop = CuMulticastObjectProp {
        num_devices: num_devices.into(),
        size,
        ..CuMulticastObjectProp::default()
    };
    let unit = granularity(driver, &prop, multicast_granularity::RECOMMENDED)?;
    let Some(size) = size.checked_next_multiple_of(unit) else {
        return refused("size", "more bytes than there are addresses");
    };
    prop.size = size;
    let (object, made) = make(driver, prop, types)?;
    let broker = ipc.broker()?;
    let id = NEXT_OBJECT.fetch_add(1, Ordering::Relaxed);
    let mut export = ExportedAllocation::new(driver, broker, types, id, 0, size as u64)?;
    if made.contains(TypeFlags::POSIX_FD) {
        export.descriptor = match FdQuota::take() {
            Some(room) => {
                let fd = object.export_fd();
                let fd = fd.map_err(Unavailable::at(Stage::Export))?;
                Descriptor::Kept(KeptFd::new(fd, room))
            }
            None => Descriptor::OnDemand,
        };
    }
    if made.contains(TypeFlags::FABRIC) {
        let bytes = object.export_fabric();
        export.fabric = Some(bytes.map_err(Unavailable::at(Stage::Export))?);
    }
    export.reference = Reference::new(Some(object));
    // Before the handle exists.
    export.entry = export.broker.enter(
        &export.token,
        export.descriptor.number(),
        export.allocation_id,
    );
    let export = export.register();
    let handle = handle_of(ipc, &export, num_devices)?;
    log::debug!(target: "gpuipc::gpu", "a multicast object of {size} bytes for {num_devices} devices: {handle:?}");
    Ok(Created { export, handle })
}

/// `cuMulticastGetGranularity`, never zero.
pub(super) fn granularity(
    driver: Driver,
    prop: &CuMulticastObjectProp,
    option: u32,
) -> Result<usize, Unavailable> {
    let unit = driver
        .multicast_granularity(prop, option)
        .map_err(Unavailable::at(Stage::Granularity))?;
    if unit == 0 {
        return Err(Unavailable::refused(Stage::Granularity, Reason::Driver));
    }
    Ok(unit)
}

/// `cuMulticastCreate` with the types that are asked for; without the fabric
/// where the driver refuses that.
fn make(
    driver: Driver,
    mut prop: CuMulticastObjectProp,
    types: TypeFlags,
) -> Result<(AllocationHandle, TypeFlags), Error> {
    let mut create = |types: TypeFlags| {
        let kind = |flag, kind: u32| if types.contains(flag) { kind } else { 0 };
        let kinds = kind(TypeFlags::POSIX_FD, handle_type::POSIX_FILE_DESCRIPTOR)
            | kind(TypeFlags::FABRIC, handle_type::FABRIC);
        prop.handle_types = kinds.into();
        AllocationHandle::multicast(driver, &prop)
    };
    if types.is_empty() {
        return Err(Error::Argument {
            name: "options",
            rule: "a multicast object is shared by PosixFd or Fabric",
        });
    }
    let refused = |code| {
        matches!(
            code,
            CuResult::NOT_PERMITTED | CuResult::NOT_SUPPORTED | CuResult::INVALID_VALUE
        )
    };
    match create(types) {
        Ok(object) => Ok((object, types)),
        Err(error)
            if types == TypeFlags::POSIX_FD | TypeFlags::FABRIC
                && error.code().is_some_and(refused) =>
        {
            log::debug!(target: "gpuipc::gpu", "no multicast object for the fabric: {error}");
            let object = create(TypeFlags::POSIX_FD).map_err(Unavailable::at(Stage::Create))?;
            Ok((object, TypeFlags::POSIX_FD))
        }
        Err(error) => Err(Unavailable::driver(Stage::Create, &error).into()),
    }
}

fn handle_of(
    ipc: &Ipc,
    export: &ExportedAllocation,
    num_devices: u16,
) -> Result<GpuIpcMemHandle, Error> {
    let fields = HandleFields {
        length: export.size,
        range: SharedRange {
            id: export.allocation_id,
            length: export.size,
            offset: 0,
            segment_index: 0,
            segment_count: 1,
        },
        num_devices,
        multicast: true,
        ..export.fields(ipc.identity())
    };
    Ok(GpuIpcMemHandle::new(&fields)?)
}
