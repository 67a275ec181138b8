//! The directory that plays the machine: memory is made in it, and names in it
//! are how one process finds what another one exported.

use crate::Answer;
use gpuipc_sys::CuResult;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, chmodat, fstat, linkat, mkdirat, open, openat, unlinkat,
};
use rustix::io::Errno;
use std::io::Read;
use std::path::Path;

/// The directory, open.
#[derive(Debug)]
pub(crate) struct Store {
    dir: OwnedFd,
    device: u64,
}

/// Everyone may make files, none may remove another's.
const DIR_MODE: Mode = Mode::from_raw_mode(0o1777);

impl Store {
    /// Opens the directory, and makes it if need be.
    pub(crate) fn open(path: &Path) -> Answer<Self> {
        let opened = make_dirs(path).and_then(|()| {
            let dir = open(
                path,
                OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            let device = fstat(&dir)?.st_dev;
            Ok(Self { dir, device })
        });
        opened.map_err(|error| {
            log::error!(
                "the directory {} of the emulated GPUs cannot be used: {error}",
                path.display()
            );
            CuResult::OPERATING_SYSTEM
        })
    }

    /// The directory.
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// The file system's number: memory of ours lies on it.
    pub(crate) fn device(&self) -> u64 {
        self.device
    }

    /// A folder inside, made if need be.
    pub(crate) fn folder(&self, name: &str) -> Result<OwnedFd, Errno> {
        match mkdirat(&self.dir, name, DIR_MODE) {
            // The umask may have taken bits.
            Ok(()) => chmodat(&self.dir, name, DIR_MODE, AtFlags::empty())?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        openat(
            &self.dir,
            name,
            OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW,
            Mode::empty(),
        )
    }
}

fn make_dirs(path: &Path) -> Result<(), Errno> {
    if let Some(parent) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty() && !parent.exists())
    {
        make_dirs(parent)?;
    }
    match mkdirat(CWD, path, DIR_MODE) {
        Ok(()) => chmodat(CWD, path, DIR_MODE, AtFlags::empty()),
        Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Gives an unnamed file a name. A file whose last name was removed cannot get
/// another one.
pub(crate) fn name_file(
    file: BorrowedFd<'_>,
    dir: BorrowedFd<'_>,
    name: &str,
) -> Result<(), Errno> {
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, own, dir, name, AtFlags::SYMLINK_FOLLOW)
}

/// Removes a name; that it is gone already is no failure.
pub(crate) fn remove_name(dir: BorrowedFd<'_>, name: &str) {
    match unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => log::warn!("the name {name} cannot be removed: {error}"),
    }
}

/// Opens what has a name, to read and write.
pub(crate) fn open_name(dir: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    openat(
        dir,
        name,
        OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
    )
}

/// The names in a directory.
pub(crate) fn names(dir: BorrowedFd<'_>) -> Vec<String> {
    let Ok(list) = Dir::read_from(dir) else {
        return Vec::new();
    };
    list.filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned))
        .collect()
}

/// Random bytes of the kernel.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut done = 0;
    while done < N {
        match rustix::rand::getrandom(&mut bytes[done..], rustix::rand::GetRandomFlags::empty()) {
            Ok(got) => done += got,
            Err(Errno::INTR) => {}
            // A filter; ids that repeat would be worse than an end.
            Err(error) => {
                let read = std::fs::File::open("/dev/urandom")
                    .and_then(|mut file| file.read_exact(&mut bytes[done..]));
                read.unwrap_or_else(|_| panic!("the kernel gives no random bytes: {error}"));
                break;
            }
        }
    }
    bytes
}
