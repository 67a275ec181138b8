//! Exports without an owner. They live until their memory is freed or the process ends.
//!
//! The driver does not report a free. So each new export checks whether the memory of a
//! few of these exports is still there, and revokes those whose memory is gone.

use super::offer::{Kept, Key};
use crate::process::identity;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many are looked at in one turn: more than one comes in.
const A_TURN: usize = 8;

struct Left {
    /// One for an allocation and types, however often it was left.
    offers: BTreeMap<(Key, u8), Kept>,
    /// The last one that was looked at.
    last: Option<(Key, u8)>,
}

static LEFT: Mutex<Left> = Mutex::new(Left {
    offers: BTreeMap::new(),
    last: None,
});

/// Keeps offers for as long as their memory is there.
pub(super) fn keep(offers: impl IntoIterator<Item = Kept>) {
    // In a forked child the list may be locked for ever.
    if identity::is_forked() {
        return;
    }
    end_some();
    let mut doubled = Vec::new();
    let mut left = left();
    for offer in offers {
        doubled.extend(left.offers.insert(offer.kind(), offer));
    }
    drop(left);
}

/// Ends a few of those whose memory is gone. Not for a forked child.
pub(super) fn end_some() {
    let mut ended = Vec::new();
    let mut left = left();
    for _ in 0..A_TURN.min(left.offers.len()) {
        let Some(next) = left.next() else { break };
        left.last = Some(next);
        // A driver that gives no answer says nothing about the memory.
        let is_gone = |offer: &Kept| matches!(offer.memory_unchanged(), Ok(false));
        if left.offers.get(&next).is_some_and(is_gone) {
            ended.extend(left.offers.remove(&next));
        }
    }
    // An offer's end may wait for the broker: nobody waits here meanwhile.
    drop(left);
    drop(ended);
}

impl Left {
    /// The one behind the last, or the first.
    fn next(&self) -> Option<(Key, u8)> {
        let behind = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut behind = self.offers.range((behind, Bound::Unbounded));
        let next = behind.next().or_else(|| self.offers.iter().next());
        next.map(|(kind, _)| *kind)
    }
}

fn left() -> MutexGuard<'static, Left> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}
