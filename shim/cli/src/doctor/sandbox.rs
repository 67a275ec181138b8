//! What a sandbox may refuse. Each is done without; what is lost then is in
//! `docs/sandboxes.md`.
#![allow(unsafe_code)]

use super::check::Check;
use gpuipc::HOST_ID_VARIABLE;
use gpuipc::core::HostId;
use gpuipc::sys::environment::variable;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

/// Bytes of the export table.
const TABLE_BYTES: u64 = 2 << 20;

pub(crate) fn checks() -> Vec<Check> {
    vec![host(), table(), fork(), thread()]
}

/// Which host this is.
fn host() -> Check {
    let subject = "host id";
    let named = variable(HOST_ID_VARIABLE).filter(|value| !value.is_empty());
    match (gpuipc::host_id(), named) {
        (Err(error), _) => Check::no(
            subject,
            error.to_string(),
            format!("give {HOST_ID_VARIABLE} the same name in all processes of this host, or unset it"),
        ),
        (Ok(host), Some(name)) => Check::ok(subject, format!("{host}: {HOST_ID_VARIABLE} is {name:?}")),
        (Ok(host), None) if host == HostId::default() => Check::no(
            subject,
            "unknown: /proc/sys/kernel/random/boot_id cannot be read; importers need the broker, or a fabric handle",
            format!(
                "make /proc/sys readable (systemd: not ProcSubset=pid), or set {HOST_ID_VARIABLE} to the same name in \
                 exporter and importer"
            ),
        ),
        (Ok(host), None) => Check::ok(subject, format!("{host}: the kernel's boot id")).cure(format!(
            "where a process on this machine sees another one (gVisor, systemd-nspawn): {HOST_ID_VARIABLE} on both sides"
        )),
    }
}

/// The sealed file in memory by which descriptors are fetched without the broker.
fn table() -> Check {
    let subject = "export table";
    let noexec = std::fs::read_to_string("/proc/sys/vm/memfd_noexec");
    let noexec = noexec.map_or("unknown".to_owned(), |text| text.trim().to_owned());
    match try_table() {
        Ok(()) => Check::ok(
            subject,
            format!("a sealed file in memory can be made (vm.memfd_noexec: {noexec})"),
        ),
        Err((what, errno)) => Check::no(
            subject,
            format!(
                "{what}: {}; importers get descriptors from the broker alone",
                std::io::Error::from(errno)
            ),
            "a seccomp profile that allows memfd_create and its seals; ulimit -f of at least 2 MiB \
             (LimitFSIZE= in the service); not needed where the broker can be reached",
        ),
    }
}

fn try_table() -> Result<(), (&'static str, Errno)> {
    let limit = getrlimit(Resource::Fsize).current;
    if limit.is_some_and(|limit| limit < TABLE_BYTES) {
        return Err(("RLIMIT_FSIZE is below 2 MiB", Errno::FBIG));
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("gpuipc-doctor", flags).map_err(|errno| ("memfd_create", errno))?;
    ftruncate(&file, TABLE_BYTES).map_err(|errno| ("its size", errno))?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    fcntl_add_seals(&file, seals).map_err(|errno| ("its seals", errno))
}

/// How a forked child is known.
fn fork() -> Check {
    let subject = "forked children";
    match try_wipe() {
        Ok(()) => Check::ok(
            subject,
            "are known by a page that the kernel wipes (MADV_WIPEONFORK)",
        ),
        Err(errno) => Check::note(
            subject,
            format!(
                "are known by a fork handler: madvise(MADV_WIPEONFORK): {}",
                std::io::Error::from(errno)
            ),
        )
        .cure("Linux 4.14; only a child of a bare clone(2), which runs no handlers, is not known"),
    }
}

fn try_wipe() -> Result<(), Errno> {
    let size = rustix::param::page_size();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new private mapping wherever the kernel likes replaces nothing.
    let page = unsafe {
        rustix::mm::mmap_anonymous(core::ptr::null_mut(), size, protection, MapFlags::PRIVATE)
    }?;
    // SAFETY: exactly the mapping made above, which holds nothing.
    let wiped = unsafe { rustix::mm::madvise(page, size, Advice::LinuxWipeOnFork) };
    // SAFETY: exactly the mapping made above, which nobody else knows.
    unsafe { rustix::mm::munmap(page, size) }?;
    wiped
}

/// The broker is a thread.
fn thread() -> Check {
    let subject = "threads";
    let started = std::thread::Builder::new().spawn(|| {});
    match started.map(std::thread::JoinHandle::join) {
        Ok(_) => Check::ok(subject, "one can be started, for the broker"),
        Err(error) => Check::no(
            subject,
            format!("none can be started: {error}; there is no broker"),
            "a seccomp profile that allows clone, or a larger limit of processes (ulimit -u, pids.max of the cgroup)",
        ),
    }
}
