//! CUDA contexts. A call that needs a context pushes it and pops it, on every path, so
//! that the caller's current context does not change.

#![allow(unsafe_code)]

use crate::gpu::driver::{Driver, Result};
use crate::sys::{CuContext, CuDevice, CuResult};
use std::sync::Arc;

/// One use of a device's primary context (`cuDevicePrimaryCtxRetain`), given
/// back on drop.
#[derive(Debug)]
pub(crate) struct PrimaryContext {
    driver: Driver,
    device: CuDevice,
    context: CuContext,
}

impl PrimaryContext {
    /// Retains it, creating the context if nobody uses it yet.
    pub(crate) fn retain(driver: Driver, device: CuDevice) -> Result<Self> {
        let context = driver.primary_ctx_retain(device)?;
        Ok(Self {
            driver,
            device,
            context,
        })
    }
}

impl Drop for PrimaryContext {
    fn drop(&mut self) {
        if crate::process::identity::is_forked() {
            return;
        }
        // SAFETY: retained by this object, whose users are gone.
        let released = unsafe { self.driver.primary_ctx_release(self.device) };
        crate::gpu::undo::report("cuDevicePrimaryCtxRelease", released);
    }
}

/// A context for calls that need one, kept for later calls on the same memory.
#[derive(Clone, Debug)]
pub(crate) struct DeviceContext {
    driver: Driver,
    context: CuContext,
    /// Keeps `context` alive when it is the primary one. Without it the context
    /// is the caller's own, which the caller may destroy; the memory mapped in
    /// it goes with it then.
    _primary: Option<Arc<PrimaryContext>>,
}

impl DeviceContext {
    /// The context in which this thread would work on `device`: its current one
    /// if that belongs to the device, else the device's primary one.
    pub(crate) fn for_device(driver: Driver, device: CuDevice) -> Result<Self> {
        if let Some((current, current_device)) = current(driver)?
            && current_device == device
        {
            // Retaining an inactive primary context would create one beside the
            // caller's own; only an active one can be the current one.
            let primary = if driver.primary_ctx_active(device)? {
                Some(PrimaryContext::retain(driver, device)?)
                    .filter(|primary| primary.context == current)
            } else {
                None
            };
            return Ok(Self {
                driver,
                context: current,
                _primary: primary.map(Arc::new),
            });
        }
        let primary = PrimaryContext::retain(driver, device)?;
        Ok(Self {
            driver,
            context: primary.context,
            _primary: Some(Arc::new(primary)),
        })
    }

    /// Runs `work` with this context current.
    pub(crate) fn with<T, E: From<crate::gpu::driver::DriverError>>(
        &self,
        work: impl FnOnce() -> core::result::Result<T, E>,
    ) -> core::result::Result<T, E> {
        with_context(self.driver, self.context, work)
    }

    /// The same for work that gives something back: what only serves to make a failed
    /// pop good may fail without it.
    pub(crate) fn give_back(&self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let before = self.driver.current_context().ok();
        pushed(self.driver, self.context, before, work)
    }
}

/// This thread's context and its device. `None` without one, and for one that
/// was destroyed while it was current.
pub(crate) fn current(driver: Driver) -> Result<Option<(CuContext, CuDevice)>> {
    let Some(context) = driver.current_context()? else {
        return Ok(None);
    };
    match driver.current_device() {
        Ok(device) => Ok(Some((context, device))),
        Err(error)
            if matches!(
                error.code(),
                Some(CuResult::INVALID_CONTEXT | CuResult::CONTEXT_IS_DESTROYED)
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Runs `work` with `context` current and puts the caller's back.
pub(crate) fn with_context<T, E: From<crate::gpu::driver::DriverError>>(
    driver: Driver,
    context: CuContext,
    work: impl FnOnce() -> core::result::Result<T, E>,
) -> core::result::Result<T, E> {
    let before = driver.current_context()?;
    pushed(driver, context, Some(before), work)
}

/// The same with the caller's context as it was `before`; `None` where that is not known.
fn pushed<T, E: From<crate::gpu::driver::DriverError>>(
    driver: Driver,
    context: CuContext,
    before: Option<Option<CuContext>>,
    work: impl FnOnce() -> core::result::Result<T, E>,
) -> core::result::Result<T, E> {
    struct Pushed {
        driver: Driver,
        before: Option<Option<CuContext>>,
    }
    impl Drop for Pushed {
        fn drop(&mut self) {
            if let Err(error) = self.driver.pop_context() {
                crate::gpu::undo::report("cuCtxPopCurrent", Err(error));
                let Some(before) = self.before else { return };
                // The caller's must be current again, whatever is below it.
                // SAFETY: it was current when the push began, and what ran since
                // destroys no context of the caller's.
                let set = unsafe { self.driver.set_current_context(before) };
                crate::gpu::undo::report("cuCtxSetCurrent", set);
            }
        }
    }
    // SAFETY: the context is a primary one that is retained, or was the caller's current
    // one: who destroys that (`cuCtxDestroy`) answers for everything made in it, such as
    // this mapping or buffer.
    unsafe { driver.push_context(context) }?;
    let _pushed = Pushed { driver, before };
    work()
}
