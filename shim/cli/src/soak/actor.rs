//! One thread of a worker: does one thing after the other, as its dice fall.
//!
//! The dice are the seed's, so a seed repeats what a thread tries. What it finds on
//! offer is other processes' doing, and not repeated.
#![allow(unsafe_code)]

use super::dice::Dice;
use super::fork::fork;
use super::giving::Group;
use super::judge::{Situation, explains};
use super::notice::Disturbance;
use super::offer::{Body, Offer};
use super::stage::{Stage, lock};
use super::taking::Mapping;
use super::tally::Deed;
use super::trouble::Trouble;
use gpuipc::{Error, ExportOptions, ImportOptions};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

const MOST_GROUPS: usize = 3;
const MOST_MAPPINGS: usize = 6;
/// Offers that a thread has seen and asks for again when they are gone.
pub(super) const MOST_SEEN: usize = 24;
const MOST_ON_SHELF: usize = 6;

/// What one thread makes and another may drop.
#[derive(Debug)]
pub(super) enum Thing {
    Group(Group),
    Mapping(Mapping),
}

/// A thread.
pub(super) struct Actor {
    pub(super) stage: Arc<Stage<Thing>>,
    pub(super) thread: usize,
    pub(super) step: u64,
    pub(super) dice: Dice,
    pub(super) groups: Vec<Group>,
    pub(super) mappings: Vec<Mapping>,
    pub(super) seen: Vec<Offer>,
    /// Allocations so far.
    pub(super) next: u64,
}

impl Actor {
    pub(super) fn new(stage: Arc<Stage<Thing>>, thread: usize, round: u64) -> Self {
        let who = stage.who;
        let names = [
            u64::from(who.worker),
            u64::from(who.incarnation),
            thread as u64,
            round,
        ];
        Self {
            dice: Dice::of(stage.seed, &names),
            stage,
            thread,
            step: 0,
            groups: Vec::new(),
            mappings: Vec::new(),
            seen: Vec::new(),
            // No two rounds of a thread name two allocations alike.
            next: round << 32,
        }
    }

    /// Steps until the worker is to end or this many were made; then everything is
    /// given back.
    pub(super) fn run(mut self, most: u64) {
        while self.step < most && !self.stage.is_ending.load(Ordering::Relaxed) {
            self.step += 1;
            self.one_step();
            self.stage.end(self.thread);
        }
        while !self.mappings.is_empty() {
            self.unmap();
        }
        while let Some(group) = self.groups.pop() {
            self.withdraw(group);
        }
        self.stage.end(self.thread);
    }

    fn one_step(&mut self) {
        match self.dice.below(64) {
            0..=7 if self.groups.len() < MOST_GROUPS => self.give(),
            0..=11 => self.take_back(),
            12..=31 if self.mappings.len() < MOST_MAPPINGS => self.take(),
            12..=31 => self.unmap(),
            32..=45 => self.verify(),
            46..=50 => self.unmap(),
            51..=54 => self.take_what_is_gone(),
            55..=56 => self.ask(),
            57..=60 => self.exchange(),
            61 if self.dice.one_in(4) && !self.stage.without.contains(&Trouble::Forks) => {
                self.fork();
            }
            62 if self.dice.one_in(4) => self.renew(),
            _ => self.free_on_offer(),
        }
    }

    /// Withdraws all of an allocation, or one window of it.
    fn take_back(&mut self) {
        if self.groups.is_empty() {
            return self.give();
        }
        let index = self.dice.below(self.groups.len());
        if self.dice.one_in(3) && self.withdraw_one(index) {
            return;
        }
        let group = self.groups.swap_remove(index);
        self.withdraw(group);
    }

    /// Leaves something to another thread, or takes what one has left.
    fn exchange(&mut self) {
        let mut shelf = lock(&self.stage.shelf);
        let has_room = shelf.len() < MOST_ON_SHELF;
        match self.dice.below(4) {
            0 if has_room && !self.groups.is_empty() => {
                let index = self.dice.below(self.groups.len());
                shelf.push(Thing::Group(self.groups.swap_remove(index)));
            }
            1 if has_room && !self.mappings.is_empty() => {
                let index = self.dice.below(self.mappings.len());
                shelf.push(Thing::Mapping(self.mappings.swap_remove(index)));
            }
            _ if shelf.is_empty() => {}
            _ => {
                let index = self.dice.below(shelf.len());
                match shelf.swap_remove(index) {
                    Thing::Group(group) => self.groups.push(group),
                    Thing::Mapping(mapping) => self.mappings.push(mapping),
                }
            }
        }
    }

    /// A forked child, in which everything is refused.
    fn fork(&mut self) {
        let Some(ipc) = self.ipc(Deed::Fork) else {
            return;
        };
        self.begin(Deed::Fork, "");
        let handles = self.seen.iter().rev().find_map(|offer| match &offer.body {
            Body::Handles(handles) => Some(handles.clone()),
            Body::Registered(_) => None,
        });
        let handles = handles.unwrap_or_default();
        let ptr = self.groups.iter().find_map(Group::device_ptr).unwrap_or(1);
        let forked = fork(|| {
            // SAFETY: refused before anything is looked at: this is a forked child.
            let export = unsafe { ipc.export(ptr, 1, &ExportOptions::default()) };
            let import = ipc.import(&handles, &ImportOptions::default());
            gpuipc::is_forked()
                && matches!(export, Err(Error::Forked))
                && (handles.is_empty() || matches!(import, Err(Error::Forked)))
        });
        match forked {
            Ok(()) => self.stage.counting.done(Deed::Fork),
            Err(why) => self.fail(&why),
        }
    }

    fn renew(&mut self) {
        let begun = SystemTime::now();
        self.begin(Deed::NewIpc, "");
        let renewed = self.stage.renew(self.dice.one_in(3));
        self.judge(Deed::NewIpc, None, begun, renewed);
    }

    /// The `Ipc` of the moment.
    pub(super) fn ipc(&self, deed: Deed) -> Option<gpuipc::Ipc> {
        let begun = SystemTime::now();
        match self.stage.ipc() {
            Ok(ipc) => Some(ipc),
            Err(error) => self.judge(deed, None, begun, Err(error)),
        }
    }

    pub(super) fn begin(&self, deed: Deed, what: &str) {
        let what = format!("{} {what}", deed.name());
        self.stage.begin(self.thread, self.step, what);
    }

    pub(super) fn fail(&self, what: &str) {
        self.stage.fail(self.thread, self.step, what);
    }

    /// Counts what was done, and what was refused for a reason. What was refused for
    /// none is a failure.
    pub(super) fn judge<T>(
        &self,
        deed: Deed,
        offer: Option<&Offer>,
        begun: SystemTime,
        result: Result<T, Error>,
    ) -> Option<T> {
        let error = match result {
            Ok(value) => {
                self.stage.counting.done(deed);
                return Some(value);
            }
            Err(error) => error,
        };
        // In this order: an offer that stands after the error was there at it.
        let ground = &self.stage.ground;
        let gone = offer.is_some_and(|offer| {
            // In the owner an import gives its own pointer, which it may have freed.
            let own = offer.who == self.stage.who;
            !offer.stands(ground) || (own && !offer.is_allocated(ground))
        });
        let (own, exporter) = self.stage.disturbed(offer, begun);
        let situation = Situation {
            own,
            exporter,
            gone,
        };
        if explains(&situation, &error) {
            self.stage.counting.refused(deed);
        } else {
            let of = offer.map(|offer| format!(" of {} ({})", offer.name(), offer.memory));
            self.fail(&format!(
                "{}{} failed, which nothing explains ({situation:?}): {}",
                deed.name(),
                of.unwrap_or_default(),
                error.to_string().replace('\n', " | "),
            ));
        }
        None
    }

    /// The same for this command's own files, which need descriptors, too.
    pub(super) fn judge_file<T>(
        &self,
        what: &str,
        begun: SystemTime,
        result: io::Result<T>,
    ) -> Option<T> {
        let error = match result {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let (own, _) = self.stage.disturbed(None, begun);
        let table = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
        if own.has(Disturbance::Descriptors) && table.contains(&error.raw_os_error()) {
            self.stage.counting.count("files refused", 1);
        } else {
            let open = super::leaks::descriptors();
            self.fail(&format!("{what}: {error}; {own:?}; open are {open:?}"));
        }
        None
    }
}
