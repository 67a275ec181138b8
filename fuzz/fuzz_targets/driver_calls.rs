//! libFuzzer's program for [`gpuipc_fuzz::driver_calls`]: any calls of the library, and driver calls that fail.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuipc_fuzz::driver_calls::run(data));
