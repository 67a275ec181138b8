//! The driver: one method a call, safe to read, `Result` out.
//!
//! A [`Driver`] is a pointer to a table that lives as long as the process, so
//! it is copied freely. Its methods check nothing that the driver checks
//! itself; they turn out-parameters into values and codes into errors that
//! name the call.
#![allow(unsafe_code)]

mod memory;
mod multicast;
mod pool;
mod vmm;

pub use vmm::AllocationHandle;

use crate::sys::{self, CuContext, CuDevice, CuResult, CuUuid, DriverTable, LoadError};
use core::fmt;
use gpuipc_core::DeviceUuid;
use std::collections::HashMap;
use std::ffi::{CStr, OsString};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A driver call that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DriverError {
    /// The driver's symbol, e.g. `cuMemMap`.
    pub call: &'static str,
    /// What came of it.
    pub cause: DriverCause,
}

/// Why a driver call failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DriverCause {
    /// The driver returned this code.
    Code(CuResult),
    /// This driver lacks the symbol; the number is the CUDA version that
    /// brought it, e.g. 10020 for 10.2.
    Missing(u32),
}

impl DriverError {
    /// The driver's code; `None` if the symbol is missing.
    #[must_use]
    pub const fn code(&self) -> Option<CuResult> {
        match self.cause {
            DriverCause::Code(code) => Some(code),
            DriverCause::Missing(_) => None,
        }
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause {
            DriverCause::Code(code) => write!(f, "{} answered {code}", self.call),
            DriverCause::Missing(version) => write!(
                f,
                "this driver lacks {}, which came with CUDA {}.{}",
                self.call,
                version / 1000,
                version % 1000 / 10
            ),
        }
    }
}

impl std::error::Error for DriverError {}

/// What a driver call gives.
pub(crate) type Result<T> = core::result::Result<T, DriverError>;

/// Times one driver call for the log, where somebody reads it: driver calls
/// cannot be interrupted, so a hang shows as the first line without the one of its end:
/// calls behind it may be waiting for their turn.
struct Timer(Option<Instant>);

impl Timer {
    fn start(call: &str) -> Self {
        Self(
            log::log_enabled!(target: "gpuipc::gpu", log::Level::Trace).then(|| {
                log::trace!(target: "gpuipc::gpu", "{call} ...");
                Instant::now()
            }),
        )
    }

    /// The call begins only now: others went first.
    fn begin(&mut self) {
        if let Some(start) = &mut self.0 {
            *start = Instant::now();
        }
    }

    fn stop(self, call: &str, code: CuResult) {
        if let Some(start) = self.0 {
            log::trace!(target: "gpuipc::gpu", "{call} took {:?}: {code}", start.elapsed());
        }
    }
}

/// A lock of calls that go one at a time in this process, since the driver does not
/// bear them side by side.
struct OneAtATime(Mutex<()>);

impl OneAtATime {
    const fn new() -> Self {
        Self(Mutex::new(()))
    }

    fn take(&self) -> MutexGuard<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls a table entry, under `$lock` where one is given, and makes a `Result` of its code.
macro_rules! call {
    ($driver:expr, $field:ident($($arg:expr),* $(,)?)) => {
        call!($driver, $field($($arg),*), None::<&crate::driver::OneAtATime>)
    };
    ($driver:expr, $field:ident($($arg:expr),* $(,)?), $lock:expr) => {{
        let info = sys::info::$field;
        match $driver.table.$field {
            None => Err(DriverError { call: info.symbol, cause: DriverCause::Missing(info.cuda_version) }),
            Some(function) => {
                let mut timer = Timer::start(info.symbol);
                let lock = $lock.map(crate::driver::OneAtATime::take);
                timer.begin();
                // SAFETY: whoever made this `Driver` promised that the entry
                // has CUDA's contract. Pointers passed here come from
                // references or locals that outlive the call and have the type
                // that the list of calls gives; all else is checked by the driver.
                let code = unsafe { function($($arg),*) };
                drop(lock);
                timer.stop(info.symbol, code);
                match code {
                    CuResult::SUCCESS => Ok(()),
                    code => Err(DriverError { call: info.symbol, cause: DriverCause::Code(code) }),
                }
            }
        }
    }};
}

use call;

/// A descriptor that the driver opened, from the number that it gave.
///
/// # Safety
/// The driver opened `fd` for the call `symbol`, which succeeded, and nobody else
/// knows the number.
unsafe fn owned_fd(fd: i32, symbol: &'static str) -> Result<OwnedFd> {
    if fd < 0 {
        // OwnedFd must never hold -1; no driver was seen to do this.
        return Err(DriverError {
            call: symbol,
            cause: DriverCause::Code(CuResult::UNKNOWN),
        });
    }
    // SAFETY: not negative, checked above; open and nobody else's, as the caller says.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A CUDA driver, real or emulated.
#[derive(Clone, Copy)]
pub struct Driver {
    table: &'static DriverTable,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("table", &core::ptr::from_ref(self.table))
            .finish()
    }
}

impl Driver {
    /// Loads the driver library: `libcuda.so.1`, or what the environment
    /// variable `GPUIPC_LIBCUDA` names. The library stays loaded until the
    /// process ends; a second call gives the same table.
    ///
    /// `GPUIPC_LIBCUDA` must name a CUDA driver (the real one, or a stand-in
    /// with its symbols): loading a library runs code in it.
    ///
    /// # Errors
    /// [`LoadError`] if there is no such library or it lacks a symbol without
    /// which nothing works.
    pub fn load() -> core::result::Result<Self, LoadError> {
        static LOADED: Mutex<Option<HashMap<OsString, &'static DriverTable>>> = Mutex::new(None);
        let name = std::env::var_os(sys::LIBRARY_VARIABLE)
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| OsString::from(sys::DEFAULT_LIBRARY));
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = loaded.get_or_insert_default();
        if let Some(table) = loaded.get(&name) {
            return Ok(Self { table });
        }
        // SAFETY: the name is libcuda's own or one that the user gave for a
        // CUDA driver, as documented above.
        let table = unsafe { sys::load(&name) }?;
        let table: &'static DriverTable = Box::leak(Box::new(table));
        loaded.insert(name, table);
        Ok(Self { table })
    }

    /// A driver behind a table of one's own, such as the emulated driver's.
    ///
    /// # Safety
    /// Every entry that is there follows CUDA's documented contract for its
    /// call: it writes no more than the out-parameters hold, keeps no pointer,
    /// may be called from any thread, and does not unwind.
    #[must_use]
    pub const unsafe fn from_table(table: &'static DriverTable) -> Self {
        Self { table }
    }

    /// Whether both are the same driver.
    #[must_use]
    pub fn same(self, other: Self) -> bool {
        self.id() == other.id()
    }

    /// A number that tells drivers of one process apart.
    pub(crate) fn id(self) -> usize {
        core::ptr::from_ref(self.table).addr()
    }

    /// `cuInit(0)`. Repeating it is cheap.
    ///
    /// # Errors
    /// `NO_DEVICE` (100) without a visible GPU, `NOT_INITIALIZED` (3) in a
    /// process forked from one that had initialized the driver.
    pub fn init(self) -> Result<()> {
        call!(self, init(0))
    }

    /// `cuDriverGetVersion`: 13000 for CUDA 13.0.
    ///
    /// # Errors
    /// The driver's code.
    pub fn version(self) -> Result<i32> {
        let mut version = 0;
        call!(self, driver_get_version(&mut version))?;
        Ok(version)
    }

    /// The name of a code: CUDA's header's, else the driver's own
    /// (`cuGetErrorName`), else the number.
    #[must_use]
    pub fn error_name(self, code: CuResult) -> String {
        if let Some(name) = code.name() {
            return name.to_owned();
        }
        let mut text: sys::CuStr = core::ptr::null();
        if call!(self, get_error_name(code, &mut text)).is_err() || text.is_null() {
            return code.to_string();
        }
        // SAFETY: on success the driver stores the address of a NUL-terminated
        // constant string of its own ("the address of the string
        // representation of the error code name").
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }

    /// `cuDeviceGetCount`: GPUs that this process sees.
    ///
    /// # Errors
    /// The driver's code.
    pub fn device_count(self) -> Result<i32> {
        let mut count = 0;
        call!(self, device_get_count(&mut count))?;
        Ok(count)
    }

    /// `cuDeviceGet`: the device with this ordinal.
    ///
    /// # Errors
    /// `INVALID_DEVICE` (101) for an ordinal that is not visible.
    pub fn device(self, ordinal: i32) -> Result<CuDevice> {
        let mut device = 0;
        call!(self, device_get(&mut device, ordinal))?;
        Ok(device)
    }

    /// `cuDeviceGetName`.
    ///
    /// # Errors
    /// The driver's code.
    pub fn device_name(self, device: CuDevice) -> Result<String> {
        let mut name = [0_u8; 256];
        // One byte less than there is, so that the last stays zero.
        call!(self, device_get_name(name.as_mut_ptr().cast(), 255, device))?;
        Ok(CStr::from_bytes_until_nul(&name)
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default())
    }

    /// `cuDeviceGetUuid_v2` (CUDA 11.4), or `cuDeviceGetUuid` before it.
    ///
    /// # Errors
    /// `INVALID_DEVICE` (101).
    pub fn device_uuid(self, device: CuDevice) -> Result<DeviceUuid> {
        let mut uuid = CuUuid::default();
        if self.table.device_get_uuid_v2.is_some() {
            call!(self, device_get_uuid_v2(&mut uuid, device))?;
        } else {
            call!(self, device_get_uuid(&mut uuid, device))?;
        }
        Ok(DeviceUuid(uuid.bytes))
    }

    /// `cuDeviceGetAttribute`, with a number from [`sys::device_attribute`].
    ///
    /// # Errors
    /// `INVALID_VALUE` (1) for an attribute that this driver does not know.
    pub fn device_attribute(self, attribute: u32, device: CuDevice) -> Result<i32> {
        let mut value = 0;
        call!(self, device_get_attribute(&mut value, attribute, device))?;
        Ok(value)
    }

    /// `cuDeviceCanAccessPeer`.
    ///
    /// # Errors
    /// `INVALID_DEVICE` (101).
    pub fn can_access_peer(self, device: CuDevice, peer: CuDevice) -> Result<bool> {
        let mut can = 0;
        call!(self, device_can_access_peer(&mut can, device, peer))?;
        Ok(can != 0)
    }

    /// `cuDevicePrimaryCtxRetain`: one more use of the device's primary
    /// context; the first one creates it, which takes a few hundred
    /// milliseconds and some hundred MiB of GPU memory.
    ///
    /// # Errors
    /// `INVALID_DEVICE` (101), `OUT_OF_MEMORY` (2).
    pub fn primary_ctx_retain(self, device: CuDevice) -> Result<CuContext> {
        let mut context = CuContext::NULL;
        call!(self, primary_ctx_retain(&mut context, device))?;
        Ok(context)
    }

    /// `cuDevicePrimaryCtxRelease_v2`: one use less.
    ///
    /// # Errors
    /// `INVALID_CONTEXT` (201) for a context that nobody uses.
    pub fn primary_ctx_release(self, device: CuDevice) -> Result<()> {
        call!(self, primary_ctx_release(device))
    }

    /// `cuDevicePrimaryCtxGetState`: whether somebody uses the primary context.
    pub(crate) fn primary_ctx_active(self, device: CuDevice) -> Result<bool> {
        let mut flags = 0;
        let mut active = 0;
        call!(self, primary_ctx_get_state(device, &mut flags, &mut active))?;
        Ok(active != 0)
    }

    /// `cuCtxGetCurrent`: this thread's context, if it has one.
    ///
    /// # Errors
    /// `NOT_INITIALIZED` (3), `DEINITIALIZED` (4).
    pub fn current_context(self) -> Result<Option<CuContext>> {
        let mut context = CuContext::NULL;
        call!(self, ctx_get_current(&mut context))?;
        Ok((context != CuContext::NULL).then_some(context))
    }

    /// `cuCtxSetCurrent`: makes `context` this thread's; `None` for none.
    ///
    /// # Safety
    /// `context` is one that the driver gave and that was not destroyed.
    ///
    /// # Errors
    /// `INVALID_CONTEXT` (201).
    pub unsafe fn set_current_context(self, context: Option<CuContext>) -> Result<()> {
        call!(self, ctx_set_current(context.unwrap_or(CuContext::NULL)))
    }

    /// `cuCtxPushCurrent_v2`.
    pub(crate) fn push_context(self, context: CuContext) -> Result<()> {
        call!(self, ctx_push_current(context))
    }

    /// `cuCtxPopCurrent_v2`.
    pub(crate) fn pop_context(self) -> Result<CuContext> {
        let mut context = CuContext::NULL;
        call!(self, ctx_pop_current(&mut context))?;
        Ok(context)
    }

    /// `cuCtxGetDevice`: the device of this thread's context.
    ///
    /// # Errors
    /// `INVALID_CONTEXT` (201) without a context.
    pub fn current_device(self) -> Result<CuDevice> {
        let mut device = 0;
        call!(self, ctx_get_device(&mut device))?;
        Ok(device)
    }

    /// `cuCtxSynchronize`: waits for the GPU's work in this thread's context.
    ///
    /// # Errors
    /// `INVALID_CONTEXT` (201), or the error of earlier work.
    pub fn synchronize(self) -> Result<()> {
        call!(self, ctx_synchronize())
    }

    /// `cuMemGetInfo_v2`: free and total bytes of the current context's GPU.
    ///
    /// # Errors
    /// `INVALID_CONTEXT` (201).
    pub fn mem_info(self) -> Result<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        call!(self, mem_get_info(&mut free, &mut total))?;
        Ok((free, total))
    }
}
