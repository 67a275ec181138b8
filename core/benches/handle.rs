//! What a handle costs, and a registered memory: `cargo bench -p gpuipc-core`. An export encodes one for each segment, an
//! import decodes one for each, both beside driver calls that take microseconds and more.
#![allow(clippy::unwrap_used, missing_docs)]

// Not every program uses every sample.
#[allow(dead_code)]
#[path = "../tests/samples/mod.rs"]
mod samples;

use criterion::{Criterion, criterion_group, criterion_main};
use gpuipc_core::{GpuIpcMemHandle, RegisteredMemoryRef, checksum_of};
use std::hint::black_box;

fn handle(criterion: &mut Criterion) {
    let fields = samples::fd_and_fabric();
    let handle = GpuIpcMemHandle::new(&fields).unwrap();
    let bytes = handle.encode();

    criterion.bench_function("make a handle of its fields", |bencher| {
        bencher.iter(|| GpuIpcMemHandle::new(black_box(&fields)));
    });
    criterion.bench_function("encode a handle", |bencher| {
        bencher.iter(|| black_box(&handle).encode());
    });
    criterion.bench_function("decode a handle", |bencher| {
        bencher.iter(|| GpuIpcMemHandle::decode(black_box(&bytes)));
    });
    criterion.bench_function("checksum of a handle", |bencher| {
        bencher.iter(|| checksum_of(black_box(&bytes)));
    });
}

fn wrong_handle(criterion: &mut Criterion) {
    let bytes = GpuIpcMemHandle::new(&samples::fd()).unwrap().encode();

    // A damaged slot is found by the checksum only.
    let mut damaged = bytes;
    damaged[383] ^= 1;
    assert!(GpuIpcMemHandle::decode(&damaged).is_err());
    criterion.bench_function("refuse a damaged handle", |bencher| {
        bencher.iter(|| GpuIpcMemHandle::decode(black_box(&damaged)));
    });

    // The last rule of all: the only segment is as long as its range.
    let mut wrong = bytes;
    wrong[56] = 1;
    let sum = checksum_of(&wrong).to_le_bytes();
    wrong[188..192].copy_from_slice(&sum);
    assert!(GpuIpcMemHandle::decode(&wrong).is_err());
    criterion.bench_function("refuse a handle for its last rule", |bencher| {
        bencher.iter(|| GpuIpcMemHandle::decode(black_box(&wrong)));
    });
}

fn registered_memory(criterion: &mut Criterion) {
    let sample = samples::registered();
    let bytes = sample.encode();
    let mut buffer = bytes.clone();

    criterion.bench_function("encode a registered memory of 3 handles", |bencher| {
        bencher.iter(|| {
            let fields = black_box(&sample.fields);
            fields.encode(&sample.transports, &sample.handles, &mut buffer)
        });
    });
    criterion.bench_function("decode a registered memory of 3 handles", |bencher| {
        bencher.iter(|| RegisteredMemoryRef::decode(black_box(&bytes)).is_ok());
    });
}

criterion_group!(benches, handle, wrong_handle, registered_memory);
criterion_main!(benches);
