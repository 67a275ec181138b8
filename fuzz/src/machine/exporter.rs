//! Another process with memory of every kind exported: this very program, started once more.
//!
//! It also holds memory that is not exported, which nobody may ever see, and makes a listening
//! socket for this process: whoever connects to it finds that process behind it.

use super::{driver, socket};
use crate::checker::HANDLE as BYTES;
use gpuipc::{Buffer, Error, ExportOptions, GpuIpcMem, Ipc, Memory};
use gpuipc_core::{Endpoint, GpuIpcMemHandle};
use rustix::net::{bind, listen};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// Set in the process that exports.
const VARIABLE: &str = "GPUIPC_FUZZ_EXPORTER";
/// How far from the ends of its memory each range is.
pub const MARGIN: usize = 64 << 10;
/// A piece of memory in segments, and all or half of other memory.
pub const PIECE: usize = 2 << 20;

/// Memory that the other process exports.
#[derive(Debug)]
pub struct Export {
    /// Its handles: the range is all but [`MARGIN`] at both ends.
    pub handles: Vec<GpuIpcMemHandle>,
    /// In every word of its contents.
    pub tag: u32,
}

/// The other process, as this one sees it.
#[derive(Debug)]
pub struct Exporter {
    /// In the order of [`Memory::ALL`].
    pub exports: Vec<Export>,
    /// The name of the listening socket.
    pub endpoint: Endpoint,
    /// It listens, as a socket of that process.
    pub listener: OwnedFd,
    process: Child,
    /// At its end that process ends.
    _end: OwnedFd,
}

impl Exporter {
    /// That process's pid.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What is mapped is as long as the handles say, and every segment is a memory exported from
    /// the place on that its handle names.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub fn is_what_is_mapped(&self, mem: &GpuIpcMem, mut handles: Vec<GpuIpcMemHandle>) {
        handles.sort_by_key(|handle| handle.range().segment_index);
        let lengths = handles.iter().map(GpuIpcMemHandle::length);
        assert_eq!(mem.len() as u64, lengths.sum::<u64>());
        let mut start = 0;
        for handle in &handles {
            let len = usize::try_from(handle.length()).expect("it is mapped");
            let from = handle.offset_from_base();
            for at in [0, len / 2, len.saturating_sub(16)] {
                let mut there = [0; 16];
                let there = &mut there[..(len - at).min(16)];
                mem.read(start + at, there).expect("all of it is mapped");
                let place = from + at as u64;
                assert!(
                    self.is_exported(handle.base_size(), place, there),
                    "at {place}: {there:02x?}"
                );
            }
            start += len;
        }
        let mut beyond = [0];
        let read = mem.read(start, &mut beyond);
        assert!(matches!(read, Err(Error::Argument { .. })));
    }

    /// Whether these bytes lie there in an allocation of that size that is exported.
    fn is_exported(&self, size: u64, place: u64, there: &[u8]) -> bool {
        let fits = |handle: &GpuIpcMemHandle| {
            handle.base_size() == size && place + there.len() as u64 <= size
        };
        self.exports.iter().any(|export| {
            let pieces = (0..)
                .zip(&export.handles)
                .filter(|(_, handle)| fits(handle));
            let at = pieces.map(|(piece, _): (u64, _)| piece * size + place);
            at.into_iter()
                .any(|at| bytes(export.tag, at, there.len()) == there)
        })
    }
}

/// Byte `at` of the memory with this tag: a word's upper half is the tag, its lower half its index.
pub fn byte(tag: u32, at: u64) -> u8 {
    let word = (u64::from(tag) << 32) | (at / 8);
    word.to_le_bytes()[(at % 8) as usize]
}

/// So many bytes from `at` on.
pub fn bytes(tag: u32, at: u64, count: usize) -> Vec<u8> {
    (at..).take(count).map(|at| byte(tag, at)).collect()
}

/// The other process, started by the first call.
///
/// # Panics
///
/// If it cannot be started.
#[allow(clippy::zombie_processes)] // It ends with this process.
pub fn exporter() -> &'static Exporter {
    static EXPORTER: OnceLock<Exporter> = OnceLock::new();
    EXPORTER.get_or_init(|| {
        let (end, theirs) = socket::pair();
        let process = Command::new("/proc/self/exe")
            .env(VARIABLE, "1")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .expect("this program can be started once more");
        let mut exports: Vec<Export> = Vec::new();
        loop {
            let (said, fds) = socket::receive(&end, Duration::from_secs(30)).expect("it says");
            let [tag, told @ ..] = &said[..] else {
                panic!("the exporter has ended");
            };
            let tag = u32::from(*tag);
            if let Some(listener) = fds.into_iter().next() {
                return Exporter {
                    exports,
                    endpoint: Endpoint(told.try_into().expect("16 bytes")),
                    listener,
                    process,
                    _end: end,
                };
            }
            let handle = GpuIpcMemHandle::decode(told).expect("a handle");
            match exports.last_mut() {
                Some(last) if last.tag == tag => last.handles.push(handle),
                _ => exports.push(Export {
                    handles: vec![handle],
                    tag,
                }),
            }
        }
    })
}

/// Before `main`: the process that exports is no fuzzer and no test.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    if std::env::var_os(VARIABLE).is_some() {
        export();
        std::process::exit(0);
    }
}

/// What the process that exports does, until its stdin ends.
fn export() {
    let ipc = Ipc::new(driver()).expect("the emulated driver starts");
    let stdin = std::io::stdin();
    let mut kept = Vec::new();
    for (memory, tag) in Memory::ALL.into_iter().zip(1..) {
        let secret = filled(memory, 0x5ec0 + tag);
        let buffer = filled(memory, tag);
        let len = buffer.len() - 2 * MARGIN;
        let exported = buffer.export(&ipc, MARGIN, len, &ExportOptions::default());
        let exported = exported.expect("it can be exported");
        for handle in exported.handles() {
            let tag = u8::try_from(tag).expect("there are few");
            let said = [&[tag], &handle.encode()[..]].concat();
            socket::send(&stdin, &said, &[]).expect("it is read");
        }
        kept.push((secret, buffer, exported));
    }
    let ticket = kept[0].2.handles()[0].ticket().expect("a ticket");
    let mut endpoint = ticket.endpoint;
    endpoint.0[0] ^= 1;
    let listener = socket::new();
    bind(&listener, &socket::address(endpoint)).expect("a name that nobody has");
    listen(&listener, 16).expect("it listens");
    let said = [&[0], &endpoint.0[..]].concat();
    socket::send(&stdin, &said, &[listener.as_fd()]).expect("it is read");
    drop(listener);
    let mut heard = [0; 1];
    while rustix::io::read(&stdin, &mut heard).is_ok_and(|count| count > 0) {}
}

/// Memory with these contents. Where there is no fabric, memory for it has a descriptor only.
fn filled(memory: Memory, tag: u32) -> Buffer {
    let size = match memory {
        Memory::Segments => 3 * PIECE,
        // Half of it could be mapped, too.
        Memory::VmmFd | Memory::HostNuma => 2 * PIECE,
        _ => PIECE,
    };
    let new = |memory| Buffer::new(driver(), 0, memory, size);
    let buffer = match new(memory) {
        Err(_) if memory == Memory::VmmFabric => new(Memory::VmmFd),
        made => made,
    };
    let buffer = buffer.expect("memory");
    let words = (0..size as u64 / 8).map(|at| (u64::from(tag) << 32) | at);
    let contents: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    buffer.write(0, &contents).expect("it is written");
    buffer
}

const _: () = assert!(BYTES == gpuipc::HANDLE_BYTES);
