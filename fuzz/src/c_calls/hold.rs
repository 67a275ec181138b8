//! Places for objects, which C would hold as pointers.

use std::mem::MaybeUninit;

/// Four places of one kind of object. A place beyond them is NULL.
#[derive(Debug)]
pub(super) struct Hold<T>([Option<Box<T>>; 4]);

impl<T> Hold<T> {
    pub(super) fn new() -> Self {
        Self([None, None, None, None])
    }

    /// The object in this place, or NULL.
    pub(super) fn get(&self, place: u8) -> Option<&T> {
        self.0.get(usize::from(place)).and_then(Option::as_deref)
    }

    /// Puts an object into a place, and gives the one that was there. A place beyond them
    /// gives it at once.
    pub(super) fn put(&mut self, place: u8, object: Box<T>) -> Option<Box<T>> {
        match self.0.get_mut(usize::from(place)) {
            Some(there) => there.replace(object),
            None => Some(object),
        }
    }

    /// The object, to be given back.
    pub(super) fn take(&mut self, place: u8) -> Option<Box<T>> {
        self.0.get_mut(usize::from(place)).and_then(Option::take)
    }

    /// Makes an object by a call with an output, and puts it into a place. One that was there
    /// is given to `free`.
    pub(super) fn make(
        &mut self,
        place: u8,
        without_output: bool,
        call: impl FnOnce(Option<&mut MaybeUninit<Box<T>>>) -> u32,
        free: extern "C" fn(Option<Box<T>>),
    ) -> u32 {
        let mut out = MaybeUninit::<Box<T>>::zeroed();
        if without_output {
            return call(None);
        }
        let status = call(Some(&mut out));
        // SAFETY: a pointer-sized value that was zeroed or written is read as a number.
        let bits = unsafe { out.as_ptr().cast::<usize>().read() };
        if status != 0 {
            assert_eq!(bits, 0, "an output of a call that failed was written");
            return status;
        }
        assert_ne!(bits, 0, "a call that succeeded wrote no output");
        // SAFETY: the call returned 0, and then it has written an object.
        let object = unsafe { out.assume_init() };
        match self.0.get_mut(usize::from(place)) {
            Some(there) => free(there.replace(object)),
            None => free(Some(object)),
        }
        status
    }
}
