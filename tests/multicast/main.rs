//! Multicast objects between real processes on the emulated driver: a file a
//! subject, a test a behaviour. Nothing here ever runs on a real driver.

mod agreement;
mod connection;
mod driver;
mod phases;
mod ranges;
mod slots;
mod teardown;
mod unavailable;

use gpuipc_tests::{Refused, Scratch, TestChild};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

/// The helper program.
const PROGRAM: &str = env!("CARGO_BIN_EXE_child");
/// The granularity, and the size of most objects.
const LEN: u64 = 2 << 20;

/// Members with a GPU each, and a socket between every two of them.
struct Group {
    members: Vec<TestChild>,
    scratch: Arc<Scratch>,
    settings: Vec<(String, String)>,
}

impl Group {
    fn new(size: usize) -> Self {
        Self::with(size, &[])
    }

    /// With more settings.
    fn with(size: usize, settings: &[(&str, &str)]) -> Self {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        let settings = settings.iter().map(owned).collect();
        Self::on(Arc::new(Scratch::new()), size, settings)
    }

    /// As many others on the same machine.
    fn beside(other: &Self) -> Self {
        let scratch = Arc::clone(&other.scratch);
        Self::on(scratch, other.members.len(), other.settings.clone())
    }

    fn on(scratch: Arc<Scratch>, size: usize, settings: Vec<(String, String)>) -> Self {
        let sockets = mesh(size);
        let members = (0..size)
            .map(|rank| {
                TestChild::start_with(PROGRAM, &scratch, |command| {
                    command
                        .env("GPUIPC_EMULATED_GPUS", size.max(2).to_string())
                        .env("GPUIPC_EMULATED_VISIBLE", rank.to_string())
                        .env_remove("GPUIPC_TEST_DRIVER")
                        .envs(settings.iter().cloned());
                    hand_over(command, rank, &sockets[rank]);
                })
            })
            .collect();
        Self {
            members,
            scratch,
            settings,
        }
    }

    /// Sends everyone a line, made of its rank, and then takes the answers.
    fn all(&mut self, line: impl Fn(usize) -> String) -> Vec<String> {
        let everyone: Vec<usize> = (0..self.members.len()).collect();
        self.some(&everyone, line)
    }

    /// The same for some of them.
    fn some(&mut self, ranks: &[usize], line: impl Fn(usize) -> String) -> Vec<String> {
        for rank in ranks {
            self.members[*rank].send(&line(*rank));
        }
        let answer = |rank: &usize| self.members[*rank].answer(&line(*rank));
        ranks.iter().map(answer).collect()
    }

    /// Everyone must answer `ok`; gives the rests.
    fn all_ok(&mut self, line: impl Fn(usize) -> String) -> Vec<String> {
        let answers = self.all(&line);
        let ok = |(rank, answer): (usize, String)| match answer.strip_prefix("ok") {
            Some(rest) => rest.trim().to_owned(),
            None => panic!("member {rank}: {:?} was answered {answer:?}", line(rank)),
        };
        answers.into_iter().enumerate().map(ok).collect()
    }

    /// Memory of each member on its GPU: the buffers.
    fn buffers(&mut self, len: u64) -> Vec<u32> {
        let alloc = |member: &mut TestChild| member.alloc("vmm-fd", len).0;
        self.members.iter_mut().map(alloc).collect()
    }

    /// Member 0 makes an object: its number there, and the handle in hex.
    fn create(&mut self, size: u64) -> (u32, String) {
        let devices = self.members.len();
        let answer = self.members[0].ok(&format!("mc-create {size} {devices}"));
        let (id, handle) = answer.split_once(' ').expect("two words");
        (id.parse().expect("a number"), handle.to_owned())
    }

    /// Everyone imports it; their numbers.
    fn import(&mut self, handle: &str) -> Vec<u32> {
        let ids = self.all_ok(|_| format!("mc-import {handle}"));
        ids.iter().map(|id| id.parse().expect("a number")).collect()
    }

    /// Everyone imports, and adds its GPU.
    fn join(&mut self, handle: &str) -> Vec<u32> {
        let ids = self.import(handle);
        self.all_ok(|rank| format!("mc-add {} 0", ids[rank]));
        ids
    }

    /// Everyone is ready to write, with `LEN` bytes of its buffer.
    fn ready(&mut self, handle: &str, buffers: &[u32]) -> Vec<u32> {
        let ids = self.join(handle);
        self.all_ok(|rank| format!("mc-bind {} {} {LEN}", ids[rank], buffers[rank]));
        self.all_ok(|rank| format!("mc-map {}", ids[rank]));
        ids
    }

    fn states(&mut self) -> Vec<String> {
        self.members.iter_mut().map(TestChild::state).collect()
    }

    fn return_to(&mut self, before: &[String]) {
        for (member, before) in self.members.iter_mut().zip(before) {
            member.returns_to(before);
        }
    }
}

/// A socket between every two members: for each, one to each other.
fn mesh(size: usize) -> Vec<Vec<Option<UnixStream>>> {
    let mut sockets: Vec<Vec<Option<UnixStream>>> = Vec::new();
    for rank in 0..size {
        let (lower, own): (Vec<_>, Vec<_>) = (0..rank)
            .map(|_| UnixStream::pair().expect("sockets"))
            .unzip();
        for (other, socket) in sockets.iter_mut().zip(lower) {
            other.push(Some(socket));
        }
        sockets.push(own.into_iter().map(Some).chain([None]).collect());
    }
    sockets
}

/// Gives a process its sockets, and no other process.
#[allow(unsafe_code)]
fn hand_over(command: &mut Command, rank: usize, sockets: &[Option<UnixStream>]) {
    let numbers: Vec<i32> = sockets
        .iter()
        .map(|socket| socket.as_ref().map_or(-1, AsRawFd::as_raw_fd))
        .collect();
    let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    command.env("GPUIPC_TEST_TEAM", format!("{rank} {}", words.join(" ")));
    let keep = move || {
        for number in numbers.iter().filter(|number| **number >= 0) {
            // SAFETY: in the child the descriptor is open, and the call changes
            // only whether exec closes it.
            if unsafe { libc::fcntl(*number, libc::F_SETFD, 0) } != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls only; it
    // neither allocates nor takes a lock.
    unsafe { command.pre_exec(keep) };
}

/// A refusal's parts.
fn refused(answer: &str) -> Refused {
    let parts: Vec<&str> = answer.splitn(4, ' ').collect();
    let ["err", status, _, text] = parts.as_slice() else {
        panic!("not refused: {answer:?}");
    };
    Refused {
        status: (*status).to_owned(),
        attempts: Vec::new(),
        text: (*text).to_owned(),
    }
}

/// Whether the answer names a member and its fault.
fn names(answer: &str, member: usize, fault: &str) -> bool {
    let refused = refused(answer);
    refused.status == "MULTICAST_TEAM" && refused.text.contains(&format!("member {member} {fault}"))
}
