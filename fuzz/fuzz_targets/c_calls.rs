//! libFuzzer's program for [`gpuipc_fuzz::c_calls`]: any sequence of calls of the C interface.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuipc_fuzz::c_calls::run(data));
