//! The least that passing a descriptor costs: a socket, a thread a client, four
//! bytes and the descriptor beside them. What the library's broker is compared with.

use crate::output::Failure;
use core::mem::MaybeUninit;
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
pub(super) struct Passer {
    name: String,
    fds: Arc<RwLock<Vec<OwnedFd>>>,
}

fn failed(what: &'static str) -> impl FnOnce(Errno) -> Failure {
    move |errno| Failure::text(format!("passing descriptors: {what}: {errno}"))
}

fn new_socket() -> rustix::io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    socket_with(family, kind, SocketFlags::CLOEXEC, None)
}

impl Passer {
    /// Starts it.
    pub(super) fn start() -> Result<Self, Failure> {
        let mut random = [0_u8; 16];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(failed("random bytes"))?;
        let name = format!("gpuipc-bench-{:032x}", u128::from_le_bytes(random));
        let listener = new_socket().map_err(failed("socket"))?;
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(failed("name"))?;
        bind(&listener, &address).map_err(failed("bind"))?;
        listen(&listener, 64).map_err(failed("listen"))?;
        let fds = Arc::new(RwLock::new(Vec::new()));
        let held = Arc::clone(&fds);
        // Both kinds of threads end with the process.
        std::thread::spawn(move || {
            let own = rustix::process::geteuid();
            while let Ok(client) = accept_with(&listener, SocketFlags::CLOEXEC) {
                let held = Arc::clone(&held);
                if sockopt::socket_peercred(&client).is_ok_and(|peer| peer.uid == own) {
                    std::thread::spawn(move || while serve(&client, &held).is_some() {});
                }
            }
        });
        Ok(Self { name, fds })
    }

    /// What clients call it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What it hands out from now on; what it handed out before.
    pub(super) fn replace(&self, fds: Vec<OwnedFd>) -> Vec<OwnedFd> {
        let mut held = self.fds.write().unwrap_or_else(PoisonError::into_inner);
        core::mem::replace(&mut held, fds)
    }
}

/// Answers once.
fn serve(client: &OwnedFd, fds: &RwLock<Vec<OwnedFd>>) -> Option<()> {
    let (bytes, _) = receive(client).ok()?;
    let at = usize::try_from(u32::from_le_bytes(bytes)).ok()?;
    let fds = fds.read().unwrap_or_else(PoisonError::into_inner);
    send(client, bytes, fds.get(at).map(AsFd::as_fd)).ok()
}

/// A client's connection.
#[derive(Debug)]
pub(super) struct Passing(OwnedFd);

impl Passing {
    pub(super) fn connect(name: &str) -> Result<Self, Failure> {
        let socket = new_socket().map_err(failed("socket"))?;
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(failed("name"))?;
        connect(&socket, &address).map_err(failed("connect"))?;
        Ok(Self(socket))
    }

    /// Descriptor number `at`.
    pub(super) fn get(&self, at: u32) -> Result<OwnedFd, Failure> {
        send(&self.0, at.to_le_bytes(), None).map_err(failed("send"))?;
        let (_, fd) = receive(&self.0).map_err(failed("receive"))?;
        fd.ok_or_else(|| Failure::text("passing descriptors: none came"))
    }
}

fn send(socket: &OwnedFd, bytes: [u8; 4], fd: Option<BorrowedFd<'_>>) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd]);
    if let Some(fds) = &fds {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    let bytes = [IoSlice::new(&bytes)];
    sendmsg(socket, &bytes, &mut ancillary, SendFlags::NOSIGNAL).map(drop)
}

/// Waits for a message; the end of the connection is an error, too.
fn receive(socket: &OwnedFd) -> rustix::io::Result<([u8; 4], Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 4];
    let message = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    if message.bytes != bytes.len() {
        return Err(Errno::PIPE);
    }
    let mut fds = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok((bytes, fds.next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_pass_by_number() {
        let passer = Passer::start().expect("a socket");
        let file = |name| OwnedFd::from(std::fs::File::open(name).expect("it is there"));
        passer.replace(vec![file("/dev/null"), file("/dev/zero")]);
        let passing = Passing::connect(passer.name()).expect("it listens");
        let mut byte = [7];
        let zero = passing.get(1).expect("it is held");
        assert_eq!(rustix::io::read(&zero, &mut byte), Ok(1));
        let null = passing.get(0).expect("it is held");
        assert_eq!(rustix::io::read(&null, &mut byte), Ok(0));
        assert!(passing.get(2).is_err());
        assert_eq!(passer.replace(Vec::new()).len(), 2);
    }
}
