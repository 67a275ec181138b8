//! What the members of a multicast object tell each other.

use crate::layout::layout;

/// Bytes of every message between the members of a multicast object.
pub const MULTICAST_MESSAGE_BYTES: usize = 88;

const MAGIC: [u8; 4] = *b"GIMC";
const VERSION: u8 = 1;

layout! {
    #[places(MulticastPlaces)]
    #[repr(C)]
    pub(crate) struct MulticastBytes {
        #[at(0)] /// The letters `GIMC`.
        magic: [u8; 4],
        #[at(4)] /// 1.
        version: u8,
        #[at(5)] #[plain(u8)] /// The first exchange of an agreement, or the second.
        round: u8,
        #[at(6)] #[plain(u8)] /// The stage that is agreed on.
        stage: u8,
        #[at(7)] #[plain(u8)] /// What is wrong with a member; 0 for nothing.
        fault: u8,
        #[at(8)] #[plain(u32)] /// The member that tells it.
        rank: u32,
        #[at(12)] #[plain(u32)] /// How many members there are.
        size: u32,
        #[at(16)] #[plain(u64)] /// Agreements of this team before this one.
        sequence: u64,
        #[at(24)] #[plain([u8; 16])] /// The object's creator.
        creator: [u8; 16],
        #[at(40)] #[plain(u64)] /// The object's number there.
        object: u64,
        #[at(48)] #[plain(u64)] /// Where the part of the object starts that is meant.
        offset: u64,
        #[at(56)] #[plain(u64)] /// Bytes of that part.
        length: u64,
        #[at(64)] #[plain(u32)] /// The member that something is wrong with.
        faulty: u32,
        #[at(68)] #[plain(u8)] /// The stage at which it failed.
        fault_stage: u8,
        #[at(69)] #[plain(u8)] /// What kind of code it failed with.
        code_kind: u8,
        #[at(70)] /// 0; not looked at.
        reserved_short: [u8; 2],
        #[at(72)] #[plain(u32)] /// The code.
        code: u32,
        #[at(76)] /// 0; not looked at.
        reserved: [u8; 12],
    }

    /// A message of one member to all others, as numbers whose meaning the library knows.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MulticastMessage {}
}

impl MulticastMessage {
    /// The message's bytes.
    pub fn encode(&self) -> [u8; MULTICAST_MESSAGE_BYTES] {
        let bytes = MulticastBytes {
            magic: MAGIC,
            version: VERSION,
            ..MulticastBytes::of_wire(&[0; MULTICAST_MESSAGE_BYTES])
        };
        bytes.with_plain(self).wire()
    }

    /// The message that these bytes are, if they are one of this version.
    pub fn decode(bytes: &[u8; MULTICAST_MESSAGE_BYTES]) -> Option<Self> {
        let bytes = MulticastBytes::of_wire(bytes);
        let ours = bytes.magic == MAGIC && bytes.version == VERSION;
        ours.then(|| bytes.fields_with())
    }
}
