//! What is alive, found by a key. It keeps nothing alive: who drops the last
//! reference takes the entry out.

use crate::sync::{Mutex, MutexGuard};
use core::hash::Hash;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, Weak};

type Entries<K, V> = HashMap<K, Vec<Weak<V>>>;

/// Live values by key; several may have the same.
pub(crate) struct Registry<K, V> {
    entries: Mutex<Entries<K, V>>,
}

impl<K, V> Default for Registry<K, V> {
    fn default() -> Self {
        Self {
            entries: Mutex::new(HashMap::new()),
        }
    }
}

impl<K: Eq + Hash, V> Registry<K, V> {
    /// Puts a value in, unless a live one is there that is the same to the caller:
    /// then that one is given back, and `mine` is dropped.
    pub(crate) fn register(&self, key: K, mine: Arc<V>, is_same: impl Fn(&V) -> bool) -> Arc<V> {
        let mut entries = self.entries();
        let values = entries.entry(key).or_default();
        let others: Vec<Arc<V>> = live(values).collect();
        let theirs = others.iter().find(|value| is_same(value)).cloned();
        if theirs.is_none() {
            values.push(Arc::downgrade(&mine));
        }
        // Unlocked before any of them may be dropped: a drop takes the lock.
        drop(entries);
        drop(others);
        theirs.unwrap_or(mine)
    }

    /// The live value that is wanted.
    pub(crate) fn find(&self, key: &K, wanted: impl Fn(&V) -> bool) -> Option<Arc<V>> {
        let entries = self.entries();
        // Kept until the lock is open, since one that is dropped takes it.
        let mut others = Vec::new();
        let found = live(entries.get(key)?).find_map(|value| {
            if wanted(&value) {
                Some(value)
            } else {
                others.push(value);
                None
            }
        });
        drop(entries);
        drop(others);
        found
    }

    /// Takes a value out: by its own drop.
    pub(crate) fn forget(&self, key: &K, ended: &V) {
        let mut entries = self.entries();
        if let Some(values) = entries.get_mut(key) {
            // A new one of the same key may be there already.
            values.retain(|value| !core::ptr::eq(value.as_ptr(), ended));
            if values.is_empty() {
                entries.remove(key);
            }
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries<K, V>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many keys there are.
    #[cfg(all(test, gpuipc_shuttle))]
    pub(crate) fn len(&self) -> usize {
        self.entries().len()
    }
}

fn live<V>(values: &[Weak<V>]) -> impl Iterator<Item = Arc<V>> {
    values.iter().filter_map(Weak::upgrade)
}
