//! The two names of the broker: an abstract name, and a file in a folder that processes
//! in other network namespaces can share.
//!
//! Both end in the 32 hex digits of the endpoint. These are random, so nobody can take
//! a name before its owner does. The file's name begins with the host id, so that in a
//! folder shared between hosts each host removes only its own dead names.

use super::credentials::{may_own_folder, trusts_user};
use super::socket::{Line, Listener, new_socket};
use crate::error::Error;
use crate::options::Trust;
use crate::process::identity;
use core::fmt;
use gpuipc_core::{Endpoint, HostId};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, fchmod, fstat, linkat, lstat, openat, statat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketType, bind, connect, listen};
use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// How many connections the kernel keeps waiting.
const BACKLOG: i32 = 128;

/// The longest path that fits a socket's address (`sun_path` less its NUL).
const PATH_LIMIT: usize = 107;

/// Why a name, or the whole broker, could not be had.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    pub(super) step: &'static str,
    pub(super) errno: Errno,
    folder: Option<PathBuf>,
    /// The folder is this user's.
    owner: Option<u32>,
}

impl Loss {
    pub(super) fn of(step: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self {
            step,
            errno,
            folder: None,
            owner: None,
        }
    }

    /// Whether it may be there at the next export.
    pub(super) const fn may_pass(&self) -> bool {
        matches!(
            self.errno,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::AGAIN
        )
    }

    pub(super) fn error(&self) -> Error {
        Error::BrokerStart {
            step: self.step,
            errno: self.errno.raw_os_error(),
            folder: self.folder.clone(),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.step, self.errno)?;
        match (&self.folder, self.owner) {
            (Some(folder), Some(owner)) => write!(
                f,
                " ({} belongs to user {owner}; GPUIPC_SOCKET_DIR names another folder, which root or \
                 this user must own)",
                folder.display()
            ),
            (Some(folder), None) => write!(
                f,
                " (folder {}; GPUIPC_SOCKET_DIR names another)",
                folder.display()
            ),
            (None, _) => Ok(()),
        }
    }
}

/// The abstract address of a broker.
pub(super) fn abstract_address(endpoint: Endpoint) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(format!("gpuipc-{endpoint}").as_bytes())
}

/// Listens under the abstract name.
pub(super) fn listen_abstract(endpoint: Endpoint) -> Result<Listener, Loss> {
    let socket = new_socket(SocketType::SEQPACKET).map_err(Loss::of("socket"))?;
    let listener = Listener::new(socket, true);
    let address = abstract_address(endpoint).map_err(Loss::of("abstract name"))?;
    bind(&listener, &address).map_err(Loss::of("bind of the abstract name"))?;
    listen(&listener, BACKLOG).map_err(Loss::of("listen"))?;
    Ok(listener)
}

/// A folder for brokers' names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folder {
    path: PathBuf,
    /// Whether the user named it; then others may write to it.
    given: bool,
}

impl Folder {
    /// `GPUIPC_SOCKET_DIR`, else this user's folder in /dev/shm, which
    /// containers with a shared IPC namespace share.
    pub(super) fn of_this_user(given: Option<&Path>) -> Self {
        match given {
            Some(path) => Self {
                path: path.to_owned(),
                given: true,
            },
            None => Self::of_user(rustix::process::geteuid().as_raw()),
        }
    }

    /// The folder of the user `uid` in /dev/shm.
    fn of_user(uid: u32) -> Self {
        Self {
            path: PathBuf::from(format!("/dev/shm/gpuipc-{uid}")),
            given: false,
        }
    }

    /// The folders in which an importer looks for a broker: the one that the
    /// user named, or those of everyone whom it trusts, its own first.
    pub(super) fn where_to_look(
        given: Option<&Path>,
        trust: &Trust,
    ) -> Box<dyn Iterator<Item = Self>> {
        if let Some(path) = given {
            return Box::new(core::iter::once(Self {
                path: path.to_owned(),
                given: true,
            }));
        }
        let own = rustix::process::geteuid().as_raw();
        let more = match trust {
            Trust::Users(more) => more.iter().copied().collect(),
            Trust::SameUser | Trust::TokenAlone => BTreeSet::new(),
        };
        // One after the other: there may be very many.
        let others = (*trust == Trust::TokenAlone).then(users_with_folders);
        let first = BTreeSet::from([own, 0]);
        let more = more.into_iter().chain(others.into_iter().flatten());
        let more = more.filter(move |user| *user != own && *user != 0);
        let users = core::iter::once(own).chain(first.into_iter().filter(move |user| *user != own));
        Box::new(users.chain(more).map(Self::of_user))
    }

    /// Connects to the broker whose name is in this folder. Neither the folder nor the
    /// name may be of a user who is not trusted: they would be asked in vain, or never
    /// answer.
    pub(super) fn connect(
        &self,
        line: &Line,
        endpoint: Endpoint,
        host: HostId,
        trust: &Trust,
    ) -> Result<(), Errno> {
        let folder = self.look(trust)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = name_of(endpoint, host);
        let socket = openat(&folder.fd, &name, flags, Mode::empty())?;
        let stat = fstat(&socket)?;
        if !is_socket(&stat) || !trusts_user(trust, stat.st_uid) {
            log::warn!(
                target: "gpuipc::broker",
                "{} belongs to user {}, or is no socket: not asked",
                self.path.join(&name).display(),
                stat.st_uid
            );
            return Err(Errno::PERM);
        }
        // That very socket, whatever has its name by now.
        let address = through_proc(&socket, None).unwrap_or_else(|| self.path.join(&name));
        connect(line, &SocketAddrUnix::new(&address)?)
    }

    /// Opens the folder to look a name up in it.
    fn look(&self, trust: &Trust) -> Result<Open<'_>, Errno> {
        let folder = self.open()?;
        let stat = fstat(&folder.fd)?;
        let owner = stat.st_uid;
        let is_trusted = if self.given {
            may_own_folder(trust, owner) || *trust == Trust::TokenAlone
        } else {
            trusts_user(trust, owner) && !is_open(&stat)
        };
        if is_trusted {
            return Ok(folder);
        }
        log::warn!(
            target: "gpuipc::broker",
            "folder {} belongs to user {owner}, who is not trusted, or others can write to it: \
             no broker is looked for in it",
            self.path.display()
        );
        Err(Errno::PERM)
    }

    fn open(&self) -> Result<Open<'_>, Errno> {
        let mut flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        flags.set(OFlags::NOFOLLOW, !self.given);
        Ok(Open {
            fd: openat(CWD, &self.path, flags, Mode::empty())?,
            path: &self.path,
        })
    }

    /// Makes the folder if need be, removes dead names of this host, and
    /// listens under a file name in it.
    pub(super) fn listen(
        &self,
        endpoint: Endpoint,
        trust: &Trust,
    ) -> Result<(Listener, SocketFile), Loss> {
        let failed = |step| {
            let folder = Some(self.path.clone());
            move |errno: Errno| Loss {
                step,
                errno,
                folder,
                owner: None,
            }
        };
        let host = identity::host_id().map_err(|_| failed("host id")(Errno::INVAL))?;
        let name = name_of(endpoint, host);
        // Bound under a name that no importer looks up and no sweep touches,
        // and linked to its own once it listens: a name that refuses is always
        // a dead one, and a link never takes the place of another's name.
        let early = format!(".{name}");
        if self.path.join(&early).as_os_str().len() > PATH_LIMIT {
            return Err(failed(
                "folder name too long (a socket's path holds 107 bytes, 43 of them the name)",
            )(Errno::NAMETOOLONG));
        }
        let folder = self.make(trust)?;
        if host != HostId::default() {
            folder.sweep(host);
        }
        let socket = new_socket(SocketType::SEQPACKET).map_err(failed("socket"))?;
        let listener = Listener::new(socket, false);
        // Who may connect; whoever does is asked for the token all the same.
        let mode = if *trust == Trust::SameUser {
            Mode::from(0o600)
        } else {
            Mode::from(0o666)
        };
        // The name gets the socket's mode, less the umask.
        let _ = fchmod(&listener, mode);
        let address = SocketAddrUnix::new(folder.at(&early)).map_err(failed("file name"))?;
        bind(&listener, &address).map_err(failed("bind of the file name"))?;
        let file = |name: &str| {
            let stat = statat(&folder.fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(SocketFile {
                folder: self.clone(),
                name: name.to_owned(),
                inode: (stat.st_dev, stat.st_ino),
            })
        };
        let early_file = file(&early).map_err(failed("look at the socket's name"))?;
        folder
            .set_mode(&early, mode)
            .map_err(failed("mode of the socket's name"))?;
        listen(&listener, BACKLOG).map_err(failed("listen"))?;
        linkat(&folder.fd, &early, &folder.fd, &name, AtFlags::empty())
            .map_err(failed("link of the socket's name"))?;
        drop(early_file);
        let file = file(&name).map_err(failed("look at the socket's name"))?;
        Ok((listener, file))
    }

    /// Makes this user's folder, or checks the one that is there: its own folder in
    /// /dev/shm must be its own, and no one else's to write to; in one that the user
    /// named others may write, as in a volume of Kubernetes.
    fn make(&self, trust: &Trust) -> Result<Open<'_>, Loss> {
        let failed = |owner| {
            move |errno| Loss {
                step: "making or checking the folder",
                errno,
                folder: Some(self.path.clone()),
                owner,
            }
        };
        let mode = if *trust == Trust::SameUser {
            Mode::from(0o700)
        } else {
            Mode::from(0o711)
        };
        match rustix::fs::mkdir(&self.path, mode) {
            // A filter may refuse it where there is nothing to make.
            Ok(()) | Err(Errno::EXIST | Errno::PERM | Errno::ACCESS | Errno::ROFS) => {}
            Err(errno) => return Err(failed(None)(errno)),
        }
        let folder = self.open().map_err(failed(None))?;
        let stat = fstat(&folder.fd).map_err(failed(None))?;
        let owner = stat.st_uid;
        if self.given {
            return if may_own_folder(trust, owner) {
                Ok(folder)
            } else {
                Err(failed(Some(owner))(Errno::PERM))
            };
        }
        if owner != rustix::process::geteuid().as_raw() || is_open(&stat) {
            return Err(failed(Some(owner))(Errno::PERM));
        }
        if *trust != Trust::SameUser && stat.st_mode & 0o001 == 0 {
            // Others may look names up that they know, and list none.
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
            openat(&folder.fd, ".", flags, Mode::empty())
                .and_then(|folder| fchmod(folder, mode))
                .map_err(failed(None))?;
        }
        Ok(folder)
    }
}

/// Whether others can write to it.
const fn is_open(folder: &Stat) -> bool {
    folder.st_mode & 0o022 != 0
}

fn is_socket(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Socket
}

/// What is open, or a file in it, by a path that nobody can lead elsewhere; `None`
/// without /proc.
fn through_proc(fd: &OwnedFd, name: Option<&str>) -> Option<PathBuf> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    // The link itself: what it leads to may be forbidden, and is there.
    lstat(&path).ok()?;
    Some(match name {
        Some(name) => path.join(name),
        None => path,
    })
}

/// A folder that is open: what is done in it is done there, whatever has its name.
struct Open<'a> {
    fd: OwnedFd,
    path: &'a Path,
}

impl Open<'_> {
    /// The path of a file in it.
    fn at(&self, name: &str) -> PathBuf {
        through_proc(&self.fd, Some(name)).unwrap_or_else(|| self.path.join(name))
    }

    /// Gives this user's socket a mode that the umask did not let it have.
    fn set_mode(&self, name: &str, mode: Mode) -> rustix::io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let socket = openat(&self.fd, name, flags, Mode::empty())?;
        let stat = fstat(&socket)?;
        if !is_socket(&stat) || stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(Errno::PERM);
        }
        if Mode::from_raw_mode(stat.st_mode) & Mode::from(0o777) == mode {
            return Ok(());
        }
        let path = through_proc(&socket, None).ok_or(Errno::NOENT)?;
        rustix::fs::chmod(path, mode)
    }

    /// Removes the names of this host's brokers that are no more. Best effort. Not for
    /// who has no host id: names of all hosts that have none begin alike.
    fn sweep(&self, host: HostId) {
        let prefix = prefix(host);
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(entries) = openat(&self.fd, ".", flags, Mode::empty())
            .and_then(|folder| rustix::fs::Dir::read_from(&folder))
        else {
            return;
        };
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            let Some(early) = kind_of_name(name, &prefix) else {
                continue;
            };
            let Ok(stat) = statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            if !is_socket(&stat) || stat.st_uid != rustix::process::geteuid().as_raw() {
                continue;
            }
            // An early name is a file for a moment before its socket is bound to it.
            if (!early || is_old(&stat)) && is_dead(&self.at(name)) {
                // Another sweep may have been first.
                let _ = unlinkat(&self.fd, name, AtFlags::empty());
            }
        }
    }
}

/// Whether this is a broker's name of this host, and then whether it is an early one.
/// Nothing else is ever touched.
fn kind_of_name(name: &str, prefix: &str) -> Option<bool> {
    let (early, name) = match name.strip_prefix('.') {
        Some(rest) => (true, rest),
        None => (false, name),
    };
    let endpoint = name.strip_prefix(prefix)?.strip_prefix('-')?;
    let is_endpoint =
        endpoint.len() == 32 && endpoint.chars().all(|digit| digit.is_ascii_hexdigit());
    is_endpoint.then_some(early)
}

/// Whether a file was there a minute ago.
fn is_old(stat: &Stat) -> bool {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed();
    now.is_ok_and(|now| {
        i64::try_from(now.as_secs()).is_ok_and(|now| now.saturating_sub(stat.st_mtime) > 60)
    })
}

/// The users who have a folder in /dev/shm.
fn users_with_folders() -> impl Iterator<Item = u32> {
    let user = |name: std::ffi::OsString| name.to_str()?.strip_prefix("gpuipc-")?.parse().ok();
    let entries = std::fs::read_dir("/dev/shm");
    entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(move |entry| user(entry.file_name()))
}

/// Whether nobody listens at a socket's file any more.
///
/// Asked without a connection first: of many processes that start at once each sweeps,
/// and connections of theirs would take the places of importers. A socket of another type
/// is refused with EPROTOTYPE where one is bound, with ECONNREFUSED where none is
/// (`connect(2)`). A kernel that refuses both alike, as gVisor does, is asked again.
fn is_dead(path: &Path) -> bool {
    let refuses = |kind| connect(new_socket(kind)?, &SocketAddrUnix::new(path)?);
    [SocketType::DGRAM, SocketType::SEQPACKET]
        .into_iter()
        .all(|kind| refuses(kind) == Err(Errno::CONNREFUSED))
}

/// The host's id as the beginning of a file name: its first 32 bits.
fn prefix(host: HostId) -> String {
    host.to_string().chars().take(8).collect()
}

/// The name in its folder of a broker on this host.
fn name_of(endpoint: Endpoint, host: HostId) -> String {
    format!("{}-{endpoint}", prefix(host))
}

/// A socket's name in the file system, removed on drop.
#[derive(Debug)]
pub(super) struct SocketFile {
    folder: Folder,
    name: String,
    inode: (u64, u64),
}

impl SocketFile {
    /// Whether the name is still there, and still this socket's.
    pub(super) fn is_there(&self) -> bool {
        lstat(self.folder.path.join(&self.name)).is_ok_and(|stat| self.is(&stat))
    }

    fn is(&self, stat: &Stat) -> bool {
        (stat.st_dev, stat.st_ino) == self.inode
    }

    fn remove(&self) -> Result<(), Errno> {
        let folder = match self.folder.open() {
            // No descriptor is left for the folder.
            Err(Errno::MFILE | Errno::NFILE) if self.is_there() => {
                return rustix::fs::unlink(self.folder.path.join(&self.name));
            }
            folder => folder?,
        };
        // Another file's name is another's to remove.
        if self.is(&statat(&folder.fd, &self.name, AtFlags::SYMLINK_NOFOLLOW)?) {
            unlinkat(&folder.fd, &self.name, AtFlags::empty())?;
        }
        Ok(())
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity::is_forked() {
            return;
        }
        if let Err(errno) = self.remove()
            && errno != Errno::NOENT
        {
            log::warn!(
                target: "gpuipc::broker",
                "undo: removing {} in {} failed: {errno}",
                self.name,
                self.folder.path.display()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random() -> Endpoint {
        Endpoint(identity::random_bytes().expect("random bytes"))
    }

    #[test]
    fn a_start_disturbs_no_living_broker_and_removes_a_dead_one_s_name() {
        let path = std::env::temp_dir().join(format!("gpuipc-{}", random()));
        let folder = Folder::of_this_user(Some(&path));
        let start = || {
            folder
                .listen(random(), &Trust::SameUser)
                .expect("it listens")
        };
        let (living, living_file) = start();
        let (dead, dead_file) = start();
        // As if it had been killed: the name stays.
        let dead_path = path.join(&dead_file.name);
        core::mem::forget(dead_file);
        drop(dead);
        let newest = start();
        assert!(living_file.is_there());
        assert!(!dead_path.exists());
        // Three starts have looked at it, and it knows of none.
        assert_eq!(living.accept().map(drop), Err(Errno::AGAIN));
        drop((newest, living_file));
        std::fs::remove_dir(&path).expect("the folder is empty");
    }
}
