//! The driver's reference to exported memory.

use crate::process::sync::{Condvar, Mutex, MutexGuard, ThreadId, current};
use core::ops::Deref;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How long the end waits for those who use it.
const TIME_TO_GIVE_BACK: Duration = Duration::from_secs(1);

/// Something that others use, and that whoever ends it drops, in its own thread.
///
/// On an H200 (driver 580) `cuMemRelease` in one thread and `cuMemUnmap` of the same
/// allocation in another free the driver's own memory twice if they meet, and the
/// process dies. The owner may unmap as soon as its export has ended; so by then no
/// thread of the broker's may still have a reference to release.
#[derive(Debug)]
pub(crate) struct Reference<T> {
    state: Mutex<State<T>>,
    given_back: Condvar,
}

#[derive(Debug)]
struct State<T> {
    /// Never the users' alone: whoever ends it drops the last one.
    held: Option<Arc<T>>,
    users: Vec<ThreadId>,
    ended_by: Option<ThreadId>,
}

impl<T> Reference<T> {
    /// `None` for memory of which the driver gives no reference.
    pub(crate) fn new(held: Option<T>) -> Self {
        Self {
            state: Mutex::new(State {
                held: held.map(Arc::new),
                users: Vec::new(),
                ended_by: None,
            }),
            given_back: Condvar::new(),
        }
    }

    /// Whether it is there.
    pub(crate) fn is_held(&self) -> bool {
        let state = self.lock();
        state.held.is_some() && state.ended_by.is_none()
    }

    /// For use, if it is there.
    pub(crate) fn lend(&self) -> Option<Lent<'_, T>> {
        let mut state = self.lock();
        if state.ended_by.is_some() {
            return None;
        }
        let value = Arc::clone(state.held.as_ref()?);
        state.users.push(current().id());
        Some(Lent {
            reference: self,
            value: Some(value),
        })
    }

    /// Drops it, when those who use it have given it back. One whose driver or logger
    /// hangs is waited for a second; then it is never dropped.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        let own = current().id();
        if state.ended_by.replace(own).is_some() {
            return;
        }
        // Called while this very thread uses it, as by a logger: it ends when that does.
        if !state.users.contains(&own) {
            self.finish(state);
        }
    }

    fn finish(&self, mut state: MutexGuard<'_, State<T>>) {
        let until = Instant::now() + TIME_TO_GIVE_BACK;
        while !state.users.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.given_back.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let held = state.held.take();
        let is_used = !state.users.is_empty();
        drop(state);
        if is_used {
            core::mem::forget(held);
            log::warn!(
                target: "gpuipc::gpu",
                "a driver call about memory whose export ends has not returned for {TIME_TO_GIVE_BACK:?}: the memory stays allocated"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody's use of a reference.
pub(crate) struct Lent<'a, T> {
    reference: &'a Reference<T>,
    /// Until the drop.
    value: Option<Arc<T>>,
}

impl<T> Deref for Lent<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("there until the drop")
    }
}

impl<T> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        let mut state = self.reference.lock();
        // Not the last one.
        self.value = None;
        let own = current().id();
        if let Some(at) = state.users.iter().position(|user| *user == own) {
            state.users.swap_remove(at);
        }
        if state.ended_by == Some(own) && !state.users.contains(&own) {
            self.reference.finish(state);
        } else {
            self.reference.given_back.notify_all();
        }
    }
}

#[cfg(all(test, not(gpuipc_shuttle)))]
mod tests {
    use super::Reference;
    use std::sync::Arc;

    #[test]
    fn the_end_drops_it_and_it_is_lent_no_more() {
        let value = Arc::new(());
        let reference = Reference::new(Some(Arc::clone(&value)));
        drop(reference.lend().expect("it is there"));
        assert!(reference.is_held());
        assert_eq!(Arc::strong_count(&value), 2);
        reference.end();
        assert_eq!(Arc::strong_count(&value), 1);
        assert!(!reference.is_held());
        assert!(reference.lend().is_none());
        reference.end();
    }

    #[test]
    fn who_ends_what_it_is_using_drops_it_after_use() {
        let value = Arc::new(());
        let reference = Reference::new(Some(Arc::clone(&value)));
        let (first, second) = (reference.lend(), reference.lend());
        reference.end();
        assert!(!reference.is_held());
        drop(first);
        assert_eq!(Arc::strong_count(&value), 2, "dropped while it is used");
        drop(second);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn who_does_not_give_it_back_is_not_waited_for_for_ever_and_never_drops_it() {
        let value = Arc::new(());
        let reference = Reference::new(Some(Arc::clone(&value)));
        let lent = reference.lend();
        std::thread::scope(|scope| scope.spawn(|| reference.end()).join().expect("no panic"));
        drop(lent);
        assert_eq!(Arc::strong_count(&value), 2, "the user dropped it");
        drop(reference);
        assert_eq!(Arc::strong_count(&value), 2);
    }
}
