//! Address space, as C holds it.

use super::Library;
use crate::failure::Failure;
use gpuipc::{Driver, Error};
use std::sync::Arc;

/// Address space without memory, for imports at an address of the caller's choice.
#[derive(Debug)]
pub struct Reservation {
    pub(crate) reservation: Arc<gpuipc::Reservation>,
}

const fn usable_from_any_thread<T: Send + Sync>() {}
const _: () = usable_from_any_thread::<Reservation>();

impl Library {
    /// The driver, unless this process was forked: then it works no more.
    pub(crate) fn driver(&self) -> Result<Driver, Failure> {
        if gpuipc::is_forked() {
            return Err(Error::Forked.into());
        }
        Ok(self.ipc.driver())
    }

    pub(crate) fn reserve(&self, size: usize) -> Result<Reservation, Failure> {
        let reservation = gpuipc::Reservation::new(self.driver()?, size)?;
        Ok(Reservation { reservation })
    }
}
