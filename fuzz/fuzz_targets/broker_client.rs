//! libFuzzer's program for [`gpuipc_fuzz::broker_client`]: any answers of a broker that lies.
#![no_main]

use gpuipc_fuzz::broker_client::look;
use std::time::Duration;

// Most lies end at the deadline: a short one gives many of them. An honest answer takes a tenth of it.
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    look(data, Duration::from_millis(3));
});
