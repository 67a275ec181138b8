//! The broker's sockets, and messages over them with at most one descriptor each.
//!
//! No side receives descriptors from a stranger. From Linux 6.16 on the kernel refuses
//! to send any (SO_PASSRIGHTS). On older kernels a message that holds one is not
//! received, and is closed on another thread (see `discard`).

use super::credentials::take_descriptors;
use super::discard::{Foreign, close_elsewhere};
use crate::process::identity;
use crate::process::private_fd::{File, PrivateFd, above_standard};
use core::mem::MaybeUninit;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
    accept_with, recvmsg, sendmsg, shutdown, socket_with, sockopt,
};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Messages that are looked at when a connection is closed; what has more is closed elsewhere.
const MOST_LEFT: usize = 64;

/// An unconnected socket.
pub(super) fn new_socket(kind: SocketType) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, kind, flags, None).map(above_standard)
}

/// A socket for broker messages, connected or to be connected, that takes no descriptors.
#[derive(Debug)]
pub(super) struct Line {
    /// Taken by the drop alone.
    socket: Option<PrivateFd>,
    /// No message to this end can have held descriptors.
    is_clean: bool,
}

impl Line {
    pub(super) fn new() -> rustix::io::Result<Self> {
        let socket = new_socket(SocketType::SEQPACKET)?;
        let is_clean = take_descriptors(&socket, false).is_ok();
        Ok(Self {
            socket: Some(PrivateFd::new(socket)),
            is_clean,
        })
    }

    /// The other end is known by now, and may send descriptors.
    pub(super) fn take_descriptors(&mut self) -> rustix::io::Result<()> {
        if core::mem::take(&mut self.is_clean) {
            take_descriptors(&*self, true)?;
        }
        Ok(())
    }

    /// Whether the descriptor is still this socket's.
    pub(super) fn is_there(&self) -> bool {
        (self.socket.as_ref()).is_some_and(|socket| socket.file().is_there())
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Some(socket) => socket.as_fd(),
            None => unreachable!("taken by the drop alone"),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // A child has no part in its parent's connections.
        if self.is_clean || identity::is_forked() {
            return;
        }
        let socket = self.socket.take().and_then(PrivateFd::into_inner);
        if let Some(socket) = socket
            && !is_drained(&socket)
        {
            close_elsewhere(socket);
        }
    }
}

/// Ends a connection and reads what has been sent to this end; `false` if there is a
/// message with descriptors, which it leaves where it is.
fn is_drained(socket: &OwnedFd) -> bool {
    // From now on nothing more can come.
    if shutdown(socket, Shutdown::Both).is_err() {
        return false;
    }
    let peek = || receive(socket, &mut [0], &mut [], RecvFlags::PEEK);
    for _ in 0..MOST_LEFT {
        match peek() {
            Ok(message) if message.is_cut => return false,
            Ok(message) if message.length == 0 => {
                // The end, or an empty message: with one of those come credentials, for
                // which there is no room either.
                let is_message = sockopt::set_socket_passcred(socket, true)
                    .and_then(|()| peek())
                    .map(|message| message.is_cut);
                let reset = sockopt::set_socket_passcred(socket, false);
                match (is_message, reset) {
                    (Ok(true), Ok(())) => {}
                    (is_message, _) => return is_message == Ok(false),
                }
            }
            Ok(_) => {}
            Err(Errno::AGAIN) => return true,
            // Told once.
            Err(Errno::CONNRESET) => continue,
            Err(_) => return false,
        }
        if receive(socket, &mut [0], &mut [], RecvFlags::empty()).is_err() {
            return false;
        }
    }
    false
}

/// A listening socket.
#[derive(Debug)]
pub(super) struct Listener {
    socket: PrivateFd,
    is_clean: bool,
    pub(super) is_abstract: bool,
}

impl Listener {
    /// Of a socket that is not bound yet; `listen` is to follow.
    pub(super) fn new(socket: OwnedFd, is_abstract: bool) -> Self {
        let is_clean = take_descriptors(&socket, false).is_ok();
        Self {
            socket: PrivateFd::new(socket),
            is_clean,
            is_abstract,
        }
    }

    /// The next connection.
    pub(super) fn accept(&self) -> rustix::io::Result<Line> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = accept_with(&self.socket, flags)?;
        Ok(Line {
            socket: Some(PrivateFd::new(socket)),
            is_clean: self.is_clean,
        })
    }

    pub(super) const fn file(&self) -> File {
        self.socket.file()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.is_clean || identity::is_forked() || !self.file().is_there() {
            return;
        }
        // Those that wait are closed one by one, and no more come.
        if shutdown(&self.socket, Shutdown::Both).is_ok() {
            while self.accept().is_ok() {}
        }
    }
}

/// Sends a whole message. Never raises SIGPIPE, never blocks (the sockets do not).
pub(super) fn send(
    socket: impl AsFd,
    message: &[u8],
    fd: Option<BorrowedFd<'_>>,
) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd]);
    if let Some(fds) = &fds
        && !ancillary.push(SendAncillaryMessage::ScmRights(fds))
    {
        // There is room for exactly one.
        return Err(Errno::INVAL);
    }
    let sent = retry_on_intr(|| {
        sendmsg(
            &socket,
            &[IoSlice::new(message)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )
    })?;
    if sent == message.len() {
        Ok(())
    } else {
        Err(Errno::MSGSIZE)
    }
}

/// What came in.
#[derive(Debug)]
pub(super) struct Received {
    /// Bytes of the message, at most as many as the buffer has; 0 at the end of the
    /// connection.
    pub(super) length: usize,
    pub(super) fds: Fds,
}

/// The descriptors beside a message.
#[derive(Debug)]
pub(super) enum Fds {
    None,
    One(Foreign),
    /// Or none, and there were some. None is kept.
    Several,
    /// This process got none: its table is full (`EMFILE`), or a security module
    /// refused it (`EACCES`).
    Lost(Errno),
}

/// Receives one message and no descriptors; one that has some is left where it is. Never
/// blocks (the sockets do not).
pub(super) fn receive_bytes(line: &Line, buffer: &mut [u8]) -> rustix::io::Result<Received> {
    if !line.is_clean {
        // Without room for descriptors the kernel says whether there are some.
        let peeked = receive(line, buffer, &mut [], RecvFlags::PEEK)?;
        if peeked.is_cut {
            return Ok(Received {
                length: peeked.length,
                fds: Fds::Several,
            });
        }
    }
    let message = receive(line, buffer, &mut [], RecvFlags::empty())?;
    Ok(Received {
        length: message.length,
        fds: Fds::None,
    })
}

/// Receives one message and its descriptor. Never blocks (the sockets do not).
///
/// The descriptor is taken from a look at the message, so that the kernel drops the last
/// reference to none while it is received; a message whose descriptors do not all come
/// through is left where it is.
pub(super) fn receive_with_fd(line: &Line, buffer: &mut [u8]) -> rustix::io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let peeked = receive(line, buffer, &mut space, RecvFlags::PEEK)?;
    let length = peeked.length;
    let mut fds = peeked.fds.into_iter();
    let fds = match (fds.next(), fds.next(), peeked.is_cut) {
        (None, None, false) => Fds::None,
        (Some(fd), None, false) => Fds::One(fd),
        (_, None, true) => Fds::Lost(why_lost(line)),
        _ => Fds::Several,
    };
    if !peeked.is_cut {
        receive(line, buffer, &mut [], RecvFlags::empty())?;
    }
    Ok(Received { length, fds })
}

/// Why descriptors did not come through.
fn why_lost(line: &Line) -> Errno {
    match rustix::io::fcntl_dupfd_cloexec(line, 3) {
        Ok(_) => Errno::ACCESS,
        Err(errno) => errno,
    }
}

struct Message {
    length: usize,
    /// Not all descriptors came through.
    is_cut: bool,
    fds: Vec<Foreign>,
}

fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
    space: &mut [MaybeUninit<u8>],
    flags: RecvFlags,
) -> rustix::io::Result<Message> {
    let mut ancillary = RecvAncillaryBuffer::new(space);
    let message = retry_on_intr(|| {
        let mut bytes = [IoSliceMut::new(&mut *buffer)];
        recvmsg(
            &socket,
            &mut bytes,
            &mut ancillary,
            flags | RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    let fds = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .map(|fd| Foreign::new(above_standard(fd)))
        .collect();
    Ok(Message {
        length: message.bytes,
        is_cut: message.flags.contains(ReturnFlags::CTRUNC),
        fds,
    })
}
