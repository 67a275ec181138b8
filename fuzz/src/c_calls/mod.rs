//! Any sequence of calls of the C interface, as a C program could make them, over the emulated
//! driver: no crash, a status that the header names, outputs untouched by calls that fail, and
//! nothing left in the driver at the end.
//!
//! The input is calls of 8 bytes each: see [`Op`]. What C is forbidden to do (use after free,
//! pointers to nowhere) is not done.
#![allow(unsafe_code)]

mod grown;
mod hold;
mod world;

use crate::machine::alone;
use gpuipc_emulated::{counters, faults};
use std::sync::Once;
use std::time::{Duration, Instant};
use world::World;

/// Bytes of one call.
pub const CALL: usize = 8;
/// Calls of one input; later ones are not looked at.
pub const MOST: usize = 64;

/// One call: which one, which objects, and a number.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// The call: see `World::call`.
    pub call: u8,
    /// The object's place; from 4 on it is NULL.
    pub object: u8,
    /// Another one's, or a choice.
    pub other: u8,
    /// Bits: 1 a forged handle, 2 options, 4 no output, 8 a short buffer, 16 another thread.
    pub bits: u8,
    /// An offset, length, position.
    pub number: u32,
}

impl Op {
    /// The call in these bytes.
    pub fn of(bytes: &[u8; CALL]) -> Self {
        let [call, object, other, bits, number @ ..] = *bytes;
        Self {
            call,
            object,
            other,
            bits,
            number: u32::from_le_bytes(number),
        }
    }

    /// The bytes of the call.
    pub fn bytes(self) -> [u8; CALL] {
        let [a, b, c, d] = self.number.to_le_bytes();
        [self.call, self.object, self.other, self.bits, a, b, c, d]
    }

    fn has(self, bit: u8) -> bool {
        self.bits & bit != 0
    }
}

/// Makes the calls.
///
/// # Panics
///
/// If a promise of the header does not hold.
pub fn run(data: &[u8]) {
    let _alone = alone();
    static WARM: Once = Once::new();
    // What the first use makes for good is there before anything is counted.
    WARM.call_once(|| calls(&[]));
    let before = counters::read();
    calls(data);
    let start = Instant::now();
    // A broker's thread that answers just then holds an export a moment longer.
    while counters::read() != before && start.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(
        counters::read(),
        before,
        "left in the driver after {:?}",
        ops(data)
    );
}

/// The calls in these bytes.
fn ops(data: &[u8]) -> Vec<Op> {
    let (ops, _) = data.as_chunks::<CALL>();
    ops.iter().take(MOST).map(Op::of).collect()
}

fn calls(data: &[u8]) {
    let mut world = World::new();
    for op in ops(data) {
        if op.has(16) {
            std::thread::scope(|scope| {
                let called = scope.spawn(|| world.call(op)).join();
                assert!(called.is_ok(), "{op:?} on another thread");
            });
        } else {
            world.call(op);
        }
    }
    faults::clear();
}
