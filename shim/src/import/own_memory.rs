//! This process's own memory, imported by its own handle, at its original address. The
//! import does not keep the memory alive.

use crate::error::Error;
use crate::export::exported_allocation::ExportedAllocation;
use crate::gpu::driver::Driver;
use crate::gpu::mapping::VmmMapping;
use crate::sys::{CuDevice, CuDevicePtr, CuMemAccessDesc, CuMemLocation, access, location};
use std::sync::Weak;

/// An address, and what is exported there.
#[derive(Clone, Debug)]
pub(crate) struct OwnMemory {
    pub(crate) base: CuDevicePtr,
    /// One a segment; none where another copy of the library exports it.
    pub(crate) exports: Vec<Weak<ExportedAllocation>>,
}

impl OwnMemory {
    /// Maps the memory a second time, for a copy: its owner may unmap the first at any
    /// moment, in safe code of another thread. Other memory than that of `cuMemCreate`
    /// cannot be mapped twice.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where that cannot be done, [`Error::Driver`].
    pub(crate) fn map(&self, driver: Driver, device: CuDevice) -> Result<VmmMapping, Error> {
        const NOT_HELD: Error = Error::Unsupported {
            what: "of a process's own memory only that of cuMemCreate is copied, while it is exported; use the original pointer",
        };
        let exports: Option<Vec<_>> = self.exports.iter().map(Weak::upgrade).collect();
        let exports = exports
            .filter(|exports| !exports.is_empty())
            .ok_or(NOT_HELD)?;
        let sizes: Option<Vec<usize>> = exports
            .iter()
            .map(|export| usize::try_from(export.size).ok())
            .collect();
        let sizes = sizes.ok_or(NOT_HELD)?;
        let mut mapping: Option<VmmMapping> = None;
        for (export, size) in exports.iter().zip(&sizes) {
            // The mapping has a reference of its own then.
            let reference = export.reference.lend().ok_or(NOT_HELD)?;
            let mapping = match &mut mapping {
                Some(mapping) => mapping,
                none => none.insert(VmmMapping::reserve(driver, sizes.iter().sum())?),
            };
            mapping.append(&reference, *size)?;
        }
        let mapping = mapping.ok_or(NOT_HELD)?;
        mapping.give_access(&[CuMemAccessDesc {
            location: CuMemLocation {
                kind: location::DEVICE,
                id: device,
            },
            flags: access::READ_WRITE,
        }])?;
        Ok(mapping)
    }
}
