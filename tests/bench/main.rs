//! What the library costs beside the raw driver calls of the same run:
//!
//! ```sh
//! cargo run --release -p gpuipc-bench -- --driver cuda
//! ```
//!
//! Each figure is measured in turn with the raw calls (library, raw, library, ..), so that
//! whatever else the machine does meets both. It prints medians, and of the ratios of each pair
//! the median and the quartiles.
//!
//! * `figures`: what is measured. `measure`: pairs, medians, rows.
//! * `raw`, `socket`: what the library is compared with.
//! * `other`: the other processes, which hold memory or import it as they are told.
#![deny(unsafe_code)]

mod figures;
mod measure;
mod other;
mod raw;
mod socket;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use figures::FAMILIES;
use gpuipc::{Buffer, Driver, Ipc, Memory};
use gpuipc_kit::Kind;
use measure::{Effort, Row};
use other::Other;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket::Client;
use std::error::Error;
use std::process::ExitCode;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// Measures what the library costs beside the raw driver calls.
#[derive(Parser)]
struct Cli {
    /// The driver
    #[arg(long, default_value = "auto", value_parser = PossibleValuesParser::new(gpuipc_kit::DRIVERS))]
    driver: String,
    /// The GPU
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: i32,
    /// One JSON object a line for each figure
    #[arg(long)]
    json: bool,
    /// Measure each figure a few times only
    #[arg(long)]
    quick: bool,
    /// Only these figures
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = PossibleValuesParser::new(FAMILIES.map(|(name, _)| name)))]
    only: Vec<String>,
    /// One of the other processes
    #[arg(long, hide = true)]
    other: bool,
}

/// A driver in use on one GPU.
struct Session {
    driver: Driver,
    kind: Kind,
    device: i32,
    ipc: Ipc,
    /// Keeps the context: the first import would be as slow as making one.
    _context: Buffer,
}

impl Session {
    fn new(driver: &str, device: i32) -> Result<Self> {
        let (driver, kind) = gpuipc_kit::open(driver)?;
        gpuipc_kit::make_current(driver, device)?;
        Ok(Self {
            driver,
            kind,
            device,
            ipc: Ipc::new(driver)?,
            _context: Buffer::new(driver, device, Memory::CudaMalloc, 1)?,
        })
    }
}

/// A bench under way.
struct Bench {
    session: Session,
    effort: Effort,
    json: bool,
    /// Holds what this process imports.
    other: Other,
    /// Its descriptors.
    client: Client,
}

impl Bench {
    fn row(&self, row: &Row) {
        match self.json {
            true => println!("{}", row.to_json(self.session.kind.name())),
            false => println!("{row}"),
        }
    }

    /// Why so much memory is not to be had: nobody takes more than a quarter of what is free.
    fn lacks_room(&self, bytes: usize) -> Result<Option<String>> {
        let (free, _) = self.session.driver.mem_info()?;
        let why = || format!("{} MiB of GPU memory are free", free >> 20);
        Ok((bytes > free / 4).then(why))
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let ended = match cli.other {
        true => other::run(&cli.driver, cli.device).map(|()| true),
        false => run(&cli),
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("gpuipc-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every family could be measured.
fn run(cli: &Cli) -> Result<bool> {
    // Many segments need many descriptors. Where that is not allowed, they will say so.
    let limit = getrlimit(Resource::Nofile);
    let current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    let session = Session::new(&cli.driver, cli.device)?;
    let mut other = Other::start(session.kind, cli.device)?;
    let client = Client::connect(&other.server()?)?;
    if !cli.json {
        let name = session.driver.device_name(cli.device)?;
        println!("driver: {}, {name}", session.kind.name());
        println!("{}", Row::HEAD);
    }
    let effort = Effort { quick: cli.quick };
    let json = cli.json;
    let mut bench = Bench {
        session,
        effort,
        json,
        other,
        client,
    };
    let mut is_good = true;
    for (name, family) in FAMILIES {
        if !cli.only.is_empty() && !cli.only.iter().any(|only| only == name) {
            continue;
        }
        bench.other.free()?;
        if let Err(error) = family(&mut bench) {
            bench.row(&Row::none(name, "failed", &error.to_string()));
            is_good = false;
        }
    }
    Ok(is_good)
}
