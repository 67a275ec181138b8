//! A process that does what a test tells it.

use crate::{Scratch, handle_of, to_hex};
use gpuipc_core::GpuIpcMemHandle;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The longest that any answer may take: far more than every deadline inside.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process with the emulated driver, killed at the end of the test.
#[derive(Debug)]
pub struct TestChild {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

/// What an import gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The child's number for the mapping.
    pub id: u32,
    /// The address.
    pub ptr: u64,
    /// The type that was used.
    pub used: String,
    /// What is known about the memory.
    pub liveness: String,
    /// Bytes.
    pub len: u64,
    /// Failed attempts as `Type/step/reason`.
    pub attempts: Vec<String>,
}

/// What an error said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The status's name.
    pub status: String,
    /// Failed attempts as `Type/step/reason`.
    pub attempts: Vec<String>,
    /// The whole text on one line.
    pub text: String,
}

impl TestChild {
    /// Starts a peer on the emulated GPUs of `scratch`.
    #[must_use]
    pub fn start(program: &str, scratch: &Scratch) -> Self {
        Self::start_with(program, scratch, |_| {})
    }

    /// Starts a child whose command `change` may change: environment, user.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start_with(program: &str, scratch: &Scratch, change: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(program);
        command
            .env("GPUIPC_EMULATED_DIR", scratch.path())
            .env("GPUIPC_EMULATED_IMEX", "test")
            .env("RUST_BACKTRACE", "1")
            .env_remove("GPUIPC_TYPES")
            .env_remove("GPUIPC_TIMEOUT_MS")
            .env_remove("GPUIPC_SOCKET_DIR")
            .env_remove("CUDA_VISIBLE_DEVICES")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        change(&mut command);
        let mut child = command.spawn().expect("the child program starts");
        let stdin = child.stdin.take().expect("its stdin is a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("its stdout is a pipe"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let child = Self {
            child,
            stdin,
            lines,
        };
        let hello = child.next_line("its start");
        assert_eq!(hello, "ready", "the child's first line");
        child
    }

    /// The child's pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The path of the program that is running.
    #[must_use]
    pub fn program(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/exe", self.child.id()))
    }

    fn next_line(&self, after: &str) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(error) => panic!("no answer from the child after {after:?}: {error}"),
        }
    }

    /// Sends a line without waiting for its answer.
    ///
    /// # Panics
    /// If the child has ended.
    pub fn send(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").expect("the child takes a line");
    }

    /// Sends a line and waits for its answer.
    ///
    /// # Panics
    /// If none comes.
    pub fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.next_line(line)
    }

    /// Sends lines at once and waits for the answer to each.
    ///
    /// # Panics
    /// If one does not come.
    pub fn ask_all(&mut self, lines: &[String]) -> Vec<String> {
        for line in lines {
            self.send(line);
        }
        lines.iter().map(|line| self.next_line(line)).collect()
    }

    /// Sends a line and waits for its answer, but not longer than this; `None`
    /// if none comes, and after that the child is of no more use.
    pub fn ask_within(&mut self, line: &str, time: Duration) -> Option<String> {
        writeln!(self.stdin, "{line}").ok()?;
        self.lines.recv_timeout(time).ok()
    }

    /// Waits for the answer to a line that was sent before, however long it takes.
    ///
    /// # Panics
    /// If the child ends without one.
    pub fn answer(&mut self, to: &str) -> String {
        match self.lines.recv_timeout(Duration::from_secs(600)) {
            Ok(line) => line,
            Err(error) => panic!("no answer from the child after {to:?}: {error}"),
        }
    }

    /// Sends a line whose answer must begin with `ok`; gives the rest.
    ///
    /// # Panics
    /// If the answer is another.
    pub fn ok(&mut self, line: &str) -> String {
        rest_of_ok(line, &self.ask(line))
    }

    /// The same for a line that takes long: it waits as [`TestChild::answer`] does.
    ///
    /// # Panics
    /// If the answer is another.
    pub fn ok_after_long(&mut self, line: &str) -> String {
        self.send(line);
        rest_of_ok(line, &self.answer(line))
    }

    /// Sends a line whose answer must be an error.
    ///
    /// # Panics
    /// If the answer is another.
    pub fn err(&mut self, line: &str) -> Refused {
        let answer = self.ask(line);
        let parts: Vec<&str> = answer.splitn(4, ' ').collect();
        match parts.as_slice() {
            ["err", status, attempts, text] => Refused {
                status: (*status).to_owned(),
                attempts: split_attempts(attempts),
                text: (*text).to_owned(),
            },
            _ => panic!("{line:?} was answered {answer:?}"),
        }
    }

    /// Allocates; gives the buffer's number and address.
    ///
    /// # Panics
    /// If the answer is no two numbers.
    pub fn alloc(&mut self, memory: &str, len: u64) -> (u32, u64) {
        let answer = self.ok(&format!("alloc {memory} {len}"));
        let (id, ptr) = answer.split_once(' ').expect("two words");
        (
            id.parse().expect("a number"),
            ptr.parse().expect("an address"),
        )
    }

    /// Exports part of a buffer; gives the export's number and its handle.
    ///
    /// # Panics
    /// If the export fails.
    pub fn export(&mut self, buffer: u32, offset: u64, len: u64) -> (u32, GpuIpcMemHandle) {
        let answer = self.ok(&format!("export {buffer} {offset} {len}"));
        let (id, hex) = answer.split_once(' ').expect("two words");
        (id.parse().expect("a number"), handle_of(hex))
    }

    /// Exports memory that may lie in several allocations; gives the export's
    /// number and all handles. Options are `types=TYPE,..` and `on-demand`.
    ///
    /// # Panics
    /// If the export fails.
    pub fn export_all(
        &mut self,
        buffer: u32,
        offset: u64,
        len: u64,
        options: &str,
    ) -> (u32, Vec<GpuIpcMemHandle>) {
        let answer = self.ok(&format!("export {buffer} {offset} {len} {options}"));
        let (id, hex) = answer.split_once(' ').expect("two words");
        let handles = hex.split(',').map(handle_of).collect();
        (id.parse().expect("a number"), handles)
    }

    /// Imports with options such as `types=PosixFd,Fabric timeout=500 live`.
    ///
    /// # Panics
    /// If the import fails.
    pub fn import(&mut self, handle: &GpuIpcMemHandle, options: &str) -> Imported {
        self.import_all(core::slice::from_ref(handle), options)
    }

    /// The same with all handles of a range.
    ///
    /// # Panics
    /// If the import fails.
    pub fn import_all(&mut self, handles: &[GpuIpcMemHandle], options: &str) -> Imported {
        let answer = self.ok(&format!("import {} {options}", words_of(handles)));
        let words: Vec<&str> = answer.split(' ').collect();
        let [id, ptr, used, liveness, len, attempts] = words.as_slice() else {
            panic!("import was answered {answer:?}")
        };
        Imported {
            id: id.parse().expect("a number"),
            ptr: ptr.parse().expect("an address"),
            used: (*used).to_owned(),
            liveness: (*liveness).to_owned(),
            len: len.parse().expect("a length"),
            attempts: split_attempts(attempts),
        }
    }

    /// Imports what must be refused.
    pub fn import_refused(&mut self, handle: &GpuIpcMemHandle, options: &str) -> Refused {
        self.import_all_refused(core::slice::from_ref(handle), options)
    }

    /// Imports what must be refused, with all handles of a range.
    pub fn import_all_refused(&mut self, handles: &[GpuIpcMemHandle], options: &str) -> Refused {
        self.err(&format!("import {} {options}", words_of(handles)))
    }

    /// Asks whether handles could be imported: whether they are the child's own,
    /// and `TYPE/Yes`, `TYPE/Unknown` or `No:TYPE/step/reason` for each type.
    ///
    /// # Panics
    /// If there is no answer by type.
    pub fn can_import(
        &mut self,
        handles: &[GpuIpcMemHandle],
        options: &str,
    ) -> (bool, Vec<String>) {
        let answer = self.ok(&format!("can-import {} {options}", words_of(handles)));
        let (own, types) = answer.split_once(' ').expect("two words");
        (own == "true", split_attempts(types))
    }

    /// Live objects of the emulated driver and open descriptors, as one line
    /// that is the same again when everything was given back. Waits until the
    /// line stays as it is: a broker notices a little later that a client left.
    pub fn state(&mut self) -> String {
        let mut state = self.ok("state");
        let mut same = 0;
        while same < 3 {
            std::thread::sleep(Duration::from_millis(10));
            let now = self.ok("state");
            same = if now == state { same + 1 } else { 0 };
            state = now;
        }
        state
    }

    /// Waits until everything is given back.
    ///
    /// # Panics
    /// With what is left, if that does not happen.
    pub fn returns_to(&mut self, before: &str) {
        let start = Instant::now();
        let mut now = self.ok("state");
        let mut pause = Duration::from_millis(1);
        while now != before && start.elapsed() < Duration::from_secs(15) {
            std::thread::sleep(pause);
            pause = (2 * pause).min(Duration::from_millis(20));
            now = self.ok("state");
        }
        assert_eq!(now, before, "not everything was given back");
    }

    /// Waits for the child's own end.
    ///
    /// # Panics
    /// If it cannot be waited for.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().expect("the child can be waited for")
    }

    /// Stops it (SIGSTOP), and waits until it has stopped.
    pub fn stop(&mut self) {
        stop(self.pid());
    }

    /// `kill -9`, and waits for its end.
    ///
    /// # Panics
    /// If it cannot be killed.
    pub fn kill(&mut self) {
        self.child.kill().expect("the child can be killed");
        self.child.wait().expect("the child can be waited for");
    }
}

/// Stops a process (SIGSTOP), and waits until it has stopped.
///
/// # Panics
/// If it does not.
pub fn stop(pid: u32) {
    use rustix::process::{Pid, Signal, kill_process};
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    kill_process(number.expect("a pid"), Signal::STOP).expect("the process lives");
    let start = Instant::now();
    let stat = format!("/proc/{pid}/stat");
    while !std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T ")) {
        assert!(start.elapsed() < PATIENCE, "the process does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn words_of(handles: &[GpuIpcMemHandle]) -> String {
    let words: Vec<String> = handles
        .iter()
        .map(|handle| to_hex(&handle.encode()))
        .collect();
    words.join(",")
}

fn split_attempts(word: &str) -> Vec<String> {
    word.split(',')
        .filter(|attempt| !attempt.is_empty() && *attempt != "-")
        .map(str::to_owned)
        .collect()
}

fn rest_of_ok(line: &str, answer: &str) -> String {
    match answer.strip_prefix("ok") {
        Some(rest) => rest.trim().to_owned(),
        None => panic!("{line:?} was answered {answer:?}"),
    }
}

impl Drop for TestChild {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
