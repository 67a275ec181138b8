//! `gpuipc doctor`: what works on this machine, what does not, and what to do.
//!
//! * `check`: one finding, and how all are written.
//! * `gpus`, `fabric` over `nvml`: the driver, the GPUs, the fabric.
//! * `place`, `limits`, `broker`, `sandbox`, `kernel` over `probe`, `peer_pidfd`: the
//!   machine around them.
//! * `trials`: memory shared for real.

mod broker;
mod check;
mod fabric;
mod gpus;
mod kernel;
mod limits;
mod nvml;
mod peer_pidfd;
mod place;
pub(crate) mod probe;
mod sandbox;
mod trials;

use crate::driver::{Choice, Kind};
use crate::output::{Failure, line};
use check::{Check, Report};
use gpuipc::HandleType;
use serde_json::json;
use trials::Tried;

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The driver that is asked about; without a GPU, auto says so, tries the
    /// emulated driver, and ends with code 1
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    driver: Choice,
    /// How long another process may give no sign of life; an import may wait
    /// half of it [default: 30000, and 5000 or GPUIPC_TIMEOUT_MS for an import]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX)))]
    timeout_ms: Option<u64>,
    /// One JSON object with all checks and trials
    #[arg(long)]
    json: bool,
}

/// See the module.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut report = Report::new(args.json);
    report.add_all(limits::environment())?;
    report.add_all(place::checks())?;
    report.add_all(limits::checks())?;
    report.add_all(broker::checks())?;
    report.add_all(sandbox::checks())?;
    report.add_all(kernel::pidfd())?;
    report.add(peer_pidfd::check())?;
    report.add_all(fabric::checks())?;
    let (opened, checks) = gpus::driver(args.driver);
    report.add_all(checks)?;
    let tried = match &opened {
        None => Vec::new(),
        Some(opened) => {
            report.add_all(gpus::gpus(opened))?;
            trials::run(opened, args.timeout_ms, &mut |lines| report.add_all(lines))?
        }
    };
    let used = opened.as_ref().map(|opened| opened.kind);
    let works = Works::of(args.driver, used, &tried);
    report.add(works.check())?;
    if args.json {
        let trials: Vec<_> = tried.iter().map(Tried::to_json).collect();
        line(json!({
            "driver_asked": args.driver.name(),
            "driver_used": used.map(Kind::name),
            "works": works.yes(),
            "types": works.names(),
            "checks": report.checks_as_json(),
            "trials": trials,
        }))?;
    }
    if works.yes() {
        Ok(())
    } else {
        Err(Failure::text(works.check().found))
    }
}

/// What works on the driver that was asked for.
struct Works {
    asked: Choice,
    used: Option<Kind>,
    /// By which the trials succeeded, on whatever driver they ran.
    types: Vec<HandleType>,
}

impl Works {
    fn of(asked: Choice, used: Option<Kind>, tried: &[Tried]) -> Self {
        let works = |wanted: &HandleType| tried.iter().any(|one| one.works() == Some(*wanted));
        Self {
            asked,
            used,
            types: HandleType::ALL.into_iter().filter(works).collect(),
        }
    }

    /// The emulated driver says nothing about a GPU that was asked for.
    fn stands_in(&self) -> bool {
        self.asked != Choice::Emulated && self.used == Some(Kind::Emulated)
    }

    fn yes(&self) -> bool {
        !self.types.is_empty() && !self.stands_in()
    }

    /// The types that work on the driver that was asked for.
    fn names(&self) -> Vec<&'static str> {
        if self.stands_in() {
            return Vec::new();
        }
        self.types.iter().map(|works| works.name()).collect()
    }

    fn check(&self) -> Check {
        let subject = "verdict";
        match self.used {
            None => Check::no(
                subject,
                "nothing works: no GPU can be used",
                "see the driver above",
            ),
            Some(_) if self.stands_in() => Check::no(
                subject,
                "no GPU can be used; what works on the emulated driver says only that this machine lets processes share",
                "see the driver above; --driver emulated asks about the emulated driver alone",
            ),
            Some(used) if self.types.is_empty() => Check::no(
                subject,
                format!(
                    "no type works between two processes on the driver {}",
                    used.name()
                ),
                "see the trials above",
            ),
            Some(used) => Check::ok(
                subject,
                format!(
                    "between two processes on the driver {}: {}",
                    used.name(),
                    self.names().join(", ")
                ),
            ),
        }
    }
}
