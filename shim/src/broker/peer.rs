//! Who is at the other end of a connection (SO_PEERCRED), and whether that user
//! is trusted. Both sides ask: the broker before it serves, the importer before
//! it sends its token.

use rustix::io::Errno;
use std::os::fd::AsFd;
use std::sync::OnceLock;

/// The other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    /// In this process's user namespace.
    pub(super) uid: u32,
    /// In this process's pid namespace; 0 from outside of it.
    pub(super) pid: u32,
}

impl Peer {
    pub(super) fn of(socket: impl AsFd) -> rustix::io::Result<Self> {
        // Asked through libc: the kernel answers pid 0 for a process outside of
        // this pid namespace, which is no valid `rustix::process::Pid`.
        let credentials = peer_credentials(socket)?;
        Ok(Self {
            uid: credentials.uid,
            pid: u32::try_from(credentials.pid).unwrap_or(0),
        })
    }

    /// Whether this is the same user, or root.
    pub(super) fn is_trusted(self) -> bool {
        trusts(
            self.uid,
            rustix::process::geteuid().as_raw(),
            overflow_uid(),
        )
    }

    /// Whether this is this very process.
    pub(super) fn is_self(self) -> bool {
        self.pid == std::process::id()
    }
}

/// The rule: the own user and root. A user that this namespace has no number
/// for shows up as the overflow uid, which says nothing about who it is, and is
/// equal to no one, not even to an own uid that is itself unmapped.
fn trusts(peer: u32, own: u32, overflow: Option<u32>) -> bool {
    Some(peer) != overflow && (peer == own || peer == 0)
}

/// The uid under which the kernel shows users without a number here; `None` in
/// a user namespace that has a number for everyone.
fn overflow_uid() -> Option<u32> {
    static OVERFLOW: OnceLock<Option<u32>> = OnceLock::new();
    *OVERFLOW.get_or_init(|| {
        let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        if maps_everyone(&map) {
            return None;
        }
        let text = std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
        // 65534 is the kernel's own default.
        Some(text.trim().parse().unwrap_or(65534))
    })
}

/// Whether a uid map has one line over all 2^32 - 1 users, as in the initial
/// namespace.
fn maps_everyone(map: &str) -> bool {
    map.split_whitespace().nth(2) == Some("4294967295")
}

#[allow(unsafe_code)]
fn peer_credentials(socket: impl AsFd) -> rustix::io::Result<libc::ucred> {
    use std::os::fd::AsRawFd;
    let mut credentials = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut length: libc::socklen_t = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open for the call; value and length are locals,
    // and the length is the value's own.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            core::ptr::from_mut(&mut credentials).cast(),
            &mut length,
        )
    };
    if result == 0 {
        return Ok(credentials);
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_user_and_root_are_trusted_and_no_other() {
        assert!(trusts(1000, 1000, Some(65534)));
        assert!(trusts(0, 1000, Some(65534)));
        assert!(!trusts(1001, 1000, Some(65534)));
        assert!(!trusts(1000, 0, None));
    }

    #[test]
    fn an_unmapped_user_equals_no_one() {
        assert!(!trusts(65534, 65534, Some(65534)));
        assert!(!trusts(65534, 0, Some(65534)));
    }

    #[test]
    fn user_nobody_is_an_ordinary_user_where_everyone_has_a_number() {
        assert!(trusts(65534, 65534, None));
        assert!(maps_everyone("         0          0 4294967295\n"));
        assert!(!maps_everyone("         0       1000          1\n"));
        assert!(!maps_everyone(""));
    }
}
