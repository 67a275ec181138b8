//! The library's log on stderr, switched on by `GPUIPC_LOG`.

use crate::output::Failure;
use gpuipc::sys::environment::variable;
use log::{LevelFilter, Log, Metadata, Record};
use std::io::Write;

/// The environment variable with the level.
const VARIABLE: &str = "GPUIPC_LOG";

struct Stderr;

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // `gpuipc::..`, and the emulated driver's `gpuipc_emulated::..`.
        metadata.target().starts_with("gpuipc") && metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            // The pid, since the demo's two processes share one stderr; one
            // write, so that their lines stay whole.
            let line = format!(
                "[{} {} {}] {}\n",
                std::process::id(),
                record.level().as_str().to_ascii_lowercase(),
                record.target(),
                record.args()
            );
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
}

/// Starts the log if the variable asks for it.
pub(crate) fn start() -> Result<(), Failure> {
    let Some(value) = variable(VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(());
    };
    let level: LevelFilter = value
        .to_str()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| {
            Failure::text(format!(
                "{VARIABLE}={value:?} is not valid: error, warn, info, debug, trace or off"
            ))
        })?;
    if log::set_logger(&Stderr).is_ok() {
        log::set_max_level(level);
    }
    Ok(())
}
