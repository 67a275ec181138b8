//! The functions that C calls, each by the same pattern: its name to [`call`],
//! which catches panics and keeps the error's text; every pointer through
//! [`given`], [`bytes`] or [`TextRoom::new`], which refuse NULL; the result
//! written last, so only on success.
//!
//! A pointer to one object arrives as an `Option` of a reference or a `Box`:
//! NULL is `None`, and that any other is valid is what the header asks of C.
//! `MaybeUninit` stands for memory that C need not have filled. A buffer
//! arrives as a raw pointer beside its size; such functions are `unsafe`.
//!
//! The documentation of these functions is the header's.
#![allow(unsafe_code)]
// What each function asks of its pointers stands in prose, for readers of C.
#![allow(clippy::missing_safety_doc)]

use crate::failure::Failure;
use crate::objects::{self, Exported, Library, Mem};
use crate::options::{self, ImportOptions};
use crate::status::CStatus;
use crate::{last_error, status, values, version};
use core::ffi::c_char;
use gpuipc::{HANDLE_BYTES, Status};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body`; a panic in it becomes a failure.
fn caught(body: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    // What `body` shares with later calls is behind locks that the library
    // takes over even when a panic has poisoned them.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| Err(Failure::panic(&*payload)))
}

/// One call of C: a number for it, and the text for [`gpuipc_last_error`].
fn call(name: &str, body: impl FnOnce() -> Result<(), Failure>) -> CStatus {
    last_error::record(name, caught(body)).0
}

/// The end of an object that C gives back. Leaves the last error as it is.
fn release<T>(name: &str, object: Option<Box<T>>) {
    let dropped = caught(|| {
        drop(object);
        Ok(())
    });
    if let Err(failure) = dropped {
        log::error!(target: "gpuipc::ffi", "{name}: {}", failure.text);
    }
}

/// What an argument points to, unless it is NULL.
fn given<T>(argument: &str, pointer: Option<T>) -> Result<T, Failure> {
    pointer.ok_or_else(|| Failure::null(argument))
}

/// The bytes that C lends for reading.
///
/// # Safety
/// `pointer` is NULL, or points to `len` bytes that are initialized, and that
/// nobody changes or frees for as long as the result is used.
unsafe fn bytes<'a>(argument: &str, pointer: *const u8, len: usize) -> Result<&'a [u8], Failure> {
    if pointer.is_null() {
        return Err(Failure::null(argument));
    }
    check_size(argument, len)?;
    // SAFETY: not null, and not longer than an allocation can be, by the checks
    // above; readable and unchanged for 'a by the caller's promise. Bytes have
    // no alignment.
    Ok(unsafe { core::slice::from_raw_parts(pointer, len) })
}

/// The bytes that C lends for writing.
///
/// # Safety
/// `pointer` is NULL, or points to `size` bytes that may be written, and that
/// nobody else uses for as long as the result is used.
unsafe fn buffer<'a>(
    argument: &str,
    pointer: *mut u8,
    size: usize,
) -> Result<&'a mut [MaybeUninit<u8>], Failure> {
    if pointer.is_null() {
        return Err(Failure::null(argument));
    }
    check_size(argument, size)?;
    // SAFETY: not null, and not longer than an allocation can be, by the checks
    // above; writable and ours alone for 'a by the caller's promise. `MaybeUninit`
    // asks for no contents, bytes for no alignment.
    Ok(unsafe { core::slice::from_raw_parts_mut(pointer.cast(), size) })
}

/// Refuses a size that no memory has, such as -1.
fn check_size(argument: &str, size: usize) -> Result<(), Failure> {
    match isize::try_from(size) {
        Ok(_) => Ok(()),
        Err(_) => Err(Failure::argument(format!(
            "the size of {argument} is {size}, more than there are addresses"
        ))),
    }
}

/// Where C wants a text.
struct TextRoom<'a> {
    buffer: &'a mut [MaybeUninit<u8>],
    needed: Option<&'a mut MaybeUninit<usize>>,
}

impl<'a> TextRoom<'a> {
    /// NULL with size 0 asks for `needed` alone.
    ///
    /// # Safety
    /// As for [`buffer`].
    unsafe fn new(
        pointer: *mut c_char,
        size: usize,
        needed: Option<&'a mut MaybeUninit<usize>>,
    ) -> Result<Self, Failure> {
        let buffer = match size {
            0 if needed.is_none() => return Err(Failure::null("needed")),
            0 => &mut [],
            // SAFETY: the caller's promise is this function's.
            _ => unsafe { buffer("buffer", pointer.cast(), size) }?,
        };
        Ok(Self { buffer, needed })
    }

    /// Writes `text` and a NUL, or as much of it as there is room for.
    fn put(self, text: &str) -> Result<(), Failure> {
        let size = self.buffer.len();
        let needs = text.len() + 1;
        if let Some(needed) = self.needed {
            needed.write(needs);
        }
        let Some(room) = size.checked_sub(1) else {
            return Ok(());
        };
        let part = &text[..text.floor_char_boundary(room)];
        put_bytes(self.buffer, part.as_bytes());
        self.buffer[part.len()].write(0);
        if size < needs {
            return Err(Failure::room(size, needs));
        }
        Ok(())
    }
}

/// Writes `bytes` at the start of a buffer that has room for them.
fn put_bytes(buffer: &mut [MaybeUninit<u8>], bytes: &[u8]) {
    for (place, byte) in buffer.iter_mut().zip(bytes) {
        place.write(*byte);
    }
}

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
        out.write(Box::new(Library::open()?));
        Ok(())
    })
}

/// Gives the library back. NULL is allowed. What was exported and imported
/// through it stays valid until it is freed itself.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_close(ipc: Option<Box<Library>>) {
    release("gpuipc_close", ipc);
}

/// Offers `len` bytes of GPU memory from `ptr` on (a `CUdeviceptr`) to other
/// processes, by every type of sharing that the memory allows: `cuMemAlloc`
/// memory by legacy IPC, `cuMemCreate` memory by the handle types that it was
/// created for. Needs no current context and leaves the caller's as it was.
/// The first export starts a thread that answers importers.
///
/// `*out` is to be given to `gpuipc_exported_free`, which ends the offer. Until
/// then `cuMemCreate` memory stays allocated, whatever its owner frees;
/// `cuMemAlloc` memory its owner must keep.
///
/// Fails with `GPUIPC_NOT_EXPORTABLE` (the error's text has the kind of memory
/// and the cure), `GPUIPC_INVALID_ARGUMENT` for `len` 0, `GPUIPC_BROKER_START`,
/// `GPUIPC_DRIVER_CALL`, `GPUIPC_FORKED`.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_export(
    ipc: Option<&Library>,
    ptr: u64,
    len: usize,
    out: Option<&mut MaybeUninit<Box<Exported>>>,
) -> CStatus {
    call("gpuipc_export", || {
        let (ipc, out) = (given("ipc", ipc)?, given("out", out)?);
        out.write(Box::new(ipc.export(ptr, len)?));
        Ok(())
    })
}

/// How many handles describe the memory: one for memory inside one allocation,
/// which is all that this version exports.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_exported_handle_count(
    exported: Option<&Exported>,
    out: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    call("gpuipc_exported_handle_count", || {
        let (exported, out) = (given("exported", exported)?, given("out", out)?);
        out.write(exported.handles().len());
        Ok(())
    })
}

/// Writes the bytes of handle `index`, `GPUIPC_HANDLE_BYTES` of them, into
/// `buffer`, which has `size` bytes and needs no alignment. Send them to the
/// importer by any means, unchanged; of several handles one after the other.
/// Who holds the bytes may ask for the memory: keep them like a password.
///
/// Fails with `GPUIPC_INVALID_ARGUMENT` for an index beyond the last,
/// `GPUIPC_BUFFER_TOO_SMALL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_exported_handle_bytes(
    exported: Option<&Exported>,
    index: usize,
    buffer: *mut u8,
    size: usize,
) -> CStatus {
    call("gpuipc_exported_handle_bytes", || {
        let exported = given("exported", exported)?;
        // SAFETY: the caller's promise, for the time of this call.
        let buffer = unsafe { self::buffer("buffer", buffer, size) }?;
        let bytes = exported.handle_bytes(index)?;
        if size < HANDLE_BYTES {
            return Err(Failure::room(size, HANDLE_BYTES));
        }
        put_bytes(buffer, &bytes);
        Ok(())
    })
}

/// The types that the memory was made for but that could not be exported, and
/// why: a line each, empty if there are none. A text function: see above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_exported_attempts(
    exported: Option<&Exported>,
    buffer: *mut c_char,
    size: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    call("gpuipc_exported_attempts", || {
        let exported = given("exported", exported)?;
        // SAFETY: the caller's promise, for the time of this call.
        let room = unsafe { TextRoom::new(buffer, size, needed) }?;
        room.put(&exported.attempts())
    })
}

/// Ends the offer, unless the same allocation is exported elsewhere in this
/// process, too. NULL is allowed. Importers that have mapped the memory keep
/// their mappings; later ones find the offer withdrawn.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_exported_free(exported: Option<Box<Exported>>) {
    release("gpuipc_exported_free", exported);
}

/// Fills `options` with the defaults. `struct_size` is
/// `sizeof(gpuipc_import_options)` where the caller is compiled, so that a newer
/// library never writes more than the caller has.
///
/// Fails with `GPUIPC_INVALID_ARGUMENT` for a size that this library does not know.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_import_options_init(
    options: Option<&mut MaybeUninit<ImportOptions>>,
    struct_size: usize,
) -> CStatus {
    call("gpuipc_import_options_init", || {
        let options = given("options", options)?;
        options.write(options::defaults(struct_size)?);
        Ok(())
    })
}

/// Maps the memory behind the handles in the `len` bytes at `handles`, by the
/// first type of sharing that works. The bytes need no alignment; `len` is
/// `GPUIPC_HANDLE_BYTES` for each handle (this version imports memory of one).
/// `options` may be NULL: the defaults. What a type that failed had done is
/// undone before the next one is tried. The caller's current context stays.
///
/// `*out` is to be given to `gpuipc_mem_free`, which unmaps. In the exporting
/// process itself this gives the original pointer.
///
/// Nothing here orders one process's GPU work after another's.
///
/// Fails with `GPUIPC_EXPORTER_GONE`, `GPUIPC_OFFER_WITHDRAWN`,
/// `GPUIPC_TIMED_OUT`, `GPUIPC_OTHER_HOST` or else `GPUIPC_NO_TYPE_WORKED` (the
/// error's text has every attempt), `GPUIPC_HANDLE_...` for bytes that are no
/// handles, `GPUIPC_INVALID_ARGUMENT`, `GPUIPC_UNSUPPORTED`,
/// `GPUIPC_DRIVER_CALL`, `GPUIPC_NO_DEVICE`, `GPUIPC_FORKED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_import(
    ipc: Option<&Library>,
    handles: *const u8,
    len: usize,
    options: Option<&ImportOptions>,
    out: Option<&mut MaybeUninit<Box<Mem>>>,
) -> CStatus {
    call("gpuipc_import", || {
        let ipc = given("ipc", ipc)?;
        // SAFETY: the caller's promise, for the time of this call.
        let handles = unsafe { bytes("handles", handles, len) }?;
        let out = given("out", out)?;
        out.write(Box::new(ipc.import(handles, options)?));
        Ok(())
    })
}

/// The address (a `CUdeviceptr`) of the first byte that was exported.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_mem_ptr(mem: Option<&Mem>, out: Option<&mut MaybeUninit<u64>>) -> CStatus {
    call("gpuipc_mem_ptr", || {
        let (mem, out) = (given("mem", mem)?, given("out", out)?);
        out.write(mem.mem.device_ptr());
        Ok(())
    })
}

/// How many bytes were exported.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_mem_len(
    mem: Option<&Mem>,
    out: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    call("gpuipc_mem_len", || {
        let (mem, out) = (given("mem", mem)?, given("out", out)?);
        out.write(mem.mem.len());
        Ok(())
    })
}

/// How the memory was reached: one of `GPUIPC_TYPE_...`.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_mem_type_used(
    mem: Option<&Mem>,
    out: Option<&mut MaybeUninit<u32>>,
) -> CStatus {
    call("gpuipc_mem_type_used", || {
        let (mem, out) = (given("mem", mem)?, given("out", out)?);
        out.write(values::type_used(mem.mem.type_used()));
        Ok(())
    })
}

/// What was known about the memory when it was imported: one of
/// `GPUIPC_LIVENESS_...`.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_mem_liveness(
    mem: Option<&Mem>,
    out: Option<&mut MaybeUninit<u32>>,
) -> CStatus {
    call("gpuipc_mem_liveness", || {
        let (mem, out) = (given("mem", mem)?, given("out", out)?);
        out.write(values::liveness(mem.mem.liveness()));
        Ok(())
    })
}

/// The types that were tried before the one that worked, and why each failed: a
/// line each, empty if there are none. A text function: see above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_mem_attempts(
    mem: Option<&Mem>,
    buffer: *mut c_char,
    size: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    call("gpuipc_mem_attempts", || {
        let mem = given("mem", mem)?;
        // SAFETY: the caller's promise, for the time of this call.
        let room = unsafe { TextRoom::new(buffer, size, needed) }?;
        room.put(&mem.attempts())
    })
}

/// Unmaps the memory. NULL is allowed. Does not wait for the GPU: work that uses
/// the memory must have ended. Changes no thread's current context.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_mem_free(mem: Option<Box<Mem>>) {
    release("gpuipc_mem_free", mem);
}

/// Says whether the `len` bytes at `handles` are handles, as `gpuipc_import`
/// would, without a driver: not whether the memory can be reached.
///
/// Fails with `GPUIPC_HANDLE_LENGTH`, `GPUIPC_HANDLE_MAGIC`,
/// `GPUIPC_HANDLE_NEWER`, `GPUIPC_HANDLE_DAMAGED`, `GPUIPC_HANDLE_FIELD`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_handle_check(handles: *const u8, len: usize) -> CStatus {
    call("gpuipc_handle_check", || {
        // SAFETY: the caller's promise, for the time of this call.
        let handles = unsafe { bytes("handles", handles, len) }?;
        objects::decode(handles)?;
        Ok(())
    })
}

/// What this thread's last call said, in full: the function, the cause, every
/// attempt with its step, code and hint. Empty if that call returned
/// `GPUIPC_OK`. The calls that return no status, and this one, do not change it.
/// A text function: see above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuipc_last_error(
    buffer: *mut c_char,
    size: usize,
    needed: Option<&mut MaybeUninit<usize>>,
) -> CStatus {
    let put = caught(|| {
        // SAFETY: the caller's promise, for the time of this call.
        let room = unsafe { TextRoom::new(buffer, size, needed) }?;
        room.put(&last_error::text())
    });
    put.map_or_else(|failure| failure.status.0, |()| status::GPUIPC_OK)
}

/// The status in one sentence. Never NULL, and never freed; also for numbers
/// that this library does not know.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_status_text(status: CStatus) -> *const c_char {
    status::text(Status(status)).as_ptr()
}

/// The status's name without `GPUIPC_`, such as `TIMED_OUT`; `UNKNOWN` for a
/// number that this library does not know. Never NULL, and never freed.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_status_name(status: CStatus) -> *const c_char {
    status::name(Status(status)).as_ptr()
}

/// The library's version, in the form of `GPUIPC_VERSION`.
#[unsafe(no_mangle)]
pub extern "C" fn gpuipc_version() -> u32 {
    version::GPUIPC_VERSION
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        last_error::text()
    }

    #[test]
    fn a_panic_becomes_a_status_and_a_text() {
        let status = call("gpuipc_test", || panic!("number {}", 7));
        assert_eq!(status, status::GPUIPC_PANIC);
        assert!(last().contains("gpuipc_test: internal error") && last().contains("number 7"));
    }

    #[test]
    fn a_panic_while_an_object_is_freed_stays_here() {
        struct Bad;
        impl Drop for Bad {
            fn drop(&mut self) {
                panic!("in drop");
            }
        }
        release("gpuipc_test", Some(Box::new(Bad)));
    }

    #[test]
    fn success_clears_the_last_error() {
        call("gpuipc_test", || Err(Failure::null("out")));
        assert_eq!(last(), "gpuipc_test: argument out is NULL");
        call("gpuipc_test", || Ok(()));
        assert_eq!(last(), "");
    }

    #[test]
    fn the_last_error_is_the_threads_own() {
        call("gpuipc_test", || Err(Failure::null("out")));
        let other = std::thread::spawn(last).join().expect("no panic");
        assert_eq!(other, "");
        assert_ne!(last(), "");
    }

    /// Writes `text` into `N` bytes of `x`; gives the status, `needed` and the bytes.
    fn put<const N: usize>(text: &str) -> (Option<Status>, usize, [u8; N]) {
        let mut buffer = [const { MaybeUninit::new(b'x') }; N];
        let mut needed = MaybeUninit::new(0);
        let room = TextRoom {
            buffer: &mut buffer,
            needed: Some(&mut needed),
        };
        let status = room.put(text).err().map(|failure| failure.status);
        // SAFETY: set when it was made.
        let needed = unsafe { needed.assume_init() };
        // SAFETY: all were set when they were made.
        let buffer = buffer.map(|byte| unsafe { byte.assume_init() });
        (status, needed, buffer)
    }

    #[test]
    fn a_text_that_fits_ends_with_nul() {
        assert_eq!(put("abc"), (None, 4, *b"abc\0"));
        assert_eq!(put("abc"), (None, 4, *b"abc\0x"));
        assert_eq!(put(""), (None, 1, *b"\0"));
    }

    #[test]
    fn a_text_that_does_not_fit_is_cut_between_characters() {
        let short = Some(Status::BUFFER_TOO_SMALL);
        assert_eq!(put("abc"), (short, 4, *b"ab\0"));
        assert_eq!(put("a"), (short, 2, *b"\0"));
        assert_eq!(put("aé"), (short, 4, *b"a\0x"));
    }

    #[test]
    fn no_room_at_all_asks_for_the_size() {
        assert_eq!(put("abc"), (None, 4, []));
    }
}
