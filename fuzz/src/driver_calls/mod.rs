//! Any sequence of the library's calls, with driver calls that fail, over the emulated driver: what
//! must be visible is, and after every call the driver holds what a simple model says.
//!
//! The input is calls of 8 bytes each: see [`Op`].

mod held;
mod model;

use crate::machine::exporter::exporter;
use crate::machine::{CODES, FALLIBLE, Held, alone};
use gpuipc_emulated::faults;
use model::World;
use std::sync::Once;

/// Bytes of one call.
pub const CALL: usize = 8;
/// Calls of one input; later ones are not looked at.
const MOST: usize = 120;

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// 0 allocates, 1 frees, 2 writes, 3 reads, 4 exports, 5 revokes, 6 imports what this process
    /// exports, 7 what another one does, 8 a part of that, 9 lets go, 10 asks whether an import would
    /// work, 11 makes a driver call fail, 12 lets all calls work.
    pub what: u8,
    /// Which object.
    pub place: u8,
    /// Another one's, or a choice.
    pub other: u8,
    /// 1: by the imported address.
    pub bits: u8,
    /// An offset, length, value.
    pub number: u32,
}

impl Op {
    /// The call in these bytes.
    pub fn of(bytes: &[u8; CALL]) -> Self {
        let [what, place, other, bits, number @ ..] = *bytes;
        Self {
            what,
            place,
            other,
            bits,
            number: u32::from_le_bytes(number),
        }
    }

    /// The bytes of the call.
    pub fn bytes(self) -> [u8; CALL] {
        let [a, b, c, d] = self.number.to_le_bytes();
        [self.what, self.place, self.other, self.bits, a, b, c, d]
    }
}

/// Makes the calls.
///
/// # Panics
///
/// If a promise of the library does not hold.
pub fn run(data: &[u8]) {
    look(data);
}

/// As [`run`]; tells how many exports and imports worked, and how many failed.
///
/// # Panics
///
/// As [`run`].
pub fn look(data: &[u8]) -> (usize, usize) {
    let _alone = alone();
    let (ops, _) = data.as_chunks::<CALL>();
    let ops: Vec<Op> = ops.iter().take(MOST).map(Op::of).collect();
    let exporter = exporter();
    static WARM: Once = Once::new();
    // What the first use makes for good is there before anything is counted.
    WARM.call_once(|| drop(World::new(exporter)));
    let held = Held::now();
    let mut world = World::new(exporter);
    for op in &ops {
        match op.what % 13 {
            11 => {
                let call = FALLIBLE[usize::from(op.place) % FALLIBLE.len()];
                let code = gpuipc::sys::CuResult(CODES[usize::from(op.other) % CODES.len()]);
                faults::fail(call, 1 + op.number % 4, code, 1 + u32::from(op.bits % 4));
                world.is_faulty = true;
            }
            12 => {
                faults::clear();
                world.is_faulty = false;
            }
            _ => world.call(*op),
        }
        world.is_what_the_driver_holds(op);
    }
    faults::clear();
    let counted = world.counted;
    drop(world);
    held.is_all(&ops);
    counted
}
