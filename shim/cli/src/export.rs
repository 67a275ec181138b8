//! `gpuipc export`: memory exported until the program is told to end.

use crate::device;
use crate::driver::Choice;
use crate::handle_file::HandleFile;
use crate::output::{Failure, line};
use crate::pattern;
use crate::session::Session;
use crate::signals::EndSignals;
use crate::size;
use crate::source::Source;
use crate::trial::exported_types;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use gpuipc::{DeviceId, ExportOptions, GpuIpcMemHandle, HandleType, Memory};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How the memory is allocated
    #[arg(long, value_name = "KIND", value_parser = memory_parser())]
    memory: Memory,
    /// Bytes to share, e.g. 512KiB, 64MiB, 1GiB
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    size: usize,
    /// Where the handle is written, or one a segment behind each other, 384 bytes
    /// each; who can read it can use the memory
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The driver
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    driver: Choice,
    /// The GPU that holds the memory (host memory: that it is for), by its
    /// number or its UUID
    #[arg(long, value_name = "GPU", default_value = "0", value_parser = device::parse)]
    device: DeviceId,
    /// Make no file descriptor before an importer asks for one
    #[arg(long)]
    on_demand: bool,
    /// End after this many seconds [default: at SIGINT, SIGTERM or SIGHUP]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=u64::from(u32::MAX)))]
    hold_seconds: Option<u64>,
}

/// Reads a kind of memory by its name.
fn memory_parser() -> impl TypedValueParser<Value = Memory> {
    let names = Memory::ALL.map(Memory::name);
    PossibleValuesParser::new(names)
        .try_map(|name| Memory::from_name(&name).ok_or("no kind of memory has this name"))
}

/// See the module.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // Before the driver and the library start threads, which inherit it.
    let signals = EndSignals::block()
        .map_err(|error| Failure::text(format!("signals cannot be blocked: {error}")))?;
    let session = Session::on_device(args.driver, "--device", args.device)?;
    let source = Source::allocate(&session, args.memory, args.size).map_err(|error| {
        Failure::text(format!(
            "{} memory is not available: {error}{}",
            args.memory,
            session.opened.allocation_hint(args.memory)
        ))
    })?;
    let options = ExportOptions::default().fd_on_demand(args.on_demand);
    let exported = source.export(&session, &options)?;
    let handles = exported.handles();
    source.fill(pattern::exported_seed(handles), &mut pattern::nobody_waits)?;
    let file = HandleFile::write(&args.out, handles)?;
    let types: Vec<&str> = exported_types(handles)
        .into_iter()
        .map(HandleType::name)
        .collect();
    line(session.opened.describe(session.device))?;
    line(format!(
        "memory: {}, {} on GPU {}",
        args.memory,
        size::text(args.size as u64),
        session.device
    ))?;
    line(format!("exported: {}", types.join(", ")))?;
    for attempt in exported.attempts() {
        line(format!("not exported: {attempt}"))?;
    }
    line(match handles.len() {
        1 => format!("handle: {}", args.out.display()),
        several => format!("handles: {several} in {}", args.out.display()),
    })?;
    let end = args
        .hold_seconds
        .map(|seconds| Instant::now() + Duration::from_secs(seconds));
    line(match args.hold_seconds {
        Some(seconds) => format!("exported for {seconds} s, or until interrupted"),
        None => "exported until interrupted".to_owned(),
    })?;
    let signal = signals
        .wait(end)
        .map_err(|error| Failure::text(format!("signals cannot be waited for: {error}")))?;
    drop(file);
    line(match signal {
        Some(name) => format!(
            "the export ends at {name}; {} is removed",
            args.out.display()
        ),
        None => format!("the export ends; {} is removed", args.out.display()),
    })?;
    line(what_the_memory_holds(&source, handles)?)
}

fn what_the_memory_holds(
    source: &Source,
    handles: &[GpuIpcMemHandle],
) -> Result<&'static str, Failure> {
    let holds = |seed| {
        let difference = source.compare(seed, &mut pattern::nobody_waits)?;
        Ok::<_, Failure>(difference.is_none())
    };
    Ok(if holds(pattern::exported_seed(handles))? {
        "the memory is as it was filled: no importer wrote an answer"
    } else if holds(pattern::answer_seed(handles))? {
        "an importer wrote its answer"
    } else {
        "the memory was written, but it holds no whole answer"
    })
}
