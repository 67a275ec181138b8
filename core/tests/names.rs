//! Names, secrets, lists and small forms, as texts and as bytes.
#![allow(clippy::unwrap_used, missing_docs)]

use gpuipc_core::{
    ClusterUuid, DeviceUuid, Endpoint, HandleType, HostId, ProcessId, TableEntry, Token, TypeFlags,
    TypeList,
};

const BYTES: [u8; 16] = [
    0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xf0, 0xe1, 0xd2, 0xc3, 0xb4, 0xa5, 0x96, 0x87,
];

#[test]
fn a_device_reads_as_nvidia_smi_prints_it() {
    let text = "GPU-01234567-89ab-cdef-f0e1-d2c3b4a59687";
    assert_eq!(DeviceUuid(BYTES).to_string(), text);
}

#[test]
fn other_names_read_as_hex_digits() {
    let text = "0123456789abcdeff0e1d2c3b4a59687";
    assert_eq!(ProcessId(BYTES).to_string(), text);
    assert_eq!(HostId(BYTES).to_string(), text);
    assert_eq!(ClusterUuid(BYTES).to_string(), text);
    assert_eq!(Endpoint(BYTES).to_string(), text);
    assert_eq!(format!("{:?}", HostId(BYTES)), format!("HostId({text})"));
}

#[test]
fn only_all_zeros_says_nothing() {
    assert!(DeviceUuid([0; 16]).is_zero());
    assert!(!DeviceUuid(BYTES).is_zero());
}

#[test]
fn a_token_matches_only_itself_and_is_not_shown() {
    let token = Token::new([7; 16]);
    assert!(token.matches(&Token::new([7; 16])));
    for bit in 0..128 {
        let mut other = [7; 16];
        other[bit / 8] ^= 1 << (bit % 8);
        assert!(!token.matches(&Token::new(other)), "bit {bit}");
        assert_ne!(token, Token::new(other));
    }
    assert_eq!(format!("{token:?}"), "Token(..)");
}

#[test]
fn a_type_is_found_by_its_name_in_any_spelling() {
    for handle_type in HandleType::ALL {
        assert_eq!(HandleType::from_name(handle_type.name()), Some(handle_type));
    }
    for name in ["posix-fd", "POSIX_FD", "posixfd", "PosixFd"] {
        assert_eq!(HandleType::from_name(name), Some(HandleType::PosixFd));
    }
    for name in ["", "-", "posix", "posixfds", "posix fd", "fd", "ﬁ"] {
        assert_eq!(HandleType::from_name(name), None, "{name:?}");
    }
    assert_eq!(format!("{:>12}|", HandleType::Fabric), "      Fabric|");
}

#[test]
fn a_list_has_the_types_of_a_set_in_order_and_each_once() {
    for bits in 0..8 {
        let set = TypeFlags::from_bits_truncate(bits);
        let list = set.types();
        assert!(list.is_sorted());
        let all = list
            .iter()
            .fold(TypeFlags::empty(), |all, one| all | one.flag());
        assert_eq!(all, set);
        assert!(list.clone().into_iter().eq(list.iter().copied()));
    }
    let mut list = TypeList::new();
    assert_eq!(list.push(HandleType::Fabric), Ok(()));
    assert_eq!(list.push(HandleType::Fabric), Err(HandleType::Fabric));
    let twice = [HandleType::Fabric, HandleType::PosixFd, HandleType::Fabric];
    let mut list: TypeList = twice.into_iter().collect();
    assert_eq!(list.as_slice(), &twice[..2]);
    list.retain(|one| *one == HandleType::PosixFd);
    assert_eq!(*list, [HandleType::PosixFd]);
}

#[test]
fn an_entry_of_the_export_table_is_its_32_bytes() {
    let token = Token::new([0x5a; 16]);
    for (fd, number) in [(Some(37), 37), (Some(0), 0), (None, -1_i64)] {
        let allocation_id = 0x1122_3344_5566_7788;
        let entry = TableEntry {
            token,
            allocation_id,
            fd,
        };
        let bytes = entry.encode();
        let id = u64::to_le_bytes(allocation_id);
        let wanted = [&[0x5a; 16][..], &number.to_le_bytes(), &id].concat();
        assert_eq!(bytes, wanted[..]);
        assert_eq!(TableEntry::decode(&bytes), Some(entry));
        for at in 0..32 {
            let mut other = bytes;
            other[at] ^= 1;
            assert_ne!(TableEntry::decode(&other), Some(entry), "byte {at}");
        }
    }
    assert_eq!(TableEntry::decode(&[0; 32]), None, "a free place");
}

#[cfg(feature = "multicast")]
#[test]
fn a_multicast_message_is_its_88_bytes() {
    use gpuipc_core::MulticastMessage;
    let sent = MulticastMessage {
        round: 2,
        stage: 3,
        fault: 5,
        rank: 4,
        size: 8,
        sequence: 1 << 40,
        creator: [7; 16],
        object: 1 << 63,
        offset: 2 << 20,
        length: 4 << 20,
        faulty: 7,
        fault_stage: 6,
        code_kind: 1,
        code: 802,
    };
    let bytes = sent.encode();
    assert_eq!(bytes[..8], *b"GIMC\x01\x02\x03\x05");
    assert_eq!(bytes[8..16], [4, 0, 0, 0, 8, 0, 0, 0]);
    assert_eq!(bytes[16..24], (1_u64 << 40).to_le_bytes());
    assert_eq!(bytes[24..40], [7; 16]);
    assert_eq!(bytes[40..48], (1_u64 << 63).to_le_bytes());
    assert_eq!(bytes[48..56], (2_u64 << 20).to_le_bytes());
    assert_eq!(bytes[56..64], (4_u64 << 20).to_le_bytes());
    assert_eq!(bytes[64..76], [7, 0, 0, 0, 6, 1, 0, 0, 0x22, 3, 0, 0]);
    assert_eq!(bytes[76..], [0; 12]);
    assert_eq!(MulticastMessage::decode(&bytes), Some(sent));
    for at in 0..5 {
        let mut other = bytes;
        other[at] ^= 1;
        assert_eq!(MulticastMessage::decode(&other), None, "byte {at}");
    }
}
