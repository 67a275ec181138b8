//! A value that an `Ipc` starts when it is first needed and shares with its exports:
//! the broker.

use crate::process::sync::{Mutex, MutexGuard};
use std::sync::{Arc, PoisonError};

/// Something that is started once. It lives until this and all that were given a
/// reference are gone.
#[derive(Debug)]
pub(crate) struct Started<B> {
    running: Mutex<Option<Arc<B>>>,
}

impl<B> Default for Started<B> {
    fn default() -> Self {
        Self {
            running: Mutex::new(None),
        }
    }
}

impl<B> Started<B> {
    /// What was started last.
    pub(crate) fn running(&self) -> Option<Arc<B>> {
        self.lock().clone()
    }

    /// What runs, started if it is not there yet or serves no more: who asks meanwhile
    /// waits. After an error the next one tries again.
    pub(crate) fn or_start<E>(
        &self,
        serves: impl FnOnce(&B) -> bool,
        start: impl FnOnce() -> Result<B, E>,
    ) -> Result<Arc<B>, E> {
        let mut running = self.lock();
        if let Some(running) = &*running
            && serves(running)
        {
            return Ok(Arc::clone(running));
        }
        let started = Arc::new(start()?);
        let ended = running.replace(Arc::clone(&started));
        drop(running);
        // Without the lock: it may wait for a thread.
        drop(ended);
        Ok(started)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<B>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
