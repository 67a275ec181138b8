//! The driver: one method a call, `Result` out.
//!
//! A [`Driver`] is a pointer to a table that lives as long as the process, so
//! it is copied freely. Its methods check nothing that the driver checks
//! itself.
#![allow(unsafe_code)]

mod memory;
mod multicast;
mod pool;
mod vmm;

use crate::{
    self as sys, CuContext, CuDevice, CuResult, CuStream, CuUuid, DriverTable, LoadError,
    capture_mode,
};
use core::fmt;
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
pub type Result<T> = core::result::Result<T, DriverError>;

/// Logs that a driver call starts and how long it took, at level trace. A call that
/// hangs shows as a start line without an end line; later calls may be waiting for its
/// lock.
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

/// The calling thread's capture mode is relaxed while this lives.
struct Relaxed {
    driver: Driver,
    /// The mode before; `None` where the driver has none.
    before: Option<u32>,
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        if let Some(before) = self.before
            && let Err(error) = self.driver.exchange_capture_mode(before)
        {
            log::warn!(target: "gpuipc::gpu", "the thread's stream capture mode stays relaxed: {error}");
        }
    }
}

/// A lock of calls that go one at a time in this process, since the driver crashes or
/// fails where two of them meet.
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
    /// with its symbols): loading a library runs code in it. A program that runs with
    /// more rights than its caller (setuid, file capabilities) does not read it.
    ///
    /// # Errors
    /// [`LoadError`] if there is no such library or it lacks a symbol without
    /// which nothing works.
    pub fn load() -> core::result::Result<Self, LoadError> {
        static LOADED: Mutex<Option<HashMap<OsString, &'static DriverTable>>> = Mutex::new(None);
        let name = sys::environment::variable(sys::LIBRARY_VARIABLE)
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
    #[must_use]
    pub fn id(self) -> usize {
        core::ptr::from_ref(self.table).addr()
    }

    /// Lets the thread's calls be seen by no stream capture (`cuThreadExchangeStreamCaptureMode`).
    ///
    /// In any other mode `cuMemAlloc`, `cuMemFree`, `cuMemHostAlloc`,
    /// `cuStreamSynchronize` and the calls about memory pools fail while a stream
    /// captures, and invalidate the capture: of any thread for a capture in global
    /// mode, of the same thread for one in thread-local mode (seen on an H200, driver
    /// 580; `tests/golden/conformance/h200.txt`, section "capture").
    fn relaxed(self) -> Relaxed {
        let before = self.exchange_capture_mode(capture_mode::RELAXED).ok();
        Relaxed {
            driver: self,
            before,
        }
    }

    /// `cuThreadExchangeStreamCaptureMode`; gives the mode before.
    fn exchange_capture_mode(self, mode: u32) -> Result<u32> {
        let mut mode = mode;
        call!(self, thread_exchange_stream_capture_mode(&mut mode))?;
        Ok(mode)
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
    pub fn device_uuid(self, device: CuDevice) -> Result<CuUuid> {
        let mut uuid = CuUuid::default();
        if self.table.device_get_uuid_v2.is_some() {
            call!(self, device_get_uuid_v2(&mut uuid, device))?;
        } else {
            call!(self, device_get_uuid(&mut uuid, device))?;
        }
        Ok(uuid)
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
        // The first use allocates.
        let _relaxed = self.relaxed();
        let mut context = CuContext::NULL;
        call!(self, primary_ctx_retain(&mut context, device))?;
        Ok(context)
    }

    /// `cuDevicePrimaryCtxRelease_v2`: one use less. The last one destroys the context
    /// with all memory in it.
    ///
    /// # Safety
    /// The caller retained it, and uses the context no longer.
    ///
    /// # Errors
    /// `INVALID_CONTEXT` (201) for a context that nobody uses.
    pub unsafe fn primary_ctx_release(self, device: CuDevice) -> Result<()> {
        call!(self, primary_ctx_release(device))
    }

    /// `cuDevicePrimaryCtxGetState`: whether somebody uses the primary context.
    ///
    /// # Errors
    /// `INVALID_DEVICE` (101).
    pub fn primary_ctx_active(self, device: CuDevice) -> Result<bool> {
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
    ///
    /// # Safety
    /// `context` is one that the driver gave and that was not destroyed.
    ///
    /// # Errors
    /// `INVALID_CONTEXT` (201).
    pub unsafe fn push_context(self, context: CuContext) -> Result<()> {
        call!(self, ctx_push_current(context))
    }

    /// `cuCtxPopCurrent_v2`.
    ///
    /// # Errors
    /// `INVALID_CONTEXT` (201) without a context.
    pub fn pop_context(self) -> Result<CuContext> {
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

    /// `cuStreamIsCapturing` of the legacy default stream: whether work on it would
    /// invalidate a capture, since a stream that waits for it captures
    /// (`STREAM_CAPTURE_IMPLICIT`, 906). The question harms no capture (seen on an
    /// H200, driver 580). `false` where the driver does not say.
    #[must_use]
    pub fn legacy_stream_is_captured(self) -> bool {
        let mut status = 0;
        let asked = call!(self, stream_is_capturing(CuStream::LEGACY, &mut status));
        asked.is_err_and(|error| error.code() == Some(CuResult::STREAM_CAPTURE_IMPLICIT))
    }

    /// `cuStreamCreate`, not blocking: it and the default streams do not wait for each
    /// other.
    ///
    /// # Errors
    /// `INVALID_CONTEXT` (201), `OUT_OF_MEMORY` (2).
    pub fn stream_create(self) -> Result<CuStream> {
        let mut stream = CuStream::DEFAULT;
        call!(self, stream_create(&mut stream, sys::STREAM_NON_BLOCKING))?;
        Ok(stream)
    }

    /// `cuStreamDestroy_v2`.
    ///
    /// # Safety
    /// `stream` is one that [`Driver::stream_create`] gave, and is not used again.
    ///
    /// # Errors
    /// `INVALID_CONTEXT` (201).
    pub unsafe fn stream_destroy(self, stream: CuStream) -> Result<()> {
        call!(self, stream_destroy(stream))
    }

    /// `cuStreamSynchronize`: waits for the work of a stream.
    ///
    /// # Safety
    /// `stream` is one of the default streams or was created and not destroyed.
    ///
    /// # Errors
    /// `INVALID_CONTEXT` (201), `STREAM_CAPTURE_IMPLICIT` (906), or the error of
    /// earlier work.
    pub unsafe fn stream_synchronize(self, stream: CuStream) -> Result<()> {
        let _relaxed = self.relaxed();
        call!(self, stream_synchronize(stream))
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
