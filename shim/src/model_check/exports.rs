//! Exporters of one process: the registry of exports.

use super::check;
use crate::export::reference::Reference;
use crate::export::registry::Registry;
use shuttle::sync::Mutex;
use shuttle::thread;
use std::sync::Arc;

/// An allocation's number, as the driver gives it.
const ALLOCATION: u8 = 1;

/// As the library's: its drop closes the descriptor.
struct ExportedAllocation {
    driver: Arc<Mutex<Driver>>,
    reference: Reference<Handle>,
    /// The types that it was asked for.
    types: u8,
    token: u32,
}

impl Drop for ExportedAllocation {
    fn drop(&mut self) {
        self.driver.lock().expect("no thread panics").live -= 1;
    }
}

/// The driver's reference to the memory.
struct Handle(Arc<Mutex<Driver>>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.lock().expect("no thread panics").references -= 1;
    }
}

/// A share of an exported allocation.
struct Kept {
    process: Exporter,
    export: Arc<ExportedAllocation>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        let registry = &self.process.registry;
        if registry.release(&ALLOCATION, &self.export) {
            assert!(
                self.process.look_up(self.export.token).is_none(),
                "an export is found after its end"
            );
            self.export.reference.end();
            assert!(
                !self.export.reference.is_held(),
                "a reference outlives its export"
            );
        }
    }
}

#[derive(Default)]
struct Driver {
    made: u32,
    /// Descriptors that are open.
    live: u32,
    /// References that are not released.
    references: u32,
}

/// A process that exports.
#[derive(Clone, Default)]
struct Exporter {
    registry: Arc<Registry<u8, ExportedAllocation>>,
    driver: Arc<Mutex<Driver>>,
}

impl Exporter {
    fn export(&self, types: u8) -> Kept {
        let process = self.clone();
        let export = self.allocation_export(types);
        Kept { process, export }
    }

    fn allocation_export(&self, types: u8) -> Arc<ExportedAllocation> {
        let is_same = |export: &ExportedAllocation| {
            // Others go on while the registry is locked.
            thread::yield_now();
            export.types == types
        };
        if let Some(export) = self.registry.hold(&ALLOCATION, is_same) {
            return export;
        }
        let token = {
            let mut driver = self.driver.lock().expect("no thread panics");
            driver.made += 1;
            driver.live += 1;
            driver.references += 1;
            driver.made
        };
        let handle = Handle(Arc::clone(&self.driver));
        let mine = ExportedAllocation {
            driver: Arc::clone(&self.driver),
            reference: Reference::new(Some(handle)),
            types,
            token,
        };
        self.registry.register(ALLOCATION, mine, is_same)
    }

    /// As the broker does for whoever has a token.
    fn look_up(&self, token: u32) -> Option<Arc<ExportedAllocation>> {
        self.registry.find(&ALLOCATION, |export| {
            thread::yield_now();
            export.token == token
        })
    }

    /// Exports, and is found by its token as long as it holds the export.
    fn export_for_a_while(&self, types: u8) {
        let kept = self.export(types);
        thread::yield_now();
        let found = self.look_up(kept.export.token);
        assert!(
            found.is_some_and(|found| Arc::ptr_eq(&found, &kept.export)),
            "an export that lives is not found"
        );
        assert!(
            Arc::ptr_eq(&self.export(types).export, &kept.export),
            "two exports of one allocation"
        );
    }

    fn leaves_nothing(self) {
        let driver = self.driver.lock().expect("no thread panics");
        assert_eq!((driver.live, driver.references), (0, 0));
        drop(driver);
        assert_eq!(self.registry.len(), 0, "an entry leaked");
        assert_eq!(Arc::strong_count(&self.registry), 1, "an export leaked");
    }
}

fn on_threads<T: Send + 'static>(
    count: u8,
    exporter: &Exporter,
    work: impl Fn(&Exporter, u8) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let work = Arc::new(work);
    let spawn = |index| {
        let (exporter, work) = (exporter.clone(), Arc::clone(&work));
        thread::spawn(move || work(&exporter, index))
    };
    let threads: Vec<_> = (0..count).map(spawn).collect();
    let join = |thread: thread::JoinHandle<T>| thread.join().expect("no thread panics");
    threads.into_iter().map(join).collect()
}

#[test]
fn exports_at_once_share_one_export() {
    check("exports at once share one export", || {
        let exporter = Exporter::default();
        let held = on_threads(3, &exporter, |exporter, _| exporter.export(0));
        let first = &held[0].export;
        assert!(held.iter().all(|kept| Arc::ptr_eq(&kept.export, first)));
        assert_eq!(exporter.driver.lock().expect("no thread panics").live, 1);
        drop(held);
        exporter.leaves_nothing();
    });
}

#[test]
fn the_last_drop_meets_new_exports() {
    check("the last drop meets new exports", || {
        let exporter = Exporter::default();
        on_threads(3, &exporter, |exporter, _| {
            exporter.export_for_a_while(0);
            exporter.export_for_a_while(0);
        });
        exporter.leaves_nothing();
    });
}

#[test]
fn exports_by_other_types_are_other_exports_of_the_same_allocation() {
    check("exports by other types are other exports", || {
        let exporter = Exporter::default();
        on_threads(4, &exporter, |exporter, index| {
            exporter.export_for_a_while(index % 2);
        });
        exporter.leaves_nothing();
    });
}

#[test]
fn the_broker_never_releases_the_driver_s_reference() {
    check("the broker never releases the driver's reference", || {
        let exporter = Exporter::default();
        let kept = exporter.export(0);
        let token = kept.export.token;
        let kept = Mutex::new(Some(kept));
        on_threads(3, &exporter, move |exporter, index| match index {
            0 => {
                drop(kept.lock().expect("no thread panics").take());
                // The owner unmaps now.
                let references = exporter.driver.lock().expect("no thread panics").references;
                assert_eq!(references, 0, "a reference is still to be released");
            }
            // As the broker does that makes a descriptor.
            _ => {
                if let Some(found) = exporter.look_up(token) {
                    if let Some(handle) = found.reference.lend() {
                        thread::yield_now();
                        let references = handle.0.lock().expect("no thread panics").references;
                        assert_eq!(references, 1, "it is released while it is used");
                    }
                }
            }
        });
        exporter.leaves_nothing();
    });
}

#[test]
fn the_last_drop_meets_the_broker_s_look_up() {
    check("the last drop meets the broker's look-up", || {
        let exporter = Exporter::default();
        let export = exporter.export(0);
        let other = exporter.export(1);
        let (token, wrong) = (export.export.token, u32::MAX);
        let exports = Mutex::new(vec![export, other]);
        on_threads(3, &exporter, move |exporter, index| match index {
            0 => drop(exports.lock().expect("no thread panics").pop()),
            1 => drop(exports.lock().expect("no thread panics").pop()),
            // It may hold the last reference when it lets go.
            _ => {
                let found = exporter.look_up(token);
                thread::yield_now();
                assert!(found.is_none_or(|found| found.token == token));
                assert!(exporter.look_up(wrong).is_none());
            }
        });
        exporter.leaves_nothing();
    });
}
