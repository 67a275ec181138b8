//! A program that builds and starts without CUDA, and says what is missing when it needs it:
//! the driver, and the feature multicast.

use gpuipc::core::{HandleFields, SharedRange};
use gpuipc::{DecodeError, Driver, GpuIpcMemHandle, check_range};

fn main() {
    let damaged = GpuIpcMemHandle::decode(&[]);
    assert!(matches!(damaged, Err(DecodeError::Length { got: 0 })));

    let object = HandleFields {
        base_size: 1,
        length: 1,
        range: SharedRange {
            length: 1,
            segment_count: 1,
            ..SharedRange::default()
        },
        num_devices: 2,
        multicast: true,
        fabric: Some([1; 64]),
        ..HandleFields::default()
    };
    let object = GpuIpcMemHandle::new(&object).expect("a multicast object's handle");
    println!("{}", check_range(&[object]).expect_err("no memory"));

    let error = Driver::load().expect_err("the check names a library that does not exist");
    println!("{error}");
}
