//! The broker and whoever takes its place: silent, closing, lying, of another user.

use crate::{PROGRAM, Pair, peer};
use gpuipc_core::{GpuIpcMemHandle, Reply, ReplyStatus, Request};
use gpuipc_tests::{Peer, Scratch, forge, skip};
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
    importer: Peer,
    _pair: Pair,
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
                (ticket.fd, ticket.ledger) = (None, None);
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
        let importer = peer(&pair.scratch);
        Self {
            listener,
            handle,
            importer,
            _pair: pair,
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
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
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
    for count in [2, 4] {
        let (attempts, _) = Impostor::new().answers(|stream, request| {
            send_with_fds(&stream, &reply(&request, ReplyStatus::FdAttached), count);
        });
        assert_eq!(attempts.len(), 1);
        assert!(
            attempts[0] == "PosixFd/broker-request/BrokerBadReply"
                || attempts[0] == "PosixFd/broker-request/System",
            "{attempts:?}"
        );
    }
    let (attempts, _) = Impostor::new().answers(|stream, request| {
        send_with_fds(&stream, &reply(&request, ReplyStatus::NoFd), 1);
    });
    assert_eq!(attempts, ["PosixFd/broker-request/BrokerBadReply"]);
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
fn connect_to(handle: &GpuIpcMemHandle) -> UnixStream {
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

/// A copy of the helper program that every user may run, and its folder.
fn program_for_everyone(scratch: &Scratch) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = scratch.path().join("peer");
    std::fs::copy(PROGRAM, &path).expect("a copy");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    path.to_string_lossy().into_owned()
}

fn as_user(scratch: &Scratch, program: &str, uid: u32, trust: &str) -> Peer {
    use std::os::unix::process::CommandExt;
    Peer::start_with(program, scratch, |command| {
        command
            .uid(uid)
            .gid(uid)
            .current_dir("/")
            .env("GPUIPC_TRUST", trust);
    })
}

const NOBODY: u32 = 65534;
const SOMEONE: u32 = 12345;

/// What becomes of an import from one user's process by another's, with each
/// side's policy: `ok`, or the attempt that failed.
fn between_users(exporter: (u32, &str), importer: (u32, &str)) -> String {
    let scratch = Scratch::new();
    let program = program_for_everyone(&scratch);
    let mut exporter = as_user(&scratch, &program, exporter.0, exporter.1);
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    exporter.ok(&format!("fill {buffer} 41"));
    let (_, handle) = exporter.export(buffer, 0, LEN);
    let mut importer = as_user(&scratch, &program, importer.0, importer.1);
    let answer = importer.ask(&format!(
        "import {}",
        gpuipc_tests::to_hex(&handle.encode())
    ));
    if let Some(rest) = answer.strip_prefix("ok ") {
        let id = rest.split(' ').next().expect("a number").to_owned();
        importer.ok(&format!("read {id} 41 0"));
        return "ok".to_owned();
    }
    answer.split(' ').nth(2).expect("the attempts").to_owned()
}

fn can_be_other_users() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("only root can start processes of other users");
    }
    root
}

#[test]
fn both_sides_refuse_another_user() {
    if !can_be_other_users() {
        return;
    }
    let import = |exporter, importer| between_users((exporter, ""), (importer, ""));
    assert_eq!(import(SOMEONE, SOMEONE), "ok");
    assert_eq!(import(NOBODY, NOBODY), "ok");
    // The importer does not give its token to another user's process.
    assert_eq!(import(SOMEONE, NOBODY), "PosixFd/broker-connect/NotTrusted");
    assert_eq!(import(SOMEONE, 0), "PosixFd/broker-connect/NotTrusted");
    // Root's broker is trusted, but does not serve everyone.
    assert_eq!(import(0, SOMEONE), "PosixFd/broker-request/UserRefused");
}

#[test]
fn other_users_are_served_once_both_sides_trust_them() {
    if !can_be_other_users() {
        return;
    }
    assert_eq!(between_users((SOMEONE, "65534"), (NOBODY, "12345")), "ok");
    assert_eq!(between_users((SOMEONE, ""), (0, "12345")), "ok");
    assert_eq!(between_users((SOMEONE, "token"), (NOBODY, "token")), "ok");
    // One side alone is not enough.
    assert_eq!(
        between_users((SOMEONE, ""), (NOBODY, "token")),
        "PosixFd/broker-request/UserRefused"
    );
    assert_eq!(
        between_users((SOMEONE, "token"), (NOBODY, "")),
        "PosixFd/broker-connect/NotTrusted"
    );
}

#[test]
fn a_folder_of_one_s_own_carries_the_broker_across_network_namespaces() {
    use std::process::Command;
    let unshare = Command::new("unshare").args(["--net", "true"]).output();
    if !unshare.is_ok_and(|output| output.status.success()) {
        return skip("unshare --net does not work here");
    }
    let scratch = Scratch::new();
    let folder = scratch.path().join("sockets");
    let mut exporter = Peer::start_with(PROGRAM, &scratch, |command| {
        command.env("GPUIPC_SOCKET_DIR", &folder);
    });
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    exporter.ok(&format!("fill {buffer} 51"));
    let (_, handle) = exporter.export(buffer, 0, LEN);
    let mut importer = Peer::start_with("unshare", &scratch, |command| {
        command
            .args(["--net", PROGRAM])
            .env("GPUIPC_SOCKET_DIR", &folder);
    });
    let mem = importer.import(&handle, "");
    importer.ok(&format!("read {} 51 0", mem.id));
}

#[test]
fn a_folder_whose_path_is_too_long_is_named_with_the_limit() {
    let scratch = Scratch::new();
    let mut exporter = Peer::start_with(PROGRAM, &scratch, |command| {
        command.env("GPUIPC_SOCKET_DIR", scratch.path().join("x".repeat(80)));
    });
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    let refused = exporter.err(&format!("export {buffer} 0 {LEN}"));
    assert_eq!(refused.status, "BROKER_START");
    assert!(refused.text.contains("107"), "{}", refused.text);
}

#[test]
fn names_of_dead_brokers_are_removed_and_living_ones_stay() {
    let scratch = Scratch::new();
    let folder = scratch.path().join("sockets");
    let start = || {
        Peer::start_with(PROGRAM, &scratch, |command| {
            command.env("GPUIPC_SOCKET_DIR", &folder);
        })
    };
    let names = || std::fs::read_dir(&folder).expect("the folder").count();
    let export = |peer: &mut Peer| {
        let (buffer, _) = peer.alloc("vmm-fd", LEN);
        peer.export(buffer, 0, LEN).1
    };
    let (mut first, mut second) = (start(), start());
    export(&mut first);
    let living = export(&mut second);
    std::fs::write(folder.join("ffffffff-another-host"), b"").expect("another host's name");
    // What merely looks like a name is nobody's to remove.
    let boot = living.host_id().to_string()[..8].to_owned();
    for file in [
        boot.clone(),
        format!("{boot}-notes.txt"),
        format!(".{boot}-{}", "0".repeat(32)),
    ] {
        std::fs::write(folder.join(file), b"precious").expect("a user's file");
    }
    assert_eq!(names(), 6);
    first.kill();
    assert_eq!(names(), 6, "kill -9 leaves a name behind");
    let mut third = start();
    export(&mut third);
    assert_eq!(
        names(),
        6,
        "the dead name is gone, the living and the foreign ones are there"
    );
    assert_eq!(third.import(&living, "").used, "PosixFd");
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
fn too_many_descriptors_in_flight_make_the_broker_busy_and_nothing_worse() {
    if !can_be_other_users() {
        return;
    }
    // An ordinary user's descriptors in flight are limited by its table's size.
    let scratch = Scratch::new();
    let program = program_for_everyone(&scratch);
    let mut exporter = as_user(&scratch, &program, SOMEONE, "");
    let (buffer, _) = exporter.alloc("vmm-fd", LEN);
    exporter.ok(&format!("fill {buffer} 42"));
    let (_, handle) = exporter.export(buffer, 0, LEN);
    exporter.ok("nofile 64");
    let ticket = handle.ticket().expect("a ticket");
    let request = Request {
        kind: gpuipc_core::RequestKind::FetchFd,
        id: 1,
        allocation_id: handle.allocation_id(),
        token: ticket.token,
    };
    // This test is root, whom the broker serves; it never reads.
    let mut silent = Vec::new();
    for _ in 0..100 {
        let mut stream = connect_to(&handle);
        if stream.write_all(&request.encode()).is_err() {
            break;
        }
        silent.push(stream);
        // One after the other, since the broker's own table is small, too.
        std::thread::sleep(Duration::from_millis(2));
    }
    let by_broker_alone = forge(&handle, |fields| {
        if let Some(ticket) = &mut fields.ticket {
            (ticket.fd, ticket.ledger) = (None, None);
        }
    });
    let mut importer = as_user(&scratch, &program, SOMEONE, "");
    let refused = importer.import_refused(&by_broker_alone, "timeout=600");
    assert!(
        refused.attempts == ["PosixFd/broker-request/BrokerBusy"]
            || refused.attempts == ["PosixFd/broker-request/TimedOut"],
        "{refused:?}"
    );
    drop(silent);
    let mem = importer.import(&by_broker_alone, "timeout=20000");
    importer.ok(&format!("read {} 42 0", mem.id));
}

#[test]
fn a_folder_that_others_can_write_to_is_refused_unless_it_is_sticky() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let folder = scratch.path().join("sockets");
    std::fs::create_dir(&folder).expect("a folder");
    let export = |mode| {
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).expect("its mode");
        let mut exporter = Peer::start_with(PROGRAM, &scratch, |command| {
            command.env("GPUIPC_SOCKET_DIR", &folder);
        });
        let (buffer, _) = exporter.alloc("vmm-fd", LEN);
        exporter.ask(&format!("export {buffer} 0 {LEN}"))
    };
    let refused = export(0o777);
    assert!(
        refused.starts_with("err BROKER_START") && refused.contains("sticky"),
        "{refused}"
    );
    assert!(export(0o1777).starts_with("ok"));
    assert!(export(0o755).starts_with("ok"));
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
    // Neither broker answers for the other's offers.
    let crossed = forge(&first, |fields| {
        if let Some(ticket) = &mut fields.ticket {
            ticket.endpoint = two.endpoint;
            (ticket.fd, ticket.ledger) = (None, None);
        }
    });
    let refused = pair.importer.import_refused(&crossed, "");
    assert_eq!(refused.attempts, ["PosixFd/broker-request/OfferWithdrawn"]);
    assert_eq!(pair.importer.import(&first, "").used, "PosixFd");
    assert_eq!(pair.importer.import(&second, "").used, "PosixFd");
    assert_eq!(pair.exporter.import(&second, "").used, "SameProcess");
}

#[test]
fn a_type_that_was_not_offered_cannot_be_had_by_asking() {
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
