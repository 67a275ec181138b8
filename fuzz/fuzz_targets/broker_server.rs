//! libFuzzer's program for [`gpuipc_fuzz::broker_server`]: any messages against a running broker.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuipc_fuzz::broker_server::run(data));
