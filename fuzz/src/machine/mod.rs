//! What the targets that use the emulated driver have in common: the driver, what is left in it,
//! and a process of its own to import from.
#![allow(unsafe_code)]

pub mod exporter;
pub mod socket;

use gpuipc::Driver;
use gpuipc_emulated::counters::{self, Counters};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Calls that a fault may hit: none by which something is given back.
pub const FALLIBLE: [&str; 22] = [
    "cuMemAlloc_v2",
    "cuMemCreate",
    "cuMemAddressReserve",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemExportToShareableHandle",
    "cuMemImportFromShareableHandle",
    "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle_v2",
    "cuPointerGetAttribute",
    "cuMemRetainAllocationHandle",
    "cuMemGetAllocationGranularity",
    "cuMemPoolCreate",
    "cuMemAllocFromPoolAsync",
    "cuMemPoolExportToShareableHandle",
    "cuMemPoolImportFromShareableHandle",
    "cuMemPoolExportPointer",
    "cuMemPoolImportPointer",
    "cuDeviceGetUuid_v2",
    "cuDevicePrimaryCtxRetain",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoD_v2",
];

/// Codes that a fault may give.
pub const CODES: [u32; 9] = [1, 2, 201, 217, 400, 711, 800, 801, 999];

/// The emulated driver.
pub fn driver() -> Driver {
    // SAFETY: the emulated driver keeps CUDA's contract for each call.
    unsafe { Driver::from_table(gpuipc_emulated::table()) }
}

/// One target at a time uses this process's driver: what is left in it is the whole process's,
/// and so are its faults.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What this process holds: objects of the driver, and descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    counters: Counters,
    descriptors: usize,
}

impl Held {
    /// Now.
    ///
    /// # Panics
    ///
    /// Without /proc.
    pub fn now() -> Self {
        Self {
            counters: counters::read(),
            descriptors: std::fs::read_dir("/proc/self/fd").expect("/proc").count(),
        }
    }

    /// Waits until no more is held than then. A broker's thread that answers just then holds an
    /// export a moment longer, and other threads of a test have files open for a moment.
    ///
    /// # Panics
    ///
    /// If that does not happen soon.
    pub fn is_all(&self, what: &dyn std::fmt::Debug) {
        let start = Instant::now();
        loop {
            let now = Self::now();
            if now.counters == self.counters && now.descriptors <= self.descriptors {
                return;
            }
            assert!(
                start.elapsed() < Duration::from_secs(5),
                "left after {what:?}: {now:?}, before: {self:?}"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
