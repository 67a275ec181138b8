//! libFuzzer's program for [`gpuipc_fuzz::broker_client`]: an importer and any answers of a broker.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuipc_fuzz::broker_client::run(data));
