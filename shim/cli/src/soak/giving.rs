//! What an exporting thread does: allocates, exports, publishes; withdraws and frees in
//! any order.
#![allow(unsafe_code)]

use super::actor::Actor;
use super::dice::Dice;
use super::offer::{Body, Offer};
use super::tally::Deed;
use super::trouble::Trouble;
use crate::driver::Kind;
use crate::output::Failure;
use crate::pattern::{self, Sink};
use gpuipc::{
    Buffer, Error, ExportOptions, Exported, Ipc, Memory, RegisteredMemory, TransportInfo,
};
use std::cell::RefCell;
use std::fs;
use std::time::SystemTime;

const MIB: usize = 1 << 20;
/// A piece of [`Memory::Segments`], on an H200 and on the emulated driver.
const PIECE: usize = 2 * MIB;
/// Bytes of an ordinary window.
const WINDOW: usize = 96 << 10;
/// Bytes of one that is longer.
const LONG_WINDOW: usize = MIB;

/// Kinds of memory that the driver has.
pub(super) fn kinds(kind: Kind) -> &'static [Memory] {
    match kind {
        Kind::Emulated => &Memory::ALL,
        // Memory of a pool is left out on a real GPU: its owner's death can break the
        // context of an importer that reads it, and owners are killed here. So is
        // memory for the fabric, which few machines have.
        Kind::Cuda => &[
            Memory::CudaMalloc,
            Memory::VmmFd,
            Memory::Segments,
            Memory::HostNuma,
        ],
    }
}

/// An allocation with its windows on offer.
#[derive(Debug)]
pub(super) struct Group {
    name: String,
    memory: Memory,
    /// `None` once it was freed while on offer.
    buffer: Option<Buffer>,
    windows: Vec<Window>,
}

#[derive(Debug)]
struct Window {
    offer: Offer,
    held: Held,
}

/// What keeps a window on offer.
#[derive(Debug)]
#[allow(dead_code, reason = "held for its drop")]
enum Held {
    Exported(Exported),
    Registered(Box<RegisteredMemory>),
}

impl Group {
    /// Whether it is the one of this name, and its memory is still there.
    pub(super) fn is(&self, name: &str) -> bool {
        self.name == name && self.buffer.is_some()
    }

    /// Whether one of its windows is the offer of this name, and its memory is there.
    pub(super) fn offers(&self, name: &str) -> bool {
        let mut windows = self.windows.iter();
        self.buffer.is_some() && windows.any(|window| window.offer.name() == name)
    }

    pub(super) fn device_ptr(&self) -> Option<u64> {
        self.buffer.as_ref().map(Buffer::device_ptr)
    }
}

/// The pattern's bytes.
struct Collected(RefCell<Vec<u8>>);

impl Sink for Collected {
    fn write(&self, _offset: usize, from: &[u8]) -> Result<(), Error> {
        self.0.borrow_mut().extend_from_slice(from);
        Ok(())
    }
}

fn bytes_of(seed: u64, len: usize) -> Result<Vec<u8>, Failure> {
    let collected = Collected(RefCell::default());
    pattern::write(&collected, 0, len, seed, &mut pattern::nobody_waits)?;
    Ok(collected.0.into_inner())
}

impl Actor {
    /// Allocates memory, and puts some windows of it on offer.
    pub(super) fn give(&mut self) {
        let kinds = kinds(self.stage.kind);
        let memory = kinds[self.dice.below(kinds.len())];
        self.give_memory(memory);
    }

    /// The same, of this kind.
    pub(super) fn give_memory(&mut self, memory: Memory) {
        let windows = self.dice.between(1, 3);
        let len = match memory {
            Memory::Segments => 3 * PIECE,
            _ => MIB * self.dice.between(1, 4) as usize,
        };
        self.next += 1;
        let name = format!("{}-{}.{}", self.stage.who, self.thread, self.next);
        let begun = SystemTime::now();
        self.begin(Deed::Allocate, memory.name());
        let buffer = Buffer::new(self.stage.driver, self.stage.device, memory, len);
        let Some(buffer) = self.judge(Deed::Allocate, None, begun, buffer) else {
            return;
        };
        let mut group = Group {
            name,
            memory,
            buffer: Some(buffer),
            windows: Vec::new(),
        };
        let ground = &self.stage.ground;
        let marked = fs::write(ground.memory().join(&group.name), "")
            .and_then(|()| fs::write(ground.buffers().join(&group.name), ""));
        if self.judge_file("a new file", begun, marked).is_some() {
            let slot = len / windows as usize;
            for index in 0..windows as usize {
                let (offset, bytes) = self.place(memory, (index, slot));
                self.offer(&mut group, index as u32, offset, bytes);
            }
        }
        if group.windows.is_empty() {
            self.withdraw(group);
        } else {
            self.groups.push(group);
        }
    }

    /// Where in the memory a window lies, and its length.
    fn place(&mut self, memory: Memory, (index, slot): (usize, usize)) -> (usize, usize) {
        let most = if self.dice.one_in(12) {
            LONG_WINDOW
        } else {
            WINDOW
        };
        let len = 1 + self.dice.below(most.min(slot));
        let first = index * slot;
        let seam = (first + 1).next_multiple_of(PIECE);
        if memory == Memory::Segments && !self.dice.one_in(3) && seam < first + slot {
            // Over the seam, inside the slot.
            let before = (len / 2).min(seam - first);
            return (seam - before, len.min(first + slot - (seam - before)));
        }
        (first + self.dice.below(slot - len + 1), len)
    }

    /// Fills a window, exports and publishes it.
    fn offer(&mut self, group: &mut Group, window: u32, offset: usize, len: usize) {
        let Some(buffer) = &group.buffer else { return };
        let who = self.stage.who;
        let seed = Dice::of(
            self.stage.seed,
            &[
                u64::from(who.worker),
                u64::from(who.incarnation),
                self.thread as u64,
                self.next,
                u64::from(window),
            ],
        )
        .number();
        let begun = SystemTime::now();
        self.begin(
            Deed::Export,
            &format!("{}.{window} {}", group.name, group.memory),
        );
        let bytes = match bytes_of(seed, len) {
            Ok(bytes) => bytes,
            Err(failure) => return self.fail(&failure.to_string()),
        };
        let written = buffer.write(offset, &bytes);
        if let Err(error) = written {
            // Counted as an export that could not be made.
            self.judge::<()>(Deed::Export, None, begun, Err(error));
            return;
        }
        let ptr = buffer.device_ptr() + offset as u64;
        let Some(ipc) = self.ipc(Deed::Export) else {
            return;
        };
        let on_demand = self.dice.one_in(3) && !self.stage.without.contains(&Trouble::Demand);
        let options = ExportOptions::default().fd_on_demand(on_demand);
        let (body, held) = if self.dice.one_in(4) {
            let transports = self.dice.one_in(2);
            let registered = register(&ipc, (ptr, len), transports, &options);
            let registered = self.judge(Deed::Register, None, begun, registered);
            let Some((memory, bytes)) = registered else {
                return;
            };
            (Body::Registered(bytes), Held::Registered(Box::new(memory)))
        } else {
            // SAFETY: memory of this worker's, which unmaps it in this thread only.
            let exported = unsafe { ipc.export(ptr, len, &options) };
            let Some(exported) = self.judge(Deed::Export, None, begun, exported) else {
                return;
            };
            (
                Body::Handles(exported.handles().to_vec()),
                Held::Exported(exported),
            )
        };
        let offer = Offer {
            who,
            group: group.name.clone(),
            window,
            memory: group.memory,
            seed,
            len,
            body,
        };
        let begun = SystemTime::now();
        let published = offer.publish(&self.stage.ground);
        if self.judge_file("a new offer", begun, published).is_some() {
            group.windows.push(Window { offer, held });
        }
    }

    /// Ends one window of an allocation, if it has others.
    pub(super) fn withdraw_one(&mut self, index: usize) -> bool {
        let windows = self.groups[index].windows.len();
        if windows < 2 {
            return false;
        }
        let window = self.dice.below(windows);
        let window = self.groups[index].windows.swap_remove(window);
        self.end_window(window);
        true
    }

    fn end_window(&self, window: Window) {
        self.begin(Deed::Withdraw, &window.offer.name());
        let begun = SystemTime::now();
        // Before the offer: whoever sees the file afterwards knows that it stood.
        let removed = fs::remove_file(window.offer.path(&self.stage.ground));
        self.judge_file("an offer's file", begun, removed);
        drop(window.held);
        self.stage.counting.done(Deed::Withdraw);
    }

    /// Ends all windows of an allocation and frees it, in any order: an offer keeps
    /// what it can keep.
    pub(super) fn withdraw(&mut self, group: Group) {
        let ground = &self.stage.ground;
        let Group {
            name,
            memory,
            mut buffer,
            mut windows,
            ..
        } = group;
        let begun = SystemTime::now();
        // Before the offers: whoever sees a file afterwards knows that its offer stood.
        for window in &windows {
            let removed = fs::remove_file(window.offer.path(ground));
            self.judge_file("an offer's file", begun, removed);
        }
        if self.dice.one_in(2) {
            self.free(Deed::Free, &name, memory, buffer.take());
        }
        while !windows.is_empty() {
            let index = self.dice.below(windows.len());
            let window = windows.swap_remove(index);
            self.begin(Deed::Withdraw, &window.offer.name());
            drop(window.held);
            self.stage.counting.done(Deed::Withdraw);
        }
        self.free(Deed::Free, &name, memory, buffer);
        // It is not there where no descriptor was left to make it.
        let _ = fs::remove_file(self.stage.ground.memory().join(&name));
    }

    fn free(&self, deed: Deed, name: &str, memory: Memory, buffer: Option<Buffer>) {
        let Some(buffer) = buffer else { return };
        self.begin(deed, &format!("{name} {memory}"));
        // As above.
        let _ = fs::remove_file(self.stage.ground.buffers().join(name));
        drop(buffer);
        self.stage.counting.done(deed);
    }

    /// Frees VMM memory that stays on offer, and must stay what it is for importers.
    pub(super) fn free_on_offer(&mut self) {
        let keeps = |group: &&mut Group| {
            group.buffer.is_some() && !matches!(group.memory, Memory::CudaMalloc | Memory::Pool)
        };
        let Some(group) = self.groups.iter_mut().find(keeps) else {
            return self.verify();
        };
        let (name, memory, buffer) = (group.name.clone(), group.memory, group.buffer.take());
        self.free(Deed::FreeOnOffer, &name, memory, buffer);
    }
}

/// Registers memory, with another transport or without; its wire form.
fn register(
    ipc: &Ipc,
    (ptr, len): (u64, usize),
    transports: bool,
    options: &ExportOptions,
) -> Result<(RegisteredMemory, Vec<u8>), Error> {
    let transport = TransportInfo::new(1, b"soak").map_err(Error::Registered)?;
    let transports: &[TransportInfo] = if transports { &[transport] } else { &[] };
    // SAFETY: as for exports.
    let memory = unsafe { ipc.register(ptr, len, transports, options) }?;
    // What is left to a transport is no success here.
    if let Some(error) = memory.gpu_error() {
        return Err(error.clone());
    }
    let bytes = memory.serialize()?;
    Ok((memory, bytes))
}
