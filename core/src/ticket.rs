//! The ticket: what an importer needs to ask the exporter's broker; and the entry of the export
//! table that proves that the broker's export lives.

use crate::identity::Endpoint;
use crate::layout::{SLOT_BYTES, TABLE_ENTRY_BYTES, layout};
use crate::token::Token;

layout! {
    #[places(TicketPlaces)]
    /// A ticket as C sees it inside a slot.
    #[repr(C)]
    #[derive(Clone, Copy)]
    pub(crate) struct TicketSlot {
        #[at(0)] #[plain(Endpoint)] /// The broker's random name.
        endpoint: [u8; 16],
        #[at(16)] #[plain(Token)] /// The secret of this export, which the broker asks for.
        token: [u8; 16],
        #[at(32)] /// The number of the memory's descriptor in the exporter; -1 where there is none: legacy memory, and descriptors that are made on demand. For messages and tests only: the exporter closes it with the export, and may have another file at that number then.
        fd: i32,
        #[at(36)] /// The export table's descriptor; 0 without an export table, as the rest of it.
        table_fd: i32,
        #[at(40)] /// Which of the export table's slots.
        table_slot: u32,
        #[at(44)] /// 0.
        reserved: u32,
        #[at(48)] /// The device of the export table's file.
        table_device: u64,
        #[at(56)] /// The inode of the export table's file, not 0 where there is an export table.
        table_inode: u64,
    }

    /// What lets an importer ask the exporter's broker for the memory's file descriptor, and whether
    /// the memory is still there.
    ///
    /// On the wire it fills slot 1 of a handle:
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Ticket {
        /// The number that the memory's descriptor has in the exporter, at least 0; none where the
        /// exporter keeps none open.
        fd: Option<i32>,
        /// What proves that the export lives, and that a descriptor fetched by that number is the one
        /// exported.
        table: Option<TablePlace>,
    }
}

/// Where the token stands in the exporter's export table: a sealed file of [`TableEntry`]s that the
/// exporter keeps open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TablePlace {
    /// The number that the export table's descriptor has in the exporter, at least 0.
    pub fd: i32,
    /// Which entry: its 32 bytes start at 32 times this.
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
        let slot = TicketSlot {
            fd: self.fd.unwrap_or(NO_FD),
            ..TicketSlot::of_wire(&[0; SLOT_BYTES])
        };
        let slot = match self.table {
            None => slot,
            Some(table) => TicketSlot {
                table_fd: table.fd,
                table_slot: table.slot,
                table_device: table.device,
                table_inode: table.inode,
                ..slot
            },
        };
        slot.with_plain(&self).wire()
    }

    /// Takes any bytes; that they keep the rules is the handle's business.
    pub(crate) fn of_slot(slot: &[u8; SLOT_BYTES]) -> Self {
        let slot = TicketSlot::of_wire(slot);
        slot.fields_with((slot.fd != NO_FD).then_some(slot.fd), slot.table())
    }
}

impl TicketSlot {
    pub(crate) fn table(&self) -> Option<TablePlace> {
        (self.table_inode != 0).then_some(TablePlace {
            fd: self.table_fd,
            slot: self.table_slot,
            device: self.table_device,
            inode: self.table_inode,
        })
    }
}

layout! {
    #[places(TableEntryPlaces)]
    #[repr(C)]
    pub(crate) struct TableEntryBytes {
        #[at(0)] #[plain(Token)] /// The secret of what is exported.
        token: [u8; 16],
        #[at(16)] /// The descriptor's number in the exporter, or -1.
        number: i64,
        #[at(24)] #[plain(u64)] /// The handle's [`allocation_id`](crate::GpuIpcMemHandle::allocation_id).
        allocation_id: u64,
    }

    /// What the exporter's export table, a sealed file in memory, says of one export.
    ///
    /// It is written before the handle exists and removed before the descriptor is closed. So who
    /// fetches the descriptor `Ticket::fd` from the exporter, and *then* the export table's, and finds all
    /// three in the entry, has fetched the descriptor that was exported. A free entry is all zeros.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct TableEntry {
        /// The number that the exported descriptor has in the exporter; none where it keeps none open.
        fd: Option<i32>,
    }
}

impl TableEntry {
    /// The entry's bytes.
    pub fn encode(&self) -> [u8; TABLE_ENTRY_BYTES] {
        let bytes = TableEntryBytes {
            token: [0; 16],
            number: self.fd.unwrap_or(NO_FD).into(),
            allocation_id: 0,
        };
        bytes.with_plain(self).wire()
    }

    /// The entry that these bytes are; none of a free place, or of bytes that are none.
    pub fn decode(bytes: &[u8; TABLE_ENTRY_BYTES]) -> Option<Self> {
        let entry = TableEntryBytes::of_wire(bytes);
        let fd = match i32::try_from(entry.number).ok()? {
            NO_FD => None,
            fd => Some(fd),
        };
        (*bytes != [0; TABLE_ENTRY_BYTES]).then(|| entry.fields_with(fd))
    }
}
