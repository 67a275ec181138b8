//! The program `gpuipc`: shows on this machine, with a real GPU or without
//! one, what the library of the same name does.
//!
//! * `size`, `table`, `output`, `logger`, `signals`: text in and out, and the
//!   signals that end a waiting exporter.
//! * `device`, `driver`, `session`: which driver is used, and one GPU of it ready
//!   to copy.
//! * `case`, `pattern`, `source`, `mapped`, `handle_file`, `attempt`: what is
//!   shared, how it is checked on both sides, and how it is written down.
//! * `wire`, `message`, `child`, `importer`: the second process of `demo` and
//!   `doctor`, its two ends; `trial`: a case shared with it.
//! * `demo`, `export`, `import` with `feasibility`, `inspect` with `together`,
//!   `doctor`: the commands.
//!
//! No command sees the library's insides: all of it could be written by any
//! user of the library.
#![deny(unsafe_code)]

mod attempt;
mod case;
mod child;
mod demo;
mod device;
mod doctor;
mod driver;
mod export;
mod feasibility;
mod handle_file;
mod import;
mod importer;
mod inspect;
mod logger;
mod mapped;
mod message;
mod output;
mod pattern;
mod session;
mod signals;
mod size;
mod source;
mod table;
mod together;
mod trial;
mod wire;

use clap::{Parser, Subcommand};
use output::Failure;
use std::process::ExitCode;

/// Share GPU memory between processes.
///
/// GPUIPC_LOG=error|warn|info|debug|trace writes the library's log to stderr.
/// Exit codes: 0 success, 1 failure, 2 wrong usage.
#[derive(Parser)]
#[command(name = "gpuipc", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Share memory of every kind with a second process, and verify every byte on both sides
    Demo(demo::Args),
    /// Allocate memory, write its handle to a file, and hold the export
    Export(export::Args),
    /// Map the memory behind a handle and verify what its exporter wrote
    Import(import::Args),
    /// Show what a handle says; needs no driver
    Inspect(inspect::Args),
    /// Find out what works on this machine, what does not, and why
    Doctor(doctor::Args),
    /// The importing process of the demo and the doctor
    #[command(hide = true)]
    DemoImporter(importer::Args),
    /// The doctor's process that has no driver
    #[command(hide = true)]
    DoctorProbe(doctor::probe::Args),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    // Before anything could start a thread.
    if matches!(command, Command::Demo(_)) {
        driver::switch_emulated_fabric_on();
    }
    match logger::start().and_then(|()| run(&command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report();
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => demo::run(args),
        Command::Export(args) => export::run(args),
        Command::Import(args) => import::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::DemoImporter(args) => importer::run(args),
        Command::DoctorProbe(args) => doctor::probe::run(args),
    }
}
