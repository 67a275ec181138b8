//! A registered memory's rules, one test each: a valid one is changed in one place, the checksums
//! are made right again, and decoding must refuse it for this very reason. And how one is written.
//!
//! Places are given as numbers, to be independent of the crate's own table.
#![allow(clippy::unwrap_used, missing_docs)]

// Not every test program uses every sample.
#[allow(dead_code)]
mod samples;

use gpuipc_core::{
    DecodeError, EncodeError, GpuIpcMemHandle, HandleFields, MAX_HANDLES, ProcessId,
    RegisteredError, RegisteredFields, RegisteredMemoryRef, SharedRange, TransportInfo,
    checksum_of, registered_len,
};
use samples::Registered;
use std::error::Error;

/// Where the handles start in the sample, which has two transports.
const HANDLES: usize = 128 + 2 * 72;

/// CRC-32C, bit by bit.
fn crc_32c(bytes: impl Iterator<Item = u8>) -> u32 {
    !bytes.fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| {
            (sum >> 1) ^ (0x82f6_3b78 * (sum & 1))
        })
    })
}

/// Writes the right checksum over header and transports. The handles' are as they were.
fn repair(bytes: &mut [u8]) {
    let transports = usize::from(u16::from_le_bytes([bytes[6], bytes[7]]));
    let end = bytes.len().min(128 + transports * 72);
    let sum = crc_32c(bytes[..124].iter().chain(&bytes[128..end]).copied());
    bytes[124..128].copy_from_slice(&sum.to_le_bytes());
}

/// Other bytes at some places of the sample, whose checksums are made right; the error.
fn changed(sample: &Registered, changes: &[(usize, &[u8])]) -> Result<Vec<u8>, RegisteredError> {
    let mut bytes = sample.encode();
    for (at, value) in changes {
        bytes[*at..*at + value.len()].copy_from_slice(value);
    }
    repair(&mut bytes);
    let first = bytes.len() - sample.handles.len() * 384;
    for handle in bytes[first..].chunks_exact_mut(384) {
        let sum = checksum_of((&*handle).try_into().unwrap());
        handle[188..192].copy_from_slice(&sum.to_le_bytes());
    }
    RegisteredMemoryRef::decode(&bytes)?;
    Ok(bytes)
}

/// Field and value of the header's error that the changes give.
fn broken(changes: &[(usize, &[u8])]) -> (&'static str, u64) {
    let error = changed(&samples::registered(), changes).unwrap_err();
    match error {
        RegisteredError::Field { field, value, rule } => {
            let text = error.to_string();
            assert!(text.starts_with(&format!("{field} is {value} ")), "{text}");
            assert!(text.contains(rule), "{text}");
            (field, value)
        }
        other => panic!("{other:?}"),
    }
}

/// Place, field and value of a transport's error that the changes give.
fn broken_transport(changes: &[(usize, &[u8])]) -> (usize, &'static str, u64) {
    let error = changed(&samples::registered(), changes).unwrap_err();
    match error {
        RegisteredError::Transport {
            index,
            field,
            value,
            ..
        } => {
            let start = format!("{field} of transport {index} is {value} ");
            assert!(error.to_string().starts_with(&start), "{error}");
            (index, field, value)
        }
        other => panic!("{other:?}"),
    }
}

/// Place, field and value of the error that comes with these handles.
fn broken_handle(handles: &[GpuIpcMemHandle]) -> (usize, &'static str, u64) {
    let sample = samples::registered();
    let mut bytes = sample.encode();
    bytes.truncate(HANDLES);
    for handle in handles {
        bytes.extend(handle.encode());
    }
    bytes[8] = handles.len().try_into().unwrap();
    repair(&mut bytes);
    let error = RegisteredMemoryRef::decode(&bytes).unwrap_err();
    // Writing goes by the same rules.
    let written = sample
        .fields
        .encode(&sample.transports, handles, &mut bytes);
    assert_eq!(written, Err(EncodeError::Content(error)));
    match error {
        RegisteredError::Handle {
            index,
            error: DecodeError::Field { field, value, .. },
        } => {
            let text = format!("handle {index} of the registered memory is refused");
            assert_eq!(error.to_string(), text);
            assert!(error.source().unwrap().to_string().starts_with(field));
            (index, field, value)
        }
        other => panic!("{other:?}"),
    }
}

/// The sample's handles, of which one is changed.
fn with_handle(index: usize, change: impl Fn(&mut HandleFields)) -> Vec<GpuIpcMemHandle> {
    let mut handles = samples::three_segments();
    let mut fields = handles[index].fields();
    change(&mut fields);
    handles[index] = GpuIpcMemHandle::new(&fields).unwrap();
    handles
}

#[test]
fn every_sample_comes_back() {
    for sample in samples::all_registered() {
        let bytes = sample.encode();
        assert_eq!(RegisteredMemoryRef::length_of(&bytes), Ok(bytes.len()));
        assert_eq!(
            RegisteredMemoryRef::length_of(&bytes[..128]),
            Ok(bytes.len())
        );
        let registered = RegisteredMemoryRef::decode(&bytes).unwrap();
        assert_eq!(registered.as_bytes(), bytes);
        assert_eq!(registered.version(), 1);
        assert_eq!(registered.min_reader(), 1);
        assert_eq!(registered.fields(), sample.fields);
        assert!(
            registered
                .transports()
                .eq(sample.transports.iter().copied())
        );
        assert!(registered.handles().eq(sample.handles.iter().copied()));
        let bytes = sample.handles.iter().map(GpuIpcMemHandle::encode);
        assert!(registered.handle_bytes().iter().copied().eq(bytes));
    }
}

#[test]
fn a_transport_is_found_by_its_kind() {
    let bytes = samples::registered().encode();
    let registered = RegisteredMemoryRef::decode(&bytes).unwrap();
    let info = registered.transport(1).unwrap();
    assert_eq!(info.bytes(), &samples::counting(0x10)[..12]);
    assert_eq!(info.data()[12..], [0; 52]);
    assert_eq!(registered.transport(0x0102_0304).unwrap().bytes().len(), 64);
    assert_eq!(registered.transport(2), None);
}

#[test]
fn thousands_of_segments_come_back() {
    const COUNT: u32 = 4096;
    let handles: Vec<GpuIpcMemHandle> = (0..COUNT)
        .map(|segment_index| {
            let fields = HandleFields {
                range: SharedRange {
                    id: 7,
                    length: u64::from(COUNT) << 21,
                    offset: u64::from(segment_index) << 21,
                    segment_index,
                    segment_count: COUNT,
                },
                ..samples::fd()
            };
            GpuIpcMemHandle::new(&fields).unwrap()
        })
        .collect();
    let sample = Registered {
        fields: RegisteredFields {
            len: u64::from(COUNT) << 21,
            ..samples::registered_fields()
        },
        handles,
        ..samples::registered()
    };
    let bytes = sample.encode();
    let registered = RegisteredMemoryRef::decode(&bytes).unwrap();
    assert!(registered.handles().eq(sample.handles));
}

#[test]
fn another_length_is_refused() {
    let bytes = samples::registered().encode();
    for got in [0, 1, 127] {
        let error = RegisteredError::Length { got, wanted: 128 };
        let part = &bytes[..got];
        assert_eq!(RegisteredMemoryRef::decode(part).unwrap_err(), error);
        assert_eq!(RegisteredMemoryRef::length_of(part), Err(error));
    }
    let wanted = bytes.len();
    let longer = [bytes, vec![0]].concat();
    for got in [128, 128 + 72, HANDLES, wanted - 384, wanted - 1, wanted + 1] {
        let error = RegisteredError::Length { got, wanted };
        let part = &longer[..got];
        assert_eq!(RegisteredMemoryRef::decode(part).unwrap_err(), error);
    }
}

#[test]
fn another_magic_is_refused() {
    let got = u32::from_le_bytes(*b"GIPC");
    let error = changed(&samples::registered(), &[(0, b"GIPC")]);
    assert_eq!(error, Err(RegisteredError::Magic { got }));
}

#[test]
fn versions_that_make_no_sense_are_refused() {
    assert_eq!(broken(&[(4, &[0])]), ("version", 0));
    assert_eq!(broken(&[(5, &[0])]), ("min_reader", 0));
    assert_eq!(broken(&[(4, &[2, 3])]), ("min_reader", 3));
}

#[test]
fn what_is_for_newer_readers_only_is_told_from_damage() {
    let mut bytes = samples::registered().encode();
    bytes[4..6].copy_from_slice(&[3, 2]);
    let error = RegisteredError::Newer {
        version: 3,
        min_reader: 2,
    };
    assert_eq!(RegisteredMemoryRef::decode(&bytes).unwrap_err(), error);
}

#[test]
fn counts_above_the_limits_are_refused() {
    assert_eq!(broken(&[(6, &[17])]), ("transport_count", 17));
    assert_eq!(broken(&[(7, &[1])]), ("transport_count", 258));
    let most = u32::try_from(MAX_HANDLES).unwrap();
    let more = (most + 1).to_le_bytes();
    assert_eq!(broken(&[(8, &more)]), ("handle_count", (most + 1).into()));
    // So many are allowed, but are not there.
    let error = changed(&samples::registered(), &[(8, &most.to_le_bytes())]);
    let wanted = HANDLES + MAX_HANDLES * 384;
    let got = HANDLES + 3 * 384;
    assert_eq!(error, Err(RegisteredError::Length { got, wanted }));
}

#[test]
fn a_wrong_checksum_is_refused() {
    let mut bytes = samples::registered().encode();
    let computed = u32::from_le_bytes([bytes[124], bytes[125], bytes[126], bytes[127]]);
    bytes[124..128].copy_from_slice(&[1, 2, 3, 4]);
    let error = RegisteredError::Checksum {
        stored: 0x0403_0201,
        computed,
    };
    assert_eq!(RegisteredMemoryRef::decode(&bytes).unwrap_err(), error);
}

#[test]
fn every_flipped_bit_of_every_sample_is_refused() {
    for sample in samples::all_registered() {
        let bytes = sample.encode();
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let decoded = RegisteredMemoryRef::decode(&flipped);
            assert!(decoded.is_err(), "{} with bit {bit} flipped", sample.name);
        }
    }
}

#[test]
fn reserved_bytes_are_zero_in_version_1() {
    for at in [68, 100, 123] {
        assert_eq!(broken(&[(at, &[1])]), ("reserved", at.try_into().unwrap()));
    }
    assert_eq!(broken_transport(&[(133, &[1])]), (0, "reserved", 5));
    assert_eq!(broken_transport(&[(207, &[1])]), (1, "reserved", 7));
}

#[test]
fn reserved_bytes_of_a_newer_writer_are_ignored_and_kept() {
    let changes: [(usize, &[u8]); 3] = [(4, &[2]), (68, &[9; 56]), (133, &[9; 3])];
    let sample = samples::registered();
    let bytes = changed(&sample, &changes).unwrap();
    let registered = RegisteredMemoryRef::decode(&bytes).unwrap();
    assert_eq!(registered.version(), 2);
    assert_eq!(registered.as_bytes()[68..124], [9; 56]);
    assert_eq!(registered.fields(), sample.fields);
    // What is written of it anew is this version's.
    assert!(registered.transports().eq(sample.transports));
}

#[test]
fn a_buffer_of_no_bytes_is_refused() {
    assert_eq!(broken(&[(24, &[0; 8])]), ("len", 0));
}

#[test]
fn a_memory_may_have_neither_handle_nor_transport() {
    let fields = samples::registered_fields();
    let mut bytes = [0; 128];
    assert_eq!(fields.encode(&[], &[], &mut bytes), Ok(128));
    let registered = RegisteredMemoryRef::decode(&bytes).unwrap();
    assert_eq!(registered.fields(), fields);
    assert_eq!(
        registered.transports().len() + registered.handles().len(),
        0
    );
}

#[test]
fn a_transport_has_at_most_64_bytes() {
    assert_eq!(broken_transport(&[(204, &[65])]), (1, "length", 65));
    assert_eq!(broken_transport(&[(204, &[255])]), (1, "length", 255));
    for length in [65, 255, 256, 257, 1000] {
        let error = TransportInfo::new(1, &vec![1; length]).unwrap_err();
        match error {
            RegisteredError::Transport { field, value, .. } => {
                assert_eq!((field, value), ("length", length.try_into().unwrap()));
            }
            other => panic!("{other:?}"),
        }
    }
    for length in [0, 1, 64] {
        let info = TransportInfo::new(1, &vec![1; length]).unwrap();
        assert_eq!(info.bytes(), vec![1; length]);
    }
}

#[test]
fn a_transports_bytes_after_its_length_are_zero() {
    // 12 are in use.
    assert_eq!(broken_transport(&[(136 + 12, &[1])]), (0, "data", 20));
    assert_eq!(broken_transport(&[(136 + 63, &[1])]), (0, "data", 71));
    // 63 are, and the last is not zero.
    assert_eq!(broken_transport(&[(204, &[63])]), (1, "data", 71));
}

#[test]
fn a_kind_of_transport_comes_once() {
    assert_eq!(broken_transport(&[(200, &[1, 0, 0, 0])]), (1, "kind", 1));
    let sample = samples::registered();
    let twice = [sample.transports[0]; 2];
    let mut buffer = [0; 2000];
    let written = sample.fields.encode(&twice, &sample.handles, &mut buffer);
    assert!(matches!(
        written,
        Err(EncodeError::Content(RegisteredError::Transport {
            index: 1,
            field: "kind",
            ..
        }))
    ));
}

#[test]
fn a_handle_that_is_none_is_refused() {
    let mut bytes = samples::registered().encode();
    bytes[HANDLES + 384] = b'X';
    let error = RegisteredError::Handle {
        index: 1,
        error: DecodeError::Magic {
            got: u32::from_le_bytes(*b"XIPC"),
        },
    };
    assert_eq!(RegisteredMemoryRef::decode(&bytes).unwrap_err(), error);
}

#[test]
fn a_handle_of_another_owner_is_refused() {
    let handles = with_handle(1, |fields| fields.process_id.0[3] = 1);
    assert_eq!(broken_handle(&handles), (1, "process_id", 99));
    let handles = with_handle(2, |fields| fields.host_id.0[15] = 1);
    assert_eq!(broken_handle(&handles), (2, "host_id", 127));
    // The other way round.
    let other = Registered {
        fields: RegisteredFields {
            process_id: ProcessId([1; 16]),
            ..samples::registered_fields()
        },
        ..samples::registered()
    };
    let mut buffer = [0; 2000];
    let written = other
        .fields
        .encode(&other.transports, &other.handles, &mut buffer);
    assert!(matches!(
        written,
        Err(EncodeError::Content(RegisteredError::Handle {
            index: 0,
            ..
        }))
    ));
}

#[test]
fn a_handle_of_another_range_is_refused() {
    let handles = with_handle(1, |fields| fields.range.id = 8);
    assert_eq!(broken_handle(&handles), (1, "range_id", 8));
}

#[test]
fn handles_are_all_segments_of_their_range() {
    let handles = samples::three_segments();
    assert_eq!(broken_handle(&handles[..2]), (0, "segment_count", 3));
    let more = [&handles[..], &handles[2..]].concat();
    assert_eq!(broken_handle(&more), (0, "segment_count", 3));
    let handles = with_handle(2, |fields| fields.range.segment_count = 4);
    assert_eq!(broken_handle(&handles), (2, "segment_count", 4));
}

#[test]
fn handles_come_in_order() {
    let mut handles = samples::three_segments();
    handles.swap(0, 1);
    assert_eq!(broken_handle(&handles), (0, "segment_index", 1));
    let mut handles = samples::three_segments();
    handles[2] = handles[1];
    assert_eq!(broken_handle(&handles), (2, "segment_index", 1));
}

#[test]
fn the_range_is_as_long_as_the_memory() {
    let handles = with_handle(0, |fields| fields.range.length += 1);
    assert_eq!(broken_handle(&handles), (0, "range_length", (7 << 20) + 1));
    let error = changed(&samples::registered(), &[(24, &[1])]).unwrap_err();
    assert!(matches!(error, RegisteredError::Handle { index: 0, .. }));
}

#[test]
fn segments_fill_the_range_without_gap_or_overlap() {
    let handles = with_handle(0, |fields| fields.range.offset = 1);
    assert_eq!(broken_handle(&handles), (0, "range_offset", 1));
    let handles = with_handle(1, |fields| fields.range.offset -= 1);
    assert_eq!(broken_handle(&handles), (1, "range_offset", (4 << 20) - 1));
    let handles = with_handle(1, |fields| fields.length -= 1);
    assert_eq!(broken_handle(&handles), (2, "range_offset", 6 << 20));
    let handles = with_handle(2, |fields| fields.length -= 1);
    assert_eq!(broken_handle(&handles), (2, "length", (1 << 20) - 1));
}

#[test]
fn a_short_buffer_says_what_is_needed_and_stays_as_it_was() {
    let sample = samples::registered();
    let needed = sample.encode().len();
    for got in [0, 127, needed - 1] {
        let mut buffer = vec![0x77; got];
        let written = sample
            .fields
            .encode(&sample.transports, &sample.handles, &mut buffer);
        assert_eq!(written, Err(EncodeError::Buffer { got, needed }));
        assert_eq!(buffer, vec![0x77; got]);
    }
}

#[test]
fn a_long_buffer_stays_as_it_was_behind_the_end() {
    let sample = samples::registered();
    let bytes = sample.encode();
    let mut buffer = vec![0x77; bytes.len() + 10];
    let written = sample
        .fields
        .encode(&sample.transports, &sample.handles, &mut buffer);
    assert_eq!(written, Ok(bytes.len()));
    assert_eq!(buffer, [bytes, vec![0x77; 10]].concat());
}

#[test]
fn too_many_transports_cannot_be_written() {
    let kinds = (0..17).map(|kind| TransportInfo::new(kind, &[1]).unwrap());
    let transports: Vec<TransportInfo> = kinds.collect();
    let mut buffer = [0; 2000];
    let fields = samples::registered_fields();
    let written = fields.encode(&transports, &[], &mut buffer);
    assert!(matches!(
        written,
        Err(EncodeError::Content(RegisteredError::Field {
            field: "transport_count",
            value: 17,
            ..
        }))
    ));
    assert_eq!(
        fields.encode(&transports[..16], &[], &mut buffer),
        Ok(128 + 16 * 72)
    );
    assert_eq!(registered_len(17, 0), None);
    assert_eq!(registered_len(16, MAX_HANDLES + 1), None);
}

#[test]
fn debug_shows_no_secret() {
    let bytes = samples::registered().encode();
    let registered = RegisteredMemoryRef::decode(&bytes).unwrap();
    // Other tokens, other data of the transports.
    let mut other = bytes.clone();
    for at in (136..148).chain(208..272) {
        other[at] ^= 0xff;
    }
    for handle in other[HANDLES..].chunks_exact_mut(384) {
        handle[272..288].fill(0xa5);
        let sum = checksum_of((&*handle).try_into().unwrap());
        handle[188..192].copy_from_slice(&sum.to_le_bytes());
    }
    repair(&mut other);
    let other = RegisteredMemoryRef::decode(&other).unwrap();
    let text = |value: &RegisteredMemoryRef<'_>| {
        let handles = value.handles().map(|handle| handle.checksum());
        handles
            .chain([value.checksum()])
            .fold(format!("{value:?}"), |text, sum| {
                text.replace(&format!("{sum:#010x}"), "")
            })
    };
    assert_eq!(text(&registered), text(&other));
    assert!(text(&registered).contains("Token(..)"));
}

#[test]
fn an_error_of_writing_says_what_to_do_or_has_a_source_that_does() {
    let short = EncodeError::Buffer {
        got: 100,
        needed: 512,
    };
    let text = short.to_string();
    assert!(text.contains("100") && text.contains("512"), "{text}");
    assert!(text.ends_with("pass a longer one"), "{text}");
    assert!(short.source().is_none());

    let nothing = RegisteredFields::default().encode(&[], &[], &mut [0; 512]);
    let Err(content @ EncodeError::Content(cause)) = nothing else {
        panic!("a registered memory has a handle: {nothing:?}")
    };
    assert_eq!(
        content.to_string(),
        "the content makes no registered memory"
    );
    let source = content.source().expect("the rule that it breaks");
    assert_eq!(source.to_string(), cause.to_string());
    assert!(source.source().is_none(), "a rule has no deeper cause");
}
