//! The questions: a subject a file, and the list of sections.

mod contexts;
mod devices;
mod every_call;
mod gpus;
mod kinds;
mod legacy;
mod lifetimes;
mod pieces;
mod pointer;
mod threads;
mod views;
mod vmm;
mod wrong;

use crate::Choice;
use crate::call::{Ask, Got};
use crate::memory;
use crate::other::{Forked, Process, Thread};
use crate::raw::Raw;
use crate::rows::{Rows, code};

/// What a section has at hand.
#[derive(Debug)]
pub(crate) struct Scene {
    /// Where answers go.
    pub(crate) rows: Rows,
    /// This process.
    pub(crate) raw: Raw,
    /// Which driver other processes are to take.
    pub(crate) choice: Choice,
}

/// Questions on one subject, asked in a process of their own.
#[derive(Debug)]
pub(crate) struct Section {
    /// In front of each of its rows.
    pub(crate) name: &'static str,
    /// Asks them.
    pub(crate) run: fn(&Scene),
}

const fn section(name: &'static str, run: fn(&Scene)) -> Section {
    Section { name, run }
}

/// Every section, in the order of the rows. Two may have the same name: then
/// only their processes differ.
pub(crate) const SECTIONS: &[Section] = &[
    section("driver", devices::driver),
    section("before cuInit", every_call::before_init),
    section("device", devices::device),
    section("cuda-malloc", kinds::malloc),
    section("cuda-malloc 4 KiB", kinds::small_malloc),
    section("vmm", kinds::vmm),
    section("vmm-fd", kinds::vmm_fd),
    section("vmm-fabric", kinds::vmm_fabric),
    section("vmm-fd-fabric", kinds::vmm_fd_fabric),
    section("host-numa", kinds::host_numa),
    section("host-pinned", kinds::host_pinned),
    section("cuda-malloc imported", legacy::imported),
    section("cuda-malloc imported, flags 0", legacy::without_flag),
    section("cuda-malloc 4 KiB imported", legacy::small),
    section("cuda-malloc imported, wrong end", legacy::wrong_end),
    section("cuda-malloc, same process", legacy::same_process),
    section("vmm-fd imported", vmm::imported),
    section("vmm-fd imported, rights", vmm::rights),
    section("vmm-fd, same process", vmm::same_process),
    section("host-numa imported", vmm::host_numa),
    section(
        "host-numa imported, no rights",
        vmm::host_numa_without_rights,
    ),
    section("wrong handles", wrong::handles),
    section("wrong pointers", wrong::pointers),
    section("wrong pointers, copies", wrong::copies),
    section("wrong sizes", wrong::sizes),
    section("pieces", pieces::pieces),
    section("pieces, rights", pieces::rights),
    section("alias and remapping", pieces::alias),
    section("no current context", every_call::no_context),
    section("a thread without context", every_call::other_thread),
    section("forked child", every_call::forked),
    section("contexts", contexts::stack),
    section("primary context", contexts::primary),
    section("primary context gone", every_call::context_gone),
    section("primary context gone, memory", contexts::memory_after),
    section("primary context gone, importer", contexts::importer),
    section("primary context gone, exporter", contexts::exporter),
    section("threads", threads::threads),
    section("lifetimes, freed", lifetimes::freed),
    section("lifetimes, freed while open", lifetimes::freed_while_open),
    section("lifetimes, address again", lifetimes::address_again),
    section("lifetimes, exporter ends", lifetimes::exporter_ends),
    section("lifetimes, exporter killed", lifetimes::exporter_killed),
    section("lifetimes, vmm", lifetimes::vmm),
    section("visible devices", views::views),
    section("two GPUs", gpus::peers),
    section("two GPUs, legacy", gpus::legacy),
    section("two GPUs, vmm", gpus::vmm),
    section("two GPUs, vmm without rights", gpus::without_rights),
    section("two GPUs, contexts", gpus::contexts),
    section("other GPU's context", every_call::other_context),
];

impl Scene {
    /// Initializes the driver here with a GPU's primary context; gives the context.
    fn ready(&self, device: i32) -> Option<u64> {
        self.set_up("context", memory::ready(&self.raw, device))
    }

    /// What a section cannot do without: a row if it is not there.
    fn set_up<T>(&self, what: &str, got: Got<T>) -> Option<T> {
        if got.is_err() {
            self.rows.row(format!("set-up: {what}"), code(&got));
        }
        got.ok()
    }

    fn started<T, E: std::fmt::Display>(&self, what: &str, started: Result<T, E>) -> Option<T> {
        match started {
            Ok(started) => Some(started),
            Err(error) => {
                self.rows.row(format!("set-up: {what}"), error.to_string());
                None
            }
        }
    }

    /// Another process, with a GPU's primary context current.
    fn process(&self, device: i32) -> Option<Process> {
        let process = self.started("process", Process::start(self.choice))?;
        let ready = memory::ready(&process, device);
        self.set_up("context of the other process", ready)?;
        Some(process)
    }

    /// Another process that sees these GPUs only, not yet initialized.
    fn process_seeing(&self, visible: &str) -> Option<Process> {
        self.started("process", Process::seeing(self.choice, visible))
    }

    /// A child forked from this process.
    fn fork(&self) -> Option<Forked> {
        self.started("child", Forked::new(self.raw))
    }

    /// Another thread.
    fn thread(&self) -> Thread {
        Thread::start(self.raw)
    }

    /// Whether there is a second GPU to ask about.
    fn has_two_gpus(&self) -> bool {
        self.raw.init(0).is_ok() && self.raw.device_count().is_ok_and(|count| count >= 2)
    }
}
