//! Any bytes against the broker's messages.

use crate::slow::AllBroken;
use crate::slow::message::{self as slow, BYTES, Refused};
use gpuipc_core::{MessageError, Reply, Request, Token};
use std::fmt::Debug;

/// Looks at the bytes as they are, and at their [`repaired`] forms.
///
/// # Panics
///
/// If gpuipc-core and the slow decoder disagree, or a promise of the messages does not hold.
pub fn run(data: &[u8]) {
    look(data);
    look(&repaired(data, b"GIPQ"));
    look(&repaired(data, b"GIPR"));
}

/// The bytes with the length, magic and version of a message. Everything else stays as it is.
pub fn repaired(data: &[u8], magic: &[u8; 4]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let kept = data.len().min(BYTES);
    bytes[..kept].copy_from_slice(&data[..kept]);
    bytes[..4].copy_from_slice(magic);
    bytes[4] = 1;
    bytes
}

/// Decodes the bytes as either message with both decoders and compares. True if they are one.
///
/// # Panics
///
/// As [`run`].
pub fn look(bytes: &[u8]) -> bool {
    let request = Request::decode(bytes);
    let reply = Reply::decode(bytes);
    same(&request, &slow::read_request(bytes), bytes);
    same(&reply, &slow::read_reply(bytes), bytes);
    if let Ok(request) = &request {
        assert_eq!(request.encode(), bytes, "encoding gives the same bytes");
        keeps_secret(request);
    }
    if let Ok(reply) = &reply {
        assert_eq!(reply.encode(), bytes, "encoding gives the same bytes");
    }
    let is_message = request.is_ok() || reply.is_ok();
    assert!(request.is_err() || reply.is_err(), "never both");
    is_message
}

fn same<T: Debug + PartialEq>(
    decoded: &Result<T, MessageError>,
    slow: &Result<T, Refused>,
    bytes: &[u8],
) {
    let same = match (decoded, slow) {
        (Ok(message), Ok(slow)) => message == slow,
        (Err(error), Err(refused)) => same_cause(error, refused, bytes),
        _ => false,
    };
    assert!(
        same,
        "gpuipc-core: {decoded:?}\nslow decoder: {slow:?}\nbytes: {bytes:02x?}"
    );
}

/// The error names a rule that the bytes do break, with the value that they have.
fn same_cause(error: &MessageError, refused: &Refused, bytes: &[u8]) -> bool {
    assert!(!error.to_string().is_empty());
    match (error, refused) {
        (MessageError::Length { got }, Refused::Length) => *got == bytes.len(),
        (MessageError::Magic { got }, Refused::Magic) => got.to_le_bytes() == bytes[..4],
        (MessageError::Version { got }, Refused::Version) => *got == bytes[4],
        (MessageError::Field { field, value, .. }, Refused::Fields(broken)) => {
            assert_ne!(*broken, AllBroken::default());
            broken.has(field, *value)
        }
        _ => false,
    }
}

/// The `Debug` text stays the same when the token changes, so it cannot show it in any spelling.
fn keeps_secret(request: &Request) {
    let other = Request {
        token: Token::new(request.token.as_bytes().map(|byte| !byte)),
        ..*request
    };
    assert_ne!(*request, other);
    assert_eq!(format!("{request:?}"), format!("{other:?}"));
    assert_eq!(format!("{request:#?}"), format!("{other:#?}"));
}
