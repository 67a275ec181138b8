//! The broker's two names: an abstract one, and a file in a folder that other
//! network namespaces can share.
//!
//! Both end in the endpoint's 32 hex digits, which are random, so that nobody
//! can take a name before its owner. The file's name begins with the host's
//! boot id, so that in a folder shared between hosts each cleans up after
//! itself alone.

use crate::error::Error;
use crate::options::Trust;
use gpuipc_core::Endpoint;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How many connections the kernel keeps waiting.
const BACKLOG: i32 = 128;

/// The longest path that fits a socket's address (`sun_path` less its NUL).
const PATH_LIMIT: usize = 107;

/// An unconnected socket for broker messages.
pub(super) fn new_socket() -> rustix::io::Result<OwnedFd> {
    socket_of(SocketType::SEQPACKET)
}

fn socket_of(kind: SocketType) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, kind, flags, None)
}

/// The abstract address of a broker.
pub(super) fn abstract_address(endpoint: Endpoint) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(format!("gpuipc-{endpoint}").as_bytes())
}

/// Listens under the abstract name.
pub(super) fn listen_abstract(endpoint: Endpoint) -> Result<OwnedFd, Error> {
    let failed = |step| {
        move |errno: Errno| Error::BrokerStart {
            step,
            errno: errno.raw_os_error(),
            folder: None,
        }
    };
    let socket = new_socket().map_err(failed("socket"))?;
    let address = abstract_address(endpoint).map_err(failed("abstract name"))?;
    bind(&socket, &address).map_err(failed("bind of the abstract name"))?;
    listen(&socket, BACKLOG).map_err(failed("listen"))?;
    Ok(socket)
}

/// A folder for brokers' names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Folder {
    path: PathBuf,
    /// Whether the user named it; then it is used as it is.
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
    /// user named, or those of everyone whom it trusts.
    pub(super) fn where_to_look(given: Option<&Path>, trust: &Trust) -> Vec<Self> {
        if let Some(path) = given {
            return vec![Self {
                path: path.to_owned(),
                given: true,
            }];
        }
        let own = rustix::process::geteuid().as_raw();
        let mut users = BTreeSet::from([own, 0]);
        match trust {
            Trust::SameUser => {}
            Trust::Users(more) => users.extend(more),
            Trust::TokenAlone => users.extend(users_with_folders()),
        }
        users.into_iter().map(Self::of_user).collect()
    }

    /// The path of a broker's socket in this folder.
    pub(super) fn socket_path(&self, endpoint: Endpoint) -> Result<PathBuf, Error> {
        Ok(self.path.join(format!("{}-{endpoint}", boot_prefix()?)))
    }

    /// Makes the folder if need be, removes dead names of this host, and
    /// listens under a file name in it.
    pub(super) fn listen(
        &self,
        endpoint: Endpoint,
        trust: &Trust,
    ) -> Result<(OwnedFd, SocketFile), Error> {
        let failed = |step| {
            let folder = Some(self.path.clone());
            move |errno: Errno| Error::BrokerStart {
                step,
                errno: errno.raw_os_error(),
                folder,
            }
        };
        let path = self.socket_path(endpoint)?;
        // Bound under a name that no importer looks up and no sweep touches,
        // and linked to its own once it listens: a name that refuses is always
        // a dead one, and a link never takes the place of another's name.
        let early = self.path.join(format!(".{}-{endpoint}", boot_prefix()?));
        if early.as_os_str().len() > PATH_LIMIT {
            return Err(failed(
                "folder name too long (a socket's path holds 107 bytes, 43 of them the name)",
            )(Errno::NAMETOOLONG));
        }
        self.make(trust)
            .map_err(failed(
                "making or checking the folder (others must not be able to write to it, unless it is sticky)",
            ))?;
        self.sweep();
        let socket = new_socket().map_err(failed("socket"))?;
        let address = SocketAddrUnix::new(&early).map_err(failed("file name"))?;
        bind(&socket, &address).map_err(failed("bind of the file name"))?;
        let early = SocketFile { path: early };
        // Who may connect; whoever does is asked for the token all the same.
        let mode = if *trust == Trust::SameUser {
            0o600
        } else {
            0o666
        };
        rustix::fs::chmod(&early.path, mode.into()).map_err(failed("mode of the socket's name"))?;
        listen(&socket, BACKLOG).map_err(failed("listen"))?;
        rustix::fs::link(&early.path, &path).map_err(failed("link of the socket's name"))?;
        let file = SocketFile { path };
        Ok((socket, file))
    }

    /// Makes this user's folder, or checks the one that is there: a folder
    /// that another user made or can write to is not used.
    fn make(&self, trust: &Trust) -> rustix::io::Result<()> {
        let mode = if *trust == Trust::SameUser {
            0o700
        } else {
            0o711
        };
        let made = std::fs::DirBuilder::new().mode(mode).create(&self.path);
        if let Err(error) = made
            && error.kind() != std::io::ErrorKind::AlreadyExists
        {
            return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        }
        if self.given {
            let meta = std::fs::metadata(&self.path)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            // Where others may write and rename, a name is nobody's own.
            let open_to_all = meta.mode() & 0o022 != 0 && meta.mode() & 0o1000 == 0;
            return if open_to_all {
                Err(Errno::PERM)
            } else {
                Ok(())
            };
        }
        let meta = std::fs::symlink_metadata(&self.path)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        if !meta.is_dir()
            || meta.uid() != rustix::process::geteuid().as_raw()
            || meta.mode() & 0o022 != 0
        {
            return Err(Errno::PERM);
        }
        if *trust != Trust::SameUser && meta.mode() & 0o001 == 0 {
            // Others may look names up that they know, and list none.
            rustix::fs::chmod(&self.path, 0o711.into())?;
        }
        Ok(())
    }

    /// Removes the names of this host's brokers that are no more. Best effort.
    fn sweep(&self) {
        let Ok(boot) = boot_prefix() else { return };
        let Ok(entries) = std::fs::read_dir(&self.path) else {
            return;
        };
        for entry in entries.flatten() {
            let early = match kind_of_name(&entry, &boot) {
                Some(early) => early,
                None => continue,
            };
            // An early name is a file for a moment before its socket is bound to it.
            if (!early || is_old(&entry)) && is_dead(&entry.path()) {
                // Another sweep may have been first.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// Whether a folder's entry is a broker's name of this host and user, and then
/// whether it is an early one. Nothing else is ever touched.
fn kind_of_name(entry: &std::fs::DirEntry, boot: &str) -> Option<bool> {
    let name = entry.file_name();
    let name = name.to_str()?;
    let (early, name) = match name.strip_prefix('.') {
        Some(rest) => (true, rest),
        None => (false, name),
    };
    let endpoint = name.strip_prefix(boot)?.strip_prefix('-')?;
    let is_endpoint =
        endpoint.len() == 32 && endpoint.chars().all(|digit| digit.is_ascii_hexdigit());
    let meta = entry.metadata().ok()?;
    let is_ours = meta.file_type().is_socket() && meta.uid() == rustix::process::geteuid().as_raw();
    (is_endpoint && is_ours).then_some(early)
}

/// Whether a file was there a minute ago.
fn is_old(entry: &std::fs::DirEntry) -> bool {
    let changed = entry.metadata().and_then(|meta| meta.modified());
    changed.is_ok_and(|changed| {
        changed
            .elapsed()
            .is_ok_and(|age| age > std::time::Duration::from_secs(60))
    })
}

/// The users who have a folder in /dev/shm.
fn users_with_folders() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/dev/shm") else {
        return Vec::new();
    };
    let user = |name: std::ffi::OsString| name.to_str()?.strip_prefix("gpuipc-")?.parse().ok();
    entries
        .flatten()
        .filter_map(|entry| user(entry.file_name()))
        .collect()
}

/// Whether nobody listens at a socket's file any more.
///
/// Asked without a connection first: of many processes that start at once each sweeps,
/// and connections of theirs would take the places of importers. A socket of another type
/// is refused with EPROTOTYPE where one is bound, with ECONNREFUSED where none is
/// (`connect(2)`). A kernel that refuses both alike, as gVisor does, is asked again.
fn is_dead(path: &Path) -> bool {
    let refuses = |kind| connect(socket_of(kind)?, &SocketAddrUnix::new(path)?);
    [SocketType::DGRAM, SocketType::SEQPACKET]
        .into_iter()
        .all(|kind| refuses(kind) == Err(Errno::CONNREFUSED))
}

/// The host's boot id as the beginning of a file name: its first 32 bits.
fn boot_prefix() -> Result<String, Error> {
    let host = crate::identity::host_id()?;
    Ok(host.to_string().chars().take(8).collect())
}

/// A socket's name in the file system, removed on drop.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if !crate::identity::is_forked()
            && let Err(error) = std::fs::remove_file(&self.path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            log::warn!(target: "gpuipc::broker", "undo: removing {} failed: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::accept;

    fn random() -> Endpoint {
        Endpoint(crate::identity::random_bytes().expect("random bytes"))
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
        let dead_path = dead_file.path.clone();
        core::mem::forget(dead_file);
        drop(dead);
        let newest = start();
        assert!(living_file.path.exists());
        assert!(!dead_path.exists());
        // Three starts have looked at it, and it knows of none.
        assert_eq!(accept(&living).map(drop), Err(Errno::AGAIN));
        drop((newest, living_file));
        std::fs::remove_dir(&path).expect("the folder is empty");
    }
}
