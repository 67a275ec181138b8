//! Descriptors whose last close sleeps: of TCP sockets with SO_LINGER and unsent data.
//! Whoever sends one stops neither a broker nor an importer, on kernels that refuse such
//! descriptors (SO_PASSRIGHTS, Linux 6.16) and on those that do not.

use crate::broker::connect_to;
use crate::{Pair, child};
use gpuipc_core::{ReplyStatus, Request};
use gpuipc_tests::{by_broker_alone, out_of_reach, skip};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, bind, listen, sendmsg, socket_with, sockopt,
};
use std::io::{IoSlice, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const LEN: u64 = 2 << 20;
/// Longer than the test.
const LINGER: Duration = Duration::from_secs(600);
/// Far more than an import takes, far less than it lingers.
const IN_TIME: Duration = Duration::from_secs(20);

/// A socket whose last close sleeps until the second one, its other end, is closed.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("its address");
    let mut socket = TcpStream::connect(address).expect("connected");
    let (other, _) = listener.accept().expect("accepted");
    socket.set_nonblocking(true).expect("its mode");
    while socket.write(&[0; 65536]).is_ok() {}
    sockopt::set_socket_linger(&socket, Some(LINGER)).expect("SO_LINGER");
    (socket, other)
}

/// A process that is stopped: what is sent to it meanwhile, and closed here, is its to close.
struct Stopped(rustix::process::Pid);

impl Stopped {
    fn new(pid: u32) -> Self {
        let number = i32::try_from(pid).expect("a pid");
        let process = rustix::process::Pid::from_raw(number).expect("a pid");
        rustix::process::kill_process(process, rustix::process::Signal::STOP).expect("stopped");
        let is_stopped = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there");
            stat.rsplit(')')
                .next()
                .unwrap_or("")
                .trim()
                .starts_with('T')
        };
        let start = Instant::now();
        while !is_stopped() {
            assert!(start.elapsed() < IN_TIME, "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
        Self(process)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(self.0, rustix::process::Signal::CONT);
    }
}

/// Closes it where nobody waits: this may be the last one.
fn close(socket: TcpStream) {
    std::thread::spawn(move || drop(socket));
}

/// Sends a message with this descriptor some times beside it.
fn send(
    to: &UnixStream,
    message: &[u8],
    fd: &TcpStream,
    times: usize,
) -> rustix::io::Result<usize> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = vec![fd.as_fd(); times];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
    let message = [IoSlice::new(message)];
    sendmsg(to, &message, &mut ancillary, SendFlags::NOSIGNAL)
}

/// Runs on a thread of another user, if this one is root.
#[allow(unsafe_code)]
fn as_stranger<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if rustix::process::geteuid().is_root() {
                let user: libc::uid_t = 12345;
                // SAFETY: three numbers; by the bare call only this thread becomes another
                // user's, and it ends right after.
                unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
            }
            run()
        });
        thread.join().expect("it does not panic")
    })
}

/// Whether this kernel refuses to send descriptors to those who take none.
#[allow(unsafe_code)]
fn refuses() -> bool {
    let (socket, _other) = UnixStream::pair().expect("a pair");
    let off: libc::c_int = 0;
    // SAFETY: the descriptor is open, and the value one int.
    let set = unsafe {
        libc::setsockopt(
            std::os::fd::AsRawFd::as_raw_fd(&socket),
            libc::SOL_SOCKET,
            83,
            core::ptr::from_ref(&off).cast(),
            4,
        )
    };
    set == 0
}

/// Attacks a broker in each of these ways, with its exporter as it is on an old kernel or
/// on this one.
fn attack(is_old: bool) {
    let mut pair = Pair::new();
    if is_old {
        let refused = pair
            .exporter
            .ok(&format!("refuse passrights {}", libc::ENOPROTOOPT));
        assert_eq!(refused, "passrights");
    }
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    pair.exporter.ok(&format!("fill {buffer} 61"));
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let by_broker = by_broker_alone(&handle);
    let import = |importer: &mut gpuipc_tests::TestChild| {
        let start = Instant::now();
        let mem = importer.import(&by_broker, "timeout=60000");
        importer.ok(&format!("read {} 61 0", mem.id));
        importer.ok(&format!("drop mapping {}", mem.id));
        assert!(start.elapsed() < IN_TIME, "{:?}", start.elapsed());
    };
    import(&mut pair.importer);
    pair.importer.ok("close-idle");
    let before = pair.exporter.state();
    let (socket, other) = lingering();
    let stopped = Stopped::new(pair.exporter.pid());
    let mut connections = Vec::new();
    let mut attack = |bytes: &[u8], times, leaves: bool| {
        let (connection, sent) = as_stranger(|| {
            let connection = connect_to(&handle);
            let sent = send(&connection, bytes, &socket, times);
            (connection, sent)
        });
        // A stranger's connection may have been closed already.
        let is_hung_up = sent == Err(rustix::io::Errno::PIPE);
        assert!(is_hung_up || sent.is_ok() == is_old, "{sent:?}");
        if !leaves {
            connections.push(connection);
        }
    };
    for times in [1, 2] {
        for leaves in [false, true] {
            for bytes in [&b""[..], b"x", &[0; 64], &[0; 200]] {
                attack(bytes, times, leaves);
            }
        }
    }
    // By users whom the broker serves, too; behind messages without descriptors, empty ones among them.
    let mut attack = |before: &[&[u8]], bytes: &[u8]| {
        let connection = connect_to(&handle);
        for message in before {
            let message = [IoSlice::new(message)];
            let mut nothing = SendAncillaryBuffer::default();
            let _ = sendmsg(&connection, &message, &mut nothing, SendFlags::NOSIGNAL);
        }
        let _ = send(&connection, bytes, &socket, 1);
        connections.push(connection);
    };
    attack(&[], &[0; 64]);
    attack(&[b""], b"");
    attack(&[b"", b"x", b""], b"");
    attack(&[&[1; 64][..]; 3], &[0; 64]);
    // Never in this process: what was sent holds it.
    if is_old {
        drop(socket);
    } else {
        close(socket);
    }
    drop(stopped);
    import(&mut pair.importer);
    drop(connections);
    import(&mut pair.importer);
    pair.importer.ok("close-idle");
    // What was closed elsewhere goes once nothing lingers any more.
    drop(other);
    pair.exporter.returns_to(&before);
}

#[test]
fn a_broker_is_not_stopped_by_descriptors_that_take_long_to_close() {
    if !refuses() {
        return skip("this kernel has no SO_PASSRIGHTS");
    }
    attack(false);
}

#[test]
fn nor_is_it_where_the_kernel_lets_strangers_send_them() {
    attack(true);
}

#[test]
fn the_broker_ends_in_time_with_such_descriptors_in_its_backlog() {
    let mut pair = Pair::new();
    pair.exporter
        .ok(&format!("refuse passrights {}", libc::ENOPROTOOPT));
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (export, handle) = pair.exporter.export(buffer, 0, LEN);
    let (socket, other) = lingering();
    let stopped = Stopped::new(pair.exporter.pid());
    let connections: Vec<UnixStream> = (0..8)
        .map(|_| {
            let connection = connect_to(&handle);
            let _ = send(&connection, b"x", &socket, 1);
            connection
        })
        .collect();
    drop(socket);
    pair.exporter.send(&format!("drop export {export}"));
    pair.exporter.send("drop-ipc");
    drop(stopped);
    let start = Instant::now();
    assert_eq!(pair.exporter.answer("drop export"), "ok");
    assert_eq!(pair.exporter.answer("drop-ipc"), "ok");
    // Its end waits for the thread a second at most: it is the thread that must have ended.
    let tasks = || std::fs::read_dir(format!("/proc/{}/task", pair.exporter.pid()));
    let is_broker = |task: std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm"));
        name.is_ok_and(|name| name.trim() == "gpuipc-broker")
    };
    while tasks().expect("it lives").flatten().any(is_broker) {
        assert!(start.elapsed() < IN_TIME, "the thread still runs");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop((connections, other));
}

/// A broker's impostor that answers the importer of a handle that leads to it.
fn answer(is_old: bool, status: ReplyStatus, times: usize, attempts: &[&str]) {
    let pair = &mut Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, honest) = pair.exporter.export(buffer, 0, LEN);
    let handle = by_broker_alone(&out_of_reach(&honest));
    let flags = SocketFlags::CLOEXEC;
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let listener = listener.expect("a socket");
    let name = format!("gpuipc-{}", handle.ticket().expect("a ticket").endpoint);
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name");
    bind(&listener, &address).expect("bind");
    listen(&listener, 8).expect("listen");
    let mut importer = child(&pair.scratch);
    if is_old {
        importer.ok(&format!("refuse passrights {}", libc::ENOPROTOOPT));
    }
    importer.ok("open");
    let before = importer.state();
    let (socket, other) = lingering();
    let start = Instant::now();
    let refused = std::thread::scope(|scope| {
        scope.spawn(|| {
            let stream = rustix::net::accept_with(&listener, flags).expect("the importer comes");
            let mut stream = UnixStream::from(stream);
            let mut bytes = [0; 64];
            let got = stream.read(&mut bytes).expect("a request");
            let request = Request::decode(&bytes[..got]).expect("a valid request");
            send(&stream, &request.reply(status).encode(), &socket, times).expect("sent");
            // Nobody reads this one.
            let _ = send(&stream, b"more", &socket, 1);
            // The last ones are the importer's.
            close(socket);
        });
        importer.import_refused(&handle, "timeout=2000")
    });
    assert!(start.elapsed() < IN_TIME, "{:?}", start.elapsed());
    assert_eq!(refused.attempts, attempts);
    drop(other);
    importer.returns_to(&before);
}

#[test]
fn an_importer_waits_for_no_descriptor_that_takes_long_to_close() {
    for is_old in [false, true] {
        let refused = ["PosixFd/cuMemImportFromShareableHandle/NotCudaDescriptor"];
        answer(is_old, ReplyStatus::FdAttached, 1, &refused);
        let bad = ["PosixFd/broker-request/BrokerBadReply"];
        answer(is_old, ReplyStatus::FdAttached, 2, &bad);
        answer(is_old, ReplyStatus::MemoryUnchanged, 1, &bad);
    }
}
