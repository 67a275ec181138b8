//! The program that starts the workers, kills, stops and interrupts them, and watches over them.

use crate::board::{Board, Count, Disturbance, MOST_WORKERS, Who};
use crate::system;
use crate::worker::HANG;
use gpuipc_kit::{Dice, Kind};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// After so many failures nothing new is to be learned.
const MOST_FAILURES: usize = 20;
const TICK: Duration = Duration::from_millis(5);
/// Milliseconds between two kills, and so on.
const KILLS: (u64, u64) = (600, 3000);
const STOPS: (u64, u64) = (400, 2000);
const STOPPED: (u64, u64) = (50, 2500);
const SIGNALS: (u64, u64) = (5, 60);

/// One worker.
struct Worker {
    who: Who,
    child: Child,
    /// Reads what it says.
    reader: JoinHandle<()>,
    /// Until when it is stopped.
    stopped: Option<Instant>,
}

/// The run as a whole.
pub(crate) struct Watch<'a> {
    kind: Kind,
    seed: u64,
    ground: &'a Path,
    board: &'static Board,
    dice: Dice,
    workers: Vec<Worker>,
    /// Failures arrive here.
    told: (Sender<String>, Receiver<String>),
    pub(crate) failures: Vec<String>,
    /// When each is done next.
    kill: Instant,
    stop: Instant,
    signal: Instant,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(kind: Kind, seed: u64, ground: &'a Path, board: &'static Board) -> Self {
        let soon = Instant::now() + Duration::from_millis(KILLS.0);
        Self {
            kind,
            seed,
            ground,
            board,
            dice: Dice::new(seed, &[]),
            workers: Vec::new(),
            told: channel(),
            failures: Vec::new(),
            kill: soon,
            stop: soon,
            signal: soon,
        }
    }

    /// Lets the workers run for this time, or until a signal or too many failures, and ends them.
    pub(crate) fn run(&mut self, processes: usize, time: Duration) -> Result<(), String> {
        for worker in 0..processes {
            let who = Who {
                worker,
                incarnation: 0,
            };
            let worker = self.start(who, false)?;
            self.workers.push(worker);
        }
        let end = Instant::now() + time;
        while Instant::now() < end
            && self.failures.len() < MOST_FAILURES
            && !system::is_asked_to_end()
        {
            std::thread::sleep(TICK);
            self.disturb()?;
            self.look_after(true)?;
        }
        self.board
            .ending
            .store(1, std::sync::atomic::Ordering::SeqCst);
        self.let_go_on(true);
        // Whoever does not end by then hangs: leaks are waited for, too.
        let end = Instant::now() + 2 * HANG;
        while !self.workers.is_empty() {
            std::thread::sleep(TICK);
            self.look_after(false)?;
            if Instant::now() > end {
                self.board.add(Count::Hangs, self.workers.len() as u64);
                self.fail("workers do not end".to_owned());
                self.workers.iter_mut().for_each(Worker::kill);
                self.workers.clear();
            }
        }
        // One more process, whose first export removes what the killed ones have left.
        let who = Who {
            worker: MOST_WORKERS - 1,
            incarnation: 0,
        };
        let mut sweeper = self.start(who, true)?;
        let status = sweeper.child.wait().map_err(|error| error.to_string())?;
        let _ = sweeper.reader.join();
        self.board
            .ending
            .store(0, std::sync::atomic::Ordering::SeqCst);
        self.hear();
        if !status.success() {
            self.fail(format!("the process that sweeps ended with {status}"));
        }
        Ok(())
    }

    /// Starts a worker.
    fn start(&self, who: Who, sweep: bool) -> Result<Worker, String> {
        let program = std::env::current_exe().map_err(|error| format!("own file: {error}"))?;
        let mut child = Command::new(program)
            .arg(format!("--driver={}", self.kind.name()))
            .arg(format!("--seed={}", self.seed))
            .arg(format!("--worker={who}"))
            .arg(format!("--ground={}", self.ground.display()))
            .args(sweep.then_some("--sweep"))
            .env(gpuipc::SOCKET_DIR_VARIABLE, self.ground.join("sockets"))
            .env("GPUIPC_EMULATED_DIR", self.ground.join("gpu"))
            .env("GPUIPC_EMULATED_IMEX", "stress")
            .env("GPUIPC_EMULATED_ROOM", "on-write")
            // An interrupt of the terminal is for this program, which ends them.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("a worker cannot be started: {error}"))?;
        let (words, told) = (child.stdout.take(), self.told.0.clone());
        let reader = std::thread::spawn(move || {
            let lines = words.map(|words| BufReader::new(words).lines());
            for line in lines.into_iter().flatten().map_while(Result::ok) {
                // Nobody listens once the run is over.
                let _ = told.send(format!("worker {who}: {line}"));
            }
        });
        Ok(Worker {
            who,
            child,
            reader,
            stopped: None,
        })
    }

    fn fail(&mut self, what: String) {
        eprintln!("gpuipc-stress: seed {}, {what}", self.seed);
        self.failures.push(what);
    }

    /// Takes what the workers have said.
    fn hear(&mut self) {
        while let Ok(what) = self.told.1.try_recv() {
            self.fail(what);
        }
    }

    /// Notices who ended or hangs. `replace`: nobody should end by itself, and another one
    /// begins in its place.
    fn look_after(&mut self, replace: bool) -> Result<(), String> {
        self.hear();
        for index in (0..self.workers.len()).rev() {
            let worker = &mut self.workers[index];
            let who = worker.who;
            let status = worker.child.try_wait().map_err(|error| error.to_string())?;
            if let Some(status) = status {
                let good = status.success() && !replace;
                if good {
                    self.board.done(Count::NormalEnds);
                }
                self.replace(index, replace)?;
                if !good {
                    self.fail(format!("worker {who} ended by itself with {status}"));
                }
            }
        }
        Ok(())
    }

    /// Kills a worker if it runs, forgets it, and starts another in its place if that is wanted.
    fn replace(&mut self, index: usize, anew: bool) -> Result<(), String> {
        let mut worker = self.workers.swap_remove(index);
        let next = Who {
            incarnation: worker.who.incarnation + 1,
            ..worker.who
        };
        // First, so that nobody who misses it is surprised.
        let place = self.board.place(next);
        place
            .incarnation
            .store(next.incarnation, std::sync::atomic::Ordering::SeqCst);
        worker.kill();
        let _ = worker.reader.join();
        self.hear();
        self.board.bury(next);
        if anew {
            let worker = self.start(next, false)?;
            self.workers.push(worker);
        }
        Ok(())
    }

    fn later(&mut self, (first, last): (u64, u64)) -> Instant {
        Instant::now() + Duration::from_millis(self.dice.between(first, last))
    }

    /// Kills, stops, lets go on and interrupts.
    fn disturb(&mut self) -> Result<(), String> {
        let now = Instant::now();
        self.let_go_on(false);
        let index = self.dice.below(self.workers.len());
        if self.signal <= now {
            self.workers[index].signal(system::POKE);
            self.board.done(Count::Signals);
            self.signal = self.later(SIGNALS);
        }
        if self.stop <= now {
            if self.workers[index].stopped.is_none() {
                self.board
                    .disturb(self.workers[index].who, Disturbance::Stop, true);
                self.workers[index].signal(Signal::STOP);
                self.workers[index].stopped = Some(self.later(STOPPED));
                self.board.done(Count::Stops);
            }
            self.stop = self.later(STOPS);
        }
        if self.kill <= now {
            self.board.done(Count::Kills);
            self.replace(index, true)?;
            self.kill = self.later(KILLS);
        }
        Ok(())
    }

    /// Ends the stops whose time is over, or all.
    fn let_go_on(&mut self, all: bool) {
        for worker in &mut self.workers {
            if worker
                .stopped
                .is_some_and(|until| all || until <= Instant::now())
            {
                worker.stopped = None;
                worker.signal(Signal::CONT);
                self.board.disturb(worker.who, Disturbance::Stop, false);
            }
        }
    }
}

impl Worker {
    fn signal(&self, signal: Signal) {
        // It may have ended by itself, which is noticed elsewhere.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Kills and reaps it.
    fn kill(&mut self) {
        // Both fail only for one that was reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            worker.kill();
        }
    }
}
