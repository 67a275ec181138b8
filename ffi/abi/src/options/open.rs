//! How the library is opened.

use super::{Growing, wrong};
use crate::failure::Failure;
use crate::values::{
    GPUIPC_TRUST_DEFAULT, GPUIPC_TRUST_SAME_USER, GPUIPC_TRUST_TOKEN_ALONE, GPUIPC_TRUST_USERS,
};
use core::ffi::c_char;
use gpuipc::{IpcOptions, Trust};
use std::ffi::{CStr, OsStr};
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;

/// How the library is opened: what goes before the environment. Filled by
/// `gpuipc_open_options_init`; then change what is to be different. What it
/// points to is read during the call only.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// `sizeof(gpuipc_open_options)` of the header that the caller was compiled with.
    pub struct_size: usize,
    /// The folder for the broker's name, the same on both sides; at most 64
    /// bytes. NULL: `GPUIPC_SOCKET_DIR`, else `/dev/shm/gpuipc-UID`.
    pub socket_dir: *const c_char,
    /// `GPUIPC_TRUST_...`: whose processes are trusted at the other end of the
    /// broker's socket.
    pub trust: u32,
    /// With `GPUIPC_TRUST_USERS`, how many `trusted_uids`; else 0.
    pub trusted_uid_count: u32,
    /// Users beside the own one and root, as this process's user namespace
    /// numbers them.
    pub trusted_uids: *const u32,
    /// 1: keeps a descriptor of 2 MiB of host memory open, so that no export is the
    /// process's first one and no end of an export its last: on an H200 23 us instead
    /// of 580, and 9 us instead of 545. Takes a millisecond now, and no GPU memory. 0:
    /// does not.
    pub keepalive_descriptor: u32,
    /// 0.
    pub reserved: u32,
}

const _: () = assert!(
    size_of::<OpenOptions>() == 40
        && offset_of!(OpenOptions, socket_dir) == 8
        && offset_of!(OpenOptions, trust) == 16
        && offset_of!(OpenOptions, trusted_uid_count) == 20
        && offset_of!(OpenOptions, trusted_uids) == 24
        && offset_of!(OpenOptions, keepalive_descriptor) == 32
        && offset_of!(OpenOptions, reserved) == 36,
    "C callers were compiled with these places, which leave no padding"
);

// SAFETY: repr(C), the size first, no padding by the assertion above; pointers
// and numbers take any bytes.
unsafe impl Growing for OpenOptions {
    const NAME: &'static str = "gpuipc_open_options";
    const PUBLISHED: &'static [usize] = &[32, 40];

    fn defaults() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            socket_dir: core::ptr::null(),
            trust: GPUIPC_TRUST_DEFAULT,
            trusted_uid_count: 0,
            trusted_uids: core::ptr::null(),
            keepalive_descriptor: 0,
            reserved: 0,
        }
    }
}

impl OpenOptions {
    /// The library's options, with what the pointers lead to.
    pub(crate) fn check(
        &self,
        socket_dir: Option<&CStr>,
        uids: &[u32],
    ) -> Result<IpcOptions, Failure> {
        let mut options = IpcOptions::default();
        match socket_dir.map(CStr::to_bytes) {
            None => {}
            Some(b"") => return Err(wrong("socket_dir", "empty", "it is a folder, or NULL")),
            Some(folder) => options = options.socket_dir(OsStr::from_bytes(folder)),
        }
        if self.trust != GPUIPC_TRUST_USERS && !uids.is_empty() {
            return Err(wrong(
                "trusted_uid_count",
                uids.len(),
                "only GPUIPC_TRUST_USERS has any",
            ));
        }
        match self.trust {
            GPUIPC_TRUST_DEFAULT => {}
            GPUIPC_TRUST_SAME_USER => options = options.trust(Trust::SameUser),
            GPUIPC_TRUST_USERS => options = options.trust(Trust::Users(uids.to_vec())),
            GPUIPC_TRUST_TOKEN_ALONE => options = options.trust(Trust::TokenAlone),
            other => return Err(wrong("trust", other, "it is one of GPUIPC_TRUST_...")),
        }
        if self.reserved != 0 {
            return Err(wrong("reserved", self.reserved, "it is 0"));
        }
        match self.keepalive_descriptor {
            0 => {}
            1 => options = options.keepalive_descriptor(true),
            other => return Err(wrong("keepalive_descriptor", other, "it is 0 or 1")),
        }
        Ok(options)
    }
}
