//! A program that builds and starts without CUDA, and says what is missing when it needs it.

use gpuipc::{DecodeError, Driver, GpuIpcMemHandle};

fn main() {
    let damaged = GpuIpcMemHandle::decode(&[]);
    assert!(matches!(damaged, Err(DecodeError::Length { got: 0 })));

    let error = Driver::load().expect_err("the check names a library that does not exist");
    println!("{error}");
}
