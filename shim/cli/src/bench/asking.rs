//! A client of a broker that asks and does nothing else: what the broker can
//! answer when nobody maps anything.

use crate::output::Failure;
use core::mem::MaybeUninit;
use gpuipc::GpuIpcMemHandle;
use gpuipc::core::{REPLY_BYTES, Reply, ReplyStatus, Request, RequestKind};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, send, socket_with,
};
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;

/// A connection to the broker of one handle.
pub(super) struct Asking {
    socket: OwnedFd,
    request: Request,
}

fn failed(what: &'static str) -> impl FnOnce(Errno) -> Failure {
    move |errno| Failure::text(format!("asking the broker: {what}: {errno}"))
}

impl Asking {
    /// Connects under the broker's abstract name.
    pub(super) fn of(handle: &GpuIpcMemHandle) -> Result<Self, Failure> {
        let ticket = handle
            .ticket()
            .ok_or_else(|| Failure::text("the handle names no broker"))?;
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket =
            socket_with(family, kind, SocketFlags::CLOEXEC, None).map_err(failed("socket"))?;
        let name = format!("gpuipc-{}", ticket.endpoint);
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(failed("name"))?;
        connect(&socket, &address).map_err(failed("connect"))?;
        let request = Request {
            kind: RequestKind::FetchFd,
            id: 1,
            allocation_id: handle.allocation_id(),
            token: ticket.token,
        };
        Ok(Self { socket, request })
    }

    /// The memory's descriptor.
    pub(super) fn fetch(&self) -> Result<OwnedFd, Failure> {
        let request = self.request.encode();
        send(&self.socket, &request, SendFlags::NOSIGNAL).map_err(failed("send"))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; REPLY_BYTES];
        recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )
        .map_err(failed("receive"))?;
        let mut fds = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        match (Reply::decode(&bytes), fds.next()) {
            (Ok(reply), Some(fd)) if reply.status == ReplyStatus::FdAttached => Ok(fd),
            (reply, _) => Err(Failure::text(format!("the broker answers {reply:?}"))),
        }
    }
}
