//! Legacy handles. Each one is opened once in this process, however many imports use
//! it.
//!
//! The driver counts opens of the same memory, but sometimes returns `ALREADY_MAPPED`
//! (208) when opens and closes overlap (seen on an H200, driver 580). So all importers
//! of this copy of the library share one open, which is keyed by the 64 bytes of the
//! driver and the device, whatever else the handles and options say. If another user of
//! the driver in this process, such as another copy of the library, has the memory
//! open, the open is retried.

#![allow(unsafe_code)]

use crate::attempt::{Code, Failure, Reason, Step};
use crate::gpu::context::DeviceContext;
use crate::gpu::driver::Driver;
use crate::gpu::undo;
use crate::import::slots::{self, Asked, Content, Slots};
use crate::process::identity;
use crate::process::wait::{Ended, Wait};
use crate::sys::{CuDevice, CuDevicePtr, CuResult, pointer_attribute};
use core::hash::BuildHasher;
use gpuipc_core::HandleType;
use std::hash::RandomState;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Between two tries to open what is open elsewhere in this process.
const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// A legacy handle opened in a context: `cuIpcOpenMemHandle`,
/// `cuIpcCloseMemHandle` in the same context on drop.
#[derive(Debug)]
pub(crate) struct LegacyMapping {
    driver: Driver,
    context: DeviceContext,
    base: CuDevicePtr,
    size: u64,
    slot: Arc<Slot>,
}

/// What the slots keep.
struct Opens;

impl Content for Opens {
    /// Driver, device, and a hash of the handle.
    type Short = (usize, CuDevice, u64);
    type Exact = [u8; 64];
    type Note = ();
    type Value = LegacyMapping;
}

type Slot = slots::Slot<Opens>;

struct Wanted<'a> {
    driver: Driver,
    device: CuDevice,
    handle: &'a [u8; 64],
}

impl Asked<Opens> for Wanted<'_> {
    fn short(&self) -> (usize, CuDevice, u64) {
        static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        (self.driver.id(), self.device, HASHER.hash_one(self.handle))
    }

    fn fits(&self, handle: &[u8; 64]) -> bool {
        self.handle == handle
    }

    fn exact(&self) -> [u8; 64] {
        *self.handle
    }

    fn suits(&self, (): &()) -> bool {
        true
    }
}

impl LegacyMapping {
    /// Opens the handle, or shares the open that is there, and compares the length of
    /// what it leads to with `size`.
    pub(crate) fn open(
        driver: Driver,
        handle: &[u8; 64],
        size: u64,
        device: CuDevice,
        wait: &Wait,
    ) -> Result<Arc<Self>, Failure> {
        static OPENS: LazyLock<Arc<Slots<Opens>>> = LazyLock::new(Arc::default);
        let wanted = Wanted {
            driver,
            device,
            handle,
        };
        let make = |slot: &Arc<Slot>| {
            let mapping = Self::open_first(&wanted, wait, Arc::clone(slot))?;
            Ok((Arc::new(mapping), Some(())))
        };
        let late = |ended: Ended| Failure::refused(Step::Open, ended.reason());
        let mapping = OPENS.get(&wanted, wait, make, late)?;
        if mapping.size != size {
            return Err(Failure::refused(Step::Compare, Reason::SizeMismatch));
        }
        Ok(mapping)
    }

    fn open_first(wanted: &Wanted<'_>, wait: &Wait, slot: Arc<Slot>) -> Result<Self, Failure> {
        let Wanted {
            driver,
            device,
            handle,
        } = *wanted;
        let failed = |step| move |error| Failure::driver(step, HandleType::RuntimeIpc, &error);
        let context = DeviceContext::for_device(driver, device).map_err(failed(Step::Context))?;
        let open = || {
            let opened = context.with(|| driver.ipc_open_mem_handle(handle));
            opened.map_err(|error| {
                let step = if error.call.starts_with("cuIpc") {
                    Step::Open
                } else {
                    Step::Context
                };
                Failure::driver(step, HandleType::RuntimeIpc, &error)
            })
        };
        let base = loop {
            match open() {
                Ok(base) => break base,
                Err(failure) if failure.code == Code::Driver(CuResult::ALREADY_MAPPED) => {
                    match wait.pause(RETRY_PAUSE) {
                        Ok(()) => {}
                        Err(Ended::Cancelled) => {
                            return Err(Failure::refused(Step::Open, Reason::Cancelled));
                        }
                        Err(_) => return Err(failure),
                    }
                }
                Err(failure) => return Err(failure),
            }
        };
        let mut mapping = Self {
            driver,
            context,
            base,
            size: 0,
            slot,
        };
        mapping.size = driver
            .pointer_attribute(pointer_attribute::RANGE_SIZE, base)
            .map_err(failed(Step::Compare))?;
        Ok(mapping)
    }

    /// The first byte of the allocation.
    pub(crate) const fn base(&self) -> CuDevicePtr {
        self.base
    }
}

impl Drop for LegacyMapping {
    fn drop(&mut self) {
        if identity::is_forked() {
            return;
        }
        let closed = self
            .context
            // SAFETY: opened by this object, whose users are gone.
            .give_back(|| unsafe { self.driver.ipc_close_mem_handle(self.base) });
        undo::report("cuIpcCloseMemHandle", closed);
        // Who comes meanwhile opens after the close.
        self.slot.clean();
    }
}
