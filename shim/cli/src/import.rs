//! `gpuipc import`: maps the memory behind handles and verifies it.

use crate::driver::Choice;
use crate::mapped::Mapped;
use crate::output::{Failure, line};
use crate::pattern::{self, Source};
use crate::session::Session;
use crate::{device, feasibility, handle_file, size, table};
use gpuipc::{Access, DeviceId, GpuIpcMem, GpuIpcMemHandle, HandleType, ImportOptions, Liveness};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file with the handle, or with all handles of a range, - for stdin;
    /// several files are read one after the other
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The driver, the same as the exporter's
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    driver: Choice,
    /// The GPU that maps, by its number or its UUID [default: the one that holds
    /// the memory, else 0]
    #[arg(long, value_name = "GPU", value_parser = device::parse)]
    device: Option<DeviceId>,
    /// One more GPU that gets access; may be given more than once
    #[arg(long, value_name = "GPU", value_parser = device::parse)]
    also: Vec<DeviceId>,
    /// Give the CPU access, too, to host memory, and verify what it reads
    #[arg(long)]
    host: bool,
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
    /// Map nothing: say type by type whether an import would work, and end with
    /// code 0 if one would
    #[arg(long, conflicts_with = "answer")]
    dry_run: bool,
}

fn handle_type(name: &str) -> Result<HandleType, String> {
    HandleType::from_name(name.trim()).ok_or_else(|| {
        let known = HandleType::ALL.map(HandleType::name).join(", ");
        format!("a type is one of {known}")
    })
}

fn options(args: &Args, session: &Session) -> Result<ImportOptions, Failure> {
    let more = args.also.iter().map(|device| {
        let ordinal = session.opened.device("--also", *device)?;
        Ok(DeviceId::Ordinal(ordinal))
    });
    let mut options = ImportOptions::default()
        .device(session.device)
        .access_devices(&more.collect::<Result<Vec<_>, Failure>>()?)
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
    Ok(options)
}

/// See the module.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let handles = handle_file::read_all(&args.files)?;
    let first = handles
        .first()
        .ok_or_else(|| Failure::text("there is no handle"))?;
    let session = Session::for_handle(args.driver, args.device, first)?;
    let options = options(args, &session)?;
    line(session.opened.describe(session.device))?;
    if args.dry_run {
        let options = options.host_access(args.host);
        return feasibility::report(&session.ipc.can_import(&handles, &options));
    }
    let start = Instant::now();
    let memory = Mapped::import(&session.ipc, &handles, options, args.host)?;
    let took = start.elapsed();
    line(table::render(&rows(&memory, handles.len(), took)))?;
    for attempt in memory.attempts() {
        line(format!("failed before: {attempt}"))?;
    }
    if !memory.may_copy() {
        if args.answer {
            return Err(Failure::text(
                "host memory can be answered with --host only, since the driver copies it by the CPU",
            ));
        }
        return line(
            "not verified: this is host memory, which can be read with --host only, since the driver copies it \
             by the CPU",
        );
    }
    verify(&*memory, &memory, &handles)?;
    line("verified: every byte is as the exporter wrote it")?;
    if args.host {
        let cpu = memory.cpu().ok_or_else(|| {
            Failure::text("the CPU has no access to a mapping by this type".to_owned())
        })?;
        verify(&cpu, &memory, &handles)?;
        line("verified: the CPU reads the same bytes")?;
    }
    if args.answer {
        let seed = pattern::answer_seed(&handles);
        pattern::write(&*memory, 0, memory.len(), seed, &mut pattern::nobody_waits)?;
        line("answered: every byte was overwritten")?;
    }
    Ok(())
}

fn rows(memory: &Mapped, handles: usize, took: Duration) -> Vec<[String; 2]> {
    let row = |name: &str, text: String| [name.to_owned(), text];
    let mut rows = vec![
        row("type used", memory.type_used().to_string()),
        row("liveness", liveness(memory.liveness()).to_owned()),
        row("bytes", size::text(memory.len() as u64)),
    ];
    if handles > 1 {
        rows.push(row("handles", format!("{handles}, side by side")));
    }
    rows.push(row("device", memory.device().to_string()));
    rows.push(row("import time", format!("{} us", took.as_micros())));
    rows
}

fn verify(
    source: &impl Source,
    memory: &GpuIpcMem,
    handles: &[GpuIpcMemHandle],
) -> Result<(), Failure> {
    let seed = pattern::exported_seed(handles);
    match pattern::compare(source, 0, memory.len(), seed, &mut pattern::nobody_waits)? {
        None => Ok(()),
        Some(difference) => Err(Failure::text(format!(
            "the memory was imported by {}, but it does not hold what `gpuipc export` wrote: {difference} \
             (an import with --answer overwrites it)",
            memory.type_used()
        ))),
    }
}

const fn liveness(liveness: Liveness) -> &'static str {
    match liveness {
        Liveness::Referenced => "the mapping holds the memory, whatever its owner does",
        Liveness::MemoryUnchanged => "the exporter says that the memory is still the same",
        Liveness::ExportLives => {
            "the exporter lives and still exports it, but could not be asked more"
        }
        Liveness::Unknown => "unknown: nobody could be asked whether the memory is still the same",
    }
}
