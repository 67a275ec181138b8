//! The broker's start by the first export and its end with the last export.

use super::check;
use crate::export::registry::Registry;
use crate::fd::broker::started::Started;
use crate::fd::broker::thread::{Stop, Thread};
use shuttle::sync::mpsc::{Receiver, Sender, channel};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// What the thread sleeps on: as the library's pipe and its listener.
#[derive(Default)]
struct Bell {
    state: Mutex<Rung>,
    rung: Condvar,
}

#[derive(Default)]
struct Rung {
    is_told_to_stop: bool,
    /// The tokens that somebody asks for.
    requests: Vec<u32>,
}

impl Stop for Bell {
    fn stop(&self) -> bool {
        self.state.lock().expect("no thread panics").is_told_to_stop = true;
        self.rung.notify_all();
        true
    }
}

impl Bell {
    fn ask(&self, token: u32) {
        self.state
            .lock()
            .expect("no thread panics")
            .requests
            .push(token);
        self.rung.notify_all();
    }

    /// The next request; `None` to stop.
    fn wait(&self) -> Option<u32> {
        let mut state = self.state.lock().expect("no thread panics");
        loop {
            if state.is_told_to_stop {
                return None;
            }
            if let Some(token) = state.requests.pop() {
                return Some(token);
            }
            state = self.rung.wait(state).expect("no thread panics");
        }
    }
}

type LiveExports = Registry<u32, ExportedAllocation>;

/// As the library's, with another server.
struct Broker {
    thread: Thread<Bell>,
    bell: Arc<Bell>,
    /// Whether the thread serves.
    serves: Arc<AtomicBool>,
}

/// As the library's: the broker goes with the last of its exports.
struct ExportedAllocation {
    token: u32,
    broker: Arc<Broker>,
}

/// A share of an exported allocation.
struct Kept {
    exports: Arc<LiveExports>,
    export: Arc<ExportedAllocation>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.exports.release(&self.export.token, &self.export);
    }
}

/// As the library's.
struct Ipc {
    broker: Started<Broker>,
    exports: Arc<LiveExports>,
    starts: AtomicU32,
    /// Each thread has one to its end.
    runs: Mutex<Sender<()>>,
}

impl Ipc {
    /// And what tells, by its disconnection, that all threads have ended.
    fn new() -> (Arc<Self>, Receiver<()>) {
        let (runs, ended) = channel();
        let ipc = Self {
            broker: Started::default(),
            exports: Arc::default(),
            starts: AtomicU32::new(0),
            runs: Mutex::new(runs),
        };
        (Arc::new(ipc), ended)
    }

    fn start(&self) -> Result<Broker, &'static str> {
        self.starts.fetch_add(1, Ordering::Relaxed);
        let (bell, serves) = (Arc::new(Bell::default()), Arc::new(AtomicBool::new(true)));
        let (rings, exports) = (Arc::clone(&bell), Arc::clone(&self.exports));
        let running = self.runs.lock().expect("no thread panics").clone();
        let served = Arc::clone(&serves);
        let thread = Thread::start(Arc::clone(&bell), move || {
            while let Some(token) = rings.wait() {
                // Perhaps the last reference to the export, and so to the broker.
                let export = exports.find(&token, |export| export.token == token);
                thread::yield_now();
                drop(export);
            }
            served.store(false, Ordering::Relaxed);
            drop(running);
        });
        Ok(Broker {
            thread: thread.map_err(|_| "no thread")?,
            bell,
            serves,
        })
    }

    fn export(&self, token: u32) -> Kept {
        // As the library does: first whether it is there, then whether to start it.
        let runs = |broker: &Broker| broker.thread.runs();
        drop(self.broker.running());
        let broker = self.broker.or_start(runs, || self.start());
        let broker = broker.expect("it starts");
        let export = ExportedAllocation { token, broker };
        Kept {
            exports: Arc::clone(&self.exports),
            export: self.exports.register(token, export, |_| true),
        }
    }
}

impl Kept {
    fn is_served(&self) {
        assert!(
            self.export.broker.serves.load(Ordering::Relaxed),
            "an export without a broker"
        );
    }
}

#[test]
fn an_export_never_lives_without_a_broker() {
    check("an export never lives without a broker", || {
        let (ipc, ended) = Ipc::new();
        let export = |token| {
            let ipc = Arc::clone(&ipc);
            thread::spawn(move || {
                let export = ipc.export(token);
                assert_eq!(ipc.starts.load(Ordering::Relaxed), 1, "two brokers");
                drop(ipc);
                thread::yield_now();
                export.is_served();
            })
        };
        let threads = [export(1), export(1), export(2)];
        let exports = Arc::clone(&ipc.exports);
        drop(ipc);
        for thread in threads {
            thread.join().expect("no thread panics");
        }
        ended.recv().expect_err("all threads end");
        assert_eq!(exports.len(), 0, "an export leaked");
        assert_eq!(Arc::strong_count(&exports), 1, "an object leaked");
    });
}

#[test]
fn the_last_export_s_drop_meets_a_request() {
    check("the last export's drop meets a request", || {
        let (ipc, ended) = Ipc::new();
        let export = ipc.export(7);
        let bell = Arc::clone(&export.export.broker.bell);
        let importer = thread::spawn(move || {
            bell.ask(7);
            bell.ask(8);
        });
        let other = thread::spawn(move || {
            export.is_served();
            drop(export);
        });
        let exports = Arc::clone(&ipc.exports);
        drop(ipc);
        importer.join().expect("no thread panics");
        other.join().expect("no thread panics");
        ended.recv().expect_err("the thread ends");
        assert_eq!(exports.len(), 0, "an export leaked");
    });
}

#[test]
fn one_ipc_s_end_meets_another_one_s_start() {
    check("one ipc's end meets another one's start", || {
        let live = |token| {
            thread::spawn(move || {
                for _ in 0..2 {
                    let (ipc, ended) = Ipc::new();
                    let export = ipc.export(token);
                    drop(ipc);
                    export.is_served();
                    drop(export);
                    ended.recv().expect_err("the thread ends");
                }
            })
        };
        for thread in [live(1), live(2)] {
            thread.join().expect("no thread panics");
        }
    });
}

#[test]
fn a_start_that_failed_is_tried_again() {
    check("a start that failed is tried again", || {
        let (ipc, ended) = Ipc::new();
        let fails = Arc::new(AtomicBool::new(true));
        let export = || {
            let (ipc, fails) = (Arc::clone(&ipc), Arc::clone(&fails));
            thread::spawn(move || {
                let runs = |broker: &Broker| broker.thread.runs();
                let started = ipc.broker.or_start(runs, || {
                    thread::yield_now();
                    match fails.swap(false, Ordering::Relaxed) {
                        true => Err("no thread"),
                        false => ipc.start(),
                    }
                });
                started.is_ok()
            })
        };
        let threads = [export(), export(), export()];
        let results = threads.map(|thread| thread.join().expect("no thread panics"));
        assert_eq!(results.into_iter().filter(|started| *started).count(), 2);
        assert_eq!(ipc.starts.load(Ordering::Relaxed), 1);
        drop(ipc);
        ended.recv().expect_err("the thread ends");
    });
}
