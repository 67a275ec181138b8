//! The context that is current in a child.

use crate::{NotOk, TestChild, table};
use gpuipc::{Driver, Error};

impl TestChild {
    /// With device 0's primary context current; none is afterwards.
    pub(crate) fn in_context<T>(
        &self,
        work: impl FnOnce(Driver) -> Result<T, NotOk>,
    ) -> Result<T, NotOk> {
        self.set_context("0")?;
        let done = work(self.driver);
        self.set_context("none")?;
        done
    }

    /// Makes the primary context of a device this thread's, or none. The
    /// context stays retained: it is the application's.
    #[allow(unsafe_code)]
    pub(crate) fn set_context(&self, which: &str) -> Result<String, NotOk> {
        let context = if which == "none" {
            None
        } else {
            let device: i32 = which.parse().map_err(|_| NotOk::from("no such device"))?;
            let retain = table().primary_ctx_retain.ok_or("no retain call")?;
            let mut context = gpuipc::sys::CuContext::NULL;
            self.driver.init().map_err(Error::from)?;
            // SAFETY: the entry is cuDevicePrimaryCtxRetain, and the pointer a local's.
            let code = unsafe { retain(&mut context, device) };
            if code != gpuipc::sys::CuResult::SUCCESS {
                return Err("retain failed".into());
            }
            Some(context)
        };
        // SAFETY: the context was retained above, for good.
        unsafe { self.driver.set_current_context(context) }.map_err(Error::from)?;
        Ok(String::new())
    }
}
