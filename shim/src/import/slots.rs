//! Values that are made once, even if several threads ask for one at the same time, and
//! that are found as long as somebody holds them.
//!
//! No lock is held while a value is made. A thread waits only for a thread that makes
//! or drops the same value.

use crate::process::sync::{Condvar, Mutex, MutexGuard, RwLock};
use crate::process::wait::{Ended, Wait};
use core::fmt;
use core::hash::Hash;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

/// What is kept.
pub(crate) trait Content: Sized {
    /// Finds a slot quickly.
    type Short: Copy + Eq + Hash + fmt::Debug;
    /// What a slot is for, compared after that.
    type Exact;
    /// What is asked of a value. It stands beside it, so that nobody has to hold a
    /// value, and perhaps be its last user, while its slot is locked.
    type Note;
    /// Its drop calls [`Slot::clean`], after what must have ended before another
    /// value is made.
    type Value;
}

/// What somebody asks for.
pub(crate) trait Asked<K: Content> {
    fn short(&self) -> K::Short;
    /// Whether a slot is for this.
    fn fits(&self, exact: &K::Exact) -> bool;
    /// For a new slot, which fits.
    fn exact(&self) -> K::Exact;
    /// Whether a slot's value will do.
    fn suits(&self, note: &K::Note) -> bool;
}

/// All slots. One with no value and nobody who makes one is not kept.
pub(crate) struct Slots<K: Content> {
    all: RwLock<ByShort<K>>,
}

type ByShort<K> = HashMap<<K as Content>::Short, Vec<Arc<Slot<K>>>>;

/// The place of the values that are for the same.
pub(crate) struct Slot<K: Content> {
    home: Arc<Slots<K>>,
    short: K::Short,
    exact: K::Exact,
    state: Mutex<State<K>>,
    changed: Condvar,
}

impl<K: Content> fmt::Debug for Slot<K> {
    /// Without what it is exactly for, which holds a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("short", &self.short)
            .finish_non_exhaustive()
    }
}

struct State<K: Content> {
    /// A thread is making a value.
    is_making: bool,
    /// No longer to be found: a new slot takes its place.
    is_removed: bool,
    /// Seldom more than one.
    values: Vec<(K::Note, Weak<K::Value>)>,
}

impl<K: Content> Default for Slots<K> {
    fn default() -> Self {
        Self {
            all: RwLock::new(HashMap::new()),
        }
    }
}

impl<K: Content> Slots<K> {
    /// The value, if it is there: without allocating.
    pub(crate) fn find(&self, asked: &impl Asked<K>) -> Option<Arc<K::Value>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        let slot = all
            .get(&asked.short())?
            .iter()
            .find(|slot| asked.fits(&slot.exact))?;
        slot.state().find(asked)
    }

    /// The value: made by `make` if it is not there. An error of `make` is this
    /// caller's alone. What it makes without a note is the caller's alone, too.
    pub(crate) fn get<E>(
        self: &Arc<Self>,
        asked: &impl Asked<K>,
        wait: &Wait,
        make: impl FnOnce(&Arc<Slot<K>>) -> Result<(Arc<K::Value>, Option<K::Note>), E>,
        late: impl FnOnce(Ended) -> E,
    ) -> Result<Arc<K::Value>, E> {
        let slot = loop {
            let slot = self.slot_of(asked);
            match slot.take_turn(asked, wait) {
                Turn::Hit(value) => return Ok(value),
                Turn::Make => break slot,
                Turn::Again => {}
                Turn::Ended(ended) => return Err(late(ended)),
            }
        };
        let turn = Making { slot: &slot };
        let made = make(&slot);
        let made = made.map(|(value, note)| {
            if let Some(note) = note {
                let known = (note, Arc::downgrade(&value));
                slot.state().values.push(known);
            }
            value
        });
        drop(turn);
        made
    }

    fn slot_of(self: &Arc<Self>, asked: &impl Asked<K>) -> Arc<Slot<K>> {
        let short = asked.short();
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let slots = all.entry(short).or_default();
        if let Some(slot) = slots.iter().find(|slot| asked.fits(&slot.exact)) {
            return Arc::clone(slot);
        }
        let slot = Arc::new(Slot {
            home: Arc::clone(self),
            short,
            exact: asked.exact(),
            state: Mutex::new(State {
                is_making: false,
                is_removed: false,
                values: Vec::new(),
            }),
            changed: Condvar::new(),
        });
        slots.push(Arc::clone(&slot));
        slot
    }

    /// How many slots there are.
    #[cfg(all(test, gpuipc_shuttle))]
    pub(crate) fn len(&self) -> usize {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.values().map(Vec::len).sum()
    }
}

impl<K: Content> Slot<K> {
    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets values that have ended, and the slot with the last one.
    pub(crate) fn clean(&self) {
        let mut all = self
            .home
            .all
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        state.values.retain(|(_, value)| value.strong_count() > 0);
        if state.values.is_empty() && !state.is_making && !state.is_removed {
            state.is_removed = true;
            if let Some(slots) = all.get_mut(&self.short) {
                slots.retain(|slot| !core::ptr::eq(Arc::as_ptr(slot), self));
                if slots.is_empty() {
                    all.remove(&self.short);
                }
            }
        }
        drop(state);
        drop(all);
        self.changed.notify_all();
    }

    fn take_turn(&self, asked: &impl Asked<K>, wait: &Wait) -> Turn<K> {
        /// How often a waiting thread looks at its cancel flag.
        const INTERVAL: Duration = Duration::from_millis(20);
        let mut state = self.state();
        loop {
            if let Some(value) = state.find(asked) {
                return Turn::Hit(value);
            }
            if state.is_removed {
                return Turn::Again;
            }
            if !state.is_making && !state.is_ending() {
                state.is_making = true;
                return Turn::Make;
            }
            let left = match wait.left() {
                Ok(left) => left,
                Err(ended) => return Turn::Ended(ended),
            };
            let waited = self.changed.wait_timeout(state, left.min(INTERVAL));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl<K: Content> State<K> {
    /// A value's drop has begun, and has not come to [`Slot::clean`] yet.
    fn is_ending(&self) -> bool {
        self.values
            .iter()
            .any(|(_, value)| value.strong_count() == 0)
    }

    fn find(&self, asked: &impl Asked<K>) -> Option<Arc<K::Value>> {
        self.values.iter().find_map(|(note, value)| {
            let suits = asked.suits(note);
            suits.then(|| value.upgrade()).flatten()
        })
    }
}

/// What a thread that wants a value is to do.
enum Turn<K: Content> {
    Hit(Arc<K::Value>),
    /// Make it: nobody else does.
    Make,
    /// Look for the slot again: this one is no longer to be found.
    Again,
    Ended(Ended),
}

/// A turn at making: ended on drop, however it went.
struct Making<'a, K: Content> {
    slot: &'a Slot<K>,
}

impl<K: Content> Drop for Making<'_, K> {
    fn drop(&mut self) {
        self.slot.state().is_making = false;
        self.slot.clean();
    }
}

#[cfg(all(test, not(gpuipc_shuttle)))]
mod tests {
    use super::{Asked, Content, Slot, Slots};
    use crate::process::wait::{Ended, Wait};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Barrier};
    use std::time::{Duration, Instant};

    struct Numbers;

    impl Content for Numbers {
        type Short = ();
        type Exact = ();
        type Note = ();
        type Value = Number;
    }

    /// Its end takes until both barriers are passed.
    struct Number {
        slot: Arc<Slot<Numbers>>,
        end: Arc<[Barrier; 2]>,
    }

    impl Drop for Number {
        fn drop(&mut self) {
            self.end[0].wait();
            self.end[1].wait();
            self.slot.clean();
        }
    }

    struct Any;

    impl Asked<Numbers> for Any {
        fn short(&self) {}

        fn fits(&self, (): &()) -> bool {
            true
        }

        fn exact(&self) {}

        fn suits(&self, (): &()) -> bool {
            true
        }
    }

    #[test]
    fn a_value_is_made_after_the_end_of_the_one_before() {
        let slots: Arc<Slots<Numbers>> = Arc::default();
        let end = Arc::new([const { 2 }; 2].map(Barrier::new));
        let made = AtomicU32::new(0);
        let get = |milliseconds| {
            let wait = Wait {
                deadline: Instant::now() + Duration::from_millis(milliseconds),
                cancel: None,
            };
            let make = |slot: &Arc<Slot<Numbers>>| {
                made.fetch_add(1, Ordering::Relaxed);
                let number = Number {
                    slot: Arc::clone(slot),
                    end: Arc::clone(&end),
                };
                Ok((Arc::new(number), Some(())))
            };
            slots.get(&Any, &wait, make, |ended| ended)
        };
        let first = get(60_000);
        std::thread::scope(|scope| {
            let dropping = scope.spawn(|| drop(first));
            end[0].wait();
            assert_eq!(get(50).err(), Some(Ended::TimedOut));
            assert_eq!(made.load(Ordering::Relaxed), 1);
            let next = scope.spawn(|| get(60_000).map(drop));
            end[1].wait();
            dropping.join().expect("no panic");
            // The end of the next one.
            end[0].wait();
            end[1].wait();
            assert_eq!(next.join().expect("no panic"), Ok(()));
        });
        assert_eq!(made.load(Ordering::Relaxed), 2);
    }
}
