//! Run it with `cargo run --release --manifest-path tests/no-std/Cargo.toml`; it prints nothing
//! and exits with 0 if all is right.
//!
//! A program without std and without an allocator that makes, ships and checks a handle and a
//! registered memory. If gpuipc-core came to need std, this would not compile (two panic handlers);
//! if it came to need an allocator, this would not compile either (no global allocator).
#![no_std]
#![no_main]

use core::ffi::{c_char, c_int};
use core::panic::PanicInfo;
use gpuipc_core::{
    DecodeError, Endpoint, GpuIpcMemHandle, HandleFields, RegisteredFields, RegisteredMemoryRef,
    Request, RequestKind, SharedRange, Ticket, Token, TransportInfo,
};

// The start code of the C library calls `main`; std would have linked it.
#[link(name = "c")]
unsafe extern "C" {
    fn abort() -> !;
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: abort takes nothing, may be called at any time by any thread, and never returns
    // (C11 7.22.4.1).
    unsafe { abort() }
}

/// The first thing that is wrong, as a number; 0 for none.
fn check() -> c_int {
    let token = Token::new([7; 16]);
    let fields = HandleFields {
        base_size: 4096,
        length: 4096,
        range: SharedRange {
            id: 1,
            length: 4096,
            offset: 0,
            segment_index: 0,
            segment_count: 1,
        },
        ticket: Some(Ticket {
            endpoint: Endpoint([9; 16]),
            token,
            fd: Some(3),
            table: None,
        }),
        posix_fd: true,
        ..HandleFields::default()
    };
    let Ok(handle) = GpuIpcMemHandle::new(&fields) else {
        return 1;
    };
    let mut bytes = handle.encode();
    match GpuIpcMemHandle::decode(&bytes) {
        Ok(decoded) if decoded == handle && decoded.fields() == fields => {}
        _ => return 2,
    }
    if handle.types().types().len() != 1 {
        return 3;
    }
    bytes[200] ^= 1;
    if !matches!(
        GpuIpcMemHandle::decode(&bytes),
        Err(DecodeError::Checksum { .. })
    ) {
        return 4;
    }
    let request = Request {
        kind: RequestKind::FetchFd,
        id: 1,
        allocation_id: handle.allocation_id(),
        token,
    };
    if Request::decode(&request.encode()) != Ok(request) {
        return 5;
    }
    if !registers(&handle) {
        return 6;
    }
    0
}

/// A registered memory of the handle goes through its bytes.
fn registers(handle: &GpuIpcMemHandle) -> bool {
    let fields = RegisteredFields {
        len: handle.length(),
        ..RegisteredFields::default()
    };
    let Ok(transport) = TransportInfo::new(1, b"rkey") else {
        return false;
    };
    let mut buffer = [0; 128 + 72 + 384];
    if fields.encode(&[transport], &[*handle], &mut buffer) != Ok(buffer.len()) {
        return false;
    }
    RegisteredMemoryRef::decode(&buffer).is_ok_and(|registered| {
        registered.fields() == fields
            && registered.transports().eq([transport])
            && registered.handles().eq([*handle])
    })
}

// SAFETY: no other item of this program has this name, and the signature is C's for `main`.
#[unsafe(no_mangle)]
extern "C" fn main(_argc: c_int, _argv: *const *const c_char) -> c_int {
    check()
}
