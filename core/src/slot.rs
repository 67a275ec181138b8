//! A slot: 64 bytes of a handle whose meaning the handle's flags give.
//!
//! The only file of this crate with `unsafe`: reading a union.
#![allow(unsafe_code)]

use crate::layout::{SLOT_BYTES, Wire};
use crate::ticket::TicketSlot;
use static_assertions::assert_eq_size;

/// One slot of a handle. Which member is meant, the handle's type flags and attributes say.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union Slot {
    bytes: [u8; SLOT_BYTES],
    /// `CUipcMemHandle`.
    runtime_ipc: [u8; SLOT_BYTES],
    /// `CUmemPoolPtrExportData`.
    pool_pointer: [u8; SLOT_BYTES],
    ticket: TicketSlot,
    /// `CUmemFabricHandle`.
    fabric: [u8; SLOT_BYTES],
}

assert_eq_size!(Slot, [u8; SLOT_BYTES]);
assert_eq_size!(TicketSlot, [u8; SLOT_BYTES]);

impl Slot {
    pub(crate) const fn new(bytes: [u8; SLOT_BYTES]) -> Self {
        Self { bytes }
    }

    pub(crate) const fn bytes(&self) -> &[u8; SLOT_BYTES] {
        // SAFETY: reading a union's member requires that the bytes it covers are a valid value of
        // its type. Any 64 initialized bytes are a valid `[u8; 64]`, and all 64 are initialized:
        // the fields are private to this file, which makes slots in `new` only, from 64 bytes, and
        // never writes to one. Memory that C fills comes in through `decode`, as bytes. The
        // reference lives as long as `self`, of which it is a part.
        unsafe { &self.bytes }
    }
}

impl Wire<SLOT_BYTES> for Slot {
    fn of_wire(bytes: [u8; SLOT_BYTES]) -> Self {
        Self::new(bytes)
    }
    fn to_wire(self) -> [u8; SLOT_BYTES] {
        *self.bytes()
    }
}
