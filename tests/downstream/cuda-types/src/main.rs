//! A program that holds types of cuda-driver-sys and gives them to gpuipc.

use cuda_driver_sys::{CUipcMemHandle, CUresult};
use gpuipc::Driver;
use gpuipc::sys::{CuIpcMemHandle, CuResult};

fn main() {
    let ours = CuIpcMemHandle {
        reserved: std::array::from_fn(|at| at as u8),
    };
    let theirs = CUipcMemHandle::from(ours);
    let again = CuIpcMemHandle::from(theirs);
    assert_eq!(again.reserved, ours.reserved);
    assert_eq!(CuResult::from(CUresult::CUDA_SUCCESS), CuResult::SUCCESS);

    let error = Driver::load().expect_err("the check names a library that does not exist");
    println!("{error}");
}
