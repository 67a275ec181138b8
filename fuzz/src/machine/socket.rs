//! Messages with descriptors beside them, as they come: nothing is checked.

use gpuipc_core::Endpoint;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg,
    socket_with, socketpair, sockopt,
};
use std::io::Write as _;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Descriptors beside one message, at most.
const MOST: usize = 4;

/// A socket that never blocks.
///
/// # Panics
///
/// If there are no more.
pub fn new() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket")
}

/// Both ends of a connection, which block.
///
/// # Panics
///
/// If there are no more.
pub fn pair() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("sockets")
}

/// A broker's abstract name.
///
/// # Panics
///
/// Never: it is short.
pub fn address(endpoint: Endpoint) -> SocketAddrUnix {
    let name = format!("gpuipc-{endpoint}");
    SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("it is short")
}

/// A socket whose last close sleeps until its other end, the second one, is closed, or
/// for ten minutes.
///
/// # Panics
///
/// If there are no more.
pub fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    // Full soon.
    sockopt::set_socket_recv_buffer_size(&listener, 4096).expect("SO_RCVBUF");
    let address = listener.local_addr().expect("its address");
    let mut socket = TcpStream::connect(address).expect("connected");
    sockopt::set_socket_send_buffer_size(&socket, 4096).expect("SO_SNDBUF");
    let (other, _) = listener.accept().expect("accepted");
    socket.set_nonblocking(true).expect("its mode");
    while socket.write(&[0; 65536]).is_ok() {}
    sockopt::set_socket_linger(&socket, Some(Duration::from_secs(600))).expect("SO_LINGER");
    (socket, other)
}

/// Sends a message.
///
/// # Errors
///
/// The kernel's.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(beside.push(SendAncillaryMessage::ScmRights(fds)));
    }
    let bytes = [IoSlice::new(bytes)];
    sendmsg(socket, &bytes, &mut beside, SendFlags::NOSIGNAL).map(drop)
}

/// Receives a message that is there within `time`. `None`: it is not; no bytes: the end.
pub fn receive(socket: impl AsFd, time: Duration) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let end = Instant::now() + time;
    // libFuzzer's timer interrupts.
    let is_ready = || {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&left))
    };
    if retry_on_intr(is_ready) != Ok(1) {
        return None;
    }
    let mut bytes = vec![0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(
        &socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut beside,
        RecvFlags::CMSG_CLOEXEC,
    );
    let fds = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fds = fds.flatten().collect();
    // A reset is an end, too.
    bytes.truncate(got.map_or(0, |got| got.bytes));
    Some((bytes, fds))
}
