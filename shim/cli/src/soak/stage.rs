//! What the threads of one worker share, and how it tells the program that started it
//! what they do.

use super::ground::Ground;
use super::notice::{Disturbances, Notices, Who};
use super::offer::Offer;
use super::tally::Counting;
use super::trouble::Trouble;
use crate::driver::Kind;
use gpuipc::{Driver, Ipc, IpcOptions};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Failures that one worker tells; more would only repeat them.
const MOST_FAILURES: u32 = 5;

/// A worker's common ground.
#[derive(Debug)]
pub(super) struct Stage<Thing> {
    pub(super) who: Who,
    pub(super) seed: u64,
    pub(super) ground: Ground,
    pub(super) notices: Notices,
    pub(super) driver: Driver,
    pub(super) kind: Kind,
    pub(super) device: i32,
    pub(super) without: Vec<Trouble>,
    pub(super) counting: Counting,
    /// Asks all threads to end.
    pub(super) is_ending: AtomicBool,
    /// What one thread made and another is to drop.
    pub(super) shelf: Mutex<Vec<Thing>>,
    /// Allocations that this process maps, or is about to map, by how many windows.
    held: Mutex<BTreeMap<String, usize>>,
    ipc: Mutex<Option<Ipc>>,
    /// What each thread is doing.
    desks: Vec<Mutex<Doing>>,
    failures: AtomicU32,
}

/// What a thread is doing.
#[derive(Clone, Debug, Default)]
struct Doing {
    step: u64,
    what: String,
    since: Option<Instant>,
}

/// Takes a lock, whoever panicked with it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<Thing> Stage<Thing> {
    pub(super) fn new(
        (who, seed): (Who, u64),
        ground: Ground,
        (driver, kind, device): (Driver, Kind, i32),
        threads: usize,
        without: &[Trouble],
    ) -> Self {
        Self {
            who,
            seed,
            notices: ground.notices(),
            ground,
            driver,
            kind,
            device,
            without: without.to_vec(),
            counting: Counting::default(),
            is_ending: AtomicBool::new(false),
            shelf: Mutex::default(),
            held: Mutex::default(),
            ipc: Mutex::default(),
            desks: (0..threads).map(|_| Mutex::default()).collect(),
            failures: AtomicU32::new(0),
        }
    }

    /// The `Ipc` that all threads use now.
    pub(super) fn ipc(&self) -> Result<Ipc, gpuipc::Error> {
        let mut ipc = lock(&self.ipc);
        match &*ipc {
            Some(ipc) => Ok(ipc.clone()),
            None => Ok(ipc.insert(Ipc::new(self.driver)?).clone()),
        }
    }

    /// Has all threads use a new one from now on. The old one's broker ends with its
    /// last offer.
    pub(super) fn renew(&self, spare_descriptor: bool) -> Result<(), gpuipc::Error> {
        let options = IpcOptions::default().spare_descriptor(spare_descriptor);
        let new = Ipc::with_options(self.driver, &options)?;
        let old = lock(&self.ipc).replace(new);
        drop(old);
        Ok(())
    }

    /// Without one: what is left is what its offers hold.
    pub(super) fn close(&self) {
        let old = lock(&self.ipc).take();
        drop(old);
    }

    /// What was done to this process and to an offer's owner since then.
    pub(super) fn disturbed(
        &self,
        offer: Option<&Offer>,
        since: SystemTime,
    ) -> (Disturbances, Disturbances) {
        let own = self.notices.since(self.who, since);
        let exporter = offer.map(|offer| self.notices.since(offer.who, since));
        (own, exporter.unwrap_or(Disturbances::NONE))
    }

    /// Notes that an allocation is going to be mapped; whether it is already.
    pub(super) fn hold(&self, group: &str) -> bool {
        let mut held = lock(&self.held);
        let count = held.entry(group.to_owned()).or_default();
        *count += 1;
        *count > 1
    }

    /// That a window of it is unmapped, or could not be mapped.
    pub(super) fn release(&self, group: &str) {
        let mut held = lock(&self.held);
        if let Some(count) = held.get_mut(group) {
            *count -= 1;
            if *count == 0 {
                held.remove(group);
            }
        }
    }

    /// Notes what a thread is about to do.
    pub(super) fn begin(&self, thread: usize, step: u64, what: String) {
        if let Some(desk) = self.desks.get(thread) {
            *lock(desk) = Doing {
                step,
                what,
                since: Some(Instant::now()),
            };
        }
    }

    /// Notes that it did it.
    pub(super) fn end(&self, thread: usize) {
        if let Some(desk) = self.desks.get(thread) {
            lock(desk).since = None;
        }
    }

    /// Tells that something is not as it must be.
    pub(super) fn fail(&self, thread: usize, step: u64, what: &str) {
        let desk = self.desks.get(thread);
        let doing = desk.map_or_else(String::new, |desk| lock(desk).what.clone());
        if self.failures.fetch_add(1, Ordering::Relaxed) < MOST_FAILURES {
            tell(&json!({
                "say": "failure",
                "what": format!("thread {thread}, step {step} ({}): {what}", doing.trim_end()),
            }));
        }
    }

    /// Tells how far it is, and what the threads are at: what takes longest first.
    pub(super) fn report(&self) {
        let doing = self.desks.iter().enumerate().filter_map(|(thread, desk)| {
            let desk = lock(desk);
            let took = desk.since?.elapsed();
            Some((
                took,
                format!("thread {thread}, step {}: {}", desk.step, desk.what),
            ))
        });
        let mut doing: Vec<_> = doing.collect();
        doing.sort_by_key(|(took, _)| Reverse(*took));
        let longest = doing.first().map_or(Duration::ZERO, |(took, _)| *took);
        let words: Vec<String> = doing.into_iter().map(|(_, what)| what).collect();
        tell(&json!({
            "say": "report",
            "tally": self.counting.lock().to_json(),
            "doing": words.join("; "),
            "doing_ms": u64::try_from(longest.as_millis()).unwrap_or(u64::MAX),
        }));
    }
}

/// Writes one line for the program that started this one.
pub(super) fn tell(value: &Value) {
    let mut stdout = std::io::stdout().lock();
    if writeln!(stdout, "{value}").is_err() {
        // It has gone away, and this process is to go with it.
        std::process::exit(1);
    }
}
