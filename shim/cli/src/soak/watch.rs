//! The soak as a whole: starts the workers, disturbs them, watches over them, and ends
//! them.

use super::crew::{Ears, Recipe, Said, Worker};
use super::dice::Dice;
use super::leaks::Item;
use super::notice::{Disturbance, Who};
use super::tally::Tally;
use super::trouble::Trouble;
use crate::output::Failure;
use crate::signals::{EndSignals, Poke};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// No call may take longer, and no worker be silent for longer: imports wait for less
/// than ten seconds, stops last less than three.
const HANG: Duration = Duration::from_secs(60);
/// After so many failures nothing new is to be learned.
const MOST_FAILURES: usize = 20;
const TICK: Duration = Duration::from_millis(10);
/// Between two kills, in milliseconds, and so on.
const KILLS: (u64, u64) = (600, 3000);
const STOPS: (u64, u64) = (400, 2000);
const STOPPED: (u64, u64) = (50, 2500);
const SIGNALS: (u64, u64) = (5, 60);

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) tally: Tally,
    pub(super) leaks: Vec<Item>,
    pub(super) failures: Vec<String>,
    pub(super) hangs: u64,
    /// Workers that came to a normal end and said what was left of them.
    pub(super) ended: u64,
    pub(super) time: Duration,
    /// The signal that ended it early.
    pub(super) interrupted: Option<&'static str>,
}

/// The soak under way.
pub(super) struct Watch {
    recipe: Recipe,
    ears: Ears,
    workers: Vec<Worker>,
    outcome: Outcome,
    dice: Dice,
    bar: ProgressBar,
    next: Next,
    /// Nobody is started anew: all are told to end.
    is_ending: bool,
}

/// When what is done next.
struct Next {
    kill: Instant,
    stop: Instant,
    signal: Instant,
}

impl Watch {
    /// Starts the workers.
    pub(super) fn start(recipe: Recipe, processes: u32, bar: ProgressBar) -> Result<Self, Failure> {
        if let Ok(style) = ProgressStyle::with_template("[{elapsed}/{len}s] {msg}") {
            bar.set_style(style);
        }
        let now = Instant::now();
        let mut watch = Self {
            dice: Dice::of(recipe.seed, &[]),
            recipe,
            ears: Ears::new(),
            workers: Vec::new(),
            outcome: Outcome::default(),
            bar,
            next: Next {
                kill: now + Duration::from_millis(KILLS.1 / 2),
                stop: now + Duration::from_millis(STOPS.1 / 2),
                signal: now,
            },
            is_ending: false,
        };
        for worker in 0..processes {
            let who = Who {
                worker,
                incarnation: 0,
            };
            let started = watch.recipe.start(who, false, &watch.ears)?;
            watch.workers.push(started);
        }
        Ok(watch)
    }

    /// Disturbs and watches for this time, or until a signal; then ends all workers.
    pub(super) fn run(mut self, time: Duration, signals: &EndSignals) -> Result<Outcome, Failure> {
        let start = Instant::now();
        while start.elapsed() < time && self.outcome.failures.len() < MOST_FAILURES {
            let interrupted = signals
                .wait(Some(Instant::now()))
                .map_err(|error| Failure::text(format!("sigtimedwait: {error}")))?;
            if interrupted.is_some() {
                self.outcome.interrupted = interrupted;
                break;
            }
            self.listen()?;
            self.disturb()?;
            self.find_hangs()?;
            self.bar.set_message(format!(
                "{} deeds, {} kills, {} failures",
                self.deeds(),
                self.outcome.tally.number("kills"),
                self.outcome.failures.len()
            ));
        }
        self.end()?;
        self.outcome.time = start.elapsed();
        self.sweep()?;
        self.bar.finish_and_clear();
        Ok(self.outcome)
    }

    fn deeds(&self) -> u64 {
        let running = self.workers.iter().map(|worker| worker.tally.all_deeds());
        self.outcome.tally.all_deeds() + running.sum::<u64>()
    }

    fn fail(&mut self, who: Who, what: &str) {
        let text = format!("seed {}, worker {who}, {what}", self.recipe.seed);
        self.bar.suspend(|| eprintln!("gpuipc soak: {text}"));
        self.outcome.failures.push(text);
    }

    /// Takes what the workers have said.
    fn listen(&mut self) -> Result<(), Failure> {
        let mut time = TICK;
        while let Some((who, said)) = self.ears.hear(time) {
            time = Duration::ZERO;
            let index = self.workers.iter().position(|worker| worker.who == who);
            match (index, said) {
                // A dead one's last words.
                (_, Said::Failure(what)) => self.fail(who, &what),
                (None, _) => {}
                (Some(index), Said::Report { tally, doing }) => {
                    let worker = &mut self.workers[index];
                    worker.is_up = true;
                    worker.heard = Instant::now();
                    (worker.tally, worker.doing) = (tally, doing);
                }
                (Some(index), Said::Warm) => self.workers[index].heard = Instant::now(),
                (Some(index), Said::End(leaks)) => self.workers[index].leaks = Some(leaks),
                (Some(index), Said::Closed) => self.closed(index)?,
            }
        }
        Ok(())
    }

    /// A worker has ended by itself.
    fn closed(&mut self, index: usize) -> Result<(), Failure> {
        let worker = &mut self.workers[index];
        let (who, status) = (worker.who, worker.reap());
        if let Some(leaks) = worker.leaks.clone() {
            self.outcome.ended += 1;
            self.take_leaks(who, leaks);
            if status.is_none_or(|status| !status.success()) {
                self.fail(who, &format!("it ended badly: {status:?}"));
            }
            self.remove(index);
            return Ok(());
        }
        let doing = worker.doing.0.clone();
        let fate = status.map_or_else(|| "it does not end".to_owned(), |status| status.to_string());
        self.fail(who, &format!("it has ended: {fate}; it was at {doing:?}"));
        if self.is_ending {
            self.remove(index);
            Ok(())
        } else {
            self.replace(index)
        }
    }

    fn take_leaks(&mut self, who: Who, leaks: Vec<Item>) {
        for mut item in leaks {
            if item.is_leaked() {
                let detail = format!("{who}: {} then {}", item.before, item.after);
                item.detail = format!("{detail} {}", item.detail).trim_end().to_owned();
            }
            match self
                .outcome
                .leaks
                .iter_mut()
                .find(|sum| sum.name == item.name)
            {
                Some(sum) => sum.add(&item),
                None => self.outcome.leaks.push(item),
            }
        }
    }

    /// Forgets a dead worker, but not what it did.
    fn remove(&mut self, index: usize) -> Who {
        let worker = self.workers.swap_remove(index);
        self.outcome.tally.add(&worker.tally);
        self.recipe.ground.bury(worker.who);
        worker.who
    }

    /// Starts another in a dead one's place.
    fn replace(&mut self, index: usize) -> Result<(), Failure> {
        let who = self.remove(index);
        let next = Who {
            incarnation: who.incarnation + 1,
            ..who
        };
        let worker = self.recipe.start(next, false, &self.ears)?;
        self.workers.push(worker);
        Ok(())
    }

    fn later(&mut self, (first, last): (u64, u64)) -> Instant {
        Instant::now() + Duration::from_millis(self.dice.between(first, last))
    }

    /// Kills, stops, lets go on and interrupts.
    fn disturb(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        self.let_go_on(|until| until <= now)?;
        if self.workers.is_empty() {
            return Ok(());
        }
        let notices = self.recipe.ground.notices();
        let notice = |who, what| {
            let begun = notices.begin(who, what);
            begun.map_err(|errno| Failure::text(format!("a notice of {who}: {errno}")))
        };
        let happens = |trouble| !self.recipe.without.contains(&trouble);
        let [signals, stops, kills] =
            [Trouble::Signals, Trouble::Stops, Trouble::Kills].map(happens);
        if signals && self.next.signal <= now {
            let index = self.dice.below(self.workers.len());
            if self.workers[index].is_up {
                self.workers[index].signal(Poke::SIGNAL);
                self.outcome.tally.count("signals", 1);
            }
            self.next.signal = self.later(SIGNALS);
        }
        if stops && self.next.stop <= now {
            let index = self.dice.below(self.workers.len());
            if self.workers[index].stopped.is_none() {
                notice(self.workers[index].who, Disturbance::Stop)?;
                self.workers[index].signal(Signal::STOP);
                self.workers[index].stopped = Some(self.later(STOPPED));
                self.outcome.tally.count("stops", 1);
            }
            self.next.stop = self.later(STOPS);
        }
        if kills && self.next.kill <= now {
            let index = self.dice.below(self.workers.len());
            notice(self.workers[index].who, Disturbance::Kill)?;
            self.workers[index].kill();
            self.outcome.tally.count("kills", 1);
            self.replace(index)?;
            self.next.kill = self.later(KILLS);
        }
        Ok(())
    }

    /// Ends the stops whose time is over.
    fn let_go_on(&mut self, is_over: impl Fn(Instant) -> bool) -> Result<(), Failure> {
        let notices = self.recipe.ground.notices();
        for worker in &mut self.workers {
            if worker.stopped.is_some_and(&is_over) {
                worker.stopped = None;
                worker.heard = Instant::now();
                worker.signal(Signal::CONT);
                notices
                    .end(worker.who, Disturbance::Stop)
                    .map_err(|errno| {
                        Failure::text(format!("a notice of {}: {errno}", worker.who))
                    })?;
            }
        }
        Ok(())
    }

    /// Kills and tells whoever does the same for too long, or says nothing.
    fn find_hangs(&mut self) -> Result<(), Failure> {
        let hangs = |worker: &Worker| {
            let silent = worker
                .stopped
                .map_or(worker.heard.elapsed(), |_| Duration::ZERO);
            is_hang(silent, worker.doing.1)
        };
        while let Some(index) = self.workers.iter().position(hangs) {
            let worker = &mut self.workers[index];
            let (who, doing, silent) = (worker.who, worker.doing.clone(), worker.heard.elapsed());
            self.outcome.hangs += 1;
            self.fail(
                who,
                &format!(
                    "it hangs: at {:?} for {:?}, silent for {silent:?}; it is killed",
                    doing.0, doing.1
                ),
            );
            self.recipe
                .ground
                .notices()
                .begin(who, Disturbance::Kill)
                .map_err(|errno| Failure::text(format!("a notice of {who}: {errno}")))?;
            self.workers[index].kill();
            if self.is_ending {
                self.remove(index);
            } else {
                self.replace(index)?;
            }
        }
        Ok(())
    }

    /// Has every worker end in the ordinary way.
    fn end(&mut self) -> Result<(), Failure> {
        self.is_ending = true;
        self.let_go_on(|_| true)?;
        for worker in &mut self.workers {
            worker.tell_to_end();
        }
        while !self.workers.is_empty() {
            self.listen()?;
            self.find_hangs()?;
        }
        Ok(())
    }

    /// One more start and end, which sweep what the killed ones have left; whatever is
    /// in the folders after it, stays for ever.
    fn sweep(&mut self) -> Result<(), Failure> {
        let who = Who {
            worker: u32::MAX,
            incarnation: 0,
        };
        let mut sweeper = self.recipe.start(who, true, &self.ears)?;
        if !sweeper.reap().is_some_and(|status| status.success()) {
            self.fail(who, "the last one, which is to sweep, fails");
        }
        Ok(())
    }
}

/// Whether one that has been silent, or at one thing, for so long hangs.
fn is_hang(silent: Duration, doing: Duration) -> bool {
    silent > HANG || doing > HANG
}

#[cfg(test)]
mod tests;
