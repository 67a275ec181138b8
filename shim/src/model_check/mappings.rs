//! Importers of one process: the cache of mappings.

use super::check;
use crate::import::slots::{Asked, Content, Slot, Slots};
use crate::process::wait::{Ended, Wait};
use shuttle::sync::Mutex;
use shuttle::thread;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

struct Model;

impl Content for Model {
    type Short = u8;
    type Exact = u8;
    type Note = ();
    type Value = Shared;
}

/// An allocation: two with the same first number share only the way to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key(u8, u8);

impl Asked<Model> for Key {
    fn short(&self) -> u8 {
        self.0
    }

    fn fits(&self, exact: &u8) -> bool {
        self.1 == *exact
    }

    fn exact(&self) -> u8 {
        self.1
    }

    fn suits(&self, (): &()) -> bool {
        true
    }
}

/// As the library's: it leaves its slot, then it is unmapped.
struct Shared {
    mapping: Mapping,
    slot: Arc<Slot<Model>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.slot.clean();
    }
}

struct Mapping {
    driver: Arc<Driver>,
    number: u32,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let mapped = self.driver.state().mapped.remove(&self.number);
        assert!(mapped.is_some(), "unmapped twice");
    }
}

/// What is mapped, and how often it was asked to map.
#[derive(Default)]
struct Driver {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    calls: u32,
    mapped: BTreeMap<u32, Key>,
    /// The mappings that somebody holds, by allocation.
    held: Vec<(Key, u32)>,
}

impl Driver {
    fn state(&self) -> shuttle::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn map(self: &Arc<Self>, key: Key) -> Mapping {
        let mut state = self.state();
        state.calls += 1;
        let number = state.calls;
        state.mapped.insert(number, key);
        Mapping {
            driver: Arc::clone(self),
            number,
        }
    }
}

/// A process that imports.
#[derive(Clone, Default)]
struct Importer {
    slots: Arc<Slots<Model>>,
    driver: Arc<Driver>,
}

impl Importer {
    fn import(&self, key: Key) -> Arc<Shared> {
        self.import_with(key, &patient(), || Ok(()))
            .expect("the driver maps")
    }

    /// `during` runs in the middle of the driver's work.
    fn import_with(
        &self,
        key: Key,
        wait: &Wait,
        during: impl FnOnce() -> Result<(), &'static str>,
    ) -> Result<Arc<Shared>, &'static str> {
        if let Some(shared) = self.slots.find(&key) {
            return Ok(shared);
        }
        let make = |slot: &Arc<Slot<Model>>| {
            let mapping = self.driver.map(key);
            during()?;
            let slot = Arc::clone(slot);
            Ok((Arc::new(Shared { mapping, slot }), Some(())))
        };
        let late = |ended| match ended {
            Ended::TimedOut => "timed out",
            Ended::Cancelled => "cancelled",
            Ended::System(_) => "system",
        };
        self.slots.get(&key, wait, make, late)
    }

    /// Holds a mapping for a while: all that time it is mapped, is of the right
    /// allocation, and is the one that all others of the allocation hold.
    fn use_one(&self, key: Key) {
        let shared = self.import(key);
        let number = shared.mapping.number;
        {
            let mut state = self.driver.state();
            assert_eq!(
                state.mapped.get(&number),
                Some(&key),
                "a mapping that has ended"
            );
            for (other, held) in &state.held {
                assert!(*other != key || *held == number, "two mappings in use");
            }
            state.held.push((key, number));
        }
        thread::yield_now();
        {
            let mut state = self.driver.state();
            assert_eq!(state.mapped.get(&number), Some(&key), "unmapped in use");
            let at = state.held.iter().position(|held| *held == (key, number));
            state.held.swap_remove(at.expect("entered above"));
        }
    }

    /// Nothing is left: no mapping, no slot, no reference to the slots.
    fn leaves_nothing(self) {
        assert!(self.driver.state().mapped.is_empty(), "a mapping leaked");
        assert_eq!(self.slots.len(), 0, "a slot leaked");
        assert_eq!(Arc::strong_count(&self.slots), 1, "an object leaked");
    }
}

fn patient() -> Wait {
    Wait {
        deadline: Instant::now() + Duration::from_secs(3600),
        cancel: None,
    }
}

/// Runs `work` on `count` threads at once.
fn on_threads<T: Send + 'static>(
    count: usize,
    importer: &Importer,
    work: impl Fn(&Importer, usize) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let work = Arc::new(work);
    let spawn = |index| {
        let (importer, work) = (importer.clone(), Arc::clone(&work));
        thread::spawn(move || work(&importer, index))
    };
    let threads: Vec<_> = (0..count).map(spawn).collect();
    let join = |thread: thread::JoinHandle<T>| thread.join().expect("no thread panics");
    threads.into_iter().map(join).collect()
}

const KEY: Key = Key(1, 1);

#[test]
fn importers_at_once_make_one_mapping() {
    check("importers at once make one mapping", || {
        let importer = Importer::default();
        let held = on_threads(3, &importer, |importer, _| importer.import(KEY));
        assert_eq!(importer.driver.state().calls, 1);
        assert!(held.iter().all(|shared| Arc::ptr_eq(shared, &held[0])));
        drop(held);
        importer.leaves_nothing();
    });
}

#[test]
fn a_failure_is_one_importer_s_and_the_others_go_on() {
    check("a failure is one importer's", || {
        let importer = Importer::default();
        let has_failed = Arc::new(AtomicBool::new(false));
        let results = on_threads(3, &importer, move |importer, _| {
            importer.import_with(KEY, &patient(), || {
                thread::yield_now();
                match has_failed.swap(true, Ordering::Relaxed) {
                    false => Err("the driver refuses"),
                    true => Ok(()),
                }
            })
        });
        let (made, refused): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        assert_eq!(refused.len(), 1);
        assert_eq!(refused[0].as_ref().err(), Some(&"the driver refuses"));
        assert_eq!(importer.driver.state().calls, 2);
        drop((made, refused));
        importer.leaves_nothing();
    });
}

#[test]
fn all_importers_may_fail_and_none_waits_for_ever() {
    check("all importers may fail", || {
        let importer = Importer::default();
        let results = on_threads(3, &importer, |importer, _| {
            importer.import_with(KEY, &patient(), || Err("the driver refuses"))
        });
        assert!(results.iter().all(Result::is_err));
        assert_eq!(importer.driver.state().calls, 3);
        drop(results);
        importer.leaves_nothing();
    });
}

#[test]
fn who_has_no_time_does_not_wait_for_the_maker() {
    let cancelled = || Wait {
        cancel: Some(Arc::new(AtomicBool::new(true))),
        ..patient()
    };
    let late = || Wait {
        deadline: Instant::now(),
        cancel: None,
    };
    check("who has no time does not wait", move || {
        let importer = Importer::default();
        let other = importer.clone();
        let made = importer.import_with(KEY, &patient(), move || {
            // The maker is in the driver until these have their answers.
            let answers = on_threads(2, &other, move |importer, index| {
                let wait = if index == 0 { late() } else { cancelled() };
                importer.import_with(KEY, &wait, || Ok(())).err()
            });
            assert_eq!(answers, [Some("timed out"), Some("cancelled")]);
            Ok(())
        });
        assert!(made.is_ok());
        drop(made);
        importer.leaves_nothing();
    });
}

#[test]
fn the_last_drop_meets_new_imports() {
    check("the last drop meets new imports", || {
        let importer = Importer::default();
        on_threads(3, &importer, |importer, _| {
            importer.use_one(KEY);
            importer.use_one(KEY);
        });
        importer.leaves_nothing();
    });
}

#[test]
fn the_last_drop_of_an_allocation_leaves_its_neighbour_in_place() {
    check("the last drop leaves its neighbour in place", || {
        let importer = Importer::default();
        on_threads(3, &importer, |importer, index| match index {
            0 => importer.use_one(Key(1, 1)),
            _ => importer.use_one(Key(1, 2)),
        });
        importer.leaves_nothing();
    });
}

#[test]
fn the_last_drop_meets_an_import_that_fails() {
    check("the last drop meets an import that fails", || {
        let importer = Importer::default();
        on_threads(3, &importer, |importer, index| match index {
            0 => drop(importer.import_with(KEY, &patient(), || Err("the driver refuses"))),
            _ => importer.use_one(KEY),
        });
        importer.leaves_nothing();
    });
}

#[test]
fn other_allocations_do_not_wait_for_a_driver_call() {
    check("other allocations do not wait", || {
        let importer = Importer::default();
        let held = importer.import(Key(3, 3));
        let other = importer.clone();
        let made = importer.import_with(KEY, &patient(), move || {
            // The maker is in the driver until these have imported and dropped.
            on_threads(2, &other, |importer, index| {
                importer.use_one(if index == 0 { Key(2, 2) } else { Key(1, 2) });
            });
            drop(held);
            Ok(())
        });
        assert!(made.is_ok());
        drop(made);
        importer.leaves_nothing();
    });
}
