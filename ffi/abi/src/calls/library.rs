//! The library as a whole: opening, versions, log lines, forks.

use super::{call, elements, given, options, put_defaults, release, text};
use crate::failure::Failure;
use crate::logger;
use crate::objects::Library;
use crate::options::OpenOptions;
use crate::status::CStatus;
use crate::values::GPUIPC_LOG_TRACE;
use crate::version;
use core::ffi::{c_char, c_void};
use log::{LevelFilter, Record};
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Opens the library: loads the CUDA driver (`libcuda.so.1`, or what the
/// environment variable `GPUIPC_LIBCUDA` names), initializes it (`cuInit`) and
/// reads the environment. Creates no context and starts no thread.
///
/// `*out` is to be given to `gpuipc_close`. Opening it several times is allowed.
///
/// Fails with `GPUIPC_DRIVER_LIBRARY`, `GPUIPC_DRIVER_SYMBOL`,
/// `GPUIPC_DRIVER_CALL`, `GPUIPC_NO_DEVICE`, `GPUIPC_INVALID_SETTING`,
/// `GPUIPC_FORKED`, `GPUIPC_SYSTEM_CALL`.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_open(out: Option<&mut MaybeUninit<Box<Library>>>) -> CStatus {
    call("gpuipc_open", || {
        let out = given("out", out)?;
        out.write(Box::new(Library::open(&gpuipc::IpcOptions::default())?));
        Ok(())
    })
}

/// The most users that the options can name.
const MOST_UIDS: usize = 65_536;

/// As `gpuipc_open`, with options that go before the environment. `options` may be
/// NULL: the defaults.
///
/// Fails as `gpuipc_open`, and with `GPUIPC_INVALID_ARGUMENT` for options that
/// cannot be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_open_with(
    options: *const OpenOptions,
    out: Option<&mut MaybeUninit<Box<Library>>>,
) -> CStatus {
    call("gpuipc_open_with", || {
        // SAFETY: the caller's promise, for the time of this call.
        let given_options = unsafe { self::options(options) }?;
        let options = match given_options {
            None => gpuipc::IpcOptions::default(),
            Some(options) => {
                // SAFETY: the caller's promise, for the time of this call.
                let socket_dir = unsafe { text(options.socket_dir) };
                // A u32 is not more than a usize on the machines that this is for.
                let count = options.trusted_uid_count as usize;
                // SAFETY: the caller's promise, for the time of this call.
                let uids =
                    unsafe { elements("trusted_uids", options.trusted_uids, count, MOST_UIDS) }?;
                options.check(socket_dir, uids)?
            }
        };
        let out = given("out", out)?;
        out.write(Box::new(Library::open(&options)?));
        Ok(())
    })
}

/// Fills `options` with the defaults. `struct_size` is
/// `sizeof(gpuipc_open_options)` where the caller is compiled.
///
/// Fails with `GPUIPC_INVALID_ARGUMENT` for a size that no header has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_open_options_init(
    options: *mut OpenOptions,
    struct_size: usize,
) -> CStatus {
    call("gpuipc_open_options_init", || {
        // SAFETY: the caller's promise.
        unsafe { put_defaults(options, struct_size) }
    })
}

/// Gives the library back. NULL is allowed. What was exported and imported
/// through it stays valid until it is freed itself.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_close(ipc: Option<Box<Library>>) {
    release("gpuipc_close", ipc);
}

/// Closes the connections to other processes' brokers that are kept for the next
/// import: at most eight, two descriptors each. The next import connects anew; imports
/// under way on other threads go on.
///
/// Fails with `GPUIPC_FORKED`.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_close_idle_connections(ipc: Option<&Library>) -> CStatus {
    call("gpuipc_close_idle_connections", || {
        given("ipc", ipc)?.close_idle_connections()
    })
}

/// The library's version, in the form of `GPUIPC_VERSION`.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_version() -> u32 {
    version::GPUIPC_VERSION
}

/// The library's `GPUIPC_ABI_VERSION`. A program that loads the library by
/// `dlopen` compares it with its header's.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_abi_version() -> u32 {
    version::GPUIPC_ABI_VERSION
}

/// 1 in a process that was forked from one that had opened the library, where
/// calls fail with `GPUIPC_FORKED`; else 0. A few nanoseconds: no system call.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_is_forked() -> u32 {
    u32::from(gpuipc::is_forked())
}

/// Takes a log line: what the caller gave to `gpuipc_log_set`, the line's
/// `GPUIPC_LOG_...`, its target (`gpuipc::gpu`, `gpuipc::broker`, `gpuipc::ffi`)
/// and its words, all valid during the call only. No token is ever in them. Called
/// from any thread that uses the library and from the library's own, also from
/// several at once. A callback: see above for what it may do.
pub type LogCallback = Option<
    unsafe extern "C-unwind" fn(
        user: *mut c_void,
        level: u32,
        target: *const c_char,
        message: *const c_char,
    ),
>;

/// The same when it is there.
type Callback = unsafe extern "C-unwind" fn(*mut c_void, u32, *const c_char, *const c_char);

/// What C wants to have back with each line.
#[derive(Clone, Copy)]
struct User(*mut c_void);

// SAFETY: never followed here, only given back; that the callback may be called
// from any thread with it is what the header asks of C.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

impl User {
    const fn get(&self) -> *mut c_void {
        self.0
    }
}

/// Gives the library's log lines up to `level` (`GPUIPC_LOG_...`) to `callback`,
/// in place of stderr; `user` is given back with each. NULL ends that: no lines.
/// For all users of this copy of the library in the process. Works before
/// `gpuipc_open`, too. When it returns, the callback before is not being called any
/// more, and what its `user` points to may go.
///
/// Fails with `GPUIPC_INVALID_ARGUMENT` for a level that does not exist,
/// `GPUIPC_UNSUPPORTED` in a Rust program that has a logger of its own, `GPUIPC_FORKED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_log_set(
    callback: LogCallback,
    user: *mut c_void,
    level: u32,
) -> CStatus {
    let user = User(user);
    call("gpuipc_log_set", || {
        let filter = LevelFilter::iter()
            .zip(0..=GPUIPC_LOG_TRACE)
            .find_map(|(filter, number)| (number == level).then_some(filter))
            .ok_or_else(|| Failure::argument(format!("there is no log level {level}")))?;
        let sink = callback.map(|callback| {
            Arc::new(move |record: &Record<'_>| tell(callback, &user, record)) as Arc<_>
        });
        logger::set(sink, filter)
    })
}

/// Gives one line to C.
fn tell(callback: Callback, user: &User, record: &Record<'_>) {
    let c = |text: String| CString::new(text.replace('\0', " ")).unwrap_or_default();
    let (target, message) = (c(record.target().to_owned()), c(record.args().to_string()));
    let level = record.level() as u32;
    // SAFETY: the function and `user` are C's, given for such calls; both texts
    // end with a NUL and live until it returns.
    unsafe { callback(user.get(), level, target.as_ptr(), message.as_ptr()) };
}
