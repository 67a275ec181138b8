//! The ticket: what an importer needs to ask the exporter's broker.

use crate::identity::Endpoint;
use crate::layout::{SLOT_BYTES, ticket};
use crate::token::Token;

/// What lets an importer ask the exporter's broker for the memory's file descriptor, and whether
/// the memory is still there.
///
/// On the wire it fills slot 1 of a handle:
///
/// | at | field | type | meaning |
/// |---|---|---|---|
/// | 0 | endpoint | 16 B | names the broker |
/// | 16 | token | 16 B | the allocation's secret |
/// | 32 | fd | i32 | the descriptor's number in the exporter, or -1 |
/// | 36 | ledger fd | i32 | the [`LedgerEntry`]'s descriptor; the entry is all zeros where there is none |
/// | 40 | ledger slot | u32 | its slot |
/// | 44 | reserved | u32 | 0 |
/// | 48 | ledger device | u64 | its file's device |
/// | 56 | ledger inode | u64 | its file's inode, not 0 where there is an entry |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The broker that knows the memory.
    pub endpoint: Endpoint,
    /// The secret that the broker asks for.
    pub token: Token,
    /// The number that the memory's descriptor has in the exporter, at least 0; none where the
    /// exporter keeps none open.
    pub fd: Option<i32>,
    /// What proves that the offer lives, and that a descriptor fetched by that number is the one
    /// on offer.
    pub ledger: Option<LedgerEntry>,
}

/// Where the token stands in the exporter's ledger: a sealed file of 32-byte slots that the
/// exporter keeps open.
///
/// A slot is the token (16 bytes), the descriptor's number or -1 (i64), and the allocation's id
/// (u64). It is filled from before the handle exists until before the descriptor is closed. So
/// who fetches the descriptor `Ticket::fd` from the exporter, and *then* the ledger's, and finds
/// all three in the slot, has fetched the descriptor that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    /// The number that the ledger's descriptor has in the exporter, at least 0.
    pub fd: i32,
    /// Which slot: 32 bytes from 32 times this on.
    pub slot: u32,
    /// The file's `st_dev`.
    pub device: u64,
    /// The file's `st_ino`, not 0.
    pub inode: u64,
}

/// The number on the wire where the exporter keeps no descriptor open.
pub(crate) const NO_FD: i32 = -1;

impl Ticket {
    pub(crate) fn to_slot(self) -> [u8; SLOT_BYTES] {
        let mut slot = [0; SLOT_BYTES];
        ticket::ENDPOINT.put(&mut slot, self.endpoint.0);
        ticket::TOKEN.put(&mut slot, *self.token.as_bytes());
        ticket::FD.put(&mut slot, self.fd.unwrap_or(NO_FD).to_le_bytes());
        if let Some(ledger) = self.ledger {
            ticket::LEDGER_FD.put(&mut slot, ledger.fd.to_le_bytes());
            ticket::LEDGER_SLOT.put(&mut slot, ledger.slot.to_le_bytes());
            ticket::LEDGER_DEVICE.put(&mut slot, ledger.device.to_le_bytes());
            ticket::LEDGER_INODE.put(&mut slot, ledger.inode.to_le_bytes());
        }
        slot
    }

    /// Takes any bytes; that they keep the rules is the handle's business.
    pub(crate) fn from_slot(slot: &[u8; SLOT_BYTES]) -> Self {
        let fd = wire_fd(slot);
        Self {
            endpoint: Endpoint(ticket::ENDPOINT.get(slot)),
            token: Token::new(ticket::TOKEN.get(slot)),
            fd: (fd != NO_FD).then_some(fd),
            ledger: wire_ledger(slot),
        }
    }
}

pub(crate) fn wire_ledger(slot: &[u8; SLOT_BYTES]) -> Option<LedgerEntry> {
    let inode = u64::from_le_bytes(ticket::LEDGER_INODE.get(slot));
    (inode != 0).then_some(LedgerEntry {
        fd: i32::from_le_bytes(ticket::LEDGER_FD.get(slot)),
        slot: u32::from_le_bytes(ticket::LEDGER_SLOT.get(slot)),
        device: u64::from_le_bytes(ticket::LEDGER_DEVICE.get(slot)),
        inode,
    })
}

pub(crate) fn wire_fd(slot: &[u8; SLOT_BYTES]) -> i32 {
    i32::from_le_bytes(ticket::FD.get(slot))
}
