//! One of the many processes: exports and imports on several threads until it is told
//! to end, and counts what is left then.

use super::actor::{Actor, Thing};
use super::dice::Dice;
use super::giving::kinds;
use super::ground::Ground;
use super::leaks::{Holdings, Item};
use super::notice::Who;
use super::pains::{self, Pains};
use super::stage::{Stage, lock, tell};
use super::trouble::Trouble;
use crate::driver::Choice;
use crate::output::Failure;
use crate::session::Session;
use crate::signals::Poke;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const THREADS: usize = 3;
/// Steps of each thread before what the process holds is measured for the first time:
/// what is opened once for all is there then.
const WARM_UP: u64 = 60;
const REPORT: Duration = Duration::from_millis(150);
const TICK: Duration = Duration::from_millis(15);

/// What the program that starts it says.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long, value_enum)]
    driver: Choice,
    #[arg(long)]
    device: i32,
    #[arg(long)]
    seed: u64,
    /// WORKER.INCARNATION
    #[arg(long)]
    who: Who,
    /// Where all meet
    #[arg(long)]
    ground: PathBuf,
    /// Disturbances left out
    #[arg(long, value_enum, value_delimiter = ',')]
    without: Vec<Trouble>,
    /// Only start and end, and so sweep what dead ones have left
    #[arg(long)]
    sweep: bool,
}

/// See the module.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let poke = Poke::handle().map_err(|error| Failure::text(format!("a handler: {error}")))?;
    // The other threads are to be interrupted, not this one.
    poke.block();
    tell_panics();
    let session = Session::on_device(args.driver, "--device", args.device)?;
    let stage = Arc::new(Stage::new(
        (args.who, args.seed),
        Ground(args.ground.clone()),
        (session.opened.driver, session.opened.kind, session.device),
        THREADS,
        &args.without,
    ));
    if args.sweep {
        let mut sweeper = Actor::new(Arc::clone(&stage), 0, 0);
        sweeper.give_memory(kinds(stage.kind)[0]);
        sweeper.run(0);
        tell(&json!({ "say": "end", "tally": {}, "leaks": [] }));
        return Ok(());
    }
    pains::limit_files();
    let mut worker = Worker { stage, poke };
    worker.work()
}

/// Tells of every panic, on whichever thread.
fn tell_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        tell(&json!({ "say": "failure", "what": format!("a panic: {info}") }));
        usual(info);
    }));
}

struct Worker {
    stage: Arc<Stage<Thing>>,
    poke: Poke,
}

impl Worker {
    fn work(&mut self) -> Result<(), Failure> {
        let (kind, gpu) = (self.stage.kind, self.stage.ground.gpu());
        let threads = self.start(0, WARM_UP)?;
        let is_told = self.watch(threads, None)?;
        self.clear();
        let before = Holdings::settled(kind, &gpu);
        if !is_told {
            tell(&json!({ "say": "warm" }));
            let who = self.stage.who;
            let names = [u64::from(who.worker), u64::from(who.incarnation)];
            let mut pains =
                Pains::new(Dice::of(self.stage.seed, &names), kind, &self.stage.without);
            let threads = self.start(1, u64::MAX)?;
            self.watch(threads, Some(&mut pains))?;
            self.clear();
        }
        let after = Holdings::returned(&before, kind, &gpu);
        let leaks: Vec<Value> = after.against(&before).iter().map(Item::to_json).collect();
        self.stage.report();
        tell(&json!({ "say": "end", "leaks": leaks }));
        Ok(())
    }

    /// Starts the threads of one round.
    fn start(&self, round: u64, steps: u64) -> Result<Vec<JoinHandle<()>>, Failure> {
        let mut threads = Vec::new();
        for thread in 0..THREADS {
            let mut actor = Actor::new(Arc::clone(&self.stage), thread, round);
            let poke = self.poke;
            let run = move || {
                poke.unblock();
                if round == 0 && thread == 0 {
                    // Whatever the dice say, each kind once.
                    for memory in kinds(actor.stage.kind) {
                        actor.give_memory(*memory);
                    }
                }
                actor.run(steps);
            };
            let started = std::thread::Builder::new()
                .name("soak".to_owned())
                .spawn(run);
            threads.push(started.map_err(|error| Failure::text(format!("a thread: {error}")))?);
        }
        Ok(threads)
    }

    /// Reports until the threads have ended, which they do when this process is told to
    /// end. Whether it was.
    fn watch(
        &self,
        threads: Vec<JoinHandle<()>>,
        mut pains: Option<&mut Pains>,
    ) -> Result<bool, Failure> {
        let mut reported = Instant::now();
        let mut is_told = false;
        while threads.iter().any(|thread| !thread.is_finished()) {
            if is_told {
                std::thread::sleep(TICK);
            } else if self.is_told_to_end()? {
                is_told = true;
                self.stage.is_ending.store(true, Ordering::Relaxed);
                if let Some(pains) = &mut pains {
                    pains.stop(&self.stage);
                }
            } else if let Some(pains) = &mut pains {
                pains.tick(&self.stage);
            }
            if reported.elapsed() > REPORT {
                self.stage.report();
                reported = Instant::now();
            }
        }
        for thread in threads {
            // A panic was told by the hook.
            let _ = thread.join();
        }
        Ok(is_told)
    }

    /// Waits a moment for the one line that may come.
    fn is_told_to_end(&self) -> Result<bool, Failure> {
        let stdin = std::io::stdin();
        let tick = Timespec {
            tv_sec: 0,
            tv_nsec: TICK.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&tick)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(false),
            Ok(_) => match rustix::io::read(&stdin, &mut [0; 1]) {
                Ok(1) => Ok(true),
                // Without a word: whoever started this is gone.
                _ => std::process::exit(1),
            },
            Err(errno) => Err(Failure::text(format!("poll: {errno}"))),
        }
    }

    /// Gives back what is left.
    fn clear(&self) {
        for thing in std::mem::take(&mut *lock(&self.stage.shelf)) {
            let mut last = Actor::new(Arc::clone(&self.stage), 0, 2);
            match thing {
                Thing::Group(group) => last.groups.push(group),
                Thing::Mapping(mapping) => last.mappings.push(mapping),
            }
            last.run(0);
        }
        self.stage.close();
    }
}
