//! What a worker does to itself: takes its own descriptors away, and lets its driver
//! fail, if that is the emulated one.

use super::actor::Thing;
use super::dice::Dice;
use super::notice::Disturbance;
use super::stage::Stage;
use super::trouble::Trouble;
use crate::driver::Kind;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The ordinary limit, which most systems have, too: a table is soon full.
const FILES: u64 = 1024;

/// Sets the ordinary limit of open files.
pub(super) fn limit_files() {
    limit(FILES);
}

fn limit(files: u64) {
    // Of the emulated driver, if that is the one: it raises the limit for moments.
    gpuipc_emulated::change_limit(|| {
        let now = getrlimit(Resource::Nofile);
        let files = now.maximum.map_or(files, |most| files.min(most));
        let limit = Rlimit {
            current: Some(files),
            ..now
        };
        // Below the hard limit it is always allowed.
        let _ = setrlimit(Resource::Nofile, limit);
    });
}

/// Which pain, and when.
pub(super) struct Pains {
    dice: Dice,
    /// Those that may come.
    faults: bool,
    files: bool,
    next: Instant,
    ending: Option<(Instant, Pain)>,
}

enum Pain {
    Faults,
    Limit,
    Full(Vec<OwnedFd>),
}

impl Pains {
    pub(super) fn new(dice: Dice, kind: Kind, without: &[Trouble]) -> Self {
        Self {
            dice,
            faults: kind == Kind::Emulated && !without.contains(&Trouble::Faults),
            // CUDA itself does not survive it: from a full table on, copies may fail with
            // OPERATING_SYSTEM for good (seen on an H200, driver 580).
            files: kind == Kind::Emulated && !without.contains(&Trouble::Files),
            next: Instant::now() + Duration::from_millis(100),
            ending: None,
        }
    }

    /// Begins or ends one when its time has come.
    pub(super) fn tick(&mut self, stage: &Stage<Thing>) {
        let now = Instant::now();
        if let Some((_, pain)) = self.ending.take_if(|(end, _)| *end <= now) {
            end(stage, pain);
            self.next = now + Duration::from_millis(self.dice.between(100, 900));
        }
        if self.ending.is_none() && self.next <= now {
            let time = Duration::from_millis(self.dice.between(20, 250));
            let pain = self.begin(stage);
            self.ending = pain.map(|pain| (now + time, pain));
            self.next = now + Duration::from_millis(100);
        }
    }

    /// Ends one that is under way.
    pub(super) fn stop(&mut self, stage: &Stage<Thing>) {
        if let Some((_, pain)) = self.ending.take() {
            end(stage, pain);
        }
    }

    fn begin(&mut self, stage: &Stage<Thing>) -> Option<Pain> {
        let faults = match (self.faults, self.files) {
            (true, true) => self.dice.one_in(2),
            (false, false) => return None,
            (faults, _) => faults,
        };
        let what = if faults {
            Disturbance::Faults
        } else {
            Disturbance::Descriptors
        };
        // Where even that needs a descriptor that is not there, another time.
        stage.notices.begin(stage.who, what).ok()?;
        if faults {
            let per_mille = self.dice.between(5, 80);
            let per_mille = u32::try_from(per_mille).unwrap_or(0);
            gpuipc_emulated::faults::random(self.dice.number(), per_mille, &[]);
            stage.counting.count("times of driver faults", 1);
            return Some(Pain::Faults);
        }
        if self.dice.one_in(2) {
            // Below what is open, or a little above.
            limit(self.dice.between(8, 80));
            stage.counting.count("times of a low limit of files", 1);
            return Some(Pain::Limit);
        }
        let mut ballast = Vec::new();
        while let Ok(fd) = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 0) {
            ballast.push(fd);
        }
        // A few are left sometimes: the second or third descriptor is missing then.
        ballast.truncate(ballast.len() - self.dice.below(4).min(ballast.len()));
        stage.counting.count("times of a full table of files", 1);
        Some(Pain::Full(ballast))
    }
}

fn end(stage: &Stage<Thing>, pain: Pain) {
    let what = match pain {
        Pain::Faults => {
            gpuipc_emulated::faults::clear();
            Disturbance::Faults
        }
        Pain::Limit => {
            limit_files();
            Disturbance::Descriptors
        }
        Pain::Full(ballast) => {
            drop(ballast);
            Disturbance::Descriptors
        }
    };
    // The file is there: it was begun.
    let _ = stage.notices.end(stage.who, what);
}
