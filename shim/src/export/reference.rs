//! The driver's reference to memory on offer.

use crate::sync::Mutex;
use std::sync::PoisonError;

/// Something that whoever ends the offer drops, in its own thread, and nobody else:
/// [`Self::end`] waits for those who use it.
///
/// On an H200 (driver 580) `cuMemRelease` in one thread and `cuMemUnmap` of the same
/// allocation in another free the driver's own memory twice if they meet, and the
/// process dies. The owner may unmap as soon as its offer has ended; so by then no
/// thread of the broker's may still have a reference to release.
#[derive(Debug)]
pub(crate) struct Reference<T>(Mutex<Option<T>>);

impl<T> Reference<T> {
    /// `None` for memory of which the driver gives no reference.
    pub(crate) const fn new(held: Option<T>) -> Self {
        Self(Mutex::new(held))
    }

    /// Whether it is there.
    pub(crate) fn is_held(&self) -> bool {
        self.with(|held| held.is_some())
    }

    /// Uses it, if it is there; it stays there meanwhile.
    pub(crate) fn with<R>(&self, work: impl FnOnce(Option<&T>) -> R) -> R {
        work(self.lock().as_ref())
    }

    /// Drops it here.
    pub(crate) fn end(&self) {
        let held = self.lock().take();
        drop(held);
    }

    fn lock(&self) -> crate::sync::MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
