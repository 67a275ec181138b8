//! The workers, as the program that starts them sees them: started, disturbed,
//! listened to, and in every case ended and reaped.

use super::ground::Ground;
use super::leaks::Item;
use super::notice::Who;
use super::tally::Tally;
use super::trouble::{Trouble, list};
use crate::driver::Kind;
use crate::importer::this_program;
use crate::output::Failure;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// What a worker inherits of this program's settings is not for the soak to suffer.
const NOT_INHERITED: [&str; 6] = [
    gpuipc::TYPES_VARIABLE,
    gpuipc::TIMEOUT_VARIABLE,
    gpuipc::TRUST_VARIABLE,
    "GPUIPC_EMULATED_FAIL",
    "GPUIPC_EMULATED_DELAY",
    "GPUIPC_EMULATED_RANDOM",
];

/// How workers are started.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub(super) kind: Kind,
    pub(super) device: i32,
    pub(super) seed: u64,
    pub(super) ground: Ground,
    pub(super) without: Vec<Trouble>,
}

/// One worker.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) who: Who,
    pub(super) child: Child,
    /// Whether it has said anything, and so handles the signal that interrupts.
    pub(super) is_up: bool,
    /// When it last said something, or was let go on.
    pub(super) heard: Instant,
    /// What took longest at its last report, and how long.
    pub(super) doing: (String, Duration),
    pub(super) tally: Tally,
    /// Until when it is stopped.
    pub(super) stopped: Option<Instant>,
    /// Its own leak table, once it has come to its normal end.
    pub(super) leaks: Option<Vec<Item>>,
}

/// What a worker says.
#[derive(Debug)]
pub(super) enum Said {
    Report {
        tally: Tally,
        doing: (String, Duration),
    },
    /// Something is not as it must be.
    Failure(String),
    /// The warm-up is over.
    Warm,
    End(Vec<Item>),
    /// Nothing more.
    Closed,
}

/// Where the workers' words arrive.
#[derive(Debug)]
pub(super) struct Ears {
    sender: Sender<(Who, Said)>,
    receiver: Receiver<(Who, Said)>,
}

impl Ears {
    pub(super) fn new() -> Self {
        let (sender, receiver) = channel();
        Self { sender, receiver }
    }

    /// Starts a worker, whose words arrive here.
    pub(super) fn listen_to(&self, who: Who, command: &mut Command) -> Result<Worker, Failure> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::text(format!("a worker cannot be started: {error}")))?;
        let (words, sender) = (child.stdout.take(), self.sender.clone());
        std::thread::spawn(move || {
            let lines = words.map(|words| BufReader::new(words).lines());
            for line in lines.into_iter().flatten().map_while(Result::ok) {
                let said = Said::from_line(&line)
                    .unwrap_or_else(|| Said::Failure(format!("it says {line:?}")));
                // Nobody listens once the soak is over.
                let _ = sender.send((who, said));
            }
            let _ = sender.send((who, Said::Closed));
        });
        Ok(Worker {
            who,
            child,
            is_up: false,
            heard: Instant::now(),
            doing: <(String, Duration)>::default(),
            tally: Tally::default(),
            stopped: None,
            leaks: None,
        })
    }

    /// The next word, if one comes in this time.
    pub(super) fn hear(&self, time: Duration) -> Option<(Who, Said)> {
        // This side has a sender, too: no answer is no word in this time.
        self.receiver.recv_timeout(time).ok()
    }
}

impl Recipe {
    /// Starts a worker; its words arrive at `ears`.
    pub(super) fn start(&self, who: Who, sweep: bool, ears: &Ears) -> Result<Worker, Failure> {
        let mut command = this_program()?;
        for variable in NOT_INHERITED {
            command.env_remove(variable);
        }
        command
            .arg("soak-worker")
            .arg(format!("--driver={}", self.kind.name()))
            .arg(format!("--device={}", self.device))
            .arg(format!("--seed={}", self.seed))
            .arg(format!("--who={who}"))
            .arg(format!("--ground={}", self.ground.0.display()))
            .args(sweep.then_some("--sweep"))
            .args((!self.without.is_empty()).then(|| format!("--without={}", list(&self.without))))
            .env(gpuipc::SOCKET_DIR_VARIABLE, self.ground.sockets())
            .env("GPUIPC_EMULATED_DIR", self.ground.gpu())
            .env("GPUIPC_EMULATED_IMEX", "soak")
            .env("GPUIPC_EMULATED_ROOM", "on-write")
            // An interrupt of the terminal is for this program, which ends them.
            .process_group(0);
        ears.listen_to(who, &mut command)
    }
}

impl Said {
    fn from_line(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        match value.get("say")?.as_str()? {
            "report" => Some(Self::Report {
                tally: Tally::from_json(value.get("tally")?)?,
                doing: (
                    value.get("doing")?.as_str()?.to_owned(),
                    Duration::from_millis(value.get("doing_ms")?.as_u64()?),
                ),
            }),
            "failure" => Some(Self::Failure(value.get("what")?.as_str()?.to_owned())),
            "warm" => Some(Self::Warm),
            "end" => {
                let items = value.get("leaks")?.as_array()?;
                let items = items.iter().map(Item::from_json).collect::<Option<_>>()?;
                Some(Self::End(items))
            }
            _ => None,
        }
    }
}

impl Worker {
    pub(super) fn signal(&self, signal: Signal) {
        // It may have ended by itself; then its silence is told.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Asks it to end in the ordinary way.
    pub(super) fn tell_to_end(&mut self) {
        if let Some(stdin) = &mut self.child.stdin {
            // As above.
            let _ = stdin.write_all(b"e");
        }
    }

    /// Kills and reaps it.
    pub(super) fn kill(&mut self) {
        // Both fail only for one that was reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Reaps one that has closed its output.
    pub(super) fn reap(&mut self) -> Option<ExitStatus> {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(2)),
                Ok(None) => {
                    self.kill();
                    return None;
                }
                status => return status.ok().flatten(),
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill();
        }
    }
}
