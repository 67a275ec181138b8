//! Keeps the shared object loaded that contains the code of the broker's thread.
//!
//! `dlclose` of a plugin that contains this library would unmap the code while the
//! thread runs it. A thread cannot close the object that it runs in, so the object
//! stays loaded until the process ends.
#![allow(unsafe_code)]

use core::mem::MaybeUninit;
use std::ffi::CStr;

/// Makes `dlclose` of the shared object with this code in it do nothing from now
/// on. In a program itself there is nothing to do.
pub(crate) fn keep_loaded() {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked about, and `info` is a local of the right type.
    let found = unsafe { libc::dladdr(keep_loaded as *const libc::c_void, info.as_mut_ptr()) };
    // SAFETY: plain pointers, of which all zeros are a value, too.
    let info = unsafe { info.assume_init() };
    if found == 0 || info.dli_fname.is_null() {
        return;
    }
    // SAFETY: not null, so text of the dynamic loader's that lives as long as the
    // object, in which this code runs.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: loads nothing (RTLD_NOLOAD), so it runs no code; the name is text that
    // ends with a NUL. The reference that it gives is never closed: that is the point.
    let object = unsafe { libc::dlopen(name.as_ptr(), flags) };
    if object.is_null() {
        // As a program itself answers.
        log::debug!(target: "gpuipc::broker", "{} is no shared object to keep loaded", name.to_string_lossy());
    }
}
