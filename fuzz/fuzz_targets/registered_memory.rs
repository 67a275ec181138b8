//! libFuzzer's program for [`gpuipc_fuzz::registered_memory`]: any bytes against the decoder of
//! registered memories.
#![no_main]

use gpuipc_fuzz::change::Random;
use gpuipc_fuzz::registered_memory;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|data: &[u8]| registered_memory::run(data));

// Half of the inputs are libFuzzer's own, half keep the shape. Most of both get the right length and
// checksums, so that the corpus is one of registered memories.
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut random = Random(seed.into());
    let size = if random.below(2) == 0 {
        fuzzer_mutate(data, size, max_size)
    } else {
        random.change_some(&mut data[..size]);
        size
    };
    if random.below(8) == 0 {
        return size;
    }
    let repaired = registered_memory::repaired(&data[..size]);
    if repaired.len() > max_size {
        return size;
    }
    data[..repaired.len()].copy_from_slice(&repaired);
    repaired.len()
});
