//! A program with CUDA calls of its own beside gpuipc: they must reach the library that it links.

use gpuipc::{DecodeError, Driver, GpuIpcMemHandle};
use std::ffi::{c_int, c_uint};

unsafe extern "C" {
    fn cuInit(flags: c_uint) -> c_uint;
    fn cuDriverGetVersion(version: *mut c_int) -> c_uint;
}

fn main() {
    // SAFETY: cuInit takes a number and nothing else, and may be called at any time.
    let init = unsafe { cuInit(0) };
    let mut version = 0;
    // SAFETY: the call writes one int to the place that it is given, and may be called at any time.
    let got = unsafe { cuDriverGetVersion(&mut version) };
    println!("cuInit {init}, cuDriverGetVersion {got}, version {version}");

    let damaged = GpuIpcMemHandle::decode(&[]);
    assert!(matches!(damaged, Err(DecodeError::Length { got: 0 })));
    // The same library, found at run time. The check's has two calls only, which is an error and no
    // crash.
    let error = Driver::load().expect_err("the check's libcuda lacks most calls");
    println!("{error}");
}
