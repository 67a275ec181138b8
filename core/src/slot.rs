//! A slot: 64 bytes of a handle whose meaning the handle's flags give; and a transport's data: 64
//! bytes whose meaning the runtime knows.
//!
//! The only file of this crate with `unsafe`: reading a union.
#![allow(unsafe_code)]

use crate::layout::{SLOT_BYTES, TRANSPORT_DATA_BYTES, ticket};
use core::mem::offset_of;

/// A ticket as C sees it inside a slot: how an importer finds the exporter's broker and proves that
/// it holds the handle.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct TicketSlot {
    /// The broker's random name.
    endpoint: [u8; 16],
    /// The secret of this export.
    token: [u8; 16],
    /// The number of the memory's descriptor in the exporter; -1 where there is none: legacy memory,
    /// and descriptors that are made on demand. For messages and tests only: the exporter closes it
    /// with the export, and may have another file at that number then.
    fd: i32,
    /// The number of the exporter's export table; -1 where there is none. As `fd`.
    ledger_fd: i32,
    ledger_slot: u32,
    reserved: u32,
    ledger_device: u64,
    ledger_inode: u64,
}

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

const _: () = assert!(
    size_of::<TicketSlot>() == SLOT_BYTES && size_of::<Slot>() == SLOT_BYTES,
    "every member fills the slot"
);
const _: () = assert!(
    ticket::ENDPOINT.is(offset_of!(TicketSlot, endpoint), 16),
    "C and the wire agree on the ticket's endpoint"
);
const _: () = assert!(
    ticket::TOKEN.is(offset_of!(TicketSlot, token), 16),
    "C and the wire agree on the ticket's token"
);
const _: () = assert!(
    ticket::FD.is(offset_of!(TicketSlot, fd), 4),
    "C and the wire agree on the ticket's fd"
);
const _: () = assert!(
    ticket::LEDGER_FD.is(offset_of!(TicketSlot, ledger_fd), 4)
        && ticket::LEDGER_SLOT.is(offset_of!(TicketSlot, ledger_slot), 4)
        && ticket::RESERVED.is(offset_of!(TicketSlot, reserved), 4)
        && ticket::LEDGER_DEVICE.is(offset_of!(TicketSlot, ledger_device), 8)
        && ticket::LEDGER_INODE.is(offset_of!(TicketSlot, ledger_inode), 8),
    "C and the wire agree on the ticket's ledger"
);

impl Slot {
    pub(crate) const EMPTY: Self = Self::new([0; SLOT_BYTES]);

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

/// The data of a transport of a registered memory. A runtime puts its own structs there, which may
/// hold words.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union TransportData {
    bytes: [u8; TRANSPORT_DATA_BYTES],
    words: [u64; 8],
}

const _: () = assert!(
    size_of::<TransportData>() == TRANSPORT_DATA_BYTES && align_of::<TransportData>() == 8,
    "every member fills the data, which is aligned for a word"
);

impl TransportData {
    pub(crate) const fn new(bytes: [u8; TRANSPORT_DATA_BYTES]) -> Self {
        Self { bytes }
    }

    pub(crate) const fn bytes(&self) -> &[u8; TRANSPORT_DATA_BYTES] {
        // SAFETY: reading a union's member requires that the bytes it covers are a valid value of
        // its type. Any 64 initialized bytes are a valid `[u8; 64]`, and all 64 are initialized:
        // the fields are private to this file, which makes data in `new` only, from 64 bytes, and
        // never writes to it. Memory that C fills comes in through `decode`, as bytes. The
        // reference lives as long as `self`, of which it is a part.
        unsafe { &self.bytes }
    }
}
