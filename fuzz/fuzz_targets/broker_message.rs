//! libFuzzer's program for [`gpuipc_fuzz::broker_message`]: any bytes against the broker's messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gpuipc_fuzz::broker_message::run(data));
