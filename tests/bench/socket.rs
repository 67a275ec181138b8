//! The least that passing a descriptor costs: a socket, a thread a client, one message each way.
//! And a client of the library's broker that does nothing but ask.

use crate::Result;
use core::mem::MaybeUninit;
use gpuipc::GpuIpcMemHandle;
use gpuipc::core::{REPLY_BYTES, Reply, ReplyStatus, Request, RequestKind};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recvmsg, sendmsg, socket_with, sockopt,
};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError, RwLock};

/// Hands out descriptors by their number to processes of the own user.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    fds: Arc<RwLock<Vec<OwnedFd>>>,
}

fn new_socket(name: &str) -> Result<(OwnedFd, SocketAddrUnix), Errno> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    Ok((socket, SocketAddrUnix::new_abstract_name(name.as_bytes())?))
}

impl Server {
    pub(crate) fn start() -> Result<Self, Errno> {
        let mut random = [0_u8; 16];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let name = format!("gpuipc-bench-{:032x}", u128::from_le_bytes(random));
        let (listener, address) = new_socket(&name)?;
        bind(&listener, &address)?;
        listen(&listener, 64)?;
        let fds = Arc::new(RwLock::new(Vec::new()));
        let held = Arc::clone(&fds);
        // Both kinds of threads end with the process.
        std::thread::spawn(move || {
            let own = rustix::process::geteuid();
            while let Ok(client) = accept_with(&listener, SocketFlags::CLOEXEC) {
                let held = Arc::clone(&held);
                if sockopt::socket_peercred(&client).is_ok_and(|client| client.uid == own) {
                    std::thread::spawn(move || while serve(&client, &held).is_ok() {});
                }
            }
        });
        Ok(Self { name, fds })
    }

    /// What it hands out from now on; returns what it handed out before.
    pub(crate) fn replace(&self, fds: Vec<OwnedFd>) -> Vec<OwnedFd> {
        let mut held = self.fds.write().unwrap_or_else(PoisonError::into_inner);
        core::mem::replace(&mut held, fds)
    }
}

/// Answers once.
fn serve(client: &OwnedFd, fds: &RwLock<Vec<OwnedFd>>) -> Result<(), Errno> {
    let mut number = [0; 4];
    receive(client, &mut number)?;
    let fds = fds.read().unwrap_or_else(PoisonError::into_inner);
    let fd = fds.get(u32::from_le_bytes(number) as usize);
    send(client, &number, fd.map(AsFd::as_fd))
}

/// A client's connection, to a server or to a broker.
#[derive(Debug)]
pub(crate) struct Client(OwnedFd);

impl Client {
    pub(crate) fn connect(name: &str) -> Result<Self, Errno> {
        let (socket, address) = new_socket(name)?;
        connect(&socket, &address)?;
        Ok(Self(socket))
    }

    /// Descriptor number `at` of a server.
    pub(crate) fn get(&self, at: u32) -> Result<OwnedFd> {
        send(&self.0, &at.to_le_bytes(), None)?;
        Ok(receive(&self.0, &mut [0; 4])?.ok_or("no descriptor came")?)
    }

    /// The broker of a handle, under its abstract name, and what to ask it for.
    pub(crate) fn of_broker(handle: &GpuIpcMemHandle) -> Result<(Self, Request)> {
        let ticket = handle.ticket().ok_or("the handle names no broker")?;
        let request = Request {
            kind: RequestKind::FetchFd,
            id: 1,
            allocation_id: handle.allocation_id(),
            token: ticket.token,
        };
        Ok((
            Self::connect(&format!("gpuipc-{}", ticket.endpoint))?,
            request,
        ))
    }

    /// The descriptor from a broker.
    pub(crate) fn fetch(&self, request: &Request) -> Result<OwnedFd> {
        send(&self.0, &request.encode(), None)?;
        let mut bytes = [0; REPLY_BYTES];
        let fd = receive(&self.0, &mut bytes)?;
        match (Reply::decode(&bytes), fd) {
            (Ok(reply), Some(fd)) if reply.status == ReplyStatus::FdAttached => Ok(fd),
            (reply, _) => Err(format!("the broker answers {reply:?}").into()),
        }
    }
}

fn send(socket: &OwnedFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd]);
    if let Some(fds) = &fds {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )
    .map(drop)
}

/// Waits for a message; the end of the connection is an error, too.
fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> Result<Option<OwnedFd>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let wanted = bytes.len();
    let mut bytes = [IoSliceMut::new(bytes)];
    let message = recvmsg(socket, &mut bytes, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    if message.bytes != wanted {
        return Err(Errno::PIPE);
    }
    let mut fds = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok(fds.next())
}
