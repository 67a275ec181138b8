//! What is being done to whom: a disturbance is announced before it begins, so
//! that an error can be told from one that nothing explains.
//!
//! An announcement is a file of the disturbance's name, whose time of last
//! change lies in the future while it lasts and is its end afterwards. To look
//! at one takes no descriptor: it works in a process whose table is full.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What a disturbance did to a request on its way shows a little later.
const SLACK: Duration = Duration::from_millis(100);

/// One run of one worker's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Who {
    pub(super) worker: u32,
    /// Counts how often it was started anew.
    pub(super) incarnation: u32,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.worker, self.incarnation)
    }
}

impl std::str::FromStr for Who {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "WORKER.INCARNATION";
        let (worker, incarnation) = text.split_once('.').ok_or(wrong)?;
        Ok(Self {
            worker: worker.parse().map_err(|_| wrong)?,
            incarnation: incarnation.parse().map_err(|_| wrong)?,
        })
    }
}

/// What makes a call of the library fail that would not fail otherwise. (Signals
/// do not: nobody may notice them.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disturbance {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, for a while.
    Stop,
    /// No descriptor is left, or only a few.
    Descriptors,
    /// Calls of the emulated driver fail.
    Faults,
}

impl Disturbance {
    const ALL: [Self; 4] = [Self::Kill, Self::Stop, Self::Descriptors, Self::Faults];

    const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Descriptors => "descriptors",
            Self::Faults => "faults",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Some of them.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Disturbances(u8);

impl Disturbances {
    pub(super) const NONE: Self = Self(0);

    pub(super) const fn has(self, one: Disturbance) -> bool {
        self.0 & one.bit() != 0
    }

    pub(super) fn has_any(self, some: &[Disturbance]) -> bool {
        some.iter().any(|one| self.has(*one))
    }

    /// Those of both.
    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) const fn with(self, one: Disturbance) -> Self {
        Self(self.0 | one.bit())
    }
}

impl fmt::Debug for Disturbances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Disturbance::ALL.into_iter().filter(|one| self.has(*one));
        f.debug_set().entries(names.map(Disturbance::name)).finish()
    }
}

/// The folder of announcements.
#[derive(Clone, Debug)]
pub(super) struct Notices(pub(super) PathBuf);

impl Notices {
    fn path(&self, who: Who, what: Disturbance) -> PathBuf {
        self.0.join(format!("{who}.{}", what.name()))
    }

    /// Announces one; to be called before it begins. Needs a descriptor.
    pub(super) fn begin(&self, who: Who, what: Disturbance) -> Result<(), Errno> {
        let path = self.path(who, what);
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        drop(rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?);
        set_time(&path, SystemTime::now() + Duration::from_secs(1 << 30))
    }

    /// That it is over.
    pub(super) fn end(&self, who: Who, what: Disturbance) -> Result<(), Errno> {
        // Not the kernel's own clock for files: that stands still for as long as the
        // processor that keeps it does not run, a tenth of a second and more on a
        // virtual machine, and then an end would lie before what it explains.
        set_time(&self.path(who, what), SystemTime::now())
    }

    /// What was done to this one at any time since `start`.
    pub(super) fn since(&self, who: Who, start: SystemTime) -> Disturbances {
        let reached = |what: &Disturbance| {
            std::fs::metadata(self.path(who, *what))
                .and_then(|file| file.modified())
                .is_ok_and(|end| end + SLACK >= start)
        };
        let all = Disturbance::ALL.into_iter().filter(reached);
        all.fold(Disturbances::NONE, Disturbances::with)
    }
}

fn set_time(path: &Path, time: SystemTime) -> Result<(), Errno> {
    let time = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: time.as_secs().cast_signed(),
            tv_nsec: time.subsec_nanos().into(),
        },
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbance_is_seen_while_it_lasts_and_not_by_what_begins_later() {
        let folder = std::env::temp_dir().join(format!("gpuipc-notices-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a new folder");
        let notices = Notices(folder.clone());
        let who = Who {
            worker: 3,
            incarnation: 1,
        };
        let before = SystemTime::now();
        assert_eq!(notices.since(who, before), Disturbances::NONE);
        notices.begin(who, Disturbance::Stop).expect("a new file");
        let stopped = Disturbances::NONE.with(Disturbance::Stop);
        let hour = Duration::from_secs(3600);
        assert_eq!(notices.since(who, before + hour), stopped);
        notices.end(who, Disturbance::Stop).expect("the file");
        assert_eq!(notices.since(who, before), stopped);
        assert_eq!(notices.since(who, before + hour), Disturbances::NONE);
        let other = Who { worker: 4, ..who };
        assert_eq!(notices.since(other, before), Disturbances::NONE);
        std::fs::remove_dir_all(folder).expect("the folder");
    }
}
