//! The broker and whoever takes its place: silent, closing, lying.

use crate::{Pair, child};
use gpuipc_core::{GpuIpcMemHandle, Reply, ReplyStatus, Request};
use gpuipc_tests::{TestChild, forge};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use std::io::{IoSlice, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const LEN: u64 = 2 << 20;

/// A server of the test's own under a broker's abstract name, and a handle that
/// leads to it.
struct Impostor {
    listener: OwnedFd,
    handle: GpuIpcMemHandle,
    importer: TestChild,
    pair: Pair,
}

impl Impostor {
    fn new() -> Self {
        let mut pair = Pair::new();
        let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
        let (_, honest) = pair.exporter.export(buffer, 0, LEN);
        let mut endpoint = honest.ticket().expect("a ticket").endpoint;
        endpoint.0[0] ^= 0xFF;
        let handle = forge(&honest, |fields| {
            if let Some(ticket) = &mut fields.ticket {
                ticket.endpoint = endpoint;
                // Nothing to go around the broker by.
                (ticket.fd, ticket.table) = (None, None);
            }
        });
        let listener = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("a socket");
        let name = format!("gpuipc-{endpoint}");
        bind(
            &listener,
            &SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name"),
        )
        .expect("bind");
        listen(&listener, 8).expect("listen");
        let importer = child(&pair.scratch);
        Self {
            listener,
            handle,
            importer,
            pair,
        }
    }

    /// Answers one request by `answer` while the importer imports; gives the attempts.
    fn answers(self, answer: impl FnMut(UnixStream, Request) + Send) -> (Vec<String>, Duration) {
        self.answers_with("timeout=1500", 1, answer)
    }

    /// As [`Self::answers`], with options for the import, and that many requests.
    fn answers_with(
        mut self,
        options: &str,
        requests: usize,
        mut answer: impl FnMut(UnixStream, Request) + Send,
    ) -> (Vec<String>, Duration) {
        let before = self.importer.state();
        let listener = &self.listener;
        let (importer, handle) = (&mut self.importer, &self.handle);
        let (attempts, elapsed) = std::thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..requests {
                    let mut stream = accept(listener);
                    let mut bytes = [0; 64];
                    let got = stream.read(&mut bytes).expect("a request");
                    let request = Request::decode(&bytes[..got]).expect("a valid request");
                    answer(stream, request);
                }
            });
            let start = Instant::now();
            let refused = importer.import_refused(handle, options);
            (refused.attempts, start.elapsed())
        });
        self.importer.returns_to(&before);
        (attempts, elapsed)
    }
}

/// Takes the importer's connection.
fn accept(listener: &OwnedFd) -> UnixStream {
    UnixStream::from(
        rustix::net::accept_with(listener, SocketFlags::CLOEXEC).expect("the importer comes"),
    )
}

fn reply(request: &Request, status: ReplyStatus) -> [u8; 64] {
    request.reply(status).encode()
}

#[test]
fn a_silent_broker_ends_at_the_deadline() {
    let (attempts, elapsed) = Impostor::new().answers(|stream, _| {
        // Says nothing until the importer has gone.
        let mut byte = [0];
        let _ = (&stream).read(&mut byte);
    });
    assert_eq!(attempts, ["PosixFd/broker-request/TimedOut"]);
    assert!(elapsed >= Duration::from_millis(1400), "{elapsed:?}");
}

#[test]
fn a_cancelled_import_ends_without_waiting_for_its_deadline() {
    let (attempts, elapsed) =
        Impostor::new().answers_with("timeout=50000 cancel=200", 1, |stream, _| {
            let mut byte = [0];
            let _ = (&stream).read(&mut byte);
        });
    assert_eq!(attempts, ["PosixFd/broker-request/Cancelled"]);
    assert!(elapsed < Duration::from_secs(40), "{elapsed:?}");
}

#[test]
fn a_broker_that_hangs_up_though_its_process_lives_is_named_for_that() {
    // The importer tries again twice: a busy broker hangs up on who is silent.
    let (attempts, _) = Impostor::new().answers_with("timeout=20000", 3, |stream, _| drop(stream));
    assert_eq!(attempts, ["PosixFd/broker-request/BrokerHungUp"]);
}

#[test]
fn a_broker_that_hangs_up_is_gone_around_by_the_descriptor_s_number() {
    let mut impostor = Impostor::new();
    impostor.pair.exporter.ok("fill 1 32");
    let (_, honest) = impostor.pair.exporter.export(1, 0, LEN);
    let kept = honest.ticket().expect("a ticket");
    let handle = forge(&impostor.handle, |fields| {
        if let Some(ticket) = &mut fields.ticket {
            (ticket.fd, ticket.table) = (kept.fd, kept.table);
        }
    });
    let (listener, importer) = (&impostor.listener, &mut impostor.importer);
    let mem = std::thread::scope(|scope| {
        scope.spawn(move || (0..3).for_each(|_| drop(accept(listener))));
        importer.import(&handle, "timeout=20000")
    });
    assert_eq!(mem.attempts, ["PosixFd/broker-request/BrokerHungUp"]);
    importer.ok(&format!("read {} 32 0", mem.id));
}

#[test]
fn a_broker_that_talks_nonsense_is_refused() {
    for nonsense in [&b"x"[..], &[0; 64], &[0xFF; 65], &[0xFF; 4096]] {
        let (attempts, _) = Impostor::new().answers(|mut stream, _| {
            stream.write_all(nonsense).expect("sent");
        });
        assert_eq!(attempts, ["PosixFd/broker-request/BrokerBadReply"]);
    }
}

#[test]
fn a_reply_to_another_request_is_refused() {
    let (attempts, _) = Impostor::new().answers(|mut stream, request| {
        let other = Request {
            id: request.id + 1,
            ..request
        };
        stream
            .write_all(&reply(&other, ReplyStatus::NoFd))
            .expect("sent");
    });
    assert_eq!(attempts, ["PosixFd/broker-request/BrokerBadReply"]);
}

#[test]
fn a_promised_descriptor_that_does_not_come_is_refused() {
    let (attempts, _) = Impostor::new().answers(|mut stream, request| {
        stream
            .write_all(&reply(&request, ReplyStatus::FdAttached))
            .expect("sent");
    });
    assert_eq!(attempts, ["PosixFd/broker-request/BrokerBadReply"]);
}

/// Sends a reply with descriptors of /dev/null beside it.
fn send_with_fds(stream: &UnixStream, bytes: &[u8], count: usize) {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let null = std::fs::File::open("/dev/null").expect("/dev/null");
    let fds = vec![std::os::fd::AsFd::as_fd(&null); count];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(250))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(
        stream,
        &[IoSlice::new(bytes)],
        &mut ancillary,
        SendFlags::empty(),
    )
    .expect("sent");
}

#[test]
fn descriptors_that_nobody_asked_for_are_closed() {
    for count in [2, 4, 250] {
        let (attempts, _) = Impostor::new().answers(|stream, request| {
            send_with_fds(&stream, &reply(&request, ReplyStatus::FdAttached), count);
        });
        assert_eq!(attempts, ["PosixFd/broker-request/BrokerBadReply"]);
    }
    let (attempts, _) = Impostor::new().answers(|stream, request| {
        send_with_fds(&stream, &reply(&request, ReplyStatus::NoFd), 1);
    });
    assert_eq!(attempts, ["PosixFd/broker-request/BrokerBadReply"]);
}

#[test]
fn a_descriptor_that_finds_no_room_is_told_as_that() {
    let mut impostor = Impostor::new();
    impostor.importer.ok("open");
    let listener = &impostor.listener;
    let (importer, handle) = (&mut impostor.importer, &impostor.handle);
    let refused = std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut stream = accept(listener);
            let mut bytes = [0; 64];
            let got = stream.read(&mut bytes).expect("a request");
            let request = Request::decode(&bytes[..got]).expect("a valid request");
            // The importer's table is full by now.
            send_with_fds(&stream, &reply(&request, ReplyStatus::FdAttached), 1);
        });
        // Room for the connection, its process and nothing else.
        importer.ok("nofile 64");
        importer.ok("room 2");
        importer.import_refused(handle, "timeout=20000")
    });
    importer.ok("free-fds");
    assert_eq!(refused.attempts, ["PosixFd/broker-request/TooManyFiles"]);
    assert!(refused.text.contains("os error 24"), "{}", refused.text);
}

#[test]
fn a_busy_broker_that_gives_no_reason_is_not_told_as_success() {
    let mut impostor = Impostor::new();
    let listener = &impostor.listener;
    let (importer, handle) = (&mut impostor.importer, &impostor.handle);
    let refused = std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut stream = accept(listener);
            let mut bytes = [0; 64];
            // Until the importer gives up.
            while let Ok(got) = stream.read(&mut bytes)
                && let Ok(request) = Request::decode(&bytes[..got])
                && stream
                    .write_all(&reply(&request, ReplyStatus::Busy))
                    .is_ok()
            {
                stream = accept(listener);
            }
        });
        let refused = importer.import_refused(handle, "timeout=300");
        // One more connection ends the other thread.
        drop(connect_to(handle));
        refused
    });
    assert_eq!(refused.attempts, ["PosixFd/broker-request/BrokerBusy"]);
    assert!(!refused.text.contains("os error 0"), "{}", refused.text);
}

#[test]
fn a_descriptor_that_is_not_the_driver_s_is_refused_by_the_driver() {
    let (attempts, _) = Impostor::new().answers(|stream, request| {
        send_with_fds(&stream, &reply(&request, ReplyStatus::FdAttached), 1);
    });
    assert_eq!(
        attempts,
        ["PosixFd/cuMemImportFromShareableHandle/NotCudaDescriptor"]
    );
}

/// A connection of the test's own to an exporter's broker.
pub(crate) fn connect_to(handle: &GpuIpcMemHandle) -> UnixStream {
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .expect("a socket");
    let name = format!("gpuipc-{}", handle.ticket().expect("a ticket").endpoint);
    rustix::net::connect(
        &socket,
        &SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name"),
    )
    .expect("the broker is there");
    UnixStream::from(socket)
}

#[test]
fn garbage_silence_and_vanishing_clients_leave_the_broker_serving() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    pair.exporter.ok(&format!("fill {buffer} 31"));
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let warm = pair.importer.import(&handle, "");
    pair.importer.ok(&format!("drop mapping {}", warm.id));
    let silent: Vec<UnixStream> = (0..50).map(|_| connect_to(&handle)).collect();
    for size in [1, 63, 64, 65, 4096] {
        for _ in 0..20 {
            let mut stream = connect_to(&handle);
            stream.write_all(&vec![0xA5; size]).expect("sent");
            let mut answer = [0; 128];
            let got = stream.read(&mut answer).expect("an answer");
            let answer = Reply::decode(&answer[..got]).expect("a valid reply");
            assert_eq!((answer.status, answer.id), (ReplyStatus::Malformed, 0));
            // And the broker hangs up.
            assert_eq!(stream.read(&mut [0; 1]).expect("the end"), 0);
        }
        drop(connect_to(&handle));
    }
    let mem = pair.importer.import(&handle, "");
    pair.importer.ok(&format!("read {} 31 0", mem.id));
    drop(silent);
}

#[test]
fn a_client_that_asks_without_reading_is_cut_off() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let ticket = handle.ticket().expect("a ticket");
    let request = Request {
        kind: gpuipc_core::RequestKind::FetchFd,
        id: 1,
        allocation_id: handle.allocation_id(),
        token: ticket.token,
    };
    let mut stream = connect_to(&handle);
    let refused = (0..10_000).find_map(|_| stream.write_all(&request.encode()).err());
    assert!(
        refused.is_some(),
        "ten thousand unread replies, and still served"
    );
    assert_eq!(pair.importer.import(&handle, "").used, "PosixFd");
}

#[test]
fn a_full_backlog_is_waited_for_and_named_at_the_deadline() {
    let mut impostor = Impostor::new();
    // Nobody accepts; connections pile up until the kernel refuses more.
    let name = format!(
        "gpuipc-{}",
        impostor.handle.ticket().expect("a ticket").endpoint
    );
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name");
    let mut waiting = Vec::new();
    loop {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket");
        match rustix::net::connect(&socket, &address) {
            Ok(()) => waiting.push(socket),
            Err(rustix::io::Errno::AGAIN) => break,
            Err(errno) => panic!("connect: {errno}"),
        }
    }
    let start = Instant::now();
    let refused = impostor
        .importer
        .import_refused(&impostor.handle, "timeout=700");
    assert_eq!(refused.attempts, ["PosixFd/broker-connect/BrokerBusy"]);
    assert!(start.elapsed() >= Duration::from_millis(600));
}

#[test]
fn two_ipcs_of_one_process_keep_their_brokers_and_policies_apart() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, first) = pair.exporter.export(buffer, 0, LEN);
    let folder = pair.scratch.path().join("other");
    let answer = pair.exporter.ok(&format!(
        "export-by-other-ipc {} {buffer} {LEN}",
        folder.display()
    ));
    let second = gpuipc_tests::handle_of(answer.split(' ').nth(1).expect("a handle"));
    let (one, two) = (
        first.ticket().expect("a ticket"),
        second.ticket().expect("a ticket"),
    );
    assert_ne!(one.endpoint, two.endpoint);
    assert!(!one.token.matches(&two.token));
    // Neither broker answers for the other's exports.
    let crossed = forge(&first, |fields| {
        if let Some(ticket) = &mut fields.ticket {
            ticket.endpoint = two.endpoint;
            (ticket.fd, ticket.table) = (None, None);
        }
    });
    let refused = pair.importer.import_refused(&crossed, "");
    assert_eq!(refused.attempts, ["PosixFd/broker-request/ExportRevoked"]);
    assert_eq!(pair.importer.import(&first, "").used, "PosixFd");
    assert_eq!(pair.importer.import(&second, "").used, "PosixFd");
    assert_eq!(pair.exporter.import(&second, "").used, "SameProcess");
}

#[test]
fn a_type_that_was_not_exported_cannot_be_had_by_asking() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fabric", LEN);
    let answer = pair
        .exporter
        .ok(&format!("export {buffer} 0 {LEN} types=Fabric"));
    let handle = gpuipc_tests::handle_of(answer.split(' ').nth(1).expect("a handle"));
    assert_eq!(handle.ticket().expect("a ticket").fd, None);
    let curious = forge(&handle, |fields| fields.posix_fd = true);
    let refused = pair.importer.import_refused(&curious, "types=PosixFd");
    assert!(
        refused
            .attempts
            .contains(&"PosixFd/broker-request/NoDescriptor".to_owned()),
        "{refused:?}"
    );
}

#[test]
fn a_kernel_that_forbids_to_connect_does_not_make_the_exporter_dead() {
    for call in ["connect", "socket"] {
        let mut pair = Pair::new();
        let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
        pair.exporter.ok(&format!("fill {buffer} 43"));
        let (_, handle) = pair.exporter.export(buffer, 0, LEN);
        pair.importer.ok(&format!("refuse {call} {}", libc::EPERM));
        let mem = pair.importer.import(&handle, "");
        assert_eq!(mem.attempts, ["PosixFd/broker-connect/BrokerUnreachable"]);
        pair.importer.ok(&format!("read {} 43 0", mem.id));
    }
}

#[test]
fn debug_text_gives_nothing_away() {
    let mut pair = Pair::new();
    for memory in ["vmm-fabric", "cuda-malloc"] {
        let (buffer, _) = pair.exporter.alloc(memory, LEN);
        let (_, handle) = pair.exporter.export(buffer, 0, LEN);
        pair.importer.import(&handle, "");
        for text in [pair.exporter.ok("debug"), pair.importer.ok("debug")] {
            assert!(text.len() < 20_000, "{} bytes", text.len());
            let token = *handle.ticket().expect("a ticket").token.as_bytes();
            let secrets = [
                Some(&token[..]),
                handle.runtime_ipc().map(|bytes| &bytes[..]),
                handle.fabric().map(|bytes| &bytes[..]),
            ];
            for secret in secrets.into_iter().flatten() {
                let word = u64::from_le_bytes(secret[..8].try_into().expect("8 bytes"));
                let list = format!("{:?}", &secret[..8]);
                for form in [
                    gpuipc_tests::to_hex(&secret[..8]),
                    word.to_string(),
                    list.trim_matches(['[', ']']).to_owned(),
                ] {
                    assert!(!text.contains(&form), "{form} is in {text}");
                }
            }
        }
    }
    assert!(pair.exporter.ok("fork").ends_with("status=0"));
}
