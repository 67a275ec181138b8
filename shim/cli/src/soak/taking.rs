//! What an importing thread does: imports, compares every byte, unmaps; and asks for
//! what is gone.

use super::actor::Actor;
use super::giving::Group;
use super::notice::Disturbance;
use super::offer::{Body, Offer};
use super::tally::Deed;
use crate::driver::Kind;
use crate::pattern::{self, Source};
use gpuipc::{
    Access, Error, GpuIpcMem, GpuIpcMemHandle, HandleType, ImportOptions, Ipc, Liveness, Memory,
    RegisteredMemory, Used,
};
use std::time::{Duration, Instant, SystemTime};

/// An import may take this much longer than its deadline: driver calls do not count,
/// and the machine may have better to do.
const SLACK: Duration = Duration::from_secs(10);

/// Imported memory.
#[derive(Debug)]
pub(super) struct Mapping {
    offer: Offer,
    held: Held,
    read_only: bool,
    /// This process had mapped the same allocation before: windows share a mapping.
    is_second: bool,
}

#[derive(Debug)]
enum Held {
    Memory(GpuIpcMem),
    Registered(Box<RegisteredMemory>),
}

impl Mapping {
    /// `None` where it is registered memory of the own process: a bare pointer.
    const fn memory(&self) -> Option<&GpuIpcMem> {
        match &self.held {
            Held::Memory(memory) => Some(memory),
            Held::Registered(registered) => registered.mapping(),
        }
    }

    fn used(&self) -> Used {
        self.memory()
            .map_or(Used::SameProcess, GpuIpcMem::type_used)
    }

    /// Whether it holds a reference, so that its bytes stay whatever their owner does.
    fn is_referenced(&self) -> bool {
        matches!(
            self.used(),
            Used::Type(HandleType::PosixFd | HandleType::Fabric)
        ) && self.offer.memory != Memory::Pool
    }
}

/// Bytes that were read.
struct Bytes<'a>(&'a [u8]);

impl Source for Bytes<'_> {
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        to.copy_from_slice(&self.0[offset..offset + to.len()]);
        Ok(())
    }
}

impl Actor {
    /// Imports something on offer.
    pub(super) fn take(&mut self) {
        let Some(offer) = self.something_on_offer() else {
            return;
        };
        if self.seen.len() == super::actor::MOST_SEEN {
            let index = self.dice.below(self.seen.len());
            self.seen.swap_remove(index);
        }
        self.seen.push(offer.clone());
        let deed = match (&offer.body, offer.who == self.stage.who) {
            (Body::Registered(_), _) => Deed::Deserialize,
            (Body::Handles(_), true) => Deed::ImportOwn,
            (Body::Handles(_), false) => Deed::Import,
        };
        let Some(mapping) = self.import(deed, offer) else {
            return;
        };
        self.mappings.push(mapping);
        let newest = self.mappings.len() - 1;
        self.verify_at(newest);
        if self.mappings[newest].read_only {
            self.write_at(newest);
        }
    }

    /// Imports what its owner has let go of: that must fail, or lead to what it was
    /// where a reference or a neighbour on offer keeps it.
    pub(super) fn take_what_is_gone(&mut self) {
        // As in `something_on_offer`.
        let is_free = |offer: &Offer| self.stage.kind != Kind::Cuda || offer.who != self.stage.who;
        let over = |offer: &&Offer| is_free(offer) && offer.is_over(&self.stage.ground);
        let Some(offer) = self.seen.iter().find(over).cloned() else {
            return self.take();
        };
        let begun = SystemTime::now();
        let name = offer.name();
        self.seen.retain(|seen| seen.name() != name);
        let Some(mapping) = self.import(Deed::ImportStale, offer) else {
            return;
        };
        if !mapping.is_referenced() {
            self.judge_stale(&mapping, begun);
            self.let_go(mapping);
            return;
        }
        self.mappings.push(mapping);
        let newest = self.mappings.len() - 1;
        self.verify_at(newest);
    }

    /// What keeps no reference may be mapped after its end by a process that has it
    /// mapped still, and where nobody could be asked.
    fn judge_stale(&self, mapping: &Mapping, begun: SystemTime) {
        let liveness = mapping.memory().map(GpuIpcMem::liveness);
        let (own, exporter) = self.stage.disturbed(Some(&mapping.offer), begun);
        let disturbed = own.and(exporter).has_any(&[
            Disturbance::Kill,
            Disturbance::Stop,
            Disturbance::Descriptors,
        ]);
        let is_said_to_be_good = liveness == Some(Liveness::MemoryUnchanged);
        if !mapping.is_second && (is_said_to_be_good || !disturbed) {
            self.fail(&format!(
                "{} ({}), which is freed, was mapped by {} ({liveness:?})",
                mapping.offer.name(),
                mapping.offer.memory,
                mapping.used()
            ));
        }
    }

    /// Asks what an import would do.
    pub(super) fn ask(&mut self) {
        let Some(offer) = self.something_on_offer() else {
            return;
        };
        let Body::Handles(handles) = &offer.body else {
            return;
        };
        let Some(ipc) = self.ipc(Deed::CanImport) else {
            return;
        };
        self.begin(Deed::CanImport, &offer.name());
        let (options, _) = self.options(&offer);
        let outlook = ipc.can_import(handles, &options);
        if outlook.is_importable() {
            self.stage.counting.done(Deed::CanImport);
        } else {
            self.stage.counting.refused(Deed::CanImport);
        }
    }

    fn import(&mut self, deed: Deed, offer: Offer) -> Option<Mapping> {
        let ipc = self.ipc(deed)?;
        let (options, read_only) = self.options(&offer);
        let timeout = Duration::from_millis(self.dice.between(1500, 4000));
        let options = options.timeout(timeout);
        self.begin(deed, &format!("{} {}", offer.name(), offer.memory));
        let is_second = self.stage.hold(&offer.group);
        let (begun, start) = (SystemTime::now(), Instant::now());
        let held = match &offer.body {
            Body::Handles(handles) => ipc.import(handles, &options).map(Held::Memory),
            Body::Registered(bytes) => deserialize(&ipc, bytes, &options),
        };
        let took = start.elapsed();
        let (own, _) = self.stage.disturbed(None, begun);
        if took > timeout + SLACK && !own.has(Disturbance::Stop) {
            self.fail(&format!(
                "the import of {} was to take {timeout:?}, and took {took:?}",
                offer.name()
            ));
        }
        let Some(held) = self.judge(deed, Some(&offer), begun, held) else {
            self.stage.release(&offer.group);
            return None;
        };
        Some(Mapping {
            offer,
            held,
            read_only,
            is_second,
        })
    }

    /// How it is imported, and whether for reading only.
    fn options(&mut self, offer: &Offer) -> (ImportOptions, bool) {
        let mut options = ImportOptions::default()
            .host_access(offer.memory == Memory::HostNuma)
            .require_live(self.dice.one_in(8));
        if let Body::Handles(handles) = &offer.body {
            let types = handles.first().map(GpuIpcMemHandle::types);
            let types = types.map_or_else(Vec::new, |types| types.types().into_iter().collect());
            if self.dice.one_in(2) && handles.len() == 1 && !types.is_empty() {
                options = options.types(&[types[self.dice.below(types.len())]]);
            }
        }
        let can_be = !matches!(offer.memory, Memory::CudaMalloc | Memory::Pool);
        let read_only = can_be && self.dice.one_in(5);
        if read_only {
            options = options.access(Access::ReadOnly);
        }
        (options, read_only)
    }

    fn something_on_offer(&mut self) -> Option<Offer> {
        let begun = SystemTime::now();
        let own = format!("{}-", self.stage.who);
        let wants_own = self.dice.one_in(6);
        let entries = std::fs::read_dir(self.stage.ground.offers());
        let mut names: Vec<String> = self
            .judge_file("the offers", begun, entries)?
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| !name.starts_with('.') && name.starts_with(&own) == wants_own)
            .collect();
        if wants_own && self.stage.kind == Kind::Cuda {
            // A real driver does not survive that one thread asks for access to memory
            // that another one unmaps (SIGSEGV in cuMemSetAccess, driver 580).
            let held = |name: &String| self.groups.iter().any(|group| group.offers(name));
            names.retain(held);
        }
        if names.is_empty() {
            return None;
        }
        names.sort_unstable();
        let name = &names[self.dice.below(names.len())];
        // It may be gone by now.
        let text = std::fs::read(self.stage.ground.offers().join(name)).ok()?;
        let offer = Offer::decode(&text);
        if offer.is_none() {
            self.fail(&format!("{name}: a file of another form"));
        }
        offer
    }

    /// Compares the bytes of some mapping.
    pub(super) fn verify(&mut self) {
        if !self.mappings.is_empty() {
            let index = self.dice.below(self.mappings.len());
            self.verify_at(index);
        }
    }

    /// What holds a reference must have its bytes, whatever became of the offer; a
    /// legacy mapping, one of a pool's memory and the own process's pointer only as
    /// long as their owner keeps the memory.
    fn verify_at(&self, index: usize) {
        let mapping = &self.mappings[index];
        let Some(memory) = mapping.memory() else {
            return;
        };
        let offer = &mapping.offer;
        // The own process's pointer only where no other thread frees it meanwhile.
        let own = |group: &Group| group.is(&offer.group);
        if mapping.used() == Used::SameProcess && !self.groups.iter().any(own) {
            return;
        }
        self.begin(
            Deed::Verify,
            &format!("{} by {}", offer.name(), mapping.used()),
        );
        let begun = SystemTime::now();
        if memory.len() != offer.len {
            return self.fail(&format!(
                "{} has {} bytes instead of {}",
                offer.name(),
                memory.len(),
                offer.len
            ));
        }
        let mut bytes = vec![0; memory.len()];
        let read = memory.read(0, &mut bytes);
        let difference = read.as_ref().ok().and_then(|()| {
            let bytes = &Bytes(&bytes);
            pattern::compare(bytes, 0, offer.len, offer.seed, &mut pattern::nobody_waits)
                .ok()
                .flatten()
        });
        if read.is_ok() && difference.is_none() {
            self.stage.counting.done(Deed::Verify);
            self.stage
                .counting
                .count("bytes verified", offer.len as u64);
            return;
        }
        let ground = &self.stage.ground;
        let (_, exporter) = self.stage.disturbed(Some(offer), begun);
        let must_stand = mapping.is_referenced()
            || (offer.is_allocated(ground) && !exporter.has(Disturbance::Kill));
        match (read, difference) {
            _ if !must_stand => self.stage.counting.refused(Deed::Verify),
            // Own memory is copied only while it is exported, and only some kinds.
            (Err(Error::Unsupported { .. }), _) if mapping.used() == Used::SameProcess => {
                self.stage.counting.refused(Deed::Verify);
            }
            (Err(error), _) => {
                self.judge::<()>(Deed::Verify, None, begun, Err(error));
            }
            (Ok(()), difference) => {
                self.stage.counting.count("wrong bytes", 1);
                let difference = difference.map(|found| found.to_string());
                self.fail(&format!(
                    "wrong bytes in {} ({}) by {}: {}",
                    offer.name(),
                    offer.memory,
                    mapping.used(),
                    difference.unwrap_or_default()
                ));
            }
        }
    }

    /// Tries to write where only reading is allowed.
    fn write_at(&self, index: usize) {
        let mapping = &self.mappings[index];
        let Some(memory) = mapping.memory().filter(|_| mapping.is_referenced()) else {
            return;
        };
        self.begin(Deed::WriteReadOnly, &mapping.offer.name());
        match memory.write(0, &[0x5a]) {
            Ok(()) => self.fail(&format!(
                "{} was written through a mapping that may only be read",
                mapping.offer.name()
            )),
            Err(_) => self.stage.counting.refused(Deed::WriteReadOnly),
        }
    }

    /// Lets go of some mapping, by drop or by `unmap`.
    pub(super) fn unmap(&mut self) {
        if self.mappings.is_empty() {
            return;
        }
        let index = self.dice.below(self.mappings.len());
        let mapping = self.mappings.swap_remove(index);
        self.let_go(mapping);
    }

    fn let_go(&mut self, mapping: Mapping) {
        self.begin(Deed::Unmap, &mapping.offer.name());
        match mapping.held {
            Held::Memory(memory) if self.dice.one_in(2) => drop(memory.unmap()),
            held => drop(held),
        }
        self.stage.release(&mapping.offer.group);
        self.stage.counting.done(Deed::Unmap);
    }
}

fn deserialize(ipc: &Ipc, bytes: &[u8], options: &ImportOptions) -> Result<Held, Error> {
    let memory = ipc.deserialize(bytes, options)?;
    // What is left to a transport is no success here.
    match memory.gpu_error() {
        Some(error) => Err(error.clone()),
        None => Ok(Held::Registered(Box::new(memory))),
    }
}
