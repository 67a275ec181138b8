//! Any bytes against the library's small parsers: a multicast member's message, the export table's
//! entry, texts of /proc, and the environment's settings.
//!
//! The first byte says which one.

use gpuipc::{Error, Trust, fuzzing};
use gpuipc_core::{
    Endpoint, MULTICAST_MESSAGE_BYTES, TABLE_ENTRY_BYTES, TablePlace, Ticket, Token,
};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use std::os::fd::OwnedFd;

/// Parses the bytes by the parser that the first one names.
///
/// # Panics
///
/// If a parser takes what it must refuse, or says something else than the bytes.
pub fn run(data: &[u8]) {
    let Some((which, data)) = data.split_first() else {
        return;
    };
    match which % 4 {
        0 => multicast_message(data),
        1 => table_entry(data),
        2 => proc(&String::from_utf8_lossy(data)),
        _ => settings(&String::from_utf8_lossy(data)),
    }
}

/// So many bytes; zeros behind the end.
fn padded<const N: usize>(data: &[u8]) -> [u8; N] {
    std::array::from_fn(|at| data.get(at).copied().unwrap_or(0))
}

fn multicast_message(data: &[u8]) {
    let any: [u8; MULTICAST_MESSAGE_BYTES] = padded(data);
    let mut ours = any;
    ours[..5].copy_from_slice(b"GIMC\x01");
    for bytes in [any, ours] {
        let Some(again) = fuzzing::multicast_message(&bytes) else {
            continue;
        };
        assert_eq!(again[..64], bytes[..64], "all members read the same");
        assert_eq!(fuzzing::multicast_message(&again), Some(again));
        let [round, fault, size, faulty] =
            [&bytes[5..6], &bytes[7..8], &bytes[12..16], &bytes[64..68]]
                .map(|part| crate::checker::number(part, 0, part.len()));
        assert!((1..=2).contains(&round) && fault <= 5);
        assert!(fault == 0 || faulty < size, "the faulty one is a member");
        assert!(fault != 5 || bytes[69] <= 3, "a kind of code");
    }
}

/// A file that may be an export table, with one entry, and a ticket that may be the entry's.
fn table_entry(data: &[u8]) {
    const LENGTH: u64 = 65_536 * TABLE_ENTRY_BYTES as u64;
    let [seals, wrong, slot, rest @ ..]: [u8; 3 + TABLE_ENTRY_BYTES + 28] = padded(data);
    let (bytes, ticket) = rest.split_at(TABLE_ENTRY_BYTES);
    let token: [u8; 16] = padded(ticket);
    let fd = i32::from_le_bytes(padded(&ticket[16..]));
    let fd = (fd >= 0).then_some(fd);
    let id = u64::from_le_bytes(padded(&ticket[20..]));
    let number = i64::from(fd.unwrap_or(-1));
    let right = [&token[..], &number.to_le_bytes(), &id.to_le_bytes()].concat();
    let bytes = if wrong & 1 == 0 { &right } else { bytes };

    let file = memfd_create("table", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let file: OwnedFd = file.expect("a file in memory");
    let length = if wrong & 2 == 0 { LENGTH } else { LENGTH / 2 };
    ftruncate(&file, length).expect("it is sparse");
    let place = u64::from(slot) * TABLE_ENTRY_BYTES as u64;
    rustix::io::pwrite(&file, bytes, place).expect("room for an entry");
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    let some = SealFlags::from_bits_retain(u32::from(seals)) & all;
    let some = if wrong & 4 == 0 { all } else { some };
    fcntl_add_seals(&file, some).expect("seals");
    let stat = fstat(&file).expect("a file");
    let ticket = Ticket {
        endpoint: Endpoint([0; 16]),
        token: Token::new(token),
        fd,
        table: None,
    };
    let entry = TablePlace {
        fd: 0,
        slot: slot.into(),
        device: stat.st_dev ^ u64::from(wrong >> 3 & 1),
        inode: stat.st_ino ^ u64::from(wrong >> 4 & 1),
    };
    let maker = fuzzing::maker_of_entry(&file, &ticket, id, &entry).expect("it is readable");
    let proven = some == all
        && wrong & 0b11010 == 0
        && bytes == right
        && bytes.iter().any(|byte| *byte != 0);
    assert_eq!(maker, proven.then_some(stat.st_uid), "{ticket:?} {entry:?}");
}

/// What /proc says of a process may hold anything that a process can call itself.
fn proc(text: &str) {
    for (name, at) in [("Pid:", 0), ("Uid:", 1)] {
        let line = text.lines().find(|line| line.starts_with(name));
        let found = fuzzing::word_of_proc(text, name, at);
        let words = line.map(|line| line[name.len()..].split_whitespace().collect::<Vec<_>>());
        let word = words.and_then(|words| words.get(at).map(|word| word.parse().ok()));
        assert_eq!(found, word.flatten());
    }
}

/// The values of the variables, each in a line.
fn settings(text: &str) {
    let names = ["GPUIPC_TYPES", "GPUIPC_TIMEOUT_MS", "GPUIPC_TRUST"];
    let value_of = |variable: &str| {
        let at = names.iter().position(|name| *name == variable)?;
        text.lines().nth(at).map(std::ffi::OsString::from)
    };
    match fuzzing::settings(value_of) {
        Ok((types, timeout, trust)) => {
            // What was understood, written plainly, is understood in the same way.
            let uids = |uids: &[u32]| {
                uids.iter()
                    .map(u32::to_string)
                    .collect::<Vec<_>>()
                    .join(",")
            };
            let plain = [
                types
                    .iter()
                    .map(|one| one.name())
                    .collect::<Vec<_>>()
                    .join(","),
                timeout.as_millis().to_string(),
                match &trust {
                    Trust::SameUser => "same-user".to_owned(),
                    Trust::TokenAlone => "token".to_owned(),
                    Trust::Users(list) => uids(list),
                    _ => panic!("another trust: {trust:?}"),
                },
            ];
            let again = fuzzing::settings(|variable| {
                let at = names.iter().position(|name| *name == variable)?;
                Some(plain[at].clone().into())
            });
            let (again_types, again_timeout, again_trust) = again.expect("it was understood");
            assert_eq!((again_types, again_timeout), (types.clone(), timeout));
            assert_eq!(format!("{again_trust:?}"), format!("{trust:?}"));
            let twice = |at: usize| types[..at].contains(&types[at]);
            assert!(!types.is_empty() && !(0..types.len()).any(twice));
        }
        Err(Error::Setting {
            variable, value, ..
        }) => {
            assert_eq!(value_of(variable), Some(value.into()));
        }
        Err(error) => panic!("no error of a setting: {error}"),
    }
}
