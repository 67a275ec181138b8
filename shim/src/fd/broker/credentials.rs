//! The user at the other end of a connection (SO_PEERCRED), and whether that user is
//! trusted. The broker checks it before it serves, the importer before it sends its
//! token.
#![allow(unsafe_code)]

use crate::options::Trust;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// The other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PeerCredentials {
    /// In this process's user namespace.
    pub(super) uid: u32,
    /// In this process's pid namespace; 0 from outside of it.
    pub(super) pid: u32,
}

impl PeerCredentials {
    pub(super) fn of(socket: impl AsFd) -> rustix::io::Result<Self> {
        // Asked through libc: the kernel answers pid 0 for a process outside of
        // this pid namespace, which is no valid `rustix::process::Pid`.
        let credentials = peer_credentials(socket)?;
        Ok(Self {
            uid: credentials.uid,
            pid: u32::try_from(credentials.pid).unwrap_or(0),
        })
    }

    /// Whether this user is trusted.
    pub(super) fn is_trusted(self, trust: &Trust) -> bool {
        trusts_user(trust, self.uid)
    }

    /// Whether this is this very process.
    pub(super) fn is_self(self) -> bool {
        self.pid == std::process::id()
    }
}

/// Whether a user with this uid, as this user namespace numbers it, is trusted.
pub(crate) fn trusts_user(trust: &Trust, uid: u32) -> bool {
    trusts(
        trust,
        uid,
        rustix::process::geteuid().as_raw(),
        overflow_uid(),
    )
}

/// The rule: the own user, root, and whom the policy adds. A user that this
/// namespace has no number for shows up as the overflow uid, which says nothing
/// about who it is, and is equal to no one, not even to an own uid that is
/// itself unmapped.
fn trusts(trust: &Trust, user: u32, own: u32, overflow: Option<u32>) -> bool {
    let known = Some(user) != overflow;
    match trust {
        Trust::SameUser => known && (user == own || user == 0),
        Trust::Users(more) => known && (user == own || user == 0 || more.contains(&user)),
        Trust::TokenAlone => true,
    }
}

/// Whether a folder of this user's may hold a broker's name. Such a user can take the
/// name away, and no more: who listens at it is asked in any case. One without a
/// number here, as root of the host is in many containers, may.
pub(super) fn may_own_folder(trust: &Trust, uid: u32) -> bool {
    let trust = match trust {
        Trust::TokenAlone => &Trust::SameUser,
        trust => trust,
    };
    Some(uid) == overflow_uid() || trusts_user(trust, uid)
}

/// The uid under which the kernel shows users without a number here; `None` in
/// a user namespace that has a number for everyone.
fn overflow_uid() -> Option<u32> {
    static OVERFLOW: OnceLock<Option<u32>> = OnceLock::new();
    /// The kernel's own.
    const DEFAULT: Option<u32> = Some(65534);
    if let Some(known) = OVERFLOW.get() {
        return *known;
    }
    // What cannot be read now, for want of a descriptor perhaps, is asked again.
    let Ok(map) = std::fs::read_to_string("/proc/self/uid_map") else {
        return DEFAULT;
    };
    let overflow = if maps_everyone(&map) {
        None
    } else {
        match std::fs::read_to_string("/proc/sys/kernel/overflowuid") {
            Ok(text) => text.trim().parse().ok().or(DEFAULT),
            Err(_) => return DEFAULT,
        }
    };
    *OVERFLOW.get_or_init(|| overflow)
}

/// Whether a uid map has one line over all 2^32 - 1 users, as in the initial
/// namespace.
fn maps_everyone(map: &str) -> bool {
    map.split_whitespace().nth(2) == Some("4294967295")
}

fn peer_credentials(socket: impl AsFd) -> rustix::io::Result<libc::ucred> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    socket_option(socket, libc::SO_PEERCRED, &mut credentials)?;
    Ok(credentials)
}

/// A descriptor of the process at the other end (SO_PEERPIDFD), which becomes
/// readable when that process ends. `None` on kernels before 6.5.
///
/// # Errors
/// `ESRCH` if the process has ended already.
pub(super) fn peer_process(socket: impl AsFd) -> rustix::io::Result<Option<OwnedFd>> {
    /// Of Linux 6.5; the same number on x86-64 and aarch64.
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut pidfd: libc::c_int = -1;
    match socket_option(socket, SO_PEERPIDFD, &mut pidfd) {
        // SAFETY: the kernel opened this descriptor for this call; it belongs to
        // the caller, and nobody else knows it.
        Ok(()) if pidfd >= 0 => Ok(Some(unsafe { OwnedFd::from_raw_fd(pidfd) })),
        Ok(()) | Err(Errno::NOPROTOOPT) => Ok(None),
        // How a process that has been reaped is told differs by kernel.
        Err(Errno::SRCH | Errno::INVAL | Errno::NODATA) => Err(Errno::SRCH),
        Err(errno) => Err(errno),
    }
}

/// Whether descriptors may be sent over this socket to its owner (SO_PASSRIGHTS). A
/// connection inherits it from the listener that accepts it.
///
/// # Errors
/// `ENOPROTOOPT` on kernels before 6.16: there they always may.
pub(super) fn take_descriptors(socket: impl AsFd, take: bool) -> rustix::io::Result<()> {
    /// The same number on x86-64 and aarch64.
    const SO_PASSRIGHTS: libc::c_int = 83;
    let value = libc::c_int::from(take);
    // SAFETY: the descriptor is open for the call, and the value is one int, as the
    // option wants.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            core::ptr::from_ref(&value).cast(),
            4,
        )
    };
    if result == 0 {
        return Ok(());
    }
    Err(last_errno())
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// `getsockopt` at level SOL_SOCKET of a plain value.
fn socket_option<T: Copy>(
    socket: impl AsFd,
    option: libc::c_int,
    value: &mut T,
) -> rustix::io::Result<()> {
    let mut length = libc::socklen_t::try_from(size_of::<T>()).map_err(|_| Errno::INVAL)?;
    let out = core::ptr::from_mut(value).cast();
    // SAFETY: the descriptor is open for the call, `out` points to `length`
    // bytes, and both callers ask for options whose value is of their `T`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            out,
            &mut length,
        )
    };
    if result == 0 {
        return Ok(());
    }
    Err(last_errno())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAME: Trust = Trust::SameUser;

    #[test]
    fn the_own_user_and_root_are_trusted_and_no_other() {
        assert!(trusts(&SAME, 1000, 1000, Some(65534)));
        assert!(trusts(&SAME, 0, 1000, Some(65534)));
        assert!(!trusts(&SAME, 1001, 1000, Some(65534)));
        assert!(!trusts(&SAME, 1000, 0, None));
    }

    #[test]
    fn an_unmapped_user_equals_no_one() {
        assert!(!trusts(&SAME, 65534, 65534, Some(65534)));
        assert!(!trusts(&SAME, 65534, 0, Some(65534)));
    }

    #[test]
    fn user_nobody_is_an_ordinary_user_where_everyone_has_a_number() {
        assert!(trusts(&SAME, 65534, 65534, None));
        assert!(maps_everyone("         0          0 4294967295\n"));
        assert!(!maps_everyone("         0       1000          1\n"));
        assert!(!maps_everyone(""));
    }

    #[test]
    fn a_list_adds_users_and_the_token_alone_everyone() {
        let list = Trust::Users(vec![1001]);
        assert!(trusts(&list, 1001, 1000, Some(65534)));
        assert!(trusts(&list, 1000, 1000, Some(65534)));
        assert!(!trusts(&list, 1002, 1000, Some(65534)));
        assert!(!trusts(
            &Trust::Users(vec![65534]),
            65534,
            1000,
            Some(65534)
        ));
        assert!(trusts(&Trust::TokenAlone, 65534, 1000, Some(65534)));
    }
}
