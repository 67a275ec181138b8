//! Finding libcuda at run time.
#![allow(unsafe_code)]

use super::calls::{CallInfo, DriverTable};
use core::ffi::c_void;
use core::fmt;
use core::mem::ManuallyDrop;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};
use std::ffi::{CString, OsStr, OsString};

/// The driver library's usual name, found by the dynamic loader.
pub const DEFAULT_LIBRARY: &str = "libcuda.so.1";

/// The environment variable that names another library in place of
/// [`DEFAULT_LIBRARY`]: a path, or a name for the dynamic loader.
pub const LIBRARY_VARIABLE: &str = "GPUIPC_LIBCUDA";

/// Why no driver could be loaded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// `dlopen` failed.
    Library {
        /// The name or path that was tried.
        path: OsString,
        /// The dynamic loader's own words.
        message: String,
    },
    /// The library lacks a symbol without which nothing works.
    Symbol {
        /// The library.
        path: OsString,
        /// The symbol.
        symbol: &'static str,
        /// The CUDA version that brought it, e.g. 7000 for 7.0.
        cuda_version: u32,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library { path, message } => write!(
                f,
                "the CUDA driver library {} cannot be loaded: {message}. Is the NVIDIA driver installed here \
                 (in a container: was it started with GPU support)? {LIBRARY_VARIABLE}=PATH names another library",
                path.display()
            ),
            Self::Symbol {
                path,
                symbol,
                cuda_version,
            } => write!(
                f,
                "the CUDA driver library {} lacks {symbol}, which came with CUDA {}.{}: the driver is too old, \
                 or this is not libcuda",
                path.display(),
                cuda_version / 1000,
                cuda_version % 1000 / 10
            ),
        }
    }
}

impl std::error::Error for LoadError {}

/// Opens `library` (`dlopen` with `RTLD_NOW | RTLD_LOCAL`) and looks every
/// symbol up. The library stays loaded for the rest of the process: a driver
/// has threads of its own, and nothing may unload it below them.
///
/// # Safety
/// `library` is a CUDA driver: loading it runs its constructors, and each of
/// its `cu*` symbols has the signature that `cuda.h` gives it.
///
/// # Errors
/// [`LoadError`] if it cannot be opened or lacks a required symbol.
pub unsafe fn load(library: &OsStr) -> Result<DriverTable, LoadError> {
    // SAFETY: the caller promises that this is a CUDA driver, whose
    // constructors are made to run in any process.
    let opened =
        unsafe { Library::open(Some(library), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| {
            // The dynamic loader's words are the error's source.
            let message = std::error::Error::source(&error)
                .map_or_else(|| error.to_string(), ToString::to_string);
            LoadError::Library {
                path: library.to_owned(),
                message,
            }
        })?;
    // Never closed: see above.
    let opened = ManuallyDrop::new(opened);
    let find = |info: &CallInfo| -> Result<Option<*const c_void>, LoadError> {
        let missing = LoadError::Symbol {
            path: library.to_owned(),
            symbol: info.symbol,
            cuda_version: info.cuda_version,
        };
        let Ok(name) = CString::new(info.symbol) else {
            return Err(missing);
        };
        // SAFETY: the symbol is only turned into a raw address here; its type
        // is given where the table is filled.
        let found: Result<Symbol<*const c_void>, _> =
            unsafe { opened.get(name.as_bytes_with_nul()) };
        let address = found
            .ok()
            .map(|symbol| symbol.as_raw_ptr().cast_const())
            .filter(|address| !address.is_null());
        if address.is_none() && info.required {
            Err(missing)
        } else {
            Ok(address)
        }
    };
    // SAFETY: addresses come from `dlsym` on a library that the caller promises
    // to be a CUDA driver and that is never closed.
    unsafe { DriverTable::from_symbols(find) }
}
