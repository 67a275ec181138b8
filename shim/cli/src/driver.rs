//! Which driver is used: the real one, the emulated one, or whichever works.
#![allow(unsafe_code)]

use crate::output::Failure;
use gpuipc::sys::environment::variable;
use gpuipc::{DeviceId, Driver, Memory};
use std::ffi::OsString;

/// The emulated driver's setting for its fabric.
const FABRIC_VARIABLE: &str = "GPUIPC_EMULATED_IMEX";
/// The fabric that the demo's two processes share.
const DEMO_FABRIC: &str = "demo";

/// What the user asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Choice {
    /// The real driver if it finds a GPU, else the emulated one
    Auto,
    /// The real driver
    Cuda,
    /// The emulated driver, which needs no GPU
    Emulated,
}

impl Choice {
    /// The name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cuda => "cuda",
            Self::Emulated => "emulated",
        }
    }
}

/// What is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Cuda,
    Emulated,
}

impl Kind {
    /// The name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Emulated => "emulated",
        }
    }

    /// The choice of exactly this driver.
    pub(crate) const fn choice(self) -> Choice {
        match self {
            Self::Cuda => Choice::Cuda,
            Self::Emulated => Choice::Emulated,
        }
    }
}

/// A driver that is initialized and has at least one GPU.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) driver: Driver,
    pub(crate) kind: Kind,
    /// Why the real driver was not taken.
    no_gpu: Option<String>,
}

/// Opens the driver that was asked for.
pub(crate) fn open(choice: Choice) -> Result<Opened, Failure> {
    match choice {
        Choice::Cuda => {
            let driver = Driver::load().map_err(|error| Failure::text(error.to_string()))?;
            has_gpu(driver)
                .map_err(|reason| Failure::text(format!("no GPU can be used: {reason}")))?;
            Ok(Opened {
                driver,
                kind: Kind::Cuda,
                no_gpu: None,
            })
        }
        Choice::Emulated => open_emulated(None),
        Choice::Auto => match real() {
            Ok(driver) => Ok(Opened {
                driver,
                kind: Kind::Cuda,
                no_gpu: None,
            }),
            Err(reason) => open_emulated(Some(reason)),
        },
    }
}

/// The real driver, if it works, or the reason in short.
pub(crate) fn real() -> Result<Driver, String> {
    use gpuipc::sys::LoadError;
    let driver = Driver::load().map_err(|error| match error {
        LoadError::Library { path, message } => {
            let path = path.to_string_lossy();
            if message.contains(&*path) {
                message
            } else {
                format!("{path}: {message}")
            }
        }
        error => error.to_string(),
    })?;
    has_gpu(driver)?;
    Ok(driver)
}

fn has_gpu(driver: Driver) -> Result<(), String> {
    driver.init().map_err(|error| error.to_string())?;
    match driver.device_count() {
        Ok(1..) => Ok(()),
        Ok(_) => Err("the driver shows no GPU to this process".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn open_emulated(no_gpu: Option<String>) -> Result<Opened, Failure> {
    let driver = emulated();
    has_gpu(driver).map_err(|reason| {
        let before = no_gpu
            .as_ref()
            .map(|reason| format!("no GPU found ({reason}), and "))
            .unwrap_or_default();
        let hint = if std::env::var_os("CUDA_VISIBLE_DEVICES").is_some() {
            "CUDA_VISIBLE_DEVICES hides emulated GPUs, too"
        } else {
            "GPUIPC_LOG=error tells more"
        };
        Failure::text(format!(
            "{before}the emulated driver does not start: {reason} ({hint})"
        ))
    })?;
    Ok(Opened {
        driver,
        kind: Kind::Emulated,
        no_gpu,
    })
}

fn emulated() -> Driver {
    // SAFETY: the table must follow CUDA's contract call by call: write no more
    // than the out-parameters hold, keep no pointer, be callable from any
    // thread, not unwind. That is what the emulated driver promises of its
    // table, which is made from the same list of calls and types.
    unsafe { Driver::from_table(gpuipc_emulated::table()) }
}

/// Puts this process and those it starts into one emulated fabric, unless the
/// environment already says something about it. The real driver does not look
/// at it.
///
/// To be called while the process has a single thread.
pub(crate) fn switch_emulated_fabric_on() {
    if emulated_fabric().is_none() {
        // SAFETY: "safe to call in a single-threaded program": `main` calls
        // this first, after it has parsed its arguments, which starts no
        // thread; no driver is loaded and no log started yet.
        unsafe { std::env::set_var(FABRIC_VARIABLE, DEMO_FABRIC) };
    }
}

fn emulated_fabric() -> Option<OsString> {
    variable(FABRIC_VARIABLE).filter(|name| !name.is_empty())
}

impl Opened {
    /// The ordinal of a GPU that the command line names by this option.
    pub(crate) fn device(&self, option: &str, device: DeviceId) -> Result<i32, Failure> {
        let count = self.driver.device_count().unwrap_or(0);
        match device {
            DeviceId::Ordinal(ordinal) => self.driver.device(ordinal).map_err(|error| {
                Failure::text(format!(
                    "{option} {ordinal}: {error}; the GPUs seen here are 0 to {}",
                    count - 1
                ))
            }),
            DeviceId::Uuid(uuid) => {
                let seen =
                    |ordinal| Some((ordinal, gpuipc::device_uuid(self.driver, ordinal).ok()?));
                let seen: Vec<_> = (0..count).filter_map(seen).collect();
                let found = seen.iter().find(|(_, other)| *other == uuid);
                found.map(|(ordinal, _)| *ordinal).ok_or_else(|| {
                    let names: Vec<_> = seen.iter().map(|(_, uuid)| uuid.to_string()).collect();
                    Failure::text(format!(
                        "{option} {uuid}: no GPU seen here has this UUID; seen are {}",
                        names.join(", ")
                    ))
                })
            }
            other => Err(Failure::text(format!("{option} {other:?}: unknown"))),
        }
    }

    /// One line about the driver.
    pub(crate) fn describe(&self, device: i32) -> String {
        match (self.kind, &self.no_gpu) {
            (Kind::Emulated, Some(reason)) => format!("driver: emulated (no GPU found: {reason})"),
            (Kind::Emulated, None) => "driver: emulated (no GPU is used)".to_owned(),
            (Kind::Cuda, _) => {
                let name = self
                    .driver
                    .device_name(device)
                    .unwrap_or_else(|error| error.to_string());
                format!("driver: {}, {name}", self.library_and_version())
            }
        }
    }

    /// The driver library and the CUDA version that it is made for.
    pub(crate) fn library_and_version(&self) -> String {
        let version = self.driver.version().map_or_else(
            |error| error.to_string(),
            |version| format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
        );
        let library = match self.kind {
            Kind::Emulated => "the emulated driver".to_owned(),
            Kind::Cuda => variable(gpuipc::sys::LIBRARY_VARIABLE)
                .filter(|name| !name.is_empty())
                .map_or_else(
                    || gpuipc::sys::DEFAULT_LIBRARY.to_owned(),
                    |name| name.to_string_lossy().into_owned(),
                ),
        };
        format!("{library}, {version}")
    }

    /// What is to be known about the emulated fabric, where there is one.
    pub(crate) fn describe_fabric(&self) -> Option<String> {
        let name = emulated_fabric().filter(|name| name != "none");
        name.filter(|_| self.kind == Kind::Emulated).map(|name| {
            format!(
                "the emulated fabric is on ({FABRIC_VARIABLE}={})",
                name.display()
            )
        })
    }

    /// What helps where memory of this kind cannot be allocated.
    pub(crate) fn allocation_hint(&self, memory: Memory) -> &'static str {
        match (memory, self.kind) {
            (Memory::VmmFabric, Kind::Emulated) => {
                "; the emulated driver has a fabric if GPUIPC_EMULATED_IMEX names one, \
                 the same for exporter and importer"
            }
            (Memory::VmmFabric, Kind::Cuda) => {
                "; memory for the fabric needs the IMEX service and its channel device"
            }
            _ => "",
        }
    }
}
