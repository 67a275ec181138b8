//! The seeds of all fuzz targets: replayed, and changed at random.
#![allow(clippy::unwrap_used)]

mod changed;
mod replay;

use gpuipc_fuzz::{
    broker_client, broker_message, broker_server, c_calls, decode, driver_calls, import, parsers,
    registered_memory, round_trip,
};
use std::path::{Path, PathBuf};

/// A fuzz target.
#[derive(Clone, Copy)]
struct Target {
    name: &'static str,
    run: fn(&[u8]),
}

const DECODE: Target = Target {
    name: "decode",
    run: decode::run,
};
const ROUND_TRIP: Target = Target {
    name: "round_trip",
    run: round_trip::run,
};
const BROKER_MESSAGE: Target = Target {
    name: "broker_message",
    run: broker_message::run,
};
const REGISTERED_MEMORY: Target = Target {
    name: "registered_memory",
    run: registered_memory::run,
};
const PARSERS: Target = Target {
    name: "parsers",
    run: parsers::run,
};
const C_CALLS: Target = Target {
    name: "c_calls",
    run: c_calls::run,
};
const IMPORT: Target = Target {
    name: "import",
    run: import::run,
};
const BROKER_SERVER: Target = Target {
    name: "broker_server",
    run: broker_server::run,
};
const BROKER_CLIENT: Target = Target {
    name: "broker_client",
    run: broker_client::run,
};
const DRIVER_CALLS: Target = Target {
    name: "driver_calls",
    run: driver_calls::run,
};
const TARGETS: [Target; 10] = [
    DRIVER_CALLS,
    BROKER_CLIENT,
    BROKER_SERVER,
    DECODE,
    ROUND_TRIP,
    BROKER_MESSAGE,
    REGISTERED_MEMORY,
    PARSERS,
    C_CALLS,
    IMPORT,
];

impl Target {
    fn folder(self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("seeds")
            .join(self.name)
    }

    /// Every seed with its name, sorted, so that a run can be repeated.
    fn seeds(self) -> Vec<(String, Vec<u8>)> {
        let folder = self.folder();
        let files = std::fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut seeds: Vec<(String, Vec<u8>)> = files
            .map(|file| {
                let file = file.unwrap();
                let name = file.file_name().into_string().unwrap();
                (name, std::fs::read(file.path()).unwrap())
            })
            .collect();
        assert!(!seeds.is_empty(), "{} has seeds", folder.display());
        seeds.sort();
        seeds
    }
}
