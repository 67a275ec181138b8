//! The importing process: takes handles from its stdin until that ends.

use crate::attempt::{AttemptText, Side};
use crate::case::Usage;
use crate::child::Importer;
use crate::driver::{Choice, Kind};
use crate::mapped::Mapped;
use crate::message::{Answer, Request};
use crate::output::Failure;
use crate::pattern::{self, Source};
use crate::session::Session;
use crate::wire::Channel;
use gpuipc::sys::CuResult;
use gpuipc::{Access, GpuIpcMem, ImportOptions};
use std::process::Command;
use std::time::{Duration, Instant};

const DEFAULT_SILENCE_MS: u64 = 30_000;

/// What the exporting process tells it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The driver, the exporting process's own
    #[arg(long, value_enum)]
    driver: Choice,
    /// The GPU that maps
    #[arg(long)]
    device: i32,
    /// How long the exporting process may be silent
    #[arg(long)]
    silence_ms: u64,
    /// How long an import may wait
    #[arg(long)]
    timeout_ms: Option<u64>,
}

/// Starts it. `timeout_ms` is how long it may give no sign of life; an import
/// may wait half of it.
pub(crate) fn start(
    driver: Kind,
    device: i32,
    timeout_ms: Option<u64>,
) -> Result<Importer, Failure> {
    let silence_ms = timeout_ms.unwrap_or(DEFAULT_SILENCE_MS);
    let mut command = this_program()?;
    command.args([
        "demo-importer".to_owned(),
        format!("--driver={}", driver.name()),
        format!("--device={device}"),
        format!("--silence-ms={silence_ms}"),
    ]);
    command.args(timeout_ms.map(|timeout| format!("--timeout-ms={}", timeout.div_ceil(2))));
    Importer::start(&mut command, Duration::from_millis(silence_ms))
}

/// This program once more.
pub(crate) fn this_program() -> Result<Command, Failure> {
    std::env::current_exe()
        .map(Command::new)
        .map_err(|error| Failure::text(format!("this program's own file cannot be found: {error}")))
}

/// See the module.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // An exporter that is killed takes its importer along, even out of a hung call.
    // Where that is not possible the end of stdin does it.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let mut channel = Channel::of_this_process(Duration::from_millis(args.silence_ms))?;
    let session = match Session::on_device(args.driver, "--importer-device", args.device) {
        Ok(session) => session,
        // The exporter says it.
        Err(failure) => return channel.send(&Answer::failed(failure.to_string()).encode()),
    };
    channel.send(&Answer::default().encode())?;
    while let Some(body) = channel.receive()? {
        let answer = import(&session, args, &body, &mut channel)?;
        channel.send(&answer.encode())?;
    }
    Ok(())
}

/// Fails only where the exporter is gone; all else is the answer's error.
fn import(
    session: &Session,
    args: &Args,
    body: &[u8],
    channel: &mut Channel,
) -> Result<Answer, Failure> {
    let request = match Request::decode(body) {
        Ok(request) => request,
        Err(error) => return Ok(Answer::failed(error)),
    };
    let mut options = ImportOptions::default().device(session.device);
    if let Some(timeout) = args.timeout_ms {
        options = options.timeout(Duration::from_millis(timeout));
    }
    if request.usage == Usage::ReadOnly {
        options = options.access(Access::ReadOnly);
    }
    let for_cpu = request.usage == Usage::AnswerAndCpu;
    let start = Instant::now();
    let memory = match Mapped::import(&session.ipc, &request.handles, options, for_cpu) {
        Ok(memory) => memory,
        Err(error) => {
            return Ok(Answer {
                attempts: AttemptText::all(Side::Import, error.attempts()),
                ..Answer::failed(error.to_string())
            });
        }
    };
    let took = start.elapsed();
    let error = match use_memory(&memory, &request, &mut || channel.still_working()) {
        Ok(()) => None,
        Err(Failure::Text(text)) => Some(text),
        Err(failure) => return Err(failure),
    };
    // The memory is unmapped before the answer goes out.
    Ok(Answer {
        used: Some(memory.type_used().to_string()),
        bytes: memory.len() as u64,
        import_us: Some(u64::try_from(took.as_micros()).unwrap_or(u64::MAX)),
        attempts: AttemptText::all(Side::Import, memory.attempts()),
        error,
    })
}

/// Compares all bytes, and does what the usage says.
fn use_memory(
    memory: &Mapped,
    request: &Request,
    alive: &mut dyn FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (exported_types, answer) = (
        pattern::exported_seed(&request.handles),
        pattern::answer_seed(&request.handles),
    );
    let len = memory.len();
    must_hold(&**memory, len, exported_types, "the importer", alive)?;
    match request.usage {
        Usage::Answer => pattern::write(&**memory, 0, len, answer, alive),
        Usage::AnswerAndCpu => {
            let cpu = memory.cpu().ok_or_else(|| {
                let used = memory.type_used();
                Failure::text(format!("a mapping by {used} is not for the CPU"))
            })?;
            must_hold(&cpu, len, exported_types, "the importer's CPU", alive)?;
            pattern::write(&**memory, 0, len, answer, alive)?;
            must_hold(&cpu, len, answer, "the importer's CPU", alive)
        }
        Usage::ReadOnly => {
            must_refuse_writing(memory)?;
            must_hold(
                &**memory,
                len,
                exported_types,
                "after a refused write the importer",
                alive,
            )
        }
    }
}

fn must_hold(
    memory: &impl Source,
    len: usize,
    seed: u64,
    who: &str,
    alive: &mut dyn FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    match pattern::compare(memory, 0, len, seed, alive)? {
        None => Ok(()),
        Some(difference) => Err(Failure::text(format!(
            "{who} does not see what was written: {difference}"
        ))),
    }
}

/// Tries to change the first byte.
fn must_refuse_writing(memory: &GpuIpcMem) -> Result<(), Failure> {
    let mut byte = [0];
    memory.read(0, &mut byte)?;
    match memory.write(0, &[!byte[0]]) {
        Err(gpuipc::Error::Driver(error)) if error.code() == Some(CuResult::INVALID_VALUE) => {
            Ok(())
        }
        Err(error) => Err(Failure::text(format!(
            "a write to memory that was mapped for reading only fails otherwise than expected: {error}"
        ))),
        Ok(()) => Err(Failure::text(
            "memory that was mapped for reading only was written",
        )),
    }
}
