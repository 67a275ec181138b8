//! Features that the system refuses and the library does without. Each is logged once,
//! with what is lost and the cure. `docs/sandboxes.md` lists them.

use core::fmt::Display;
use core::sync::atomic::{AtomicBool, Ordering};

/// Something that can be refused.
pub(crate) struct Loss {
    refused: &'static str,
    lost: &'static str,
    cure: &'static str,
    told: AtomicBool,
}

impl Loss {
    const fn new(refused: &'static str, lost: &'static str, cure: &'static str) -> Self {
        Self {
            refused,
            lost,
            cure,
            told: AtomicBool::new(false),
        }
    }
}

pub(crate) static WIPE_ON_FORK: Loss = Loss::new(
    "madvise(MADV_WIPEONFORK) is refused",
    "a child of a bare clone(2) is not known from its parent; of fork() it is",
    "Linux 4.14, or nothing if nobody calls clone(2) and goes on without exec",
);

pub(crate) static BOOT_ID: Loss = Loss::new(
    "no boot id (/proc/sys/kernel/random/boot_id)",
    "this process does not know its host: importers need the exporter's broker, or a fabric handle",
    "make /proc/sys readable, or give GPUIPC_HOST_ID the same value in exporter and importer",
);

pub(crate) static BROKER: Loss = Loss::new(
    "there is no broker",
    "what needs none is exported: legacy and fabric handles, and descriptors that stay open, for \
     importers that may ptrace this process",
    "allow AF_UNIX sockets, one of the two names (GPUIPC_SOCKET_DIR), and a thread",
);

pub(crate) static TABLE: Loss = Loss::new(
    "no export table",
    "importers get descriptors from the broker alone",
    "see what is refused: memfd_create, its seals, or RLIMIT_FSIZE (ulimit -f) below 2 MiB",
);

/// Says once a process that something is refused. Where the caller holds no lock: a
/// logger may use the library.
pub(crate) fn tell(loss: &Loss, error: &dyn Display) {
    if let Some(text) = text(loss, error) {
        log::warn!(target: "gpuipc::broker", "{text}");
    }
}

/// What there is to say; nothing the second time.
pub(crate) fn text(loss: &Loss, error: &dyn Display) -> Option<String> {
    let Loss {
        refused,
        lost,
        cure,
        told,
    } = loss;
    let is_new = !told.swap(true, Ordering::Relaxed);
    is_new.then(|| format!("{refused}: {error}; {lost}; cure: {cure}"))
}
