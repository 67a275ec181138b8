//! One thread of a worker: does one thing after the other, as its dice fall. A seed repeats what
//! it tries, not what it finds exported, which is the other processes' doing.
#![allow(unsafe_code)]

use crate::board::{Board, Count, Disturbance, Export, now};
use crate::giving::Group;
use crate::judge;
use crate::taking::Mapping;
use crate::worker::{Stage, lock};
use gpuipc::{Error, ExportOptions, ImportOptions, Ipc};
use gpuipc_kit::Dice;
use std::sync::Arc;
use std::time::Instant;

const MOST_GROUPS: usize = 3;
const MOST_MAPPINGS: usize = 6;

pub(crate) struct Actor {
    pub(crate) stage: Arc<Stage>,
    pub(crate) board: &'static Board,
    thread: usize,
    step: u64,
    pub(crate) dice: Dice,
    pub(crate) groups: Vec<Group>,
    pub(crate) mappings: Vec<Mapping>,
    /// Exports that it has seen, and asks for again when they are over.
    pub(crate) seen: Vec<Export>,
}

impl Actor {
    pub(crate) fn new(stage: Arc<Stage>, thread: usize, round: u64) -> Self {
        let who = stage.who;
        let names = [who.worker as u64, who.incarnation, thread as u64, round];
        Self {
            dice: Dice::new(stage.seed, &names),
            board: stage.board,
            stage,
            thread,
            step: 0,
            groups: Vec::new(),
            mappings: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// Makes so many steps, or until all are to end, and gives everything back.
    pub(crate) fn run(mut self, most: u64) {
        while self.step < most && !self.stage.is_ending() {
            self.step += 1;
            self.one_step();
            self.idle();
        }
        while !self.mappings.is_empty() {
            self.unmap();
        }
        while let Some(group) = self.groups.pop() {
            self.revoke_all(group);
        }
        self.idle();
    }

    fn one_step(&mut self) {
        match self.dice.below(64) {
            0..=7 if self.groups.len() < MOST_GROUPS => self.export_some(),
            0..=11 => self.revoke_some(),
            12..=31 if self.mappings.len() < MOST_MAPPINGS => self.import_some(),
            12..=31 | 46..=50 => self.unmap(),
            32..=45 => self.verify_some(),
            51..=54 => self.import_stale(),
            61 if self.dice.one_in(4) => self.fork(),
            62 if self.dice.one_in(4) => {
                let begun = self.begin(Count::NewIpc);
                let renewed = self.stage.renew(self.dice.one_in(3));
                self.judge(Count::NewIpc, None, begun, renewed);
            }
            _ => self.free_while_exported(),
        }
    }

    /// A forked child, in which everything must be refused.
    fn fork(&mut self) {
        let Some(ipc) = self.ipc(Count::Fork) else {
            return;
        };
        self.begin(Count::Fork);
        let handles = self.seen.last().map(|export| export.handles.clone());
        let handles = handles.unwrap_or_default();
        let ptr = self.groups.iter().find_map(Group::device_ptr).unwrap_or(1);
        let forked = crate::system::fork(|| {
            // SAFETY: refused before anything is looked at: this is a forked child.
            let export = unsafe { ipc.export(ptr, 1, &ExportOptions::default()) };
            let import = ipc.import(&handles, &ImportOptions::default());
            gpuipc::is_forked()
                && matches!(export, Err(Error::Forked))
                && (handles.is_empty() || matches!(import, Err(Error::Forked)))
        });
        match forked {
            Ok(()) => self.board.done(Count::Fork),
            Err(why) => self.fail(&why),
        }
    }

    /// The `Ipc` of the moment.
    pub(crate) fn ipc(&self, deed: Count) -> Option<Ipc> {
        self.judge(deed, None, now(), self.stage.ipc())
    }

    /// Notes what this thread is about to do. Returns the time.
    pub(crate) fn begin(&self, deed: Count) -> u64 {
        *lock(&self.stage.desks[self.thread]) = Some((deed, Instant::now()));
        now()
    }

    fn idle(&self) {
        *lock(&self.stage.desks[self.thread]) = None;
    }

    pub(crate) fn fail(&self, what: &str) {
        let (thread, step) = (self.thread, self.step);
        self.stage
            .fail(&format!("thread {thread}, step {step}: {what}"));
    }

    /// What was done to this process and an export's owner since then, in the judge's words.
    pub(crate) fn disturbances(&self, export: Option<&Export>, begun: u64) -> u8 {
        let mut all = 0;
        let mut add = |who, what, flag| {
            if self.board.was_disturbed(who, what, begun) {
                all |= flag;
            }
        };
        let own = self.stage.who;
        add(own, Disturbance::Stop, judge::STOPPED);
        add(own, Disturbance::Files, judge::OWN_FILES);
        add(own, Disturbance::Faults, judge::OWN_FAULTS);
        if let Some(export) = export {
            let owner = export.group.who;
            add(owner, Disturbance::Stop, judge::STOPPED);
            add(owner, Disturbance::Faults, judge::EXPORTER_FAULTS);
            // Also long before: an export that was made without a broker stays without.
            if self.board.was_disturbed(owner, Disturbance::Files, 0) {
                all |= judge::EXPORTER_FILES;
            }
            // An import in the owner gives its own pointer, which it may have freed.
            let freed = owner == own && !self.board.is_allocated(export.group);
            if freed || !self.board.stands(export) || self.board.is_killed(owner) {
                all |= judge::GONE;
            }
        }
        all
    }

    /// Counts what was done, and what was refused for a reason. What was refused for none is a
    /// failure.
    pub(crate) fn judge<T>(
        &self,
        deed: Count,
        export: Option<&Export>,
        begun: u64,
        result: Result<T, Error>,
    ) -> Option<T> {
        match result {
            Ok(value) => {
                self.board.done(deed);
                return Some(value);
            }
            // Looked at after the call: an export that stands now was there at the error.
            Err(error) if judge::is_explained(self.disturbances(export, begun), &error) => {
                self.board.refused(deed);
            }
            Err(error) => {
                let of = export.map(|export| format!(" of {}", export.memory));
                self.fail(&format!(
                    "{deed:?}{} failed, which nothing explains ({:#b}): {error}",
                    of.unwrap_or_default(),
                    self.disturbances(export, begun),
                ));
            }
        }
        None
    }
}
