//! libFuzzer's program for [`gpuipc_fuzz::import`]: any changes of valid handles, imported.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuipc_fuzz::import::run(data));
