//! The questions: a subject a file, and the list of sections.

mod captures;
mod contexts;
mod devices;
mod every_call;
mod gpus;
mod host;
mod kinds;
mod legacy;
mod lifetimes;
mod pieces;
mod pointer;
mod pools;
mod side_by_side;
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
    section("managed", kinds::managed),
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
    section("two GPUs, legacy handle", gpus::legacy_handle),
    section("imported side by side", side_by_side::imported),
    section("pool", pools::owner::pool),
    section("pool, freed", pools::owner::freed),
    section("pool, default", pools::owner::default),
    section("pool, no handle type", pools::owner::without_type),
    section("pool, creation", pools::owner::creation),
    section("pool, same process", pools::owner::same_process),
    section("pool, imported into itself", pools::owner::into_itself),
    section("pool, no current context", pools::calls::no_current),
    section("pool, no context at all", pools::calls::no_context_at_all),
    section("pool imported", pools::imported::pool),
    section("pool imported, frees", pools::imported::frees),
    section("pool imported, twice", pools::imported::twice),
    section("pool imported, another pool", pools::imported::another_pool),
    section("pool imported, destroyed", pools::ends::destroyed),
    section("pool imported, freed in order", pools::ends::free_async),
    section("pool imported, wrong end", pools::ends::wrong),
    section("pool imported, read-only", pools::rights::read_only),
    section(
        "pool imported, read-only first",
        pools::rights::read_only_first,
    ),
    section("pool lifetimes, freed", pools::lifetimes::freed),
    section(
        "pool lifetimes, address again",
        pools::lifetimes::address_again,
    ),
    section("pool lifetimes, destroyed", pools::lifetimes::destroyed),
    section(
        "pool lifetimes, destroyed while imported",
        pools::lifetimes::destroyed_while_imported,
    ),
    section(
        "pool lifetimes, exporter ends",
        pools::lifetimes::exporter_ends,
    ),
    section(
        "pool lifetimes, exporter killed",
        pools::lifetimes::exporter_killed,
    ),
    section(
        "pool lifetimes, exporter gone",
        pools::lifetimes::exporter_gone,
    ),
    section("two GPUs, pool imported", pools::gpus::imported),
    section("two GPUs, own pool", pools::gpus::own),
    section("two GPUs, pool of an unseen GPU", pools::gpus::unseen),
    section("capture", captures::calls),
    section("capture, blocking stream", captures::blocking),
    section("capture, pool", captures::pools),
    // What may end a process or break a context comes last.
    section("host-numa, CPU", host::owner),
    section("host-numa imported, CPU", host::both),
    section("host-numa imported, CPU one by one", host::one_by_one),
    section("host-numa imported, CPU only", host::node_only),
    section("host-numa imported, CPU as host", host::with_host),
    section("host-numa imported, CPU read-only", host::read_only),
    section("pool imported, past the end", pools::imported::past_the_end),
    section(
        "pool imported, read after free",
        pools::imported::read_after_free,
    ),
    section(
        "pool imported, zeros for a pointer",
        pools::imported::no_bytes,
    ),
    section(
        "pool imported, a changed pointer",
        pools::imported::changed_bytes,
    ),
    section("pool imported, no rights", pools::rights::none),
    section("two GPUs, pool without rights", pools::gpus::without_rights),
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
