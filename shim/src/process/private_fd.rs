//! Descriptors that a fork handler closes in a forked child.
//!
//! A forked child that does not exec holds a copy of every descriptor. With a copy of
//! the broker's listener, connections to an exporter that has died would hang instead
//! of failing. With a copy of an exported descriptor, GPU memory would stay allocated.
//! All of these descriptors are close-on-exec, so `exec` closes them as well.
#![allow(unsafe_code)]

use crate::process::identity;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, Once, PoisonError};

/// A descriptor of this process alone: closed on drop, and at fork in the child.
///
/// A program that closes descriptors that are not its own (`closefrom`) may have
/// other files under their numbers by then: these are left alone.
#[derive(Debug)]
pub(crate) struct PrivateFd {
    fd: ManuallyDrop<OwnedFd>,
    file: File,
    /// Where the fork handler finds it; `None` if there was no room.
    slot: Option<usize>,
}

/// A number, and the file that was under it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    number: i32,
    /// Device and inode; `None` where `fstat` is refused.
    id: Option<(u64, u64)>,
}

impl File {
    fn of(fd: BorrowedFd<'_>) -> Self {
        Self {
            number: fd.as_raw_fd(),
            id: id_of(fd).ok(),
        }
    }

    /// Whether the number still means that file. Files of the kernel's that have no
    /// inode of their own (eventfd, epoll) are taken for each other.
    pub(crate) fn is_there(self) -> bool {
        let Some(id) = self.id else { return true };
        // SAFETY: only `fstat` gets the number, which fails for one that is not open.
        let fd = unsafe { BorrowedFd::borrow_raw(self.number) };
        match id_of(fd) {
            Ok(now) => now == id,
            // A filter that forbids `fstat` says nothing about the file.
            Err(errno) => errno != Errno::BADF,
        }
    }
}

fn id_of(fd: BorrowedFd<'_>) -> rustix::io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// The same descriptor, under a number that no program takes for its standard input or
/// output, as it may where those were closed. Where the table is full it stays.
pub(crate) fn above_standard(fd: OwnedFd) -> OwnedFd {
    if fd.as_raw_fd() > 2 {
        return fd;
    }
    fcntl_dupfd_cloexec(&fd, 3).unwrap_or(fd)
}

impl PrivateFd {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        let fd = above_standard(fd);
        let file = File::of(fd.as_fd());
        let slot = take_slot();
        if let Some(entry) = slot.and_then(entry) {
            let (device, inode) = file.id.unwrap_or_default();
            entry.device.store(device, Ordering::Relaxed);
            entry.inode.store(inode, Ordering::Relaxed);
            entry.number.store(file.number, Ordering::Release);
        }
        Self {
            fd: ManuallyDrop::new(fd),
            file,
            slot,
        }
    }

    /// The file, to look later whether it is still there.
    pub(crate) const fn file(&self) -> File {
        self.file
    }

    /// The descriptor; `None` if its number is another file's by now, or nobody's.
    pub(crate) fn there(&self) -> Option<BorrowedFd<'_>> {
        self.file.is_there().then(|| self.fd.as_fd())
    }

    /// The descriptor, which from now on may be anybody's; `None` if it has been
    /// closed already, or its number is another file's.
    pub(crate) fn into_inner(self) -> Option<OwnedFd> {
        let mut this = ManuallyDrop::new(self);
        this.leave().then(|| {
            // SAFETY: `this` is never dropped, and its `fd` not used again.
            unsafe { ManuallyDrop::take(&mut this.fd) }
        })
    }

    /// Takes it out of the table; whether the descriptor is still there and this process's.
    fn leave(&mut self) -> bool {
        let Some(slot) = self.slot.take() else {
            return self.file.is_there();
        };
        if identity::is_forked() {
            // The handler closed it; the number may be another file's by now.
            return false;
        }
        // Out of the table before the number can be another file's.
        if let Some(entry) = entry(slot) {
            entry.number.store(NONE, Ordering::Release);
        }
        free_slots().push(slot);
        self.file.is_there()
    }
}

impl AsFd for PrivateFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for PrivateFd {
    fn drop(&mut self) {
        if self.leave() {
            // SAFETY: `fd` is not used again: this is the drop.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        } else if !identity::is_forked() && !std::thread::panicking() {
            log::debug!(
                target: "gpuipc",
                "descriptor {} was closed by the program; what has its number now is left alone",
                self.file.number
            );
        }
    }
}

/// Slots are made in chunks that stay, so that the fork handler can read them
/// without a lock: another thread may hold any lock at the moment of a fork.
const CHUNK: usize = 1024;
type Chunk = [Entry; CHUNK];
static CHUNKS: [AtomicPtr<Chunk>; 256] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 256];

/// What the fork handler closes. The number is written last and taken out first.
#[derive(Debug)]
struct Entry {
    number: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

impl Entry {
    const fn empty() -> Self {
        Self {
            number: AtomicI32::new(NONE),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
        }
    }

    /// What is in it, which is taken out.
    fn take(&self) -> Option<File> {
        let number = self.number.swap(NONE, Ordering::AcqRel);
        let id = (
            self.device.load(Ordering::Relaxed),
            self.inode.load(Ordering::Relaxed),
        );
        (number != NONE).then_some(File {
            number,
            id: (id != (0, 0)).then_some(id),
        })
    }
}

/// In a slot that holds no descriptor.
const NONE: i32 = -1;

static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn free_slots() -> std::sync::MutexGuard<'static, Vec<usize>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A free slot; `None` once a quarter of a million are taken or without the handler.
fn take_slot() -> Option<usize> {
    if !install_handler() {
        return None;
    }
    let mut free = free_slots();
    if let Some(slot) = free.pop() {
        return Some(slot);
    }
    let number = CHUNKS
        .iter()
        .position(|chunk| chunk.load(Ordering::Acquire).is_null())?;
    let chunk: Box<Chunk> = Box::new([const { Entry::empty() }; CHUNK]);
    CHUNKS
        .get(number)?
        .store(Box::into_raw(chunk), Ordering::Release);
    free.extend((number * CHUNK..(number + 1) * CHUNK).rev());
    free.pop()
}

/// A slot's entry.
fn entry(slot: usize) -> Option<&'static Entry> {
    let chunk = CHUNKS.get(slot / CHUNK)?.load(Ordering::Acquire);
    // SAFETY: null, or a chunk that `take_slot` leaked: initialized, aligned,
    // never freed, shared through atomics only.
    let chunk = unsafe { chunk.as_ref() }?;
    chunk.get(slot % CHUNK)
}

/// Registers the fork handler once; whether it is there.
fn install_handler() -> bool {
    static INSTALL: Once = Once::new();
    static INSTALLED: AtomicI32 = AtomicI32::new(0);
    INSTALL.call_once(|| {
        // SAFETY: the handler is async-signal-safe: it reads atomics and calls
        // fstat and close. It stays as long as this code is loaded.
        let result = unsafe { libc::pthread_atfork(None, None, Some(close_all_in_child)) };
        INSTALLED.store(i32::from(result == 0), Ordering::Release);
    });
    INSTALLED.load(Ordering::Acquire) != 0
}

extern "C" fn close_all_in_child() {
    for chunk in &CHUNKS {
        // SAFETY: as in `entry`.
        let Some(chunk) = (unsafe { chunk.load(Ordering::Acquire).as_ref() }) else {
            return;
        };
        for entry in chunk {
            if let Some(file) = entry.take()
                && file.is_there()
            {
                // SAFETY: a descriptor that this child inherited and that no
                // code in the child uses: its owner's drop does nothing here.
                unsafe { libc::close(file.number) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_in_the_table_while_the_descriptor_lives() {
        let file = std::fs::File::open("/dev/null").expect("/dev/null is everywhere");
        let number = file.as_raw_fd();
        let fd = PrivateFd::new(file.into());
        let slot = fd.slot.expect("there is room");
        assert_eq!(number_in(slot), number);
        drop(fd);
        assert_eq!(number_in(slot), NONE);
    }

    fn number_in(slot: usize) -> i32 {
        entry(slot)
            .expect("an entry")
            .number
            .load(Ordering::Acquire)
    }

    #[test]
    fn a_file_that_took_the_number_stays_open() {
        let open = |path| std::fs::File::open(path).expect("it is everywhere");
        let fd = PrivateFd::new(open("/dev/null").into());
        let stranger = File::of(open("/dev/zero").as_fd());
        let mut number = ManuallyDrop::new(
            // SAFETY: what is put under this number is what `fd` must leave alone; the
            // test closes it at its end.
            unsafe { std::os::fd::FromRawFd::from_raw_fd(fd.as_fd().as_raw_fd()) },
        );
        rustix::io::dup2(open("/dev/zero"), &mut number).expect("dup2");
        assert!(!fd.file().is_there());
        drop(fd);
        assert_eq!(id_of(number.as_fd()).ok(), stranger.id);
        drop(ManuallyDrop::into_inner(number));
    }

    #[test]
    fn more_descriptors_than_a_chunk_holds_find_room() {
        let file = std::fs::File::open("/dev/null").expect("/dev/null is everywhere");
        let fds: Vec<PrivateFd> = (0..CHUNK + 10)
            .map_while(|_| file.try_clone().ok())
            .map(|file| PrivateFd::new(file.into()))
            .collect();
        let mut slots: Vec<usize> = fds.iter().filter_map(|fd| fd.slot).collect();
        assert_eq!(slots.len(), fds.len());
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), fds.len());
    }
}
