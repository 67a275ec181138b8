//! One message, with at most one descriptor beside it.

use core::mem::MaybeUninit;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

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
    /// Bytes of the message; 0 at the end of the connection.
    pub(super) length: usize,
    /// Whether the message was longer than the buffer, or descriptors were lost.
    pub(super) truncated: bool,
    /// All descriptors, close-on-exec. More than one may come, in spite of the
    /// room for one: the kernel rounds.
    pub(super) fds: Vec<OwnedFd>,
}

/// Receives one message. Never blocks (the sockets do not).
pub(super) fn receive(socket: impl AsFd, buffer: &mut [u8]) -> rustix::io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message = retry_on_intr(|| {
        recvmsg(
            &socket,
            &mut [IoSliceMut::new(buffer)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    let fds = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    let truncated = message
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    Ok(Received {
        length: message.bytes,
        truncated,
        fds,
    })
}
