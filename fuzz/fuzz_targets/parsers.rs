//! libFuzzer's program for [`gpuipc_fuzz::parsers`]: any bytes against the library's small parsers.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuipc_fuzz::parsers::run(data));
