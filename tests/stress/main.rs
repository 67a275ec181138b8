//! Many processes that share GPU memory at random while they are killed, stopped, interrupted and
//! starved, for as long as one likes:
//!
//! ```sh
//! cargo run --release -p gpuipc-stress -- --minutes 20 --seed 1
//! ```
//!
//! Each process has three threads that allocate, export, import, compare every byte, unmap,
//! withdraw, free and fork in any order. An error must be one that a disturbance explains which
//! was really injected. Every other one, a wrong byte, a hang, a panic and whatever is left at the
//! end is a failure, and exit code 1.
//!
//! * `watch`: the program that starts the processes and disturbs them.
//! * `worker`, `actor`, `giving`, `taking`: one of the processes, its threads, what they do.
//! * `board`: the shared memory in which all know of each other.
//! * `judge`, `leaks`: what is a failure. `system`: signals, shared memory, fork.
#![deny(unsafe_code)]

mod actor;
mod board;
mod giving;
mod judge;
mod leaks;
mod system;
mod taking;
mod watch;
mod worker;

use board::{Board, Deed, Number};
use clap::Parser;
use clap::builder::PossibleValuesParser;
use gpuipc_kit::Kind;
use serde_json::json;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

/// What can be left out.
const DISTURBANCES: [&str; 7] = [
    "kills", "stops", "signals", "files", "faults", "forks", "demand",
];
/// Room that the emulated GPU may need.
const ROOM: u64 = 2 << 30;

/// Processes share GPU memory at random while they are disturbed.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    worker: Option<Hidden>,
    /// The driver
    #[arg(long, default_value = "auto", value_parser = PossibleValuesParser::new(gpuipc_kit::DRIVERS))]
    driver: String,
    /// The GPU
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: i32,
    /// For how long, such as 20 or 0.5
    #[arg(long, value_name = "N", default_value = "1", value_parser = minutes)]
    minutes: Duration,
    /// What all choices come from; by default the time
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// How many processes share
    #[arg(long, value_name = "P", default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..board::MOST_WORKERS as u64))]
    processes: u64,
    /// Leave these disturbances out; `demand` is descriptors that the broker makes when asked
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = PossibleValuesParser::new(DISTURBANCES))]
    without: Vec<String>,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Hidden {
    /// One of the processes
    #[command(hide = true)]
    Worker(worker::Args),
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().unwrap_or(0.0);
    let time = Duration::try_from_secs_f64(minutes * 60.0).unwrap_or_default();
    match time.is_zero() {
        true => Err("a number of minutes above 0, such as 20 or 0.5".to_owned()),
        false => Ok(time),
    }
}

/// What the user asked for.
struct Asked {
    kind: Kind,
    device: i32,
    seed: u64,
    processes: usize,
    without: Vec<String>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let ended = match &cli.worker {
        Some(Hidden::Worker(args)) => worker::run(args).map(|()| true),
        None => run(&cli),
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("gpuipc-stress: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all was as it must be.
fn run(cli: &Cli) -> Result<bool, String> {
    system::handle_end_signals().map_err(|error| error.to_string())?;
    let (driver, kind) = gpuipc_kit::open(&cli.driver)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let asked = Asked {
        kind,
        device: cli.device,
        seed: cli.seed.unwrap_or(now.map_or(1, |now| now.as_secs())),
        processes: usize::try_from(cli.processes).unwrap_or(2),
        without: cli.without.clone(),
    };
    let (driver_name, seed) = (kind.name(), asked.seed);
    eprintln!(
        "driver {driver_name}, seed {seed}: repeats what each process tries, not how they meet"
    );
    let free_memory = || -> Result<usize, String> {
        match kind {
            Kind::Emulated => Ok(0),
            Kind::Cuda => gpuipc_kit::make_current(driver, cli.device)
                .and_then(|()| driver.mem_info())
                .map_or_else(|error| Err(error.to_string()), |(free, _)| Ok(free)),
        }
    };
    let free_before = free_memory()?;
    let ground = Ground::new()?;
    let board = Board::open(&ground.board()).map_err(|error| error.to_string())?;
    let start = Instant::now();
    let mut watch = watch::Watch::new(&asked, &ground, board);
    watch.run(cli.minutes)?;
    let (seconds, mut failures) = (
        start.elapsed().as_secs_f64(),
        std::mem::take(&mut watch.failures),
    );
    for (what, folder) in [
        ("emulated GPU", ground.gpu()),
        ("brokers", ground.sockets()),
    ] {
        let left = leaks::files(&folder);
        if !left.is_empty() {
            failures.push(format!("LEAK files of the {what}: {}", left.join(" ")));
        }
    }
    if leaks::has_children() {
        failures.push("LEAK child processes".to_owned());
    }
    let lost = free_before.saturating_sub(free_memory()?);
    if lost > 0 {
        failures.push(format!("LEAK {lost} bytes of GPU memory"));
    }
    let leaked = failures
        .iter()
        .filter(|what| what.contains("LEAK "))
        .count();
    let events: u64 = Deed::ALL.iter().flat_map(|deed| board.deed(*deed)).sum();
    let [kills, hangs, wrong_bytes] =
        [Number::Kills, Number::Hangs, Number::WrongBytes].map(|number| board.number(number));
    if cli.json {
        let deeds = Deed::ALL
            .iter()
            .map(|deed| (format!("{deed:?}"), json!(board.deed(*deed))));
        let numbers = Number::ALL
            .iter()
            .map(|what| (format!("{what:?}"), json!(board.number(*what))));
        let all = json!({
            "driver": driver_name, "seed": seed, "processes": asked.processes, "seconds": seconds,
            "deeds": serde_json::Map::from_iter(deeds),
            "numbers": serde_json::Map::from_iter(numbers),
            "events": events, "leaks": leaked, "failures": failures,
        });
        println!("{all}");
    } else {
        println!("{:<20} {:>12} {:>12}", "", "done", "refused");
        for deed in Deed::ALL {
            let [done, refused] = board.deed(*deed);
            println!("{:<20} {done:>12} {refused:>12}", format!("{deed:?}"));
        }
        for number in Number::ALL {
            println!(
                "{:<20} {:>12}",
                format!("{number:?}"),
                board.number(*number)
            );
        }
        failures.iter().for_each(|failure| println!("{failure}"));
        println!(
            "stress: {seconds:.1} seconds, {} processes, seed {seed}, {kills} kills, {events} events, {wrong_bytes} wrong bytes, {hangs} hangs, {leaked} leaks, {} failures",
            asked.processes,
            failures.len(),
        );
    }
    Ok(failures.is_empty())
}

/// The folder in which the processes meet. Removed on drop in the process that made it.
#[derive(Clone, Debug)]
struct Ground {
    path: PathBuf,
    is_own: bool,
}

impl Ground {
    /// Makes a new one, in memory if there is room.
    fn new() -> Result<Self, String> {
        let shm = Path::new("/dev/shm");
        let room = rustix::fs::statvfs(shm).map_or(0, |shm| shm.f_bavail * shm.f_frsize);
        let parent = if room > ROOM {
            shm.to_owned()
        } else {
            std::env::temp_dir()
        };
        let path = parent.join(format!("gpuipc-stress-{}", std::process::id()));
        let ground = Self { path, is_own: true };
        for folder in [&ground.path, &ground.gpu(), &ground.sockets()] {
            std::fs::create_dir(folder)
                .map_err(|error| format!("{} cannot be made: {error}", folder.display()))?;
        }
        Ok(ground)
    }

    /// Plays the emulated GPU.
    fn gpu(&self) -> PathBuf {
        self.path.join("gpu")
    }

    /// The brokers' names.
    fn sockets(&self) -> PathBuf {
        self.path.join("sockets")
    }

    fn board(&self) -> PathBuf {
        self.path.join("board")
    }
}

impl fmt::Display for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

impl std::str::FromStr for Ground {
    type Err = std::convert::Infallible;

    fn from_str(path: &str) -> Result<Self, Self::Err> {
        Ok(Self {
            path: path.into(),
            is_own: false,
        })
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if self.is_own {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
