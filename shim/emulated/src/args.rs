//! C's arguments as types that safe code can use.
//!
//! The table's entries turn each argument with [`FromC`]; no other file
//! touches a caller's pointer.

#![allow(unsafe_code)]

use crate::Answer;
use core::ffi::{c_char, c_void};
use gpuipc_sys::{CuContext, CuGraph, CuIpcMemHandle, CuMemPool, CuResult, CuStream};

/// An argument as C passes it.
pub(crate) trait FromC {
    /// What the call's own function takes.
    type Typed;

    /// Turns the argument.
    ///
    /// # Safety
    /// A pointer is null or, until the call returns, valid for what the call
    /// does with it by `cuda.h`.
    unsafe fn typed(self) -> Self::Typed;
}

macro_rules! plain {
    ($($ty:ty),*) => {
        $(impl FromC for $ty {
            type Typed = Self;
            unsafe fn typed(self) -> Self { self }
        })*
    };
}
plain!(
    u8,
    i32,
    u32,
    u64,
    usize,
    CuResult,
    CuContext,
    CuStream,
    CuGraph,
    CuMemPool,
    CuIpcMemHandle
);

impl<T> FromC for *mut T {
    type Typed = Out<T>;
    unsafe fn typed(self) -> Out<T> {
        Out(self)
    }
}

impl<T> FromC for *const T {
    type Typed = In<T>;
    unsafe fn typed(self) -> In<T> {
        In(self)
    }
}

/// A place for an answer: null or valid for writing, by [`FromC`]'s promise.
#[derive(Debug)]
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Whether there is a place at all; asked before a call has an effect.
    pub(crate) fn check(self) -> Answer {
        if self.0.is_null() {
            Err(CuResult::INVALID_VALUE)
        } else {
            Ok(())
        }
    }

    /// The same place as one that is read: what the caller passes in it.
    pub(crate) fn as_read(self) -> In<T> {
        In(self.0)
    }

    /// The bare address, for calls that only name memory.
    pub(crate) fn address(self) -> u64 {
        self.0.addr() as u64
    }
}

impl<T: Copy> Out<T> {
    /// Writes the answer.
    pub(crate) fn put(self, value: T) -> Answer {
        self.check()?;
        // SAFETY: an `Out<T>` is null or valid for writing a T until the call
        // returns, and it is not null; C may hand over any alignment.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Writes the answer if the caller wants it.
    pub(crate) fn put_if_wanted(self, value: T) {
        // Null is the only failure, and it means that nobody wants it.
        let _ = self.put(value);
    }
}

impl Out<c_void> {
    /// The same place with the type that another argument gives it.
    ///
    /// # Safety
    /// By `cuda.h`, with the call's other arguments the place holds a T.
    pub(crate) unsafe fn holds<T>(self) -> Out<T> {
        Out(self.0.cast())
    }

    /// Raw, for a copy done by the kernel.
    pub(crate) fn raw(self) -> *mut c_void {
        self.0
    }
}

impl Out<c_char> {
    /// Writes a C string that is cut to `room` bytes with its NUL.
    pub(crate) fn put_text(self, text: &str, room: usize) -> Answer {
        self.check()?;
        let Some(most) = room.checked_sub(1) else {
            return Err(CuResult::INVALID_VALUE);
        };
        let bytes = &text.as_bytes()[..text.len().min(most)];
        for (index, byte) in bytes.iter().chain(core::iter::once(&0)).enumerate() {
            // SAFETY: index is below `room` (at most room - 1 bytes and a NUL),
            // and the caller of `cuDeviceGetName` gives room for `len` bytes.
            let place = unsafe { self.0.add(index) };
            // SAFETY: as above: inside the caller's buffer; alignment is 1.
            unsafe { place.write(*byte as c_char) };
        }
        Ok(())
    }
}

/// What the caller gives to be read: null or valid, by [`FromC`]'s promise.
#[derive(Debug)]
pub(crate) struct In<T>(*const T);

impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for In<T> {}

impl<T: Copy> In<T> {
    /// Reads the value.
    pub(crate) fn get(self) -> Answer<T> {
        self.get_nth(0)
    }

    /// Reads the value at `index` of an array whose length is an argument too.
    fn get_nth(self, index: usize) -> Answer<T> {
        if self.0.is_null() {
            return Err(CuResult::INVALID_VALUE);
        }
        // SAFETY: `get` has index 0, `get_many` stays below the count that the
        // caller gave for this array; so the place is inside it.
        let place = unsafe { self.0.add(index) };
        // SAFETY: an `In<T>` is valid for reading until the call returns; C may
        // hand over any alignment; the types are plain integers.
        Ok(unsafe { place.read_unaligned() })
    }

    /// Reads an array of `count`, the caller's own argument.
    pub(crate) fn get_many(self, count: usize) -> Answer<Vec<T>> {
        (0..count).map(|index| self.get_nth(index)).collect()
    }
}

/// Host memory at an address, for a copy done by the kernel, which checks it.
pub(crate) fn host_memory(address: u64) -> (Out<c_void>, In<c_void>) {
    let place = core::ptr::with_exposed_provenance_mut(address as usize);
    (Out(place), In(place))
}

impl In<c_void> {
    /// The same place with the type that another argument gives it.
    ///
    /// # Safety
    /// By `cuda.h`, with the call's other arguments the place holds a T.
    pub(crate) unsafe fn holds<T>(self) -> In<T> {
        In(self.0.cast())
    }

    /// Raw, for a copy done by the kernel.
    pub(crate) fn raw(self) -> *const c_void {
        self.0
    }
}
