//! libFuzzer's program for [`gpuipc_fuzz::round_trip`]: any fields through a handle's bytes and back.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuipc_fuzz::round_trip::run(data));
