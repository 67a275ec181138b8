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
/// | 36 | reserved | 28 B | 0 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The broker that knows the memory.
    pub endpoint: Endpoint,
    /// The secret that the broker asks for.
    pub token: Token,
    /// The number that the memory's descriptor has in the exporter, at least 0; none where the
    /// exporter keeps none open.
    pub fd: Option<i32>,
}

/// The number on the wire where the exporter keeps no descriptor open.
pub(crate) const NO_FD: i32 = -1;

impl Ticket {
    pub(crate) fn to_slot(self) -> [u8; SLOT_BYTES] {
        let mut slot = [0; SLOT_BYTES];
        ticket::ENDPOINT.put(&mut slot, self.endpoint.0);
        ticket::TOKEN.put(&mut slot, *self.token.as_bytes());
        ticket::FD.put(&mut slot, self.fd.unwrap_or(NO_FD).to_le_bytes());
        slot
    }

    /// Takes any bytes; that they keep the rules is the handle's business.
    pub(crate) fn from_slot(slot: &[u8; SLOT_BYTES]) -> Self {
        let fd = wire_fd(slot);
        Self {
            endpoint: Endpoint(ticket::ENDPOINT.get(slot)),
            token: Token::new(ticket::TOKEN.get(slot)),
            fd: (fd != NO_FD).then_some(fd),
        }
    }
}

pub(crate) fn wire_fd(slot: &[u8; SLOT_BYTES]) -> i32 {
    i32::from_le_bytes(ticket::FD.get(slot))
}
