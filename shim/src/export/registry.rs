//! Values that are found by a key while somebody holds them.
//!
//! After the last holder has dropped a value it cannot be found any more, even while
//! somebody who found it before still uses it.

use crate::process::sync::{Mutex, MutexGuard};
use core::hash::Hash;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

struct Entry<V> {
    value: Arc<V>,
    /// At least one.
    holders: usize,
}

type Entries<K, V> = HashMap<K, Vec<Entry<V>>>;

/// Values by key; several may have the same.
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
    /// Puts a value in, unless one is there that is the same to the caller: then
    /// that one is given back, and `mine` is dropped. Either has one holder more.
    pub(crate) fn register(&self, key: K, mine: V, is_same: impl Fn(&V) -> bool) -> Arc<V> {
        let mine = Arc::new(mine);
        let mut entries = self.entries();
        let values = entries.entry(key).or_default();
        if let Some(entry) = values.iter_mut().find(|entry| is_same(&entry.value)) {
            entry.holders += 1;
            let theirs = Arc::clone(&entry.value);
            // Unlocked before `mine` ends.
            drop(entries);
            return theirs;
        }
        values.push(Entry {
            value: Arc::clone(&mine),
            holders: 1,
        });
        mine
    }

    /// The value that is wanted, with one holder more.
    pub(crate) fn hold(&self, key: &K, wanted: impl Fn(&V) -> bool) -> Option<Arc<V>> {
        let mut entries = self.entries();
        let mut values = entries.get_mut(key)?.iter_mut();
        let entry = values.find(|entry| wanted(&entry.value))?;
        entry.holders += 1;
        Some(Arc::clone(&entry.value))
    }

    /// The value that is wanted, for one who does not hold it.
    pub(crate) fn find(&self, key: &K, wanted: impl Fn(&V) -> bool) -> Option<Arc<V>> {
        let entries = self.entries();
        let mut values = entries.get(key)?.iter();
        let entry = values.find(|entry| wanted(&entry.value))?;
        Some(Arc::clone(&entry.value))
    }

    /// One holder less; whether it was the last.
    pub(crate) fn release(&self, key: &K, held: &Arc<V>) -> bool {
        let mut entries = self.entries();
        let Some(values) = entries.get_mut(key) else {
            return false;
        };
        let mut own = values.iter_mut().enumerate();
        let Some((at, entry)) = own.find(|(_, entry)| Arc::ptr_eq(&entry.value, held)) else {
            return false;
        };
        entry.holders -= 1;
        let is_last = entry.holders == 0;
        if is_last {
            // The caller's is not the last reference, so that nothing ends here.
            values.swap_remove(at);
            if values.is_empty() {
                entries.remove(key);
            }
        }
        is_last
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
