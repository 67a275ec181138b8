//! What a call can be made to answer.

/// The codes that CUDA's documentation names for the calls of the list, and
/// those that drivers were seen to give beside them.
pub(crate) const DRIVER_CODES: [u32; 23] = [
    1,   // INVALID_VALUE
    2,   // OUT_OF_MEMORY
    3,   // NOT_INITIALIZED
    4,   // DEINITIALIZED
    46,  // DEVICE_UNAVAILABLE
    100, // NO_DEVICE
    101, // INVALID_DEVICE
    201, // INVALID_CONTEXT
    205, // MAP_FAILED
    208, // ALREADY_MAPPED
    217, // PEER_ACCESS_UNSUPPORTED
    304, // OPERATING_SYSTEM
    400, // INVALID_HANDLE
    401, // ILLEGAL_STATE
    500, // NOT_FOUND
    700, // ILLEGAL_ADDRESS
    709, // CONTEXT_IS_DESTROYED
    711, // TOO_MANY_PEERS
    719, // LAUNCH_FAILED
    800, // NOT_PERMITTED
    801, // NOT_SUPPORTED
    802, // SYSTEM_NOT_READY
    999, // UNKNOWN
];

/// For where not all are tried: one that the library looks at, one that it
/// treats apart, one that it knows nothing of.
pub(crate) const FEW_CODES: [u32; 3] = [1, 2, 999];

/// The same for calls that undo: silent for the second.
pub(crate) const FEW_UNDO_CODES: [u32; 3] = [1, 4, 999];

/// For calls under another current context, where their other codes were tried already.
pub(crate) const ONE_CODE: [u32; 1] = [999];

/// Calls that give something back. When one of them fails, what it was to give
/// back stays, and there is nothing that a caller could do about it.
pub(crate) fn undoes(symbol: &str) -> bool {
    matches!(
        symbol,
        "cuMemUnmap"
            | "cuMemAddressFree"
            | "cuMemRelease"
            | "cuIpcCloseMemHandle"
            | "cuDevicePrimaryCtxRelease_v2"
            | "cuCtxPopCurrent_v2"
            | "cuMemFree_v2"
            | "cuMemPoolDestroy"
    )
}

/// System calls by the names that the helper process knows (a `+` joins those
/// that do the same on different machines), and what the kernel, or a
/// container's filter before it, may answer.
pub(crate) const SYSTEM_CALLS: &[(&str, &[i32])] = {
    use libc::{EACCES, EAGAIN, EINVAL, EMFILE, ENOMEM, ENOSYS, EPERM, ETOOMANYREFS};
    &[
        ("socket", &[EPERM, ENOSYS, EMFILE, ENOMEM, EACCES, EINVAL]),
        ("connect", &[EPERM, ENOSYS, EACCES, EINVAL, EAGAIN]),
        ("bind", &[EPERM, ENOSYS, ENOMEM, EACCES, EINVAL]),
        ("listen", &[EPERM, ENOSYS, EINVAL]),
        ("accept4", &[EPERM, ENOSYS, EMFILE, ENOMEM, EINVAL]),
        ("getsockopt", &[EPERM, ENOSYS, EMFILE, ENOMEM, EINVAL]),
        (
            "sendmsg",
            &[EPERM, ENOSYS, ENOMEM, EACCES, EINVAL, ETOOMANYREFS],
        ),
        ("recvmsg", &[EPERM, ENOSYS, EMFILE, ENOMEM, EINVAL]),
        ("poll+ppoll", &[EPERM, ENOSYS, ENOMEM, EINVAL]),
        ("ioctl", &[EPERM, ENOSYS, EINVAL]),
        ("pipe2", &[EPERM, ENOSYS, EMFILE, ENOMEM, EINVAL]),
        ("pidfd_open", &[EPERM, ENOSYS, EMFILE, ENOMEM, EINVAL]),
        ("pidfd_getfd", &[EPERM, ENOSYS, EMFILE, ENOMEM, EACCES]),
        ("pread64", &[EPERM, ENOSYS, EINVAL]),
        ("memfd_create", &[EPERM, ENOSYS, EMFILE, ENOMEM, EACCES]),
        ("mmap-shared", &[EPERM, ENOSYS, ENOMEM, EACCES, EINVAL]),
        ("madvise", &[EPERM, ENOSYS, ENOMEM, EINVAL]),
        ("fcntl", &[EPERM, ENOSYS, EMFILE, EACCES, EINVAL]),
        ("ftruncate", &[EPERM, ENOSYS, EINVAL]),
        ("fstat", &[EPERM, ENOSYS, ENOMEM, EACCES]),
        ("newfstatat", &[EPERM, ENOSYS, ENOMEM, EACCES]),
        ("statx", &[EPERM, ENOSYS, ENOMEM, EACCES]),
        ("fstat+newfstatat+statx", &[EPERM, ENOSYS, ENOMEM, EACCES]),
        ("openat", &[EPERM, ENOSYS, EMFILE, ENOMEM, EACCES, EINVAL]),
        ("getdents64", &[EPERM, ENOSYS, EINVAL]),
        ("link+linkat", &[EPERM, ENOSYS, ENOMEM, EACCES]),
        ("mkdir+mkdirat", &[EPERM, ENOSYS, ENOMEM, EACCES]),
        ("fchmod", &[EPERM, ENOSYS, ENOMEM, EACCES]),
        ("setsockopt", &[EPERM, ENOSYS, ENOMEM, EINVAL]),
        ("shutdown", &[EPERM, ENOSYS, EINVAL]),
        ("unlink+unlinkat", &[EPERM, ENOSYS, EACCES]),
        ("chmod+fchmodat", &[EPERM, ENOSYS, ENOMEM, EACCES]),
        // The standard library ends the process for any other answer.
        ("getrandom", &[EPERM, ENOSYS]),
        ("clone3", &[EPERM, ENOSYS]),
        ("clone+clone3", &[EPERM, ENOSYS, ENOMEM, EAGAIN]),
        ("rt_sigprocmask", &[EPERM, ENOSYS, EINVAL]),
        ("kill", &[EPERM, ENOSYS]),
    ]
};
