//! System calls made to fail: what a container's seccomp profile does.

use crate::NotOk;
use std::sync::{LazyLock, Mutex, PoisonError};

/// A system call as a filter sees it.
struct Call {
    name: &'static str,
    number: libc::c_long,
    /// Only with this in the argument of this index.
    only: Option<(u32, Value)>,
}

/// What an argument has.
#[derive(Clone, Copy)]
enum Value {
    Bit(u32),
    All(u32),
}

macro_rules! calls {
    ($($name:ident = $number:ident),* $(,)?) => {
        &[$(Call { name: stringify!($name), number: libc::$number, only: None }),*]
    };
}

/// The system calls of every machine that this runs on.
const CALLS: &[Call] = calls! {
    socket = SYS_socket, connect = SYS_connect, bind = SYS_bind, listen = SYS_listen,
    accept4 = SYS_accept4, getsockopt = SYS_getsockopt, sendmsg = SYS_sendmsg,
    recvmsg = SYS_recvmsg, ppoll = SYS_ppoll, ioctl = SYS_ioctl, pipe2 = SYS_pipe2,
    pidfd_open = SYS_pidfd_open, pidfd_getfd = SYS_pidfd_getfd, pread64 = SYS_pread64,
    memfd_create = SYS_memfd_create, madvise = SYS_madvise, fcntl = SYS_fcntl,
    ftruncate = SYS_ftruncate, fstat = SYS_fstat, newfstatat = SYS_newfstatat,
    statx = SYS_statx, openat = SYS_openat, linkat = SYS_linkat, mkdirat = SYS_mkdirat,
    fchmodat = SYS_fchmodat, fchmod = SYS_fchmod, setsockopt = SYS_setsockopt,
    shutdown = SYS_shutdown, unlinkat = SYS_unlinkat, getrandom = SYS_getrandom, clone = SYS_clone,
    clone3 = SYS_clone3, kill = SYS_kill, getdents64 = SYS_getdents64,
    rt_sigprocmask = SYS_rt_sigprocmask,
};

/// Those that newer machines do not have.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[Call] = calls! {
    poll = SYS_poll, mkdir = SYS_mkdir, chmod = SYS_chmod, link = SYS_link, unlink = SYS_unlink,
};
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[Call] = &[];

/// `mmap` of what is shared, the fourth argument of which says so. Private
/// memory is every program's.
const SHARED_MMAP: Call = Call {
    name: "mmap-shared",
    number: libc::SYS_mmap,
    only: Some((3, Value::Bit(libc::MAP_SHARED.cast_unsigned()))),
};

/// Calls with one argument of a certain value, of that index.
const CALLS_WITH: &[Call] = &[
    // SO_PASSRIGHTS, which kernels before 6.16 do not know.
    with("passrights", libc::SYS_setsockopt, 2, 83),
    with("wipe-on-fork", libc::SYS_madvise, 2, 18),
    with("add-seals", libc::SYS_fcntl, 1, 1033),
    with("get-seals", libc::SYS_fcntl, 1, 1034),
    // The length of the address of a broker's abstract name.
    with("bind-abstract", libc::SYS_bind, 2, 42),
    with("connect-abstract", libc::SYS_connect, 2, 42),
];

const fn with(name: &'static str, number: libc::c_long, argument: u32, value: u32) -> Call {
    Call {
        name,
        number,
        only: Some((argument, Value::All(value))),
    }
}

/// Makes system calls fail with this errno, in all threads and for good;
/// `names` has a `+` between two. Gives those that this machine has.
pub(crate) fn refuse(names: &str, errno: u32) -> Result<String, NotOk> {
    let mut known = Vec::new();
    for name in names.split('+') {
        let all = CALLS
            .iter()
            .chain(OLD_CALLS)
            .chain(CALLS_WITH)
            .chain([&SHARED_MMAP]);
        known.extend(all.filter(|call| call.name == name));
    }
    for call in &known {
        install(call, errno)?;
    }
    if known.iter().any(|call| call.name == "getrandom") {
        // The standard library opens /dev/urandom then, and keeps it.
        drop(place().take());
        let keys = || drop(std::hash::RandomState::new());
        // Threads may be refused, too.
        let _ = std::thread::Builder::new()
            .spawn(keys)
            .map(std::thread::JoinHandle::join);
    }
    let names: Vec<&str> = known.iter().map(|call| call.name).collect();
    Ok(names.join("+"))
}

/// A descriptor from the start on, in place of the one that the standard library opens
/// where `getrandom` is refused: the count stays.
pub(crate) fn place() -> std::sync::MutexGuard<'static, Option<std::fs::File>> {
    static PLACE: LazyLock<Mutex<Option<std::fs::File>>> =
        LazyLock::new(|| Mutex::new(std::fs::File::open("/dev/null").ok()));
    PLACE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[allow(unsafe_code)]
fn install(call: &Call, errno: u32) -> Result<(), NotOk> {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const HAS_BIT: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let statement = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter {
        code: u16::try_from(code).unwrap_or(0),
        jt,
        jf,
        k,
    };
    let number = u32::try_from(call.number).map_err(|_| NotOk::from("number"))?;
    // What the filter sees: the number, the machine, an address, then the
    // arguments, 64 bits each, the low half first.
    let low_half = 16 + 8 * call.only.map_or(0, |(argument, _)| argument);
    let has_it = match call.only {
        Some((_, Value::Bit(bit))) => statement(HAS_BIT, bit, 0, 1),
        Some((_, Value::All(value))) => statement(EQUAL, value, 0, 1),
        // Any argument will do.
        None => statement(HAS_BIT, 0, 0, 0),
    };
    let mut filter = [
        statement(LOAD, 0, 0, 0),
        statement(EQUAL, number, 0, 3),
        statement(LOAD, low_half, 0, 0),
        has_it,
        statement(RETURN, libc::SECCOMP_RET_ERRNO | errno, 0, 0),
        statement(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog {
        len: 6,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: only sets this process's no-new-privileges bit.
    let set = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the program points to six statements that outlive the call.
    let filtered = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &program,
        )
    };
    if set == 0 && filtered == 0 {
        Ok(())
    } else {
        Err("seccomp".into())
    }
}
