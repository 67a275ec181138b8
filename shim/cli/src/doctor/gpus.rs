//! The driver, and what it says of each GPU. Attributes are only asked for;
//! whether something works, the trials tell.

use super::check::{Check, Verdict};
use crate::driver::{self, Choice, Kind, Opened, open};
use crate::output::Failure;
use gpuipc::Driver;
use gpuipc::sys::{device_attribute as attribute, handle_type};

/// Compute modes in which a second process gets no context (`CUcomputemode`).
const PROHIBITED: i32 = 2;
const EXCLUSIVE_PROCESS: i32 = 3;

/// What helps where no GPU can be used.
const NO_GPU: &str = "install the NVIDIA driver, or start the container with GPU support (docker run --gpus all; \
     with Kubernetes ask for nvidia.com/gpu); GPUIPC_LIBCUDA=PATH names another driver library";

/// Opens the driver that was asked for. Where `auto` finds no GPU the finding
/// says so, and the emulated driver serves for the trials.
pub(crate) fn driver(choice: Choice) -> (Option<Opened>, Vec<Check>) {
    let mut checks = Vec::new();
    let real = match choice {
        Choice::Emulated => None,
        Choice::Auto | Choice::Cuda => Some(driver::real()),
    };
    let wanted = match real {
        Some(Ok(_)) => Choice::Cuda,
        Some(Err(reason)) => {
            checks.push(no_gpu(&reason));
            if choice == Choice::Cuda {
                return (None, checks);
            }
            Choice::Emulated
        }
        None => Choice::Emulated,
    };
    let opened = match open(wanted) {
        Ok(opened) => opened,
        Err(failure) => {
            let cure = "GPUIPC_LOG=debug tells more; the emulated driver needs a writable GPUIPC_EMULATED_DIR";
            checks.push(Check::no("driver", failure.to_string(), cure));
            return (None, checks);
        }
    };
    let count = opened.driver.device_count().unwrap_or(0);
    let gpus = if count == 1 { "GPU" } else { "GPUs" };
    let found = format!("{}, {count} {gpus}", opened.library_and_version());
    checks.push(match opened.kind {
        Kind::Cuda => Check::ok("driver", found),
        Kind::Emulated => Check::note(
            "emulated driver",
            format!("{found}: used for the trials; it says nothing about a real GPU"),
        ),
    });
    (Some(opened), checks)
}

fn no_gpu(reason: &str) -> Check {
    let cure = match std::env::var_os("CUDA_VISIBLE_DEVICES") {
        Some(value) => {
            format!("CUDA_VISIBLE_DEVICES={value:?} may hide the GPUs: unset it; else {NO_GPU}")
        }
        None => NO_GPU.to_owned(),
    };
    let kernel = match std::fs::read_to_string("/proc/driver/nvidia/version") {
        Ok(text) => {
            let first = text.lines().next().unwrap_or_default().trim();
            format!("the kernel has the driver ({first})")
        }
        Err(_) => "the kernel shows no NVIDIA driver here".to_owned(),
    };
    Check::no(
        "driver",
        format!("no GPU can be used: {reason}; {kernel}"),
        cure,
    )
}

/// One finding for each GPU.
pub(crate) fn gpus(opened: &Opened) -> Vec<Check> {
    let driver = opened.driver;
    let count = driver.device_count().unwrap_or(0);
    (0..count).map(|ordinal| gpu(driver, ordinal)).collect()
}

fn gpu(driver: Driver, ordinal: i32) -> Check {
    let subject = format!("GPU {ordinal}");
    let failed = |error: gpuipc::DriverError| {
        Check::no(
            subject.clone(),
            error.to_string(),
            "see the code in CUDA's documentation, and the kernel's log (dmesg) for Xid errors",
        )
    };
    let named = driver.device(ordinal).and_then(|device| {
        let name = driver.device_name(device)?;
        Ok((device, name, gpuipc::device_uuid(driver, device)?))
    });
    let (device, name, uuid) = match named {
        Ok(named) => named,
        Err(error) => return failed(error),
    };
    let has = |number| match driver.device_attribute(number, device) {
        Ok(0) => "no".to_owned(),
        Ok(_) => "yes".to_owned(),
        // What an older driver says of a number that it does not know.
        Err(_) => "unknown".to_owned(),
    };
    let pools = match driver.device_attribute(attribute::MEMPOOL_SUPPORTED_HANDLE_TYPES, device) {
        Err(_) => String::new(),
        Ok(types) => {
            let types = u32::try_from(types).unwrap_or(0);
            let named = [
                (handle_type::POSIX_FILE_DESCRIPTOR, "descriptors"),
                (handle_type::FABRIC, "fabric"),
            ];
            let names: Vec<&str> = named
                .into_iter()
                .filter(|(bit, _)| types & bit != 0)
                .map(|(_, name)| name)
                .collect();
            format!(" ({})", names.join(", "))
        }
    };
    let mode = driver.device_attribute(attribute::COMPUTE_MODE, device);
    let found = format!(
        "{name}, {uuid}; VMM {}, descriptors {}, fabric {}, multicast {}, host memory {}, pools {}{pools}",
        has(attribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
        has(attribute::HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
        has(attribute::HANDLE_TYPE_FABRIC_SUPPORTED),
        has(attribute::MULTICAST_SUPPORTED),
        has(attribute::HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
        has(attribute::MEMORY_POOLS_SUPPORTED),
    );
    match mode {
        Ok(PROHIBITED | EXCLUSIVE_PROCESS) => Check::no(
            subject,
            format!("{found}; its compute mode lets no second process use it"),
            format!("nvidia-smi -i {ordinal} -c DEFAULT"),
        ),
        _ => Check::new(subject, Verdict::Ok, found),
    }
}

/// What the driver's failure to open means for the trials.
pub(crate) fn cannot_be_used(device: i32, failure: &Failure) -> Check {
    Check::no(
        format!("GPU {device}"),
        failure.to_string(),
        "see the reason; for one of the driver's, nvidia-smi shows who uses the GPU and its compute mode",
    )
}
