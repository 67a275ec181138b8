//! Which of the broker's two names would be reached. Each is tried with a
//! socket like the broker's.

use super::check::Check;
use gpuipc::SOCKET_DIR_VARIABLE;
use gpuipc::sys::environment::variable;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The longest folder: a socket's path holds 107 bytes, of which the broker's
/// name takes 43.
const LONGEST_FOLDER: usize = 64;
/// A broker's name without its slash.
const NAME: usize = 42;

const ABSTRACT: &str = "broker, abstract name";
const FILE: &str = "broker, file name";

/// Both names.
pub(crate) fn checks() -> Vec<Check> {
    vec![abstract_name(), file_name()]
}

fn abstract_name() -> Check {
    let tried = SocketAddrUnix::new_abstract_name(name().as_bytes())
        .and_then(|address| meet(&address).map(drop));
    match tried {
        Ok(()) => Check::ok(
            ABSTRACT,
            format!(
                "reached by every process in this network namespace ({})",
                super::place::namespace("net")
            ),
        ),
        Err(errno) => Check::no(
            ABSTRACT,
            format!("a socket cannot listen or be reached: {}", text(errno)),
            "a container runtime's seccomp or AppArmor profile that allows Unix sockets",
        ),
    }
}

fn file_name() -> Check {
    let given = variable(SOCKET_DIR_VARIABLE).filter(|folder| !folder.is_empty());
    let (folder, whose) = match &given {
        Some(folder) => (PathBuf::from(folder), SOCKET_DIR_VARIABLE),
        None => {
            let uid = rustix::process::geteuid().as_raw();
            (
                PathBuf::from(format!("/dev/shm/gpuipc-{uid}")),
                "the default",
            )
        }
    };
    let shown = format!("{:?} ({whose})", folder.display().to_string());
    let bytes = folder.as_os_str().as_bytes().len();
    if bytes > LONGEST_FOLDER {
        return Check::no(
            FILE,
            format!("{shown}: its name has {bytes} bytes, {LONGEST_FOLDER} fit a socket's path"),
            format!("name a folder of at most {LONGEST_FOLDER} bytes by {SOCKET_DIR_VARIABLE}"),
        );
    }
    match try_folder(&folder, given.is_some()) {
        Ok(()) => Check::ok(
            FILE,
            format!("{shown}: reached by every process of a trusted user that sees this folder"),
        ),
        Err((what, errno)) => Check::no(
            FILE,
            format!("{shown}: {what}: {}", text(errno)),
            format!(
                "name a writable folder by {SOCKET_DIR_VARIABLE}, the same for exporter and importer (a volume that both \
                 containers mount); not needed in one network namespace"
            ),
        ),
    }
}

/// Makes the folder if need be, as the broker would, and meets in it.
fn try_folder(folder: &Path, given: bool) -> Result<(), (&'static str, Errno)> {
    let failed = |what: &'static str| {
        move |error: std::io::Error| (what, Errno::from_io_error(&error).unwrap_or(Errno::IO))
    };
    let made = match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => true,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => false,
        Err(error) => return Err(failed("the folder cannot be made")(error)),
    };
    let _made = made.then(|| Made(folder));
    let meta = std::fs::symlink_metadata(folder).map_err(failed("the folder cannot be seen"))?;
    let own = meta.is_dir()
        && meta.uid() == rustix::process::geteuid().as_raw()
        && meta.mode() & 0o022 == 0;
    if !given && !own {
        return Err((
            "the folder belongs to another user, or others may write to it",
            Errno::PERM,
        ));
    }
    // Begins as no broker's name does, and is as long.
    let path = folder.join(format!(".{:.<width$}", name(), width = NAME - 1));
    let address = SocketAddrUnix::new(&path).map_err(|errno| ("no socket's path", errno))?;
    let met = meet(&address);
    // It is there if the socket was bound.
    let _ = std::fs::remove_file(&path);
    met.map_err(|errno| ("a socket cannot listen or be reached in it", errno))
}

/// A folder that was made for the try.
struct Made<'a>(&'a Path);

impl Drop for Made<'_> {
    fn drop(&mut self) {
        // A broker may have moved in meanwhile.
        let _ = std::fs::remove_dir(self.0);
    }
}

/// Listens at an address and connects to it.
fn meet(address: &SocketAddrUnix) -> rustix::io::Result<()> {
    let listener = socket()?;
    bind(&listener, address)?;
    listen(&listener, 1)?;
    connect(socket()?, address)
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// A name that nobody else has.
fn name() -> String {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos());
    format!("doctor-{}-{:x}", std::process::id(), now & 0xffff_ffff)
}

fn text(errno: Errno) -> String {
    std::io::Error::from(errno).to_string()
}
