//! `gpuipc demo`: memory of every kind goes to a second process and back.

use crate::attempt::AttemptText;
use crate::case::Case;
use crate::driver::{Choice, Kind};
use crate::importer;
use crate::output::{Failure, line};
use crate::session::Session;
use crate::trial::Trial;
use crate::{size, table};
use gpuipc::{ExportOptions, HandleType};
use serde_json::{Value, json};

const DEFAULT_SIZE: usize = 64 << 20;
/// The emulated driver copies through files.
const DEFAULT_EMULATED_SIZE: usize = 4 << 20;

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The driver
    #[arg(long, value_enum, default_value_t = Choice::Auto)]
    driver: Choice,
    /// Bytes to share, e.g. 512KiB, 64MiB, 1GiB [default: 64MiB, emulated: 4MiB]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    size: Option<usize>,
    /// The GPU that holds the memory
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..))]
    device: i32,
    /// The GPU that the second process maps the memory on [default: the same]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    importer_device: Option<i32>,
    /// How long the other process may give no sign of life; an import may wait
    /// half of it [default: 30000, and 5000 or GPUIPC_TIMEOUT_MS for an import]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=u64::from(u32::MAX)))]
    timeout_ms: Option<u64>,
    /// One JSON object a line for each kind of memory
    #[arg(long)]
    json: bool,
}

/// See the module.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let session = Session::on_device(args.driver, "--device", args.device)?;
    let bytes = args.size.unwrap_or(match session.opened.kind {
        Kind::Cuda => DEFAULT_SIZE,
        Kind::Emulated => DEFAULT_EMULATED_SIZE,
    });
    if !args.json {
        line(session.opened.describe(session.device))?;
        if let Some(fabric) = session.opened.describe_fabric() {
            line(fabric)?;
        }
    }
    let mut rows = Vec::new();
    let ended = share_all(args, &session, bytes, &mut rows);
    if !args.json && !rows.is_empty() {
        line(table_of(&rows))?;
    }
    ended?;
    verdict(&rows)
}

/// Shares each kind in turn. Fails only where there is nobody to share with.
fn share_all(
    args: &Args,
    session: &Session,
    bytes: usize,
    rows: &mut Vec<Trial>,
) -> Result<(), Failure> {
    let mut importer = importer::start(
        session.opened.kind,
        args.importer_device.unwrap_or(session.device),
        args.timeout_ms,
    )?;
    let options = ExportOptions::default();
    for case in Case::all() {
        let row = Trial::run(session, &mut importer, case, bytes, &options)?;
        if args.json {
            line(json_of(&row, session))?;
        }
        rows.push(row);
    }
    importer.end()
}

fn names(types: &[HandleType]) -> Vec<&'static str> {
    types.iter().map(|handle_type| handle_type.name()).collect()
}

fn table_of(rows: &[Trial]) -> String {
    let heads = [
        "memory",
        "types exported",
        "type used",
        "handles",
        "bytes",
        "verified",
        "import time",
    ];
    let mut lines = vec![heads.map(str::to_owned)];
    let or_dash = |text: String| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text
        }
    };
    lines.extend(rows.iter().map(|row| {
        let verified = match (row.allocated, row.verified) {
            (false, _) => "-",
            (true, true) => row.case.usage.done(),
            (true, false) => "NO",
        };
        [
            row.case.name.to_owned(),
            or_dash(names(&row.exported_types).join(", ")),
            or_dash(row.used.clone().unwrap_or_default()),
            or_dash(match row.handles {
                0 => String::new(),
                handles => handles.to_string(),
            }),
            size::text(row.bytes as u64),
            verified.to_owned(),
            or_dash(
                row.import_us
                    .map(|time| format!("{time} us"))
                    .unwrap_or_default(),
            ),
        ]
    }));
    let mut text = table::render(&lines);
    for row in rows {
        if let Some(error) = &row.error {
            let what = if row.allocated {
                "FAILED"
            } else {
                "not available"
            };
            text.push_str(&format!("\n{}: {what}: {error}", row.case.name));
        }
        for attempt in &row.attempts {
            text.push_str(&format!("\n{}: {attempt}", row.case.name));
        }
    }
    text
}

fn json_of(row: &Trial, session: &Session) -> Value {
    let attempts: Vec<Value> = row.attempts.iter().map(AttemptText::to_json).collect();
    json!({
        "driver": session.opened.kind.name(),
        "driver_text": session.opened.describe(session.device),
        "case": row.case.name,
        "memory": row.case.memory.name(),
        "allocated": row.allocated,
        "exported": names(&row.exported_types),
        "handles": row.handles,
        "used": row.used,
        "bytes": row.bytes,
        "verified": row.verified,
        "import_us": row.import_us,
        "attempts": attempts,
        "error": row.error,
    })
}

/// Success is that all memory that exists here was verified, and some does.
fn verdict(rows: &[Trial]) -> Result<(), Failure> {
    let failed: Vec<&str> = rows
        .iter()
        .filter(|row| row.allocated && !row.verified)
        .map(|row| row.case.name)
        .collect();
    if !failed.is_empty() {
        return Err(Failure::text(format!(
            "not verified: {}",
            failed.join(", ")
        )));
    }
    if !rows.iter().any(|row| row.verified) {
        return Err(Failure::text("no kind of memory could be allocated"));
    }
    Ok(())
}
