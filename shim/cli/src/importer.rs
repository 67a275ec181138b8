//! The demo's importing process: takes handles from its stdin until that ends.

use crate::attempt::{AttemptText, Side};
use crate::driver::Choice;
use crate::output::Failure;
use crate::pattern;
use crate::session::Session;
use crate::wire::{Answer, Channel};
use gpuipc::{GpuIpcMemHandle, ImportOptions};
use std::time::{Duration, Instant};

/// What the demo tells it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The driver, the demo's own
    #[arg(long, value_enum)]
    driver: Choice,
    /// The GPU that maps
    #[arg(long)]
    device: i32,
    /// How long the demo may be silent
    #[arg(long)]
    silence_ms: u64,
    /// How long an import may wait
    #[arg(long)]
    timeout_ms: Option<u64>,
}

/// The arguments as the demo writes them.
pub(crate) fn arguments(
    driver: &str,
    device: i32,
    silence_ms: u64,
    timeout_ms: Option<u64>,
) -> Vec<String> {
    let mut arguments = vec![
        "demo-importer".to_owned(),
        format!("--driver={driver}"),
        format!("--device={device}"),
        format!("--silence-ms={silence_ms}"),
    ];
    arguments.extend(timeout_ms.map(|timeout| format!("--timeout-ms={timeout}")));
    arguments
}

/// See the module.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // A demo that is killed takes its importer along, even out of a hung call.
    // Where that is not possible the end of stdin does it.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let mut channel = Channel::of_this_process(Duration::from_millis(args.silence_ms))?;
    let session = match Session::on_device(args.driver, "--importer-device", args.device) {
        Ok(session) => session,
        // The demo says it.
        Err(failure) => return channel.send(&Answer::failed(failure.to_string()).encode()),
    };
    channel.send(&Answer::default().encode())?;
    while let Some(body) = channel.receive()? {
        let answer = import(&session, args, &body, &mut channel)?;
        channel.send(&answer.encode())?;
    }
    Ok(())
}

/// Fails only where the demo is gone; all else is the answer's error.
fn import(
    session: &Session,
    args: &Args,
    body: &[u8],
    channel: &mut Channel,
) -> Result<Answer, Failure> {
    let handle = match GpuIpcMemHandle::decode(body) {
        Ok(handle) => handle,
        Err(error) => return Ok(Answer::failed(error.to_string())),
    };
    let mut options = ImportOptions::default().device(session.device);
    if let Some(timeout) = args.timeout_ms {
        options = options.timeout(Duration::from_millis(timeout));
    }
    let start = Instant::now();
    let memory = match session.ipc.import(std::slice::from_ref(&handle), &options) {
        Ok(memory) => memory,
        Err(error) => {
            return Ok(Answer {
                attempts: AttemptText::all(Side::Import, error.attempts()),
                ..Answer::failed(error.to_string())
            });
        }
    };
    let took = start.elapsed();
    let alive = &mut || channel.still_working();
    let (offered, answer) = (
        pattern::offered_seed(&handle),
        pattern::answer_seed(&handle),
    );
    let checked =
        pattern::compare(&memory, 0, memory.len(), offered, alive).and_then(|difference| {
            match difference {
                None => pattern::write(&memory, 0, memory.len(), answer, alive),
                Some(difference) => Err(Failure::text(format!(
                    "the importer does not see what the exporter wrote: {difference}"
                ))),
            }
        });
    let error = match checked {
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
