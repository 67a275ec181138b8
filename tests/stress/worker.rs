//! One of the processes: its threads export and import until the board says that all end, its
//! main thread starves it of descriptors and lets its driver fail meanwhile.

use crate::actor::Actor;
use crate::board::{self, Board, Count, Disturbance, Who};
use crate::{leaks, system};
use gpuipc::{Buffer, Driver, Ipc, IpcOptions, Memory};
use gpuipc_kit::{Dice, Kind};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Steps of each thread before what the process holds is measured for the first time: what is
/// opened once for all is there then.
const WARM_UP: u64 = 60;
/// Threads of a worker.
const THREADS: usize = 3;
/// No call may take longer: imports wait for less than ten seconds, stops last less than three.
pub(crate) const HANG: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(15);
/// Failures that one worker tells; more would only repeat them.
const MOST_FAILURES: u64 = 5;
/// The ordinary limit of open files.
const FILES: u64 = 1024;

/// What the threads share.
pub(crate) struct Stage {
    pub(crate) who: Who,
    pub(crate) seed: u64,
    pub(crate) board: &'static Board,
    pub(crate) driver: Driver,
    pub(crate) kind: Kind,
    /// What each thread is doing, and since when.
    pub(crate) desks: [Mutex<Option<(Count, Instant)>>; THREADS],
    /// Allocations that are mapped, or about to be, by how many ranges.
    pub(crate) mapped: Mutex<BTreeMap<u64, usize>>,
    /// Makes slots and serial numbers of allocations and exports.
    pub(crate) making: Mutex<()>,
    serials: AtomicU64,
    ipc: Mutex<Option<Ipc>>,
    failures: AtomicU64,
}

/// Takes a lock, whoever panicked with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stage {
    /// A number that nothing else on the board ever has.
    pub(crate) fn serial(&self) -> u64 {
        let next = self.serials.fetch_add(1, Ordering::Relaxed) + 1;
        board::serial_of(self.who, next)
    }

    /// The `Ipc` that all threads use now.
    pub(crate) fn ipc(&self) -> Result<Ipc, gpuipc::Error> {
        let mut ipc = lock(&self.ipc);
        match &*ipc {
            Some(ipc) => Ok(ipc.clone()),
            None => Ok(ipc.insert(Ipc::new(self.driver)?).clone()),
        }
    }

    /// Has all threads use a new one from now on.
    pub(crate) fn renew(&self, keepalive_descriptor: bool) -> Result<(), gpuipc::Error> {
        let options = IpcOptions::default().keepalive_descriptor(keepalive_descriptor);
        let new = Ipc::with_options(self.driver, &options)?;
        let old = lock(&self.ipc).replace(new);
        drop(old);
        Ok(())
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.board.ending.load(Ordering::Relaxed) != 0
    }

    /// Tells that something is not as it must be.
    pub(crate) fn fail(&self, what: &str) {
        if self.failures.fetch_add(1, Ordering::Relaxed) < MOST_FAILURES {
            tell(what);
        }
    }
}

/// Writes one line for the program that started this one.
fn tell(what: &str) {
    if writeln!(std::io::stdout(), "{}", what.replace('\n', " | ")).is_err() {
        // Nobody listens any more.
        std::process::exit(1);
    }
}

/// `sweep`: only exports once, which removes what dead processes have left.
pub(crate) fn run(
    driver: &str,
    seed: u64,
    who: Who,
    ground: &Path,
    sweep: bool,
) -> Result<(), String> {
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    // The other threads are to be interrupted, not this one.
    system::handle_poke().map_err(|error| error.to_string())?;
    system::block_poke(true);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        tell(&format!("a panic: {info}"));
        usual(info);
    }));
    let (driver, kind) = gpuipc_kit::open(driver)?;
    let stage = Arc::new(Stage {
        who,
        seed,
        board: Board::open(&ground.join("board")).map_err(|error| error.to_string())?,
        driver,
        kind,
        desks: Default::default(),
        mapped: Mutex::default(),
        making: Mutex::default(),
        serials: AtomicU64::new(0),
        ipc: Mutex::default(),
        failures: AtomicU64::new(0),
    });
    if sweep {
        let mut sweeper = Actor::new(Arc::clone(&stage), 0, 0);
        sweeper.export_new(Memory::CudaMalloc);
        sweeper.run(0);
        return Ok(());
    }
    // Keeps the context: the first import would be as slow as making one.
    let _context = Buffer::new(driver, 0, Memory::CudaMalloc, 1)
        .map_err(|error| format!("the GPU cannot be used: {error}"))?;
    limit(FILES);
    let gpu = ground.join("gpu");
    play(&stage, 0, WARM_UP, None)?;
    let before = leaks::settled(kind, &gpu);
    let mut pains = Pains::new(&stage);
    play(&stage, 1, u64::MAX, Some(&mut pains))?;
    for leak in leaks::since(&before, kind, &gpu) {
        tell(&format!("LEAK {leak}"));
    }
    Ok(())
}

/// Lets the threads make so many steps each, or until all are to end, and gives all back.
fn play(
    stage: &Arc<Stage>,
    round: u64,
    steps: u64,
    mut pains: Option<&mut Pains>,
) -> Result<(), String> {
    let mut threads = Vec::new();
    for thread in 0..THREADS {
        let mut actor = Actor::new(Arc::clone(stage), thread, round);
        let run = move || {
            system::block_poke(false);
            if round == 0 && thread == 0 {
                // Each kind once, whatever the dice say.
                for memory in crate::giving::memories(actor.stage.kind) {
                    actor.export_new(*memory);
                }
            }
            actor.run(steps);
        };
        let started = std::thread::Builder::new().spawn(run);
        threads.push(started.map_err(|error| format!("a thread: {error}"))?);
    }
    while threads.iter().any(|thread| !thread.is_finished()) {
        std::thread::sleep(TICK);
        if let Some(pains) = &mut pains {
            pains.tick(stage);
        }
        for desk in &stage.desks {
            if let Some((deed, since)) = lock(desk).take_if(|(_, since)| since.elapsed() > HANG) {
                stage.board.done(Count::Hangs);
                stage.fail(&format!("{deed:?} hangs for {:?}", since.elapsed()));
            }
        }
    }
    for thread in threads {
        // The hook told of a panic.
        let _ = thread.join();
    }
    let ipc = lock(&stage.ipc).take();
    drop(ipc);
    Ok(())
}

fn limit(files: u64) {
    // The emulated driver raises the limit for moments.
    gpuipc_emulated::change_limit(|| {
        let now = getrlimit(Resource::Nofile);
        let current = Some(now.maximum.map_or(files, |most| files.min(most)));
        // Below the hard limit it is always allowed.
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..now });
    });
}

/// What a worker does to itself now and then.
struct Pains {
    dice: Dice,
    possible: Vec<Disturbance>,
    next: Instant,
    now: Option<(Instant, Disturbance, Vec<OwnedFd>)>,
}

impl Pains {
    fn new(stage: &Stage) -> Self {
        // A real driver survives no full table of files: copies may fail with OPERATING_SYSTEM
        // from then on (H200, driver 580).
        let possible = match stage.kind {
            Kind::Emulated => vec![Disturbance::Files, Disturbance::Faults],
            Kind::Cuda => Vec::new(),
        };
        let who = stage.who;
        Self {
            dice: Dice::new(stage.seed, &[who.worker as u64, who.incarnation]),
            possible,
            next: Instant::now() + Duration::from_millis(100),
            now: None,
        }
    }

    /// Begins or ends one when its time has come.
    fn tick(&mut self, stage: &Stage) {
        let is_over = |end: Instant| end <= Instant::now() || stage.is_ending();
        if let Some((_, what, ballast)) = self.now.take_if(|(end, ..)| is_over(*end)) {
            if what == Disturbance::Faults {
                gpuipc_emulated::faults::clear();
            }
            drop(ballast);
            limit(FILES);
            stage.board.disturb(stage.who, what, false);
            self.next = Instant::now() + Duration::from_millis(self.dice.between(100, 900));
        }
        let is_time = self.next <= Instant::now() && !stage.is_ending();
        if self.now.is_some() || !is_time || self.possible.is_empty() {
            return;
        }
        let what = self.possible[self.dice.below(self.possible.len())];
        let end = Instant::now() + Duration::from_millis(self.dice.between(20, 250));
        stage.board.disturb(stage.who, what, true);
        let mut ballast = Vec::new();
        if what == Disturbance::Faults {
            let per_mille = u32::try_from(self.dice.between(5, 80)).unwrap_or(5);
            gpuipc_emulated::faults::random(self.dice.number(), per_mille, &[]);
            stage.board.done(Count::DriverFaults);
        } else if self.dice.one_in(2) {
            // Below what is open, or a little above.
            limit(self.dice.between(8, 80));
            stage.board.done(Count::LowFileLimits);
        } else {
            while let Ok(fd) = rustix::io::fcntl_dupfd_cloexec(std::io::stdout(), 0) {
                ballast.push(fd);
            }
            // A few are left sometimes: the second or third descriptor is missing then.
            let left = self.dice.below(4).min(ballast.len());
            ballast.truncate(ballast.len() - left);
            stage.board.done(Count::FullFileTables);
        }
        self.now = Some((end, what, ballast));
    }
}
