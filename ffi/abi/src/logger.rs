//! Log lines for hosts in C, which have no logger of Rust's `log`: given to a
//! callback of the host's, else written to stderr where the environment variable
//! `GPUIPC_LOG` asks for it.

use crate::callback;
use crate::failure::Failure;
use gpuipc::sys::environment::variable;
use gpuipc::{Error, Status};
use log::{LevelFilter, Log, Metadata, Record};
use std::io::Write;
use std::sync::{Arc, PoisonError, RwLock};

/// The environment variable: a level, or `off`.
const VARIABLE: &str = "GPUIPC_LOG";

/// Where lines go.
type Sink = Arc<dyn Fn(&Record<'_>) + Send + Sync>;

/// The host's callback, if it gave one.
static HOST: RwLock<Option<Sink>> = RwLock::new(None);

/// Takes what the library logs (targets `gpuipc::gpu`, `gpuipc::broker`,
/// `gpuipc::ffi`).
struct Logger;

static LOGGER: Logger = Logger;

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("gpuipc")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) || callback::is_inside() {
            return;
        }
        // Never waits: in a forked child whoever changes the callback may be
        // gone. What is logged while it changes is lost.
        let Ok(host) = HOST.try_read() else {
            return;
        };
        match host.clone() {
            Some(sink) => callback::run(host, || sink(record)),
            None => to_stderr(record),
        }
    }

    fn flush(&self) {}
}

fn to_stderr(record: &Record<'_>) {
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

/// Sees to it that lines come here.
fn take_lines() -> bool {
    // Fails the second time, and where a Rust program has a logger of its own.
    let _ = log::set_logger(&LOGGER);
    core::ptr::addr_eq(log::logger(), &raw const LOGGER)
}

/// Logs to stderr if `GPUIPC_LOG` asks for it and the host has no callback.
pub(crate) fn install() -> Result<(), Error> {
    let level = level(variable(VARIABLE).map(|value| value.to_string_lossy().into_owned()))?;
    let host = HOST.read().unwrap_or_else(PoisonError::into_inner);
    if level != LevelFilter::Off && host.is_none() && take_lines() {
        log::set_max_level(level);
    }
    Ok(())
}

/// Gives lines to `sink` from now on, up to `level`; `None` ends that. When this
/// returns, the sink before is not being called any more.
pub(crate) fn set(sink: Option<Sink>, level: LevelFilter) -> Result<(), Failure> {
    if gpuipc::is_forked() {
        return Err(Error::Forked.into());
    }
    if !take_lines() {
        return Err(Failure::new(
            Status::UNSUPPORTED,
            "this program has a logger of Rust's `log`, which gets the lines".to_owned(),
        ));
    }
    let mut host = HOST.write().unwrap_or_else(PoisonError::into_inner);
    log::set_max_level(if sink.is_some() {
        level
    } else {
        LevelFilter::Off
    });
    *host = sink;
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
