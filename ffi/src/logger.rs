//! Log lines on stderr. A host in C has no logger of Rust's `log`, so the
//! environment variable `GPUIPC_LOG` asks for one.

use gpuipc::Error;
use log::{LevelFilter, Log, Metadata, Record};
use std::io::Write;

/// The environment variable: a level, or `off`.
const VARIABLE: &str = "GPUIPC_LOG";

/// Writes what the library logs (targets `gpuipc::gpu`, `gpuipc::broker`,
/// `gpuipc::ffi`) to stderr.
struct Stderr;

static STDERR: Stderr = Stderr;

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("gpuipc")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            // In one piece, so that the lines of several processes do not mix.
            let line = format!(
                "{}[{}] {}: {}\n",
                record.target(),
                std::process::id(),
                record.level(),
                record.args()
            );
            // There is nowhere else to say that stderr is closed.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
}

/// Installs the logger if `GPUIPC_LOG` asks for it and there is none yet.
pub(crate) fn install() -> Result<(), Error> {
    let level =
        level(std::env::var_os(VARIABLE).map(|value| value.to_string_lossy().into_owned()))?;
    if level != LevelFilter::Off && log::set_logger(&STDERR).is_ok() {
        log::set_max_level(level);
    }
    Ok(())
}

fn level(given: Option<String>) -> Result<LevelFilter, Error> {
    match given.filter(|value| !value.is_empty()) {
        None => Ok(LevelFilter::Off),
        Some(value) => value.trim().parse().map_err(|_| Error::Setting {
            variable: VARIABLE,
            value,
            rule: "one of off, error, warn, info, debug and trace",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::level;
    use log::LevelFilter;

    #[test]
    fn nothing_is_logged_unless_asked_for() {
        for value in [None, Some(String::new()), Some("off".to_owned())] {
            assert_eq!(level(value).ok(), Some(LevelFilter::Off));
        }
        assert_eq!(
            level(Some("Debug".to_owned())).ok(),
            Some(LevelFilter::Debug)
        );
    }

    #[test]
    fn an_unknown_level_is_named() {
        let error = level(Some("loud".to_owned())).expect_err("no level");
        assert!(error.to_string().contains("GPUIPC_LOG=\"loud\""), "{error}");
    }
}
