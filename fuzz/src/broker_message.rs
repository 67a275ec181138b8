//! Any bytes against the broker's messages.

use crate::checker::{Format, REPLIES, REQUESTS, judge, number};
use gpuipc_core::{MessageError, Reply, Request, Token};
use std::fmt::Debug;

/// Looks at the bytes as they are, and at their [`repaired`] forms.
///
/// # Panics
///
/// If gpuipc-core and the checker disagree, or a promise of the messages does not hold.
pub fn run(data: &[u8]) {
    look(data);
    look(&repaired(data, b"GIPQ"));
    look(&repaired(data, b"GIPR"));
}

/// The bytes with the length, magic and version of a message. Everything else stays as it is.
pub fn repaired(data: &[u8], magic: &[u8; 4]) -> [u8; 64] {
    let mut bytes = [0; 64];
    let kept = data.len().min(64);
    bytes[..kept].copy_from_slice(&data[..kept]);
    bytes[..4].copy_from_slice(magic);
    bytes[4] = 1;
    bytes
}

/// Decodes the bytes as either message and has the checker judge them. True if they are one.
///
/// # Panics
///
/// As [`run`].
pub fn look(bytes: &[u8]) -> bool {
    let request = judged_alike(Request::decode(bytes), &REQUESTS, bytes);
    let reply = judged_alike(Reply::decode(bytes), &REPLIES, bytes);
    if let Some(request) = request {
        assert_eq!(request.encode(), bytes, "encoding gives the same bytes");
        let numbers = [request.id, request.allocation_id];
        assert_eq!(numbers, [8, 16].map(|at| number(bytes, at, 8)));
        assert_eq!(u64::from(request.kind as u8), number(bytes, 5, 1));
        assert_eq!(request.token.as_bytes(), &bytes[24..40]);
        keeps_secret(&request);
    }
    if let Some(reply) = reply {
        assert_eq!(reply.encode(), bytes, "encoding gives the same bytes");
        let numbers = [reply.id, reply.allocation_id, reply.pointer, reply.size];
        assert_eq!(numbers, [8, 16, 32, 40].map(|at| number(bytes, at, 8)));
        assert_eq!(u64::from(reply.status as u8), number(bytes, 5, 1));
        assert_eq!(u64::from(reply.detail), number(bytes, 24, 4));
    }
    assert!(request.is_none() || reply.is_none(), "never both");
    request.is_some() || reply.is_some()
}

fn judged_alike<T: Debug>(
    decoded: Result<T, MessageError>,
    format: &Format,
    bytes: &[u8],
) -> Option<T> {
    let broken = judge(format, bytes);
    let right = match &decoded {
        Ok(_) => broken.is_empty(),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            let (name, value) = match *error {
                MessageError::Length { .. } => ("length of all", 0),
                MessageError::Magic { got } => ("magic", got.into()),
                MessageError::Version { got } => ("version", got.into()),
                MessageError::Field { field, value, .. } => (field, value),
                _ => panic!("an error that the checker does not know: {error:?}"),
            };
            broken.contains(&(0, name, value))
        }
    };
    assert!(
        right,
        "gpuipc-core: {decoded:?}\nchecker: {broken:?}\nbytes: {bytes:02x?}"
    );
    decoded.ok()
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
