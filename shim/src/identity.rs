//! Who this process is: a random number that no other process has, the host,
//! and what messages say about it.
//!
//! A pid is no identity: it is reused, and two containers may both be pid 1.
//! The process id is random and lies in a page that the kernel wipes in a
//! forked child (`MADV_WIPEONFORK`), so that a child never passes for its
//! parent.
#![allow(unsafe_code)]

use crate::error::Error;
use core::sync::atomic::{AtomicU64, Ordering};
use gpuipc_core::{HostId, ProcessId, Token};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::sync::{Mutex, OnceLock, PoisonError};

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
}

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
        let _mapping = MAPPING.lock().unwrap_or_else(PoisonError::into_inner);
        match PAGE.get() {
            Some(page) => *page,
            None => {
                let page = map_page()?;
                let random = u128::from_le_bytes(random_bytes()?);
                page.id[0].store(random as u64, Ordering::Relaxed);
                page.id[1].store((random >> 64) as u64, Ordering::Relaxed);
                page.set.store(1, Ordering::Release);
                PAGE.get_or_init(|| page)
            }
        }
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

/// A zeroed page that the kernel wipes in a forked child.
fn map_page() -> Result<&'static Page, Error> {
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
    unsafe { rustix::mm::madvise(mapped, size, Advice::LinuxWipeOnFork) }
        .map_err(os("madvise(MADV_WIPEONFORK) of the process id's page"))?;
    // SAFETY: mapped readable and writable, page-aligned, longer than `Page`,
    // never unmapped; all zeros is a valid `Page`, and it is atomics only.
    Ok(unsafe { &*mapped.cast::<Page>() })
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
        })
        .map_err(|errno| Error::os("getrandom", errno))?;
        filled += got;
    }
    Ok(())
}

/// A number that nobody can guess, which an offer is asked for by. The kernel gives
/// 32 at a time: its call takes half a microsecond, a tenth of what an export adds to
/// the driver's own calls. In a forked child, which has the same ones left, there
/// are no offers.
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

/// The kernel's boot id: the same in every container of a host.
pub(crate) fn host_id() -> Result<HostId, Error> {
    static HOST: OnceLock<HostId> = OnceLock::new();
    const FILE: &str = "/proc/sys/kernel/random/boot_id";
    if let Some(host) = HOST.get() {
        return Ok(*host);
    }
    let text = std::fs::read_to_string(FILE)
        .map_err(|error| Error::io("read of /proc/sys/kernel/random/boot_id", &error))?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = (digits.len() == 32)
        .then(|| u128::from_str_radix(&digits, 16).ok())
        .flatten();
    let number = number.ok_or_else(|| Error::Os {
        step: "parse of /proc/sys/kernel/random/boot_id",
        errno: rustix::io::Errno::INVAL.raw_os_error(),
    })?;
    Ok(*HOST.get_or_init(|| HostId(number.to_be_bytes())))
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
