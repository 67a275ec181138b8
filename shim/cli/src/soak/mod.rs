//! `gpuipc soak`: many processes that share memory at random while they are killed,
//! stopped, interrupted and starved, for as long as one likes.
//!
//! * `watch`, `crew`, `report`: the program that starts the others, disturbs them and
//!   says what came of it.
//! * `worker`, `stage`, `actor`: one of the others, and its threads; `giving`,
//!   `taking`, `fork`: what these do; `pains`: what a worker does to itself.
//! * `ground`, `offer`, `notice`: the folder in which they meet, and what each knows of
//!   the others.
//! * `judge`, `leaks`, `tally`: what is a failure, what is left, and how much was done.
//! * `dice`: choices that a seed repeats; `trouble`: what can be left out.

mod actor;
mod crew;
mod dice;
mod fork;
mod giving;
mod ground;
mod judge;
mod leaks;
mod notice;
mod offer;
mod pains;
mod report;
mod stage;
mod taking;
mod tally;
mod trouble;
mod watch;
pub(crate) mod worker;

use crate::bench::make_current;
use crate::driver::{Choice, Kind};
use crate::output::{Failure, line};
use crate::session::Session;
use crate::signals::EndSignals;
use crew::Recipe;
use ground::{Ground, files};
use indicatif::ProgressBar;
use leaks::Item;
use report::Asked;
use std::time::Duration;
use trouble::Trouble;
use watch::{Outcome, Watch};

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The driver
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    driver: Choice,
    /// The GPU
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..))]
    device: i32,
    /// For how long, such as 20 or 0.5
    #[arg(long, value_name = "N", value_parser = minutes)]
    minutes: Duration,
    /// What all choices come from; by default the time
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// How many processes share
    #[arg(long, value_name = "P", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=256))]
    processes: u32,
    /// Leave these disturbances out
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    without: Vec<Trouble>,
    /// One JSON object instead of the tables
    #[arg(long)]
    json: bool,
}

fn minutes(text: &str) -> Result<Duration, String> {
    let rule = || "a number of minutes above 0, such as 20 or 0.5".to_owned();
    let minutes: f64 = text.parse().map_err(|_| rule())?;
    let time = Duration::try_from_secs_f64(minutes * 60.0).map_err(|_| rule())?;
    if time.is_zero() {
        Err(rule())
    } else {
        Ok(time)
    }
}

/// See the module.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // Before any thread, so that all of them leave the signals to this one.
    let signals = EndSignals::block()
        .map_err(|error| Failure::text(format!("signals cannot be waited for: {error}")))?;
    let session = Session::on_device(args.driver, "--device", args.device)?;
    let asked = Asked {
        kind: session.opened.kind,
        seed: args.seed.unwrap_or_else(seed_of_now),
        processes: args.processes,
    };
    if !args.json {
        line(session.opened.describe(session.device))?;
        line(format!(
            "seed {}: repeats what each process tries, not how they meet",
            asked.seed
        ))?;
        if asked.kind == Kind::Cuda {
            line(
                "left out on a real GPU: driver faults, full tables of files (CUDA does not survive them), memory of pools and for the fabric",
            )?;
        }
    }
    let ground = Ground::new()?;
    let outcome = soak(args, &asked, &session, &ground, &signals);
    ground.remove();
    let outcome = outcome?;
    if args.json {
        line(report::json(&asked, &outcome))?;
    } else {
        line(report::tables(&outcome))?;
        line(report::last_line(&asked, &outcome))?;
    }
    if report::is_good(&outcome) {
        Ok(())
    } else {
        Err(Failure::text(format!(
            "the soak failed; --seed {} repeats its choices",
            asked.seed
        )))
    }
}

fn seed_of_now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    now.map_or(1, |now| now.as_secs())
}

fn soak(
    args: &Args,
    asked: &Asked,
    session: &Session,
    ground: &Ground,
    signals: &EndSignals,
) -> Result<Outcome, Failure> {
    make_current(session)?;
    let recipe = Recipe {
        kind: asked.kind,
        device: session.device,
        seed: asked.seed,
        ground: ground.clone(),
        without: args.without.clone(),
    };
    let free = || -> Result<Option<u64>, Failure> {
        if asked.kind == Kind::Emulated {
            return Ok(None);
        }
        let (free, _) = session.opened.driver.mem_info()?;
        Ok(Some(free as u64))
    };
    let free_before = free()?;
    // Draws on stderr, and only where that is a terminal.
    let bar = ProgressBar::new(args.minutes.as_secs());
    let watch = Watch::start(recipe, args.processes, bar)?;
    let mut outcome = watch.run(args.minutes, signals)?;
    for (name, folder) in [
        ("files of the emulated GPU", ground.gpu()),
        ("brokers' names", ground.sockets()),
        ("handles on offer", ground.offers()),
    ] {
        let left = files(&folder);
        outcome.leaks.push(Item {
            detail: left.iter().take(5).cloned().collect::<Vec<_>>().join(" "),
            ..Item::new(name, 0, left.len() as u64)
        });
    }
    let zombies = u64::from(leaks::has_children());
    outcome.leaks.push(Item::new("processes", 0, zombies));
    if let (Some(before), Some(after)) = (free_before, free()?) {
        // Used is what is not free.
        outcome.leaks.push(Item::new(
            "GPU memory, bytes less free",
            0,
            before.saturating_sub(after),
        ));
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::minutes;
    use std::time::Duration;

    #[test]
    fn minutes_are_a_number_above_0() {
        assert_eq!(minutes("0.5"), Ok(Duration::from_secs(30)));
        assert_eq!(minutes("20"), Ok(Duration::from_secs(1200)));
        for wrong in ["0", "-1", "x", "inf", "NaN", "1e300", ""] {
            assert!(minutes(wrong).is_err(), "{wrong}");
        }
    }
}
