//! The functions that C calls, a subject a file, each by the same pattern: its name to `call`,
//! which catches panics and keeps the error's text; every pointer through
//! `given`, `bytes`, `options` or a `...Room`, which refuse NULL; the result
//! written last, so only on success.
//!
//! This file has those tools.
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

// In the order in which the header has them.
pub mod library;

pub mod export;

pub mod import;

pub mod mem;

pub mod reservation;

pub mod feasibility;

pub mod registered;

pub mod handle;

pub mod error;

pub mod cancel;

pub mod buffer;

#[cfg(feature = "multicast")]
pub mod multicast;

use crate::callback;
use crate::failure::Failure;
use crate::last_error;
use crate::options::{self, Growing};
use crate::status::CStatus;
use core::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body`; a panic in it becomes a failure. Until it returns, nobody cancels
/// this thread.
fn caught(body: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    let _no_cancel = NoCancel::begin();
    // What `body` shares with later calls is behind locks that the library
    // takes over even when a panic has poisoned them.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| Err(Failure::panic(&*payload)))
}

/// One call of C: a number for it, and what `gpuipc_last_error` and its like tell.
fn call(name: &str, body: impl FnOnce() -> Result<(), Failure>) -> CStatus {
    let _no_cancel = NoCancel::begin();
    let outcome = caught(|| {
        callback::check()?;
        body()
    });
    last_error::record(name, outcome).0
}

/// One call of C that takes an object. Refused, it leaves the object to C.
fn call_with<T>(
    name: &str,
    object: Option<Box<T>>,
    body: impl FnOnce(Option<Box<T>>) -> Result<(), Failure>,
) -> CStatus {
    if callback::is_inside() {
        core::mem::forget(object);
        return call(name, || Ok(()));
    }
    call(name, || body(object))
}

/// The end of an object that C gives back. Leaves the last error as it is. From
/// inside a callback it does nothing: the object stays.
fn release<T>(name: &str, object: Option<Box<T>>) {
    if callback::is_inside() {
        core::mem::forget(object);
        return;
    }
    let _no_cancel = NoCancel::begin();
    let dropped = caught(|| {
        drop(object);
        Ok(())
    });
    if let Err(failure) = dropped {
        log::error!(target: "gpuipc::ffi", "{name}: {}", failure.text);
    }
}

unsafe extern "C" {
    // POSIX; the crate libc has it for other systems only.
    safe fn pthread_setcancelstate(state: c_int, old: Option<&mut c_int>) -> c_int;
}

/// glibc's and musl's `PTHREAD_CANCEL_DISABLE`.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// No `pthread_cancel` of this thread takes effect while this lives: it would unwind
/// Rust's frames, which ends the process.
struct NoCancel {
    before: c_int,
}

impl NoCancel {
    fn begin() -> Self {
        let mut before = 0;
        // Fails for a state that does not exist only.
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, Some(&mut before));
        Self { before }
    }
}

impl Drop for NoCancel {
    fn drop(&mut self) {
        pthread_setcancelstate(self.before, None);
    }
}

/// Whether a C++ exception is on its way in this thread.
pub(crate) fn is_throwing_cpp() -> bool {
    // SAFETY: the name ends with a NUL, and looking it up runs nothing.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_ZSt19uncaught_exceptionsv".as_ptr()) };
    if found.is_null() {
        return false;
    }
    // SAFETY: the function of that name is `int std::uncaught_exceptions()`, of libstdc++ and
    // libc++ alike.
    let count = unsafe { core::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(found) };
    count() > 0
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

/// The `count` elements that C lends for reading, at most `most`; none may be NULL.
///
/// # Safety
/// As for [`bytes`], `pointer` is aligned for a `T`, and any bytes are a `T`.
unsafe fn elements<'a, T: Copy>(
    argument: &str,
    pointer: *const T,
    count: usize,
    most: usize,
) -> Result<&'a [T], Failure> {
    check_count(argument, count, most)?;
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Failure::null(argument));
    }
    check_size(argument, count.saturating_mul(size_of::<T>()))?;
    // SAFETY: not null, and not longer than an allocation can be, by the checks
    // above; aligned, readable, of valid elements and unchanged for 'a by the caller's
    // promise.
    Ok(unsafe { core::slice::from_raw_parts(pointer, count) })
}

/// The text that C lends, unless it is NULL.
///
/// # Safety
/// `pointer` is NULL, or points to text that ends with a NUL, and that nobody
/// changes or frees for as long as the result is used.
unsafe fn text<'a>(pointer: *const c_char) -> Option<&'a CStr> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: not null; the rest is the caller's promise.
    Some(unsafe { CStr::from_ptr(pointer) })
}

/// C's options, of whatever header; `None` for NULL.
///
/// # Safety
/// `pointer` is NULL, or is aligned and points to a size that says how many
/// bytes are readable from there on.
unsafe fn options<T: Growing>(pointer: *const T) -> Result<Option<T>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: not null; readable and aligned by the caller's promise.
    let size = unsafe { pointer.cast::<usize>().read() };
    options::check_size::<T>(size)?;
    // SAFETY: the caller promises as many bytes as the size says.
    let given = unsafe { bytes("options", pointer.cast(), size) }?;
    let known = given.len().min(size_of::<T>());
    if given[known..].iter().any(|byte| *byte != 0) {
        return Err(options::newer::<T>(size));
    }
    let mut options = T::defaults();
    // SAFETY: `known` bytes are readable by the slice above and writable, being
    // no more than a `T` has; a local is not C's memory. Any bytes are a `T`, as
    // `Growing` promises, also with a published size's fields followed by defaults.
    unsafe {
        core::ptr::copy_nonoverlapping(pointer.cast::<u8>(), (&raw mut options).cast(), known)
    };
    Ok(Some(options))
}

/// Fills C's options with the defaults, as far as `size` of C's header goes.
///
/// # Safety
/// `pointer` is NULL, or is aligned and points to `size` bytes that may be written.
unsafe fn put_defaults<T: Growing>(pointer: *mut T, size: usize) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(Failure::null("options"));
    }
    options::check_size::<T>(size)?;
    let defaults = T::defaults();
    let known = size.min(size_of::<T>());
    // SAFETY: `size` bytes are writable by the caller's promise.
    unsafe { pointer.cast::<u8>().write_bytes(0, size) };
    // SAFETY: as above, and `known` is not more than a `T` has; a local is not
    // C's memory.
    unsafe {
        core::ptr::copy_nonoverlapping((&raw const defaults).cast(), pointer.cast::<u8>(), known);
    }
    // SAFETY: aligned by the caller's promise; the size is the first field.
    unsafe { pointer.cast::<usize>().write(size) };
    Ok(())
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

/// The same bytes, zeroed: for those who write into initialized memory only.
fn initialized(buffer: &mut [MaybeUninit<u8>]) -> &mut [u8] {
    buffer.fill(MaybeUninit::new(0));
    // SAFETY: the same bytes, each of which was set just above; `MaybeUninit<u8>` has the
    // layout of `u8`, and the borrow is passed on.
    unsafe { core::slice::from_raw_parts_mut(buffer.as_mut_ptr().cast(), buffer.len()) }
}

/// Refuses a count beyond any sense before any of its elements is touched.
fn check_count(argument: &str, count: usize, most: usize) -> Result<(), Failure> {
    if count <= most {
        return Ok(());
    }
    Err(Failure::argument(format!(
        "{argument} has {count} elements, but at most {most} are allowed"
    )))
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
        let whole = |end: &usize| text.is_char_boundary(*end);
        let end = (0..=room.min(text.len())).rev().find(whole).unwrap_or(0);
        let part = &text[..end];
        put_bytes(self.buffer, part.as_bytes());
        self.buffer[part.len()].write(0);
        if size < needs {
            return Err(Failure::room(size, needs));
        }
        Ok(())
    }
}

/// Where C wants bytes that it cannot know the number of.
struct ByteRoom<'a> {
    buffer: &'a mut [MaybeUninit<u8>],
    needed: Option<&'a mut MaybeUninit<usize>>,
}

impl<'a> ByteRoom<'a> {
    /// NULL with size 0 asks for `needed` alone.
    ///
    /// # Safety
    /// As for [`buffer`].
    unsafe fn new(
        pointer: *mut u8,
        size: usize,
        needed: Option<&'a mut MaybeUninit<usize>>,
    ) -> Result<Self, Failure> {
        let buffer = match size {
            0 if needed.is_none() => return Err(Failure::null("needed")),
            0 => &mut [],
            // SAFETY: the caller's promise is this function's.
            _ => unsafe { buffer("buffer", pointer, size) }?,
        };
        Ok(Self { buffer, needed })
    }

    /// Writes the bytes, all or none.
    fn put(self, bytes: &[u8]) -> Result<(), Failure> {
        let size = self.buffer.len();
        if let Some(needed) = self.needed {
            needed.write(bytes.len());
        }
        if size > 0 && size < bytes.len() {
            return Err(Failure::room(size, bytes.len()));
        }
        put_bytes(self.buffer, bytes);
        Ok(())
    }
}

/// Where C wants structs.
struct ArrayRoom<'a, T> {
    array: &'a mut [MaybeUninit<T>],
    count: Option<&'a mut MaybeUninit<usize>>,
}

impl<'a, T> ArrayRoom<'a, T> {
    /// NULL with capacity 0 asks for `count` alone.
    ///
    /// # Safety
    /// `pointer` is NULL, or is aligned and points to `capacity` structs that may
    /// be written, and that nobody else uses for as long as the result is used.
    unsafe fn new(
        argument: &str,
        pointer: *mut T,
        capacity: usize,
        count: Option<&'a mut MaybeUninit<usize>>,
    ) -> Result<Self, Failure> {
        if capacity == 0 {
            let array = &mut [];
            let count = Some(given("count", count)?);
            return Ok(Self { array, count });
        }
        if pointer.is_null() {
            return Err(Failure::null(argument));
        }
        check_size(argument, capacity.saturating_mul(size_of::<T>()))?;
        // SAFETY: not null, and not longer than an allocation can be, by the
        // checks above; aligned, writable and ours alone by the caller's promise.
        // `MaybeUninit` asks for no contents.
        let array = unsafe { core::slice::from_raw_parts_mut(pointer.cast(), capacity) };
        Ok(Self { array, count })
    }

    /// Writes what `as_struct` makes of the items, or of as many as there is room for.
    fn put<Item>(self, items: &[Item], as_struct: impl Fn(&Item) -> T) -> Result<(), Failure> {
        if let Some(count) = self.count {
            count.write(items.len());
        }
        for (place, item) in self.array.iter_mut().zip(items) {
            place.write(as_struct(item));
        }
        match self.array.len() {
            0 => Ok(()),
            room if room < items.len() => Err(Failure::elements(room, items.len())),
            _ => Ok(()),
        }
    }
}

/// Writes `bytes` at the start of a buffer that has room for them.
fn put_bytes(buffer: &mut [MaybeUninit<u8>], bytes: &[u8]) {
    for (place, byte) in buffer.iter_mut().zip(bytes) {
        place.write(*byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status;
    use gpuipc::Status;

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
