//! The identity of this process: a random process id, the host id, and what handles say
//! about them.
//!
//! A pid does not identify a process: the kernel reuses it, and two containers can both
//! have pid 1. The process id is random. It lies in a page that the kernel clears in a
//! forked child (`MADV_WIPEONFORK`), so that a child gets its own. If the kernel does
//! not support this (gVisor, Linux before 4.14), a fork handler clears the page. A bare
//! `clone(2)` runs no fork handlers, so its child is then not detected.
#![allow(unsafe_code)]

use crate::error::Error;
use crate::process::losses;
use core::sync::atomic::{AtomicU64, Ordering};
use gpuipc_core::{GpuIpcMemHandle, HostId, ProcessId, Token};
use gpuipc_sys::environment;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io::Read;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The environment variable that says which host this is, in place of the kernel's boot
/// id: 32 hex digits, or any name. Processes of one host that see different boot ids, or
/// none, share memory once all have the same value.
pub const HOST_ID_VARIABLE: &str = "GPUIPC_HOST_ID";

/// What a handle says about its exporter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) process: ProcessId,
    pub(crate) host: HostId,
    pub(crate) pid: u32,
    pub(crate) pid_namespace: u32,
    pub(crate) net_namespace: u32,
}

impl Identity {
    /// Reads who this process is now.
    pub(crate) fn read() -> Result<Self, Error> {
        Ok(Self {
            process: process_id()?,
            host: host_id()?,
            pid: std::process::id(),
            pid_namespace: namespace("pid"),
            net_namespace: namespace("net"),
        })
    }

    /// Whether a handle comes from this host.
    pub(crate) fn host_of(&self, handle: &GpuIpcMemHandle) -> Host {
        match (self.host, handle.host_id()) {
            (UNKNOWN_HOST, _) | (_, UNKNOWN_HOST) => Host::Unknown,
            (own, its) if own == its => Host::This,
            _ => Host::Other,
        }
    }
}

/// Where a handle comes from, as far as the two host ids say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// Numbers of processes and namespaces mean the same here.
    This,
    /// Only a fabric handle can work.
    Other,
    /// One side has no host id. A broker that answers for the handle's token proves
    /// that it is this host; nothing else is believed.
    Unknown,
}

/// The host id of who has none.
const UNKNOWN_HOST: HostId = HostId([0; 16]);

/// The first words of the wiped page.
#[repr(C)]
struct Page {
    /// 1 once `id` is set; 0 again in a forked child.
    set: AtomicU64,
    id: [AtomicU64; 2],
}

/// The page once the first use has mapped and filled it. Unlike the page itself
/// this survives a fork, which is how a child knows what it is.
static PAGE: OnceLock<&'static Page> = OnceLock::new();

/// The random id of this process.
///
/// # Errors
/// [`Error::Forked`] in a child forked from a process that had one: the driver
/// is unusable there, and what the child inherited belongs to its parent.
pub(crate) fn process_id() -> Result<ProcessId, Error> {
    static MAPPING: Mutex<()> = Mutex::new(());
    let page = if let Some(page) = PAGE.get() {
        *page
    } else {
        let mut refused = None;
        let mapping = MAPPING.lock().unwrap_or_else(PoisonError::into_inner);
        let page = match PAGE.get() {
            Some(page) => *page,
            None => {
                let page;
                (page, refused) = map_page()?;
                let random = u128::from_le_bytes(random_bytes()?);
                page.id[0].store(random as u64, Ordering::Relaxed);
                page.id[1].store((random >> 64) as u64, Ordering::Relaxed);
                page.set.store(1, Ordering::Release);
                PAGE.get_or_init(|| page)
            }
        };
        drop(mapping);
        if let Some(errno) = refused {
            losses::tell(&losses::WIPE_ON_FORK, &errno);
        }
        page
    };
    if page.set.load(Ordering::Acquire) == 0 {
        return Err(Error::Forked);
    }
    let mut id = [0; 16];
    id[..8].copy_from_slice(&page.id[0].load(Ordering::Relaxed).to_le_bytes());
    id[8..].copy_from_slice(&page.id[1].load(Ordering::Relaxed).to_le_bytes());
    Ok(ProcessId(id))
}

/// Whether this process was forked from one that had used the library. A few
/// nanoseconds: no system call.
#[must_use]
pub fn is_forked() -> bool {
    PAGE.get()
        .is_some_and(|page| page.set.load(Ordering::Acquire) == 0)
}

/// A zeroed page that is wiped in a forked child, by a fork handler where the kernel
/// refuses to, as it then says.
fn map_page() -> Result<(&'static Page, Option<Errno>), Error> {
    let size = rustix::param::page_size();
    let os = |step| move |errno| Error::os(step, errno);
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new private mapping wherever the kernel likes replaces nothing.
    let mapped = unsafe {
        rustix::mm::mmap_anonymous(core::ptr::null_mut(), size, protection, MapFlags::PRIVATE)
    }
    .map_err(os("mmap of the process id's page"))?;
    // SAFETY: the range is exactly the mapping made above, which nothing else
    // knows; the advice only changes what a forked child sees of it.
    let wiped = unsafe { rustix::mm::madvise(mapped, size, Advice::LinuxWipeOnFork) };
    if wiped.is_err() {
        // SAFETY: the handler is async-signal-safe: it stores to an atomic. It stays as
        // long as this code is loaded.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(wipe_in_child)) };
        if failed != 0 {
            return Err(os("pthread_atfork")(Errno::from_raw_os_error(failed)));
        }
    }
    // SAFETY: mapped readable and writable, page-aligned, longer than `Page`,
    // never unmapped; all zeros is a valid `Page`, and it is atomics only.
    let page = unsafe { &*mapped.cast::<Page>() };
    Ok((page, wiped.err()))
}

/// What the kernel would have done.
extern "C" fn wipe_in_child() {
    if let Some(page) = PAGE.get() {
        page.set.store(0, Ordering::Release);
    }
}

/// Random bytes from the kernel.
pub(crate) fn random_bytes() -> Result<[u8; 16], Error> {
    let mut bytes = [0; 16];
    fill_random(&mut bytes)?;
    Ok(bytes)
}

fn fill_random(bytes: &mut [u8]) -> Result<(), Error> {
    let mut filled = 0;
    while filled < bytes.len() {
        let got = rustix::io::retry_on_intr(|| {
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
        });
        match got {
            Ok(got) => filled += got,
            // Linux before 3.17, or a filter; std's hash maps do the same.
            Err(errno @ (Errno::NOSYS | Errno::PERM)) => {
                let read = std::fs::File::open("/dev/urandom")
                    .and_then(|mut file| file.read_exact(&mut bytes[filled..]));
                return read.map_err(|_| Error::os("getrandom", errno));
            }
            Err(errno) => return Err(Error::os("getrandom", errno)),
        }
    }
    Ok(())
}

/// A number that nobody can guess, which an export is asked for by. The kernel gives
/// 32 at a time: its call takes half a microsecond, a tenth of what an export adds to
/// the driver's own calls. In a forked child, which has the same ones left, there
/// are no exports.
pub(crate) fn random_token() -> Result<Token, Error> {
    static LEFT: Mutex<Vec<[u8; 16]>> = Mutex::new(Vec::new());
    process_id()?;
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(bytes) = left.pop() {
        return Ok(Token::new(bytes));
    }
    let mut bytes = [[0; 16]; 32];
    fill_random(bytes.as_flattened_mut())?;
    let [token, rest @ ..] = bytes;
    left.extend(rest);
    Ok(Token::new(token))
}

/// Which host this is: what `GPUIPC_HOST_ID` said at the first use, else the kernel's boot
/// id, which is the same in most containers of a host; all zeros where neither says.
///
/// # Errors
/// [`Error::Setting`] for a `GPUIPC_HOST_ID` of zeros.
pub fn host_id() -> Result<HostId, Error> {
    static HOST: OnceLock<HostId> = OnceLock::new();
    if let Some(host) = HOST.get() {
        return Ok(*host);
    }
    let given = environment::variable(HOST_ID_VARIABLE).filter(|value| !value.is_empty());
    let host = match given {
        Some(value) => named_host(value.as_encoded_bytes()).ok_or_else(|| Error::Setting {
            variable: HOST_ID_VARIABLE,
            value: value.to_string_lossy().into_owned(),
            rule: "32 hex digits that are not all zero, or any other name",
        })?,
        None => boot_id().unwrap_or_else(|error| {
            losses::tell(&losses::BOOT_ID, &error);
            UNKNOWN_HOST
        }),
    };
    Ok(*HOST.get_or_init(|| host))
}

/// The host that is called so: by a number like a boot id's, with or without hyphens, or
/// by a name, of which the number is made (FNV-1a, the same in every version).
fn named_host(name: &[u8]) -> Option<HostId> {
    let number = digits(name).unwrap_or_else(|| {
        name.iter()
            .fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, byte| {
                (hash ^ u128::from(*byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b)
            })
    });
    let host = HostId(number.to_be_bytes());
    (host != UNKNOWN_HOST).then_some(host)
}

/// The number in 32 hex digits.
fn digits(text: &[u8]) -> Option<u128> {
    let text = core::str::from_utf8(text).ok()?.trim().replace('-', "");
    let is_number = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = is_number.then(|| u128::from_str_radix(&text, 16));
    number?.ok()
}

fn boot_id() -> std::io::Result<HostId> {
    let text = std::fs::read("/proc/sys/kernel/random/boot_id")?;
    let number = digits(&text).filter(|number| *number != 0);
    let number = number.ok_or(std::io::Error::from(std::io::ErrorKind::InvalidData))?;
    Ok(HostId(number.to_be_bytes()))
}

/// The number of one of this process's namespaces; 0 where /proc does not say.
fn namespace(kind: &str) -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(format!("/proc/self/ns/{kind}"))
        .ok()
        .and_then(|meta| u32::try_from(meta.ino()).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_named_by_a_number_or_by_any_name() {
        let number = "0123456789abcdef0123456789ABCDEF";
        let dashed = "01234567-89ab-cdef-0123-456789abcdef\n";
        let host = |name: &str| named_host(name.as_bytes()).map(|host| host.to_string());
        assert_eq!(host(number), Some(number.to_lowercase()));
        assert_eq!(host(dashed), host(number));
        // Every version makes the same of a name.
        let node = Some("a7e212492d4ff78d826f46356a82458c".to_owned());
        assert_eq!(host("node-17"), node);
        assert_ne!(host("node-18"), node);
        assert_eq!(host(&"0".repeat(32)), None);
    }

    #[test]
    fn no_token_comes_twice() {
        let tokens = || (0..200).map(|_| random_token().map(|token| *token.as_bytes()));
        let threads = [(); 4].map(|()| std::thread::spawn(move || tokens().collect::<Vec<_>>()));
        let mut all: Vec<[u8; 16]> = threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("it ends"))
            .map(|token| token.expect("the kernel gives random bytes"))
            .collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 800);
        assert!(all.iter().all(|token| *token != [0; 16]));
    }
}
