//! Connections to brokers that are kept for the next request. Finding a broker,
//! connecting and checking its user takes half the time of a request.

use super::client::Connection;
use gpuipc_core::Endpoint;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Kept at most: two descriptors each. A broker hangs up on who is silent for
/// long, so one that is not used soon is of no use any more.
const MOST: usize = 8;

/// The connections of one `Ipc` that nobody uses at the moment, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct IdleConnections(Mutex<Vec<(Endpoint, Connection)>>);

impl IdleConnections {
    /// A connection to this broker, for the caller alone.
    pub(crate) fn take(&self, endpoint: Endpoint) -> Option<Connection> {
        let mut kept = self.lock();
        let at = kept.iter().rposition(|(of, _)| *of == endpoint)?;
        Some(kept.remove(at).1)
    }

    /// Keeps a connection on which everything that was asked was answered.
    pub(crate) fn put(&self, endpoint: Endpoint, connection: Connection) {
        let mut kept = self.lock();
        let oldest = (kept.len() >= MOST).then(|| kept.remove(0));
        kept.push((endpoint, connection));
        drop(kept);
        // Closed without the lock.
        drop(oldest);
    }

    /// Closes all.
    pub(crate) fn clear(&self) {
        let all = core::mem::take(&mut *self.lock());
        drop(all);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Endpoint, Connection)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
