//! The broker's messages: what is sent is what arrives, and nothing else is taken for a message.
#![allow(clippy::unwrap_used, missing_docs)]

use gpuipc_core::{
    MessageError, REPLY_BYTES, REQUEST_BYTES, Reply, ReplyStatus, Request, RequestKind, Token,
};

const REQUEST: Request = Request {
    kind: RequestKind::CheckMemory,
    id: 5,
    allocation_id: 6,
    token: Token::new([0x5a; 16]),
};

const REPLY: Reply = Reply {
    status: ReplyStatus::Busy,
    id: 5,
    allocation_id: 6,
    detail: 11,
    pointer: 12,
    size: 13,
};

fn request(at: usize, byte: u8) -> Result<Request, MessageError> {
    let mut bytes = REQUEST.encode();
    bytes[at] = byte;
    Request::decode(&bytes)
}

fn reply(at: usize, byte: u8) -> Result<Reply, MessageError> {
    let mut bytes = REPLY.encode();
    bytes[at] = byte;
    Reply::decode(&bytes)
}

/// Field and value of the error.
fn field<T: std::fmt::Debug>(decoded: Result<T, MessageError>) -> (&'static str, u64) {
    match decoded.unwrap_err() {
        MessageError::Field { field, value, .. } => (field, value),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_kind_and_status_arrives() {
    for (number, kind) in [
        (1, RequestKind::FetchFd),
        (2, RequestKind::CheckMemory),
        (3, RequestKind::OwnPointer),
    ] {
        let sent = Request { kind, ..REQUEST };
        assert_eq!(sent.encode()[5], number);
        assert_eq!(Request::decode(&sent.encode()), Ok(sent));
    }
    let statuses = [
        (1, ReplyStatus::FdAttached),
        (2, ReplyStatus::MemoryUnchanged),
        (3, ReplyStatus::MemoryChanged),
        (4, ReplyStatus::ExportRevoked),
        (5, ReplyStatus::NotPermitted),
        (6, ReplyStatus::Malformed),
        (7, ReplyStatus::Busy),
        (8, ReplyStatus::NoFd),
        (9, ReplyStatus::CheckFailed),
        (10, ReplyStatus::OwnPointer),
        (11, ReplyStatus::ExportFailed),
    ];
    for (number, status) in statuses {
        let sent = Reply { status, ..REPLY };
        assert_eq!(sent.encode()[5], number);
        assert_eq!(Reply::decode(&sent.encode()), Ok(sent));
    }
}

#[test]
fn another_length_is_refused() {
    let long = [0; 65];
    for length in (0..=65).filter(|length| *length != REQUEST_BYTES) {
        let error = MessageError::Length { got: length };
        assert_eq!(Request::decode(&long[..length]), Err(error));
        assert_eq!(Reply::decode(&long[..length]), Err(error));
    }
    assert_eq!(REQUEST_BYTES, REPLY_BYTES);
}

#[test]
fn a_request_is_never_taken_for_a_reply() {
    let got = u32::from_le_bytes(*b"GIPQ");
    assert_eq!(
        Reply::decode(&REQUEST.encode()),
        Err(MessageError::Magic { got })
    );
    let got = u32::from_le_bytes(*b"GIPR");
    assert_eq!(
        Request::decode(&REPLY.encode()),
        Err(MessageError::Magic { got })
    );
}

#[test]
fn another_version_is_refused() {
    assert_eq!(request(4, 2), Err(MessageError::Version { got: 2 }));
    assert_eq!(reply(4, 0), Err(MessageError::Version { got: 0 }));
}

#[test]
fn an_unknown_kind_or_status_is_refused() {
    assert_eq!(field(request(5, 0)), ("kind", 0));
    assert_eq!(field(request(5, 4)), ("kind", 4));
    assert_eq!(field(reply(5, 0)), ("status", 0));
    assert_eq!(field(reply(5, 12)), ("status", 12));
}

#[test]
fn reserved_bytes_are_zero() {
    for at in [6, 7, 40, 63] {
        assert_eq!(field(request(at, 1)), ("reserved", at.try_into().unwrap()));
    }
    for at in [6, 7, 28, 48, 63] {
        assert_eq!(field(reply(at, 1)), ("reserved", at.try_into().unwrap()));
    }
}

#[test]
fn debug_never_shows_a_token() {
    let text = format!("{REQUEST:?}");
    assert!(text.contains("Token(..)"), "{text}");
    assert!(!text.contains("90") && !text.contains("5a"), "{text}");
}
