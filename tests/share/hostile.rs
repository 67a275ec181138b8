//! Clients that do the broker no good: whatever they send, and however many
//! they are, honest importers are served within their deadline, and the
//! exporter keeps nothing of them.

use crate::Pair;
use gpuipc_core::{GpuIpcMemHandle, Request, RequestKind, Token};
use gpuipc_tests::TestChild;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LEN: u64 = 2 << 20;

/// How many hostile requests; a million when the environment variable
/// `GPUIPC_TEST_LONG` is set.
fn requests() -> u64 {
    if std::env::var_os("GPUIPC_TEST_LONG").is_some() {
        1_000_000
    } else {
        40_000
    }
}

fn address(handle: &GpuIpcMemHandle) -> SocketAddrUnix {
    let name = format!("gpuipc-{}", handle.ticket().expect("a ticket").endpoint);
    SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name")
}

/// A connection that neither connects nor writes nor reads for ever.
fn connection(address: &SocketAddrUnix) -> Option<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).ok()?;
    connect(&socket, address).ok()?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false).ok()?;
    stream
        .set_read_timeout(Some(Duration::from_millis(500)))
        .ok()?;
    stream
        .set_write_timeout(Some(Duration::from_millis(500)))
        .ok()?;
    Some(stream)
}

/// Numbers that look random, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// One hostile message.
fn message(numbers: &mut Numbers, handle: &GpuIpcMemHandle) -> Vec<u8> {
    let request = |token| Request {
        kind: RequestKind::FetchFd,
        id: 7,
        allocation_id: handle.allocation_id(),
        token,
    };
    let guess = u128::from(numbers.next()) << 64 | u128::from(numbers.next());
    let wrong = request(Token::new(guess.to_le_bytes())).encode().to_vec();
    match numbers.next() % 4 {
        0 => (0..1 + numbers.next() % 200)
            .map(|_| numbers.next().to_le_bytes()[0])
            .collect(),
        1 => wrong[..1 + (numbers.next() % 63) as usize].to_vec(),
        2 => {
            let mut bytes = wrong;
            bytes.resize(65 + (numbers.next() % 2000) as usize, 0);
            bytes
        }
        _ => wrong,
    }
}

/// Resident memory of a process in KiB.
fn resident(pid: u32) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .expect("VmRSS");
    line.split_whitespace()
        .nth(1)
        .expect("a number")
        .parse()
        .expect("a number")
}

#[test]
fn honest_importers_are_served_beside_any_number_of_hostile_clients() {
    let mut pair = Pair::new();
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    pair.exporter.ok(&format!("fill {buffer} 71"));
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let warm = pair.importer.import(&handle, "");
    pair.importer.ok(&format!("drop mapping {}", warm.id));
    let before = pair.exporter.state();
    let memory = resident(pair.exporter.pid());
    let address = address(&handle);
    let (sent, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // Sixty-four connections with malformed, cut, oversized and wrong requests.
        for seed in 1..=64 {
            let (sent, done, handle, address) = (&sent, &done, &handle, &address);
            scope.spawn(move || {
                let mut numbers = Numbers(seed * 0x9E37_79B9);
                while !done.load(Ordering::Relaxed) {
                    let Some(mut stream) = connection(address) else {
                        continue;
                    };
                    while stream.write_all(&message(&mut numbers, handle)).is_ok() {
                        sent.fetch_add(1, Ordering::Relaxed);
                        // Most read the answer; some never do.
                        if !numbers.next().is_multiple_of(16)
                            && stream.read(&mut [0; 80]).unwrap_or(0) == 0
                        {
                            break;
                        }
                    }
                }
            });
        }
        // Five hundred at a time that are silent and vanish.
        let (done_too, address_too) = (&done, &address);
        scope.spawn(move || {
            while !done_too.load(Ordering::Relaxed) {
                let silent: Vec<UnixStream> =
                    (0..500).map_while(|_| connection(address_too)).collect();
                std::thread::sleep(Duration::from_millis(100));
                drop(silent);
            }
        });
        let (mut served, start) = (0, Instant::now());
        while sent.load(Ordering::Relaxed) < requests() || served < 20 {
            let mem = pair.importer.import(&handle, "");
            pair.importer.ok(&format!("read {} 71 0", mem.id));
            pair.importer.ok(&format!("drop mapping {}", mem.id));
            served += 1;
            assert!(
                start.elapsed() < Duration::from_secs(600),
                "{sent:?} requests"
            );
        }
        done.store(true, Ordering::Relaxed);
    });
    pair.exporter.returns_to(&before);
    let grown = resident(pair.exporter.pid()).saturating_sub(memory);
    assert!(grown < 4096, "the exporter has grown by {grown} KiB");
}

#[test]
fn an_idle_exporter_uses_no_time_and_does_not_wake_up() {
    let mut pair = Pair::new();
    // A folder of its own: a broker that starts looks whether the others in its
    // folder live, and so wakes them.
    let folder = pair.scratch.path().join("sockets");
    pair.exporter = TestChild::start_with(crate::PROGRAM, &pair.scratch, |command| {
        command.env("GPUIPC_SOCKET_DIR", folder);
    });
    let (buffer, _) = pair.exporter.alloc("vmm-fd", LEN);
    let (_, handle) = pair.exporter.export(buffer, 0, LEN);
    let mem = pair.importer.import(&handle, "");
    pair.importer.ok(&format!("drop mapping {}", mem.id));
    pair.exporter.state();
    let threads = |pid: u32| -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = std::fs::read_dir(format!("/proc/{pid}/task"))
            .expect("the process is there")
            .flatten()
            .map(|task| {
                let status = std::fs::read_to_string(task.path().join("status")).expect("a thread");
                let switches: String = status
                    .lines()
                    .filter(|line| line.contains("ctxt_switches"))
                    .collect();
                let stat = std::fs::read_to_string(task.path().join("stat")).expect("a thread");
                let times: Vec<&str> = stat
                    .rsplit(')')
                    .next()
                    .unwrap_or("")
                    .split_whitespace()
                    .skip(11)
                    .take(2)
                    .collect();
                (
                    status.lines().next().unwrap_or("").to_owned(),
                    format!("{switches} {times:?}"),
                )
            })
            .collect();
        all.sort();
        all
    };
    // What the import left to do is done once nothing happens for a second.
    let mut before = threads(pair.exporter.pid());
    for _ in 0..20 {
        std::thread::sleep(Duration::from_secs(1));
        let now = threads(pair.exporter.pid());
        if now == before {
            break;
        }
        before = now;
    }
    assert!(
        before
            .iter()
            .any(|(name, _)| name.contains("gpuipc-broker")),
        "{before:?}"
    );
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(threads(pair.exporter.pid()), before);
}
