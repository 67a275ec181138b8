//! The bytes of every format, compared with files that say what they were.
//!
//! The files are in `tests/golden` of the workspace: lines of hex bytes; lines that start with `#`
//! are comments. To write them anew after a wanted change of a format that is not frozen yet:
//!
//! ```text
//! GPUIPC_BLESS=1 cargo test -p gpuipc-core --test golden
//! ```
//!
//! The bytes of a frozen format never change.
#![allow(clippy::unwrap_used, missing_docs)]

// Not every test program uses every sample.
#[allow(dead_code)]
mod samples;

use gpuipc_core::{GpuIpcMemHandle, RegisteredMemoryRef, Reply, ReplyStatus, Request, RequestKind};
use std::path::Path;

/// Name and text of a golden file.
macro_rules! golden {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../tests/golden/", $name, ".hex")),
        )
    };
}

const HANDLES: [(&str, &str); 8] = [
    golden!("legacy"),
    golden!("fd"),
    golden!("fd-ledger"),
    golden!("fd-fabric"),
    golden!("pool"),
    golden!("host-numa"),
    golden!("multicast"),
    golden!("segment"),
];
const REGISTERED: [(&str, &str); 3] = [
    golden!("registered-handle"),
    golden!("registered-segments"),
    golden!("registered-transport"),
];
const REQUEST: (&str, &str) = golden!("request");
const REPLY: (&str, &str) = golden!("reply");

fn bytes(text: &str) -> Vec<u8> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(str::split_ascii_whitespace)
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect()
}

/// Sixteen bytes a line, an empty line after every 64.
fn text(about: &str, bytes: &[u8]) -> String {
    let mut text = format!("# {about}\n");
    for block in bytes.chunks(64) {
        text.push('\n');
        for line in block.chunks(16) {
            let line: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            text.push_str(&line.join(" "));
            text.push('\n');
        }
    }
    text
}

fn compare(golden: (&str, &str), about: &str, made: &[u8]) {
    let (name, expected) = golden;
    if std::env::var_os("GPUIPC_BLESS").is_some() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
        std::fs::write(folder.join(format!("{name}.hex")), text(about, made)).unwrap();
        return;
    }
    assert_eq!(text(about, made), expected, "{name}.hex");
    assert_eq!(bytes(expected), made, "{name}.hex");
}

#[test]
fn handles_are_the_golden_bytes() {
    for (sample, golden) in samples::all().iter().zip(HANDLES) {
        assert_eq!(sample.name, golden.0);
        let handle = GpuIpcMemHandle::new(&sample.fields).unwrap();
        compare(golden, sample.about, &handle.encode());
    }
}

#[test]
fn golden_handles_decode_to_their_fields() {
    if std::env::var_os("GPUIPC_BLESS").is_some() {
        return;
    }
    for (sample, (name, text)) in samples::all().iter().zip(HANDLES) {
        let handle = GpuIpcMemHandle::decode(&bytes(text)).unwrap();
        assert_eq!(handle.fields(), sample.fields, "{name}.hex");
    }
}

#[test]
fn registered_memories_are_the_golden_bytes() {
    for (sample, golden) in samples::all_registered().iter().zip(REGISTERED) {
        assert_eq!(sample.name, golden.0);
        compare(golden, sample.about, &sample.encode());
    }
}

#[test]
fn golden_registered_memories_decode_to_what_they_were_made_of() {
    if std::env::var_os("GPUIPC_BLESS").is_some() {
        return;
    }
    for (sample, (name, text)) in samples::all_registered().iter().zip(REGISTERED) {
        let bytes = bytes(text);
        let registered = RegisteredMemoryRef::decode(&bytes).unwrap();
        assert_eq!(registered.fields(), sample.fields, "{name}.hex");
        assert!(
            registered
                .transports()
                .eq(sample.transports.iter().copied())
        );
        assert!(registered.handles().eq(sample.handles.iter().copied()));
    }
}

#[test]
fn a_request_is_the_golden_bytes() {
    let request = Request {
        kind: RequestKind::FetchFd,
        id: 0x0102_0304_0506_0708,
        allocation_id: 0x1122_3344_5566_7788,
        token: samples::TOKEN,
    };
    compare(REQUEST, "request: fetch a descriptor", &request.encode());
}

#[test]
fn a_reply_is_the_golden_bytes() {
    let reply = Reply {
        status: ReplyStatus::CheckFailed,
        id: 0x0102_0304_0506_0708,
        allocation_id: 0x1122_3344_5566_7788,
        detail: 999,
        pointer: 0,
        size: 0,
    };
    compare(
        REPLY,
        "reply: the driver failed with code 999",
        &reply.encode(),
    );
}
