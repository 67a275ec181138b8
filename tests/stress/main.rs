//! Many processes that share GPU memory at random while they are killed, stopped, interrupted and
//! starved, for as long as one likes:
//!
//! ```sh
//! cargo run --release -p gpuipc-stress -- --minutes 20 --seed 1
//! ```
//!
//! Each process has three threads that allocate, export, import, compare every byte, unmap,
//! revoke, free and fork in any order. An error must be one that a disturbance explains which
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

use board::{Board, Count, Who};
use clap::Parser;
use clap::builder::PossibleValuesParser;
use gpuipc_kit::Kind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

/// Room that the emulated GPU may need.
const ROOM: u64 = 2 << 30;

/// Processes share GPU memory at random while they are disturbed.
#[derive(Parser)]
struct Cli {
    /// The driver
    #[arg(long, default_value = "auto", value_parser = PossibleValuesParser::new(gpuipc_kit::DRIVERS))]
    driver: String,
    /// For how long, such as 20 or 0.5
    #[arg(long, value_name = "N", default_value = "1", value_parser = minutes)]
    minutes: Duration,
    /// What all choices come from; by default the time
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// How many processes share
    #[arg(long, value_name = "P", default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..board::MOST_WORKERS as i64))]
    processes: u16,
    /// One of the processes
    #[arg(long, hide = true, requires = "ground")]
    worker: Option<Who>,
    /// Where they meet
    #[arg(long, hide = true)]
    ground: Option<PathBuf>,
    #[arg(long, hide = true)]
    sweep: bool,
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().unwrap_or(0.0);
    let time = Duration::try_from_secs_f64(minutes * 60.0).unwrap_or_default();
    match time.is_zero() {
        true => Err("a number of minutes above 0, such as 20 or 0.5".to_owned()),
        false => Ok(time),
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seed = cli.seed.unwrap_or(now.map_or(1, |now| now.as_secs()));
    let ended = match (cli.worker, &cli.ground) {
        (Some(who), Some(ground)) => {
            worker::run(&cli.driver, seed, who, ground, cli.sweep).map(|()| true)
        }
        _ => run(&cli, seed),
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
fn run(cli: &Cli, seed: u64) -> Result<bool, String> {
    system::handle_end_signals().map_err(|error| error.to_string())?;
    let (driver, kind) = gpuipc_kit::open(&cli.driver)?;
    println!(
        "driver {}, seed {seed}: repeats what each process tries, not how they meet",
        kind.name()
    );
    let free_memory = || match kind {
        Kind::Emulated => Ok(0),
        Kind::Cuda => gpuipc_kit::make_current(driver, 0)
            .and_then(|()| driver.mem_info())
            .map_or_else(|error| Err(error.to_string()), |(free, _)| Ok(free)),
    };
    let free_before = free_memory()?;
    let ground = new_ground()?;
    let start = Instant::now();
    let ended = stress(cli, (kind, seed), &ground);
    let seconds = start.elapsed().as_secs_f64();
    // What is left of it has been looked at.
    let _ = std::fs::remove_dir_all(&ground);
    let (board, mut failures) = ended?;
    let lost = free_before.saturating_sub(free_memory()?);
    if lost > 0 {
        failures.push(format!("LEAK {lost} bytes of GPU memory"));
    }
    println!("{:<20} {:>12} {:>12}", "", "done", "refused");
    for count in Count::ALL {
        let [done, refused] = board.count(*count);
        println!("{:<20} {done:>12} {refused:>12}", format!("{count:?}"));
    }
    failures.iter().for_each(|failure| println!("{failure}"));
    let failed = failures.len();
    println!(
        "stress: {seconds:.1} seconds, {} processes, seed {seed}, {failed} failures",
        cli.processes
    );
    Ok(failures.is_empty())
}

/// Runs the processes. Returns the counts, and what went wrong.
fn stress(
    cli: &Cli,
    (kind, seed): (Kind, u64),
    ground: &Path,
) -> Result<(&'static Board, Vec<String>), String> {
    let board = Board::open(&ground.join("board")).map_err(|error| error.to_string())?;
    let mut watch = watch::Watch::new(kind, seed, ground, board);
    watch.run(cli.processes.into(), cli.minutes)?;
    let mut failures = std::mem::take(&mut watch.failures);
    for folder in ["gpu", "sockets"] {
        let left = leaks::files(&ground.join(folder));
        if !left.is_empty() {
            failures.push(format!("LEAK files in {folder}: {}", left.join(" ")));
        }
    }
    if leaks::has_children() {
        failures.push("LEAK child processes".to_owned());
    }
    Ok((board, failures))
}

/// A folder with the emulated GPU and the brokers' names, in memory if there is room.
fn new_ground() -> Result<PathBuf, String> {
    let shm = Path::new("/dev/shm");
    let room = rustix::fs::statvfs(shm).map_or(0, |shm| shm.f_bavail * shm.f_frsize);
    let parent = if room > ROOM {
        shm.to_owned()
    } else {
        std::env::temp_dir()
    };
    let ground = parent.join(format!("gpuipc-stress-{}", std::process::id()));
    for folder in [&ground, &ground.join("gpu"), &ground.join("sockets")] {
        std::fs::create_dir(folder)
            .map_err(|error| format!("{} cannot be made: {error}", folder.display()))?;
    }
    Ok(ground)
}
