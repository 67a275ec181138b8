//! `conformance`: questions to a CUDA driver, in the same words for the real one and
//! for the emulated one, and its answers, a row a line:
//!
//! ```text
//! section / question = answer
//! ```
//!
//! `conformance --driver cuda > FILE` records a machine's answers; the test `conformance`
//! holds the emulated driver against the recorded ones.
//!
//! Answers hold no addresses, ids, times or pids, so that two runs print the same
//! rows. Each section runs in a process of its own: a question that ends a
//! process, or that breaks a context, costs the rest of its section only, and
//! is itself an answer.
//!
//! Layers, bottom-up: `call` (a driver call as plain numbers), `pool` (those of
//! memory pools), `raw` (the calls through the driver table, and the CPU's use
//! of memory: the only unsafe code), `other` (other processes,
//! threads and forked children that can be asked), `rows`, `memory`, and
//! `sections`, a subject a file.
//!
//! It uses no multicast, no managed memory, less than 100 MiB of GPU memory at
//! a time, and resets nothing. What is known to crash a real driver (a made-up
//! handle), or to harm what other questions are about (mapping past the end of a
//! reservation), is not asked.

mod call;
mod memory;
mod other;
mod pool;
mod raw;
mod rows;
mod sections;

use raw::Raw;
use rows::Rows;
use sections::{SECTIONS, Scene, Section};
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The longest that a section may take.
const LONGEST: Duration = Duration::from_secs(120);

const USAGE: &str = "usage: conformance [--driver cuda|emulated]";

/// Which driver is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    /// The real one.
    Cuda,
    /// The stand-in.
    Emulated,
}

impl Choice {
    const fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Emulated => "emulated",
        }
    }

    /// This program again, with the same driver.
    pub(crate) fn command(self) -> std::io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--driver", self.name()]);
        Ok(command)
    }

    fn raw(self) -> Result<Raw, gpuipc::sys::LoadError> {
        match self {
            Self::Cuda => Raw::cuda(),
            Self::Emulated => Ok(Raw::emulated()),
        }
    }
}

/// What this process is to do.
enum Role {
    /// Run every section, each in a process of its own.
    All,
    /// Run one section.
    One(&'static Section),
    /// Answer calls on the socket that is stdin.
    Serve,
}

fn arguments() -> Option<(Choice, Role)> {
    let (mut choice, mut role) = (Choice::Cuda, Role::All);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--driver" => match arguments.next()?.as_str() {
                "cuda" => choice = Choice::Cuda,
                "emulated" => choice = Choice::Emulated,
                _ => return None,
            },
            "--serve" => role = Role::Serve,
            "--section" => {
                let number: usize = arguments.next()?.parse().ok()?;
                role = Role::One(SECTIONS.get(number)?);
            }
            _ => return None,
        }
    }
    Some((choice, role))
}

fn main() -> ExitCode {
    let Some((choice, role)) = arguments() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if matches!(role, Role::All) {
        return match run_all(choice) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("conformance: {error}");
                ExitCode::FAILURE
            }
        };
    }
    // Whoever started this process kills what it started; should it die before,
    // so does this process.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let raw = match choice.raw() {
        Ok(raw) => raw,
        Err(error) => {
            eprintln!("conformance: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let Role::One(section) = role {
        let rows = Rows::new(section.name, raw);
        (section.run)(&Scene { rows, raw, choice });
    } else {
        other::serve(raw, std::io::stdin());
    }
    ExitCode::SUCCESS
}

/// Runs every section and prints its rows.
fn run_all(choice: Choice) -> std::io::Result<()> {
    if let Err(error) = choice.raw() {
        return Err(std::io::Error::other(error));
    }
    let mut stdout = std::io::stdout().lock();
    let mut asked = HashSet::new();
    writeln!(stdout, "# conformance --driver {}", choice.name())?;
    for (number, section) in SECTIONS.iter().enumerate() {
        let (rows, end) = run_section(choice, number)?;
        for row in rows {
            let question = row.split_once(" = ").map_or(row.as_str(), |(key, _)| key);
            if !asked.insert(question.to_owned()) {
                return Err(std::io::Error::other(format!("asked twice: {question}")));
            }
            writeln!(stdout, "{row}")?;
        }
        if let Some(end) = end {
            writeln!(stdout, "{} / the end = {end}", section.name)?;
        }
        stdout.flush()?;
    }
    Ok(())
}

/// A section's rows, and how its process ended if not by itself.
fn run_section(choice: Choice, number: usize) -> std::io::Result<(Vec<String>, Option<String>)> {
    let mut command = choice.command()?;
    command.args(["--section", &number.to_string()]);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().map(BufReader::new);
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let lines = stdout.into_iter().flat_map(BufRead::lines);
        for line in lines.map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let (start, mut rows) = (Instant::now(), Vec::new());
    let in_time = loop {
        match lines.recv_timeout(LONGEST.saturating_sub(start.elapsed())) {
            Ok(line) => rows.push(line),
            Err(RecvTimeoutError::Disconnected) => break true,
            Err(RecvTimeoutError::Timeout) => break false,
        }
    };
    if !in_time {
        child.kill()?;
    }
    let status = child.wait()?;
    Ok((
        rows,
        if in_time {
            why(status)
        } else {
            Some("killed, since it did not end".to_owned())
        },
    ))
}

fn why(status: ExitStatus) -> Option<String> {
    if status.success() {
        return None;
    }
    Some(match status.signal() {
        Some(signal) => format!("killed by signal {signal}"),
        None => format!("exit status {}", status.code().unwrap_or(-1)),
    })
}
