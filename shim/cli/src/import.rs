//! `gpuipc import`: maps the memory behind a handle and verifies it.

use crate::driver::Choice;
use crate::handle_file;
use crate::output::{Failure, line};
use crate::pattern;
use crate::session::Session;
use crate::{size, table};
use gpuipc::{Access, HandleType, ImportOptions, Liveness};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The handle's file, or - for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The driver, the same as the exporter's
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    driver: Choice,
    /// The GPU that maps [default: the one that holds the memory, else 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    device: Option<i32>,
    /// The types that may be tried, in this order, e.g. PosixFd,RuntimeIpc
    /// [default: GPUIPC_TYPES, else PosixFd,Fabric,RuntimeIpc]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = handle_type)]
    types: Option<Vec<HandleType>>,
    /// How long to wait for the exporter [default: GPUIPC_TIMEOUT_MS, else 5000]
    #[arg(long, value_name = "N")]
    timeout_ms: Option<u64>,
    /// Map the memory for reading only
    #[arg(long)]
    read_only: bool,
    /// Refuse memory of which nobody can say that it is still the same
    #[arg(long)]
    require_live: bool,
    /// Overwrite the memory with an answer, which the exporter looks for at its end
    #[arg(long, conflicts_with = "read_only")]
    answer: bool,
}

fn handle_type(name: &str) -> Result<HandleType, String> {
    HandleType::from_name(name.trim()).ok_or_else(|| {
        let known = HandleType::ALL.map(HandleType::name).join(", ");
        format!("a type is one of {known}")
    })
}

fn options(args: &Args, device: i32) -> ImportOptions {
    let mut options = ImportOptions::default()
        .device(device)
        .require_live(args.require_live);
    if args.read_only {
        options = options.access(Access::ReadOnly);
    }
    if let Some(types) = &args.types {
        options = options.types(types);
    }
    if let Some(timeout) = args.timeout_ms {
        options = options.timeout(Duration::from_millis(timeout));
    }
    options
}

/// See the module.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let handles = handle_file::read(&args.file)?;
    let handle = handles
        .first()
        .ok_or_else(|| Failure::text("there is no handle"))?;
    let session = Session::for_handle(args.driver, args.device, handle)?;
    let options = options(args, session.device);
    let start = Instant::now();
    let memory = session.ipc.import(&handles, &options)?;
    let took = start.elapsed();
    line(session.opened.describe(session.device))?;
    let row = |name: &str, text: String| [name.to_owned(), text];
    line(table::render(&[
        row("type used", memory.type_used().to_string()),
        row("liveness", liveness(memory.liveness()).to_owned()),
        row("bytes", size::text(memory.len() as u64)),
        row("device", memory.device().to_string()),
        row("import time", format!("{} us", took.as_micros())),
    ]))?;
    for attempt in memory.attempts() {
        line(format!("failed before: {attempt}"))?;
    }
    let seed = pattern::offered_seed(handle);
    if let Some(difference) =
        pattern::compare(&memory, 0, memory.len(), seed, &mut pattern::nobody_waits)?
    {
        return Err(Failure::text(format!(
            "the memory was imported by {}, but it does not hold what `gpuipc export` wrote: {difference} \
             (an import with --answer overwrites it)",
            memory.type_used()
        )));
    }
    line("verified: every byte is as the exporter wrote it")?;
    if args.answer {
        let seed = pattern::answer_seed(handle);
        pattern::write(&memory, 0, memory.len(), seed, &mut pattern::nobody_waits)?;
        line("answered: every byte was overwritten")?;
    }
    Ok(())
}

const fn liveness(liveness: Liveness) -> &'static str {
    match liveness {
        Liveness::Referenced => "the mapping holds the memory, whatever its owner does",
        Liveness::MemoryUnchanged => "the exporter says that the memory is still the same",
        Liveness::OfferLives => {
            "the exporter lives and still offers it, but could not be asked more"
        }
        Liveness::Unknown => "unknown: nobody could be asked whether the memory is still the same",
    }
}
