//! Where a test's processes meet, and how they are run: a directory of their
//! own, an environment of their own, and an end for each of them.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Generous: a slow machine is no failure.
pub(crate) const LONG: Duration = Duration::from_secs(180);

/// A directory that plays one machine, removed at the end.
#[derive(Debug)]
pub(crate) struct Place {
    dir: PathBuf,
}

/// What a process left.
#[derive(Debug)]
pub(crate) struct Ended {
    /// `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let shm = Path::new("/dev/shm");
        let parent = if shm.is_dir() {
            shm.to_owned()
        } else {
            std::env::temp_dir()
        };
        let name = format!(
            "gpuipc-cli-test-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let dir = parent.join(name);
        std::fs::create_dir(&dir).expect("a new directory");
        Self { dir }
    }

    /// A path inside.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The program, with nothing of this process's settings.
    pub(crate) fn gpuipc<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuipc"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("GPUIPC_") {
                command.env_remove(name);
            }
        }
        command
            .args(arguments)
            .env_remove("CUDA_VISIBLE_DEVICES")
            .env("GPUIPC_EMULATED_DIR", self.path("machine"))
            .env("GPUIPC_EMULATED_IMEX", "test")
            .env("GPUIPC_SOCKET_DIR", &self.dir)
            .stdin(Stdio::null());
        command
    }

    /// Runs the program to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Ended {
        Running::start(&mut self.gpuipc(arguments)).end()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.dir).expect("the directory can be removed");
    }
}

/// A process whose output is collected; killed and reaped if the test fails.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) child: Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let stdout = child.stdout.take().map(collect);
        let stderr = child.stderr.take().map(collect);
        Self {
            child,
            stdout,
            stderr,
        }
    }

    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ended {
        let status = wait_for("the end of the program", || {
            self.child.try_wait().expect("it is a child")
        });
        let text = |output: Option<JoinHandle<String>>| {
            output
                .map(|thread| thread.join().expect("reading does not panic"))
                .unwrap_or_default()
        };
        Ended {
            code: status.code(),
            stdout: text(self.stdout.take()),
            stderr: text(self.stderr.take()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has been reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut output: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        output.read_to_end(&mut bytes).expect("a pipe can be read");
        String::from_utf8(bytes).expect("the program writes text")
    })
}

/// Asks until there is an answer.
pub(crate) fn wait_for<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LONG;
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
