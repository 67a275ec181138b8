//! Whoever else can be asked: another process, a forked child, another thread.
//!
//! Another process is this program again, which answers calls on a socket until
//! the socket closes. Every wait has a deadline, and whoever was started is
//! killed when the asker drops it.

use crate::Choice;
use crate::call::{Ask, GONE, Message, Reply};
use crate::raw::{self, Raw};
use core::mem::MaybeUninit;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::time::Timespec;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// The longest that one call may take: the first one of a process loads the driver.
const PATIENCE: Duration = Duration::from_secs(40);

fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn send(
    socket: impl AsFd,
    message: &Message,
    fd: Option<BorrowedFd<'_>>,
) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd]);
    if let Some(fds) = &fds
        && !ancillary.push(SendAncillaryMessage::ScmRights(fds))
    {
        return Err(Errno::INVAL);
    }
    let bytes = message.encode();
    let parts = [IoSlice::new(&bytes)];
    let flags = SendFlags::NOSIGNAL;
    retry_on_intr(|| sendmsg(&socket, &parts, &mut ancillary, flags)).map(drop)
}

/// The next message, or `None` at the end of the connection.
fn receive(socket: impl AsFd) -> rustix::io::Result<Option<(Message, Option<OwnedFd>)>> {
    let mut bytes = [0; Message::LEN];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        recvmsg(&socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })
    .map(|received| {
        let fds = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let fd = fds.flatten().next();
        let message = Message::decode(&bytes).filter(|_| received.bytes == Message::LEN);
        message.map(|message| (message, fd))
    })
}

/// Answers calls until the socket closes.
pub(crate) fn serve(raw: Raw, socket: impl AsFd) {
    while let Ok(Some((call, fd))) = receive(&socket) {
        let reply = raw.ask(call, fd.as_ref().map(AsFd::as_fd));
        if send(&socket, &reply.message, reply.fd.as_ref().map(AsFd::as_fd)).is_err() {
            return;
        }
    }
}

/// Sends a call and waits for its answer.
fn exchange(socket: &OwnedFd, call: &Message, fd: Option<BorrowedFd<'_>>) -> Reply {
    let gone = Reply::code(GONE);
    if send(socket, call, fd).is_err() || !readable(socket) {
        return gone;
    }
    match receive(socket) {
        Ok(Some((message, fd))) => Reply { message, fd },
        _ => gone,
    }
}

/// Waits until there is something to read.
fn readable(socket: &OwnedFd) -> bool {
    let timeout = Timespec::try_from(PATIENCE).ok();
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    retry_on_intr(|| poll(&mut fds, timeout.as_ref())).is_ok_and(|ready| ready > 0)
}

/// Another process: this program again.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    socket: Option<OwnedFd>,
}

impl Process {
    /// Starts one.
    pub(crate) fn start(choice: Choice) -> std::io::Result<Self> {
        Self::start_with(choice, |_| ())
    }

    /// Starts one that sees these GPUs only.
    pub(crate) fn seeing(choice: Choice, visible: &str) -> std::io::Result<Self> {
        Self::start_with(choice, |command| {
            command.env("CUDA_VISIBLE_DEVICES", visible);
        })
    }

    fn start_with(choice: Choice, change: impl FnOnce(&mut Command)) -> std::io::Result<Self> {
        let (socket, its) = pair()?;
        let mut command = choice.command()?;
        command.arg("--serve").stdin(its).stdout(Stdio::null());
        change(&mut command);
        Ok(Self {
            child: command.spawn()?,
            socket: Some(socket),
        })
    }

    /// Lets it end by itself, as a program does; false if it did not.
    pub(crate) fn end(&mut self) -> bool {
        self.socket = None;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                Ok(Some(status)) => return status.success(),
                Err(_) => return false,
            }
        }
        false
    }

    /// Kills it (`SIGKILL`) and waits for its end.
    pub(crate) fn kill(&mut self) -> bool {
        self.child.kill().is_ok() && self.child.wait().is_ok()
    }
}

impl Ask for Process {
    fn ask(&self, call: Message, fd: Option<BorrowedFd<'_>>) -> Reply {
        match &self.socket {
            Some(socket) => exchange(socket, &call, fd),
            None => Reply::code(GONE),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A child forked from this process, without `exec`.
#[derive(Debug)]
pub(crate) struct Forked {
    child: Pid,
    socket: OwnedFd,
}

impl Forked {
    /// Forks.
    pub(crate) fn new(raw: Raw) -> rustix::io::Result<Self> {
        let (socket, its) = pair()?;
        let child = raw::fork(|| serve(raw, &its)).ok_or(Errno::AGAIN)?;
        Ok(Self { child, socket })
    }
}

impl Ask for Forked {
    fn ask(&self, call: Message, fd: Option<BorrowedFd<'_>>) -> Reply {
        exchange(&self.socket, &call, fd)
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        let _ = kill_process(self.child, Signal::KILL);
        let _ = retry_on_intr(|| waitpid(Some(self.child), WaitOptions::empty()));
    }
}

/// Another thread of this process.
#[derive(Debug)]
pub(crate) struct Thread {
    calls: Sender<(Message, Option<OwnedFd>)>,
    replies: Receiver<Reply>,
}

impl Thread {
    /// Starts one. It ends when this is dropped.
    pub(crate) fn start(raw: Raw) -> Self {
        let (calls, its_calls) = channel::<(Message, Option<OwnedFd>)>();
        let (its_replies, replies) = channel();
        std::thread::spawn(move || {
            for (call, fd) in its_calls {
                let reply = raw.ask(call, fd.as_ref().map(AsFd::as_fd));
                if its_replies.send(reply).is_err() {
                    return;
                }
            }
        });
        Self { calls, replies }
    }
}

impl Ask for Thread {
    fn ask(&self, call: Message, fd: Option<BorrowedFd<'_>>) -> Reply {
        let gone = Reply::code(GONE);
        let fd = match fd.map(|fd| fd.try_clone_to_owned()).transpose() {
            Ok(fd) => fd,
            Err(_) => return gone,
        };
        if self.calls.send((call, fd)).is_err() {
            return gone;
        }
        self.replies.recv_timeout(PATIENCE).unwrap_or(gone)
    }
}
