//! The little of NVML that is asked: each GPU's UUID and fabric state. The
//! library is found at run time; a symbol that it lacks is an answer left open.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_char, c_uint, c_void};
use core::mem::{ManuallyDrop, offset_of};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

const LIBRARY: &str = "libnvidia-ml.so.1";

/// `nvmlReturn_t`; 0 is success.
type Code = c_uint;
/// `nvmlDevice_t`, a pointer that only NVML looks behind.
type Device = *mut c_void;

/// `NVML_GPU_FABRIC_STATE_*`.
pub(crate) const NOT_SUPPORTED_STATE: u8 = 0;
pub(crate) const NOT_STARTED: u8 = 1;
pub(crate) const IN_PROGRESS: u8 = 2;
pub(crate) const COMPLETED: u8 = 3;

/// `nvmlGpuFabricInfo_t`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct InfoV1 {
    cluster: [u8; 16],
    status: Code,
    clique: c_uint,
    state: u8,
}

/// `nvmlGpuFabricInfo_v2_t`: the version in front, a mask at the end.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct InfoV2 {
    version: c_uint,
    cluster: [u8; 16],
    status: Code,
    clique: c_uint,
    state: u8,
    health_mask: c_uint,
}

/// `nvmlGpuFabricInfo_v2`: the structure's size, and its version in the top byte.
const VERSION_2: c_uint = 0x0200_0024;

const _: () = {
    assert!(size_of::<InfoV1>() == 28 && offset_of!(InfoV1, state) == 24);
    assert!(size_of::<InfoV2>() == 0x24 && offset_of!(InfoV2, cluster) == 4);
    assert!(offset_of!(InfoV2, state) == 28 && offset_of!(InfoV2, health_mask) == 32);
};

/// `NVML_DEVICE_UUID_V2_BUFFER_SIZE`.
const UUID_BYTES: usize = 96;

/// What NVML says of a GPU.
#[derive(Clone, Debug)]
pub(crate) struct Gpu {
    pub(crate) uuid: String,
    pub(crate) fabric: Result<Fabric, String>,
}

/// Its place in a fabric.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fabric {
    /// All zeros: no domain.
    pub(crate) cluster: [u8; 16],
    /// Counts only in the state [`COMPLETED`].
    pub(crate) status: Code,
    pub(crate) clique: c_uint,
    pub(crate) state: u8,
}

/// Every GPU that NVML shows, in its own order.
pub(crate) fn read() -> Result<Vec<Gpu>, String> {
    let nvml = Nvml::start()?;
    let count = nvml.count()?;
    (0..count).map(|index| nvml.gpu(index)).collect()
}

/// NVML, initialized.
struct Nvml {
    /// Never closed: a library of the driver may have threads of its own.
    library: ManuallyDrop<Library>,
}

impl Nvml {
    fn start() -> Result<Self, String> {
        // SAFETY: this name is NVML's own; its constructors are made to run in
        // any process.
        let library = unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|error| {
            std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)
        })?;
        let nvml = Self {
            library: ManuallyDrop::new(library),
        };
        // SAFETY: `nvmlReturn_t nvmlInit_v2(void)`.
        let init: unsafe extern "C" fn() -> Code = unsafe { nvml.symbol(c"nvmlInit_v2") }?;
        // SAFETY: "Initialize NVML"; it takes nothing and may be called at any time.
        succeeded("nvmlInit_v2", unsafe { init() })?;
        Ok(nvml)
    }

    /// # Safety
    /// `F` is the type of a function pointer with the C signature that NVML's
    /// header gives this symbol.
    unsafe fn symbol<F: Copy>(&self, name: &CStr) -> Result<F, String> {
        // SAFETY: the caller promises the type.
        let found = unsafe { self.library.get::<F>(name.to_bytes_with_nul()) };
        found
            .map(|symbol| *symbol)
            .map_err(|_| format!("{LIBRARY} lacks {}", name.to_string_lossy()))
    }

    fn count(&self) -> Result<c_uint, String> {
        // SAFETY: `nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *)`.
        let get: unsafe extern "C" fn(*mut c_uint) -> Code =
            unsafe { self.symbol(c"nvmlDeviceGetCount_v2") }?;
        let mut count = 0;
        // SAFETY: NVML is initialized and stores one unsigned int.
        succeeded("nvmlDeviceGetCount_v2", unsafe { get(&raw mut count) })?;
        Ok(count)
    }

    fn gpu(&self, index: c_uint) -> Result<Gpu, String> {
        // SAFETY: `nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int, nvmlDevice_t *)`.
        let get: unsafe extern "C" fn(c_uint, *mut Device) -> Code =
            unsafe { self.symbol(c"nvmlDeviceGetHandleByIndex_v2") }?;
        let mut device: Device = core::ptr::null_mut();
        // SAFETY: NVML is initialized and stores one handle.
        let code = unsafe { get(index, &raw mut device) };
        if let Err(reason) = succeeded("nvmlDeviceGetHandleByIndex_v2", code) {
            // A GPU that this user may not see hides no other one.
            return Ok(Gpu {
                uuid: "a GPU without a handle".to_owned(),
                fabric: Err(reason),
            });
        }
        Ok(Gpu {
            uuid: self
                .uuid(device)
                .unwrap_or_else(|reason| format!("a GPU without a UUID ({reason})")),
            fabric: self.fabric(device),
        })
    }

    /// `device` comes from `nvmlDeviceGetHandleByIndex_v2`.
    fn uuid(&self, device: Device) -> Result<String, String> {
        // SAFETY: `nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t, char *, unsigned int)`.
        let get: unsafe extern "C" fn(Device, *mut c_char, c_uint) -> Code =
            unsafe { self.symbol(c"nvmlDeviceGetUUID") }?;
        let mut text = [0_u8; UUID_BYTES];
        // SAFETY: NVML writes at most the length it is told; there is one byte
        // more, which stays zero.
        let code = unsafe { get(device, text.as_mut_ptr().cast(), UUID_BYTES as c_uint - 1) };
        succeeded("nvmlDeviceGetUUID", code)?;
        CStr::from_bytes_until_nul(&text)
            .map(|text| text.to_string_lossy().into_owned())
            .map_err(|error| error.to_string())
    }

    /// By the newer call, where the library has it, else by the older one.
    /// `device` comes from `nvmlDeviceGetHandleByIndex_v2`.
    fn fabric(&self, device: Device) -> Result<Fabric, String> {
        // SAFETY: `nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t, nvmlGpuFabricInfoV_t *)`,
        // which takes any version of the structure that says its version.
        let newer: Result<unsafe extern "C" fn(Device, *mut InfoV2) -> Code, _> =
            unsafe { self.symbol(c"nvmlDeviceGetGpuFabricInfoV") };
        if let Ok(get) = newer {
            let mut info = InfoV2 {
                version: VERSION_2,
                ..InfoV2::default()
            };
            // SAFETY: the structure says that it is version 2 and has that
            // version's size and layout (asserted above): no more is written.
            succeeded("nvmlDeviceGetGpuFabricInfoV", unsafe {
                get(device, &raw mut info)
            })?;
            return Ok(Fabric {
                cluster: info.cluster,
                status: info.status,
                clique: info.clique,
                state: info.state,
            });
        }
        // SAFETY: `nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t, nvmlGpuFabricInfo_t *)`.
        let older: unsafe extern "C" fn(Device, *mut InfoV1) -> Code =
            unsafe { self.symbol(c"nvmlDeviceGetGpuFabricInfo") }?;
        let mut info = InfoV1::default();
        // SAFETY: the structure has NVML's layout (asserted above).
        succeeded("nvmlDeviceGetGpuFabricInfo", unsafe {
            older(device, &raw mut info)
        })?;
        Ok(Fabric {
            cluster: info.cluster,
            status: info.status,
            clique: info.clique,
            state: info.state,
        })
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: `nvmlReturn_t nvmlShutdown(void)`.
        let stop = unsafe { self.symbol::<unsafe extern "C" fn() -> Code>(c"nvmlShutdown") };
        if let Ok(stop) = stop {
            // SAFETY: undoes the one `nvmlInit_v2`; no handle is used after it.
            unsafe { stop() };
        }
    }
}

fn succeeded(call: &str, code: Code) -> Result<(), String> {
    if code == 0 {
        Ok(())
    } else {
        Err(format!("{call} answered {}", name(code)))
    }
}

/// NVML's name of a code.
pub(crate) fn name(code: Code) -> String {
    let name = match code {
        1 => "NVML_ERROR_UNINITIALIZED",
        2 => "NVML_ERROR_INVALID_ARGUMENT",
        3 => "NVML_ERROR_NOT_SUPPORTED",
        4 => "NVML_ERROR_NO_PERMISSION",
        9 => "NVML_ERROR_DRIVER_NOT_LOADED",
        13 => "NVML_ERROR_FUNCTION_NOT_FOUND",
        15 => "NVML_ERROR_GPU_IS_LOST",
        18 => "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
        25 => "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
        _ => return format!("code {code}"),
    };
    format!("{name} ({code})")
}
