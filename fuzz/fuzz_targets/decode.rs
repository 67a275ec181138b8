//! libFuzzer's program for [`gpuipc_fuzz::decode`]: any bytes against the handle's decoder.
#![no_main]

use gpuipc_fuzz::change::Random;
use gpuipc_fuzz::checker::HANDLE as BYTES;
use gpuipc_fuzz::decode;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

// What libFuzzer itself costs is shared by many handles.
fuzz_target!(|data: &[u8]| {
    decode::run(data);
    decode::around(data, 100);
});

// Half of the inputs are libFuzzer's own, half keep the handle's shape. Most of both get the right
// length and checksum, so that the corpus is one of handles.
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut random = Random(seed.into());
    let size = if random.below(2) == 0 {
        fuzzer_mutate(data, size, max_size)
    } else {
        random.change_some(&mut data[..size]);
        size
    };
    if max_size < BYTES || random.below(8) == 0 {
        return size;
    }
    let repaired = decode::repaired(&data[..size]);
    data[..BYTES].copy_from_slice(&repaired);
    BYTES
});
