//! Another process that fetches a descriptor from this one by pidfd, and is
//! fetched from in turn. It needs no driver.

use crate::importer::this_program;
use crate::output::Failure;
use crate::wire::Channel;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde_json::{Value, json};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Stdio};
use std::time::Duration;

/// How long either side may be silent.
const PATIENCE: Duration = Duration::from_secs(10);
/// The other process's stderr, which is /dev/null.
const ITS_NULL: i32 = 2;

/// What the other process is told.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The process to fetch from
    #[arg(long)]
    pid: i32,
    /// The number of its descriptor of /dev/null
    #[arg(long)]
    fd: i32,
}

/// How a fetch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// With the right descriptor.
    Right,
    /// With a descriptor of something else.
    Wrong,
    /// Not at all: the call, and what the kernel answered.
    Not(&'static str, Errno),
}

const OPEN: &str = "pidfd_open";
const GET: &str = "pidfd_getfd";

/// Fetches a descriptor of /dev/null by its number in another process.
fn fetch(pid: i32, fd: i32) -> Fetched {
    let Some(pid) = Pid::from_raw(pid) else {
        return Fetched::Not(OPEN, Errno::INVAL);
    };
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(errno) => return Fetched::Not(OPEN, errno),
    };
    match pidfd_getfd(&process, fd, PidfdGetfdFlags::empty()) {
        Ok(fetched) => {
            let is = File::from(fetched).metadata().map(|meta| meta.rdev());
            let null = std::fs::metadata("/dev/null").map(|meta| meta.rdev());
            if matches!((is, null), (Ok(is), Ok(null)) if is == null) {
                Fetched::Right
            } else {
                Fetched::Wrong
            }
        }
        Err(errno) => Fetched::Not(GET, errno),
    }
}

impl Fetched {
    fn encode(self) -> Vec<u8> {
        let value = match self {
            Self::Right => json!({ "right": true }),
            Self::Wrong => json!({ "right": false }),
            Self::Not(call, errno) => json!({ "call": call, "errno": errno.raw_os_error() }),
        };
        value.to_string().into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        if let Some(right) = value.get("right").and_then(Value::as_bool) {
            return Some(if right { Self::Right } else { Self::Wrong });
        }
        let call = value.get("call")?.as_str()?;
        let call = [OPEN, GET].into_iter().find(|known| *known == call)?;
        let errno = i32::try_from(value.get("errno")?.as_i64()?).ok()?;
        Some(Self::Not(call, Errno::from_raw_os_error(errno)))
    }
}

/// The other process.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut channel = Channel::of_this_process(PATIENCE)?;
    channel.send(&fetch(args.pid, args.fd).encode())?;
    // It stays until the first process has fetched from it.
    channel.receive().map(drop)
}

/// Both directions.
pub(crate) struct Both {
    /// The other process fetched from this one, as an importer would from its
    /// exporter.
    pub(crate) from_here: Fetched,
    /// This one from the other, which is its child.
    pub(crate) from_child: Fetched,
}

/// Starts the other process and fetches both ways.
pub(crate) fn both() -> Result<Both, String> {
    let null = File::open("/dev/null").map_err(|error| format!("/dev/null: {error}"))?;
    let mut command = this_program().map_err(|failure| failure.to_string())?;
    let child = command
        .arg("doctor-probe")
        .arg(format!("--pid={}", std::process::id()))
        .arg(format!("--fd={}", null.as_raw_fd()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("no other process can be started: {error}"))?;
    let mut child = Reaped(child);
    let pipes = child.0.stdout.take().zip(child.0.stdin.take());
    let (from, to) = pipes.ok_or("the other process has no pipes")?;
    let mut channel = Channel::new(from.into(), to.into(), PATIENCE);
    let answer = channel.receive().map_err(|failure| failure.to_string())?;
    let from_here = answer
        .and_then(|body| Fetched::decode(&body))
        .ok_or("the other process says nothing")?;
    let pid = i32::try_from(child.0.id()).unwrap_or(0);
    Ok(Both {
        from_here,
        from_child: fetch(pid, ITS_NULL),
    })
}

/// Killed and reaped in every case; it holds nothing.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        // Both fail only if it has been reaped.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_arrives_as_it_was_sent() {
        for fetched in [
            Fetched::Right,
            Fetched::Wrong,
            Fetched::Not(OPEN, Errno::NOSYS),
            Fetched::Not(GET, Errno::PERM),
        ] {
            assert_eq!(Fetched::decode(&fetched.encode()), Some(fetched));
        }
        assert_eq!(Fetched::decode(b"{}"), None);
    }

    #[test]
    fn another_processs_dev_null_is_known_from_its_other_files() {
        let null = File::open("/dev/null").expect("it is everywhere");
        let own = std::env::current_exe().expect("this program has a file");
        let own = File::open(own).expect("it can be read");
        let pid = i32::try_from(std::process::id()).expect("a pid");
        // A process may always fetch from itself, unless a filter forbids the call.
        match fetch(pid, null.as_raw_fd()) {
            Fetched::Right => assert_eq!(fetch(pid, own.as_raw_fd()), Fetched::Wrong),
            other => println!("SKIP: no pidfd_getfd here: {other:?}"),
        }
    }
}
