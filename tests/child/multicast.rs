//! A member of multicast teams. Its sockets to the other members come with the
//! process (`GPUIPC_TEST_TEAM`).
//!
//! | command | answer |
//! |---|---|
//! | `mc-create SIZE DEVICES` | `ok ID HANDLE` |
//! | `mc-import HANDLE [timeout=MS] [types=TYPE,..]` | `ok ID` |
//! | `mc-import-or-give-up HANDLE` | the same, and a failure is told to the team |
//! | `mc-add ID DEVICE`, `mc-bind ID BUFFER LEN [OFFSET]`, `mc-map ID` | `ok`: the object is in its next phase |
//! | `mc-connect ID` | `ok`: with the team, which the process has no more then |
//! | `mc-buffer ID BUFFER LEN` | `ok ID OFFSET` of a buffer on the connection |
//! | `mc-free ID` | `ok BYTES` that the connection has free |
//! | `mc-write ID OFFSET VALUE`, `mc-sum ID OFFSET` | `ok`, `ok SUM`: through the object |
//! | `mc-poke BUFFER OFFSET VALUE`, `mc-peek BUFFER OFFSET` | `ok`, `ok VALUE`: of one's own memory |
//! | `mc-drop ID`, `mc-close ID` | `ok` |
//! | `mc-log` | `ok`: driver calls are noted; `mc-calls` gives them, and warnings |
//! | `mc-opt-in` | `ok`: the emulated driver is treated as a real one that is allowed |
//! | `mc-loaded` | `ok true\|false`: whether the driver of `GPUIPC_LIBCUDA` is the emulated one |
#![allow(unsafe_code)]

use crate::importing::types_of;
use crate::{NotOk, TestChild, word};
use gpuipc::multicast::{
    Bound, BoundBuffer, Connection, Created, Heard, Imported, Joined, MESSAGE_BYTES, Multicast,
    Team,
};
use gpuipc::{Driver, Error, ExportOptions, GpuIpcMemHandle, ImportOptions, Ipc, IpcOptions};
use gpuipc_tests::{from_hex, to_hex};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::str::SplitWhitespace;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What this process has of multicast objects.
#[derive(Default)]
pub(crate) struct Objects {
    phases: BTreeMap<u32, Phase>,
    team: Option<Team<'static>>,
}

enum Phase {
    /// Held for its drop.
    Created(#[allow(dead_code)] Box<Created>),
    Imported(Imported),
    Joined(Joined),
    Bound(Bound),
    Ready(Multicast),
    Connection(Connection<'static>),
    Buffer(BoundBuffer),
}

impl Objects {
    /// The team of this process, made at its first use.
    fn team(&mut self) -> Result<&mut Team<'static>, NotOk> {
        if self.team.is_none() {
            self.team = Some(team()?);
        }
        self.team.as_mut().ok_or("no team".into())
    }
}

/// The sockets by the environment: rank, and a descriptor to each member, -1 at
/// one's own place.
#[allow(unsafe_code)]
fn team() -> Result<Team<'static>, NotOk> {
    static TAKEN: Mutex<bool> = Mutex::new(false);
    let mut taken = TAKEN.lock().map_err(|_| NotOk::from("lock"))?;
    if core::mem::replace(&mut *taken, true) {
        return Err("the team is taken".into());
    }
    let text = std::env::var("GPUIPC_TEST_TEAM").map_err(|_| NotOk::from("no team"))?;
    let mut numbers = text
        .split(' ')
        .filter_map(|number| number.parse::<i32>().ok());
    let rank = numbers.next().ok_or("no rank")?.unsigned_abs() as usize;
    let mut sockets: Vec<Option<UnixStream>> = numbers
        .map(|number| {
            // SAFETY: the test opened the descriptor for this process alone, and
            // it is taken once: see above.
            (number >= 0).then(|| unsafe { OwnedFd::from_raw_fd(number) }.into())
        })
        .collect();
    let size = sockets.len();
    let timeout = std::env::var("GPUIPC_TEST_TEAM_TIMEOUT_MS").ok();
    let timeout = timeout.and_then(|text| text.parse().ok()).unwrap_or(20_000);
    let team = Team::new(rank, size, move |message, deadline| {
        gather(&mut sockets, message, deadline)
    })?;
    Ok(team.timeout(Duration::from_millis(timeout)))
}

/// An all-gather over one socket to each other member.
fn gather(
    sockets: &mut [Option<UnixStream>],
    message: &[u8; MESSAGE_BYTES],
    deadline: Instant,
) -> Vec<Heard> {
    for socket in sockets.iter_mut().flatten() {
        // Who is gone shows when it is read from.
        let _ = socket.write_all(message);
    }
    let mut hear = |socket: &mut Option<UnixStream>| match socket {
        Some(socket) => read(socket, deadline),
        None => Heard::Message(*message),
    };
    sockets.iter_mut().map(&mut hear).collect()
}

fn read(socket: &mut UnixStream, deadline: Instant) -> Heard {
    let mut message = [0; MESSAGE_BYTES];
    let mut done = 0;
    while done < MESSAGE_BYTES {
        let left = deadline.saturating_duration_since(Instant::now());
        // Also after the deadline what is there already is taken.
        let _ = socket.set_read_timeout(Some(left.max(Duration::from_millis(1))));
        match socket.read(&mut message[done..]) {
            Ok(0) => return Heard::Gone,
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Heard::Silent;
            }
            Err(_) => return Heard::Gone,
        }
    }
    Heard::Message(message)
}

pub(crate) fn run(
    child: &mut TestChild,
    command: &str,
    words: &mut SplitWhitespace<'_>,
) -> Result<String, NotOk> {
    match command {
        "mc-create" => {
            let (size, devices) = (word(words)?, word(words)?);
            let created =
                child
                    .ipc()?
                    .create_multicast(size, devices, &ExportOptions::default())?;
            let hex = to_hex(&created.handle().encode());
            let id = keep(child, Phase::Created(Box::new(created)));
            Ok(format!("{id} {hex}"))
        }
        "mc-import-or-give-up" => {
            let hex: String = word(words)?;
            let handle = gpuipc_tests::handle_of(&hex);
            let imported = child
                .ipc()?
                .import_multicast(&handle, &ImportOptions::default());
            match imported {
                Ok(imported) => Ok(keep(child, Phase::Imported(imported)).to_string()),
                Err(error) => {
                    child.multicast.team()?.give_up(&error);
                    Err(error.into())
                }
            }
        }
        "mc-import" => {
            let hex: String = word(words)?;
            let bytes = from_hex(&hex).ok_or("no hex digits")?;
            let handle = GpuIpcMemHandle::decode(&bytes).map_err(Error::from)?;
            let mut options = ImportOptions::default();
            for option in words {
                options = match option.split_once('=') {
                    Some(("timeout", text)) => {
                        let time = text.parse().map_err(|_| NotOk::from("timeout"))?;
                        options.timeout(Duration::from_millis(time))
                    }
                    Some(("types", text)) => options.types(&types_of(text)?),
                    _ => return Err("no such option".into()),
                };
            }
            let imported = child.ipc()?.import_multicast(&handle, &options)?;
            Ok(keep(child, Phase::Imported(imported)).to_string())
        }
        "mc-add" => {
            let (id, phase) = take(child, words)?;
            let Phase::Imported(imported) = phase else {
                return Err("not imported".into());
            };
            let joined = imported.add_device(word(words)?, child.multicast.team()?)?;
            put(child, id, Phase::Joined(joined))
        }
        "mc-bind" => {
            let (id, phase) = take(child, words)?;
            let Phase::Joined(joined) = phase else {
                return Err("not joined".into());
            };
            let ptr = child.buffer(words)?.device_ptr();
            let len = word(words)?;
            let offset: u64 = words.next().and_then(|text| text.parse().ok()).unwrap_or(0);
            // SAFETY: as in `TestChild::export`.
            let bound = unsafe { joined.bind(ptr + offset, len, child.multicast.team()?) }?;
            put(child, id, Phase::Bound(bound))
        }
        "mc-map" => {
            let (id, phase) = take(child, words)?;
            let Phase::Bound(bound) = phase else {
                return Err("not bound".into());
            };
            let ready = bound.map(child.multicast.team()?)?;
            put(child, id, Phase::Ready(ready))
        }
        "mc-connect" => {
            let (id, phase) = take(child, words)?;
            let Phase::Joined(joined) = phase else {
                return Err("not joined".into());
            };
            child.multicast.team()?;
            let team = child.multicast.team.take().ok_or("no team")?;
            put(child, id, Phase::Connection(Connection::new(joined, team)))
        }
        "mc-buffer" => {
            let id: u32 = word(words)?;
            let ptr = child.buffer(words)?.device_ptr();
            let len = word(words)?;
            // SAFETY: as in `TestChild::export`.
            let bound = unsafe { connection(child, id)?.bind(ptr, len) }?;
            let offset = bound.offset();
            let id = keep(child, Phase::Buffer(bound));
            Ok(format!("{id} {offset}"))
        }
        "mc-free" => Ok(connection(child, word(words)?)?.free().to_string()),
        "mc-write" => {
            let ptr = address(child, words)?;
            write(child, ptr, word(words)?)
        }
        "mc-sum" => {
            let ptr = address(child, words)?;
            use_gpu(child)?;
            let sums = gpuipc_emulated::multicast::sum_u32(ptr, 1);
            sums.map(|sums| sums[0].to_string())
                .map_err(|code| NotOk(format!("err CODE {}", code.0)))
        }
        "mc-poke" => {
            let buffer = child.buffer(words)?;
            let (offset, value): (usize, u32) = (word(words)?, word(words)?);
            buffer.write(offset, &value.to_le_bytes())?;
            Ok(String::new())
        }
        "mc-peek" => {
            let buffer = child.buffer(words)?;
            let mut bytes = [0; 4];
            buffer.read(word(words)?, &mut bytes)?;
            Ok(u32::from_le_bytes(bytes).to_string())
        }
        "mc-drop" => take(child, words).map(|_| String::new()),
        "mc-close" => {
            match take(child, words)?.1 {
                Phase::Ready(ready) => ready.close()?,
                Phase::Buffer(buffer) => buffer.close()?,
                _ => return Err("nothing to close".into()),
            }
            Ok(String::new())
        }
        "mc-log" => {
            // Set twice it stays as it is.
            let _ = log::set_logger(&NOTES);
            log::set_max_level(log::LevelFilter::Trace);
            let _ = NOTES.take();
            Ok(String::new())
        }
        "mc-calls" => Ok(NOTES.take().join(" ")),
        "mc-opt-in" => {
            if gpuipc_tests::on_real_gpu() {
                return Err("never on a real driver".into());
            }
            let options = IpcOptions::default().experimental_multicast(true);
            child.ipc = Some(Ipc::with_options(child.driver, &options)?);
            Ok(String::new())
        }
        "mc-loaded" => Ok(Driver::load()
            .map_err(Error::from)?
            .is_emulated()
            .to_string()),
        _ => Err("no such command".into()),
    }
}

fn keep(child: &mut TestChild, phase: Phase) -> u32 {
    let id = child.id();
    child.multicast.phases.insert(id, phase);
    id
}

fn put(child: &mut TestChild, id: u32, phase: Phase) -> Result<String, NotOk> {
    child.multicast.phases.insert(id, phase);
    Ok(String::new())
}

fn take(child: &mut TestChild, words: &mut SplitWhitespace<'_>) -> Result<(u32, Phase), NotOk> {
    let id: u32 = word(words)?;
    let phase = child.multicast.phases.remove(&id).ok_or("no such object")?;
    Ok((id, phase))
}

fn connection(child: &TestChild, id: u32) -> Result<&Connection<'static>, NotOk> {
    match child.multicast.phases.get(&id) {
        Some(Phase::Connection(connection)) => Ok(connection),
        _ => Err("no connection".into()),
    }
}

/// Makes the GPU's context current, once.
fn use_gpu(child: &TestChild) -> Result<(), NotOk> {
    match child.driver.current_context().map_err(Error::from)? {
        Some(_) => Ok(()),
        None => child.set_context("0").map(drop),
    }
}

/// An address in a mapped object.
fn address(child: &TestChild, words: &mut SplitWhitespace<'_>) -> Result<u64, NotOk> {
    let id: u32 = word(words)?;
    let base = match child.multicast.phases.get(&id) {
        Some(Phase::Ready(ready)) => ready.device_ptr(),
        Some(Phase::Buffer(buffer)) => buffer.device_ptr(),
        _ => return Err("not mapped".into()),
    };
    let offset: u64 = word(words)?;
    Ok(base + offset)
}

#[allow(unsafe_code)]
fn write(child: &TestChild, ptr: u64, value: u32) -> Result<String, NotOk> {
    use_gpu(child)?;
    // SAFETY: the address is of a mapped object, which no Rust reference covers.
    unsafe { child.driver.memcpy_htod(ptr, &value.to_le_bytes()) }.map_err(Error::from)?;
    Ok(String::new())
}

/// Notes the driver calls that the library's log tells, and its warnings.
struct Notes(Mutex<Vec<String>>);

static NOTES: Notes = Notes(Mutex::new(Vec::new()));

impl Notes {
    fn take(&self) -> Vec<String> {
        let mut notes = self
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        core::mem::take(&mut *notes)
    }
}

impl log::Log for Notes {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let text = record.args().to_string();
        let note = match record.level() {
            log::Level::Warn => format!("warn:{}", text.replace(' ', "_")),
            log::Level::Trace => match text.split_once(" took ") {
                Some((call, _)) => call.to_owned(),
                None => return,
            },
            _ => return,
        };
        let mut notes = self
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        notes.push(note);
    }

    fn flush(&self) {}
}
