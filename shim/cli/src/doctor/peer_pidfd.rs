//! Whether the kernel gives a descriptor of the process at the other end of a
//! socket (SO_PEERPIDFD, Linux 6.5), tried on a pair of sockets of our own.
#![allow(unsafe_code)]

use super::check::Check;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Of Linux 6.5; the same number on x86-64 and aarch64.
const SO_PEERPIDFD: libc::c_int = 77;

const SUBJECT: &str = "SO_PEERPIDFD";

/// The finding.
pub(crate) fn check() -> Check {
    match try_it() {
        Ok(()) => Check::ok(
            SUBJECT,
            "an importer notices the end of its exporter, even if a forked child keeps the socket",
        ),
        Err(Errno::NOPROTOOPT) => Check::no(
            SUBJECT,
            "this kernel does not have it: an exporter's end may be noticed only when the timeout passes",
            "Linux 6.5 or newer, or a short GPUIPC_TIMEOUT_MS",
        ),
        Err(errno) => Check::unknown(SUBJECT, std::io::Error::from(errno).to_string()),
    }
}

fn try_it() -> rustix::io::Result<()> {
    let (socket, _other) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let mut pidfd: libc::c_int = -1;
    let mut length =
        libc::socklen_t::try_from(size_of::<libc::c_int>()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the socket is open for the call, the value is one int (a
    // descriptor's number), and `length` says how large it is.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut pidfd).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    if pidfd < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: the kernel opened this descriptor for this call; it is the
    // caller's to close, and nobody else knows it.
    drop(unsafe { OwnedFd::from_raw_fd(pidfd) });
    Ok(())
}
