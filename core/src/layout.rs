//! The macro in which every format is written down, once: [`layout!`]. A row of its table gives a
//! field's place, type, name and meaning; the struct, the encoding, the decoding, the names in
//! errors, the documentation and the assertions come from it.
//!
//! A [`Field`] knows its size and the size of the block that it lies in, and a field that would
//! stick out of its block does not compile. So reading and writing a field cannot fail.

use crate::check::{Broken, Checked, rule, zeros};
use core::ops::Range;

/// Bytes of a handle: six lines of 64, three of header and three slots.
pub const HANDLE_BYTES: usize = 384;
/// Bytes of one slot of a handle.
pub const SLOT_BYTES: usize = 64;
/// Bytes of a message to the broker.
pub const REQUEST_BYTES: usize = 64;
/// Bytes of the broker's answer.
pub const REPLY_BYTES: usize = 64;
/// The version of the handle's format that this crate writes, and the newest that it knows fully.
pub const FORMAT_VERSION: u8 = 1;
/// Bytes that begin a registered memory: two lines of 64, before its transports and handles.
pub const REGISTERED_HEADER_BYTES: usize = 128;
/// Bytes of one transport of a registered memory: what it is, and its data.
pub const TRANSPORT_BYTES: usize = 72;
/// Bytes that a transport has for its data.
pub const TRANSPORT_DATA_BYTES: usize = 64;
/// Bytes of an entry of the export table.
pub const TABLE_ENTRY_BYTES: usize = 32;

/// `N` bytes inside a block of `BLOCK` bytes, and their name in errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<const N: usize, const BLOCK: usize> {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) name: &'static str,
}

impl<const N: usize, const BLOCK: usize> Field<N, BLOCK> {
    /// Used in constants only, where the panic is a compile error.
    pub(crate) const fn at(name: &'static str, start: usize) -> Self {
        match start.checked_add(N) {
            Some(end) if end <= BLOCK => Self { start, end, name },
            _ => panic!("the field sticks out of its block"),
        }
    }

    /// The same place under another name.
    pub(crate) const fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    pub(crate) const fn range(self) -> Range<usize> {
        self.start..self.end
    }

    pub(crate) fn get(self, block: &[u8; BLOCK]) -> [u8; N] {
        // `at` saw that the range lies in the block and is N long: the zeros are never given.
        match block.get(self.range()).and_then(|part| part.first_chunk()) {
            Some(part) => *part,
            None => [0; N],
        }
    }

    pub(crate) fn put(self, block: &mut [u8; BLOCK], value: [u8; N]) {
        let part = block.get_mut(self.range());
        // Always there, for the reason that `get` gives.
        if let Some(part) = part.and_then(|part| part.first_chunk_mut()) {
            *part = value;
        }
    }

    /// The field has this value, and so breaks the rule.
    pub(crate) fn broken(self, value: impl Into<u64>, rule: &'static str) -> Broken {
        let (field, value) = (self.name, value.into());
        Broken { field, value, rule }
    }

    /// A rule of this field: what must hold, the field's value, and the rule in words.
    pub(crate) fn must(self, holds: bool, value: impl Into<u64>, words: &'static str) -> Checked {
        rule(holds, self.name, value, words)
    }

    /// The rule that all of its bytes are zero.
    pub(crate) fn zero(self, bytes: &[u8; N], words: &'static str) -> Checked {
        zeros(bytes, self.start, self.name, words)
    }
}

/// A field's type, from and to its little-endian bytes.
pub(crate) trait Wire<const N: usize>: Copy {
    fn of_wire(bytes: [u8; N]) -> Self;
    fn to_wire(self) -> [u8; N];
}

macro_rules! numbers {
    ($($number:ty)+) => {$(
        impl Wire<{ size_of::<$number>() }> for $number {
            fn of_wire(bytes: [u8; size_of::<$number>()]) -> Self {
                Self::from_le_bytes(bytes)
            }
            fn to_wire(self) -> [u8; size_of::<$number>()] {
                self.to_le_bytes()
            }
        }

        impl Plain<$number> for $number {
            fn of(number: $number) -> Self {
                number
            }
            fn raw(self) -> $number {
                self
            }
        }
    )+};
}

numbers!(u8 u16 i16 u32 i32 u64 i64);

impl<const N: usize> Wire<N> for [u8; N] {
    fn of_wire(bytes: [u8; N]) -> Self {
        bytes
    }
    fn to_wire(self) -> [u8; N] {
        self
    }
}

/// The type in which users see a field, from and to the one that lies in the struct.
pub(crate) trait Plain<T>: Copy {
    fn of(field: T) -> Self;
    fn raw(self) -> T;
}

impl<const N: usize> Plain<Self> for [u8; N] {
    fn of(field: Self) -> Self {
        field
    }
    fn raw(self) -> Self {
        self
    }
}

/// A format as a table.
///
/// ```text
/// layout! {
///     #[places(NAME)]                   the type of the constant `AT`, which has each field's `Field`
///     pub struct Wire {                 `#[repr(C)]`: its memory is its bytes
///         #[at(0)]                      where the field lies
///         #[plain(TYPE)]                users see it, as this type: an accessor, and a field of `Fields`
///         /// One line: what it means.
///         name: u32,
///     }
///     pub struct Fields {               what users fill in and read: the plain fields, and these
///         /// For users only.
///         special: Option<i32>,
///     }
/// }
/// ```
///
/// The second struct is for formats that users see in another form than the bytes'. The table in
/// the documentation is the first struct's, or the second's where the first is `pub(crate)`.
macro_rules! layout {
    (
        #[places($places:ident)]
        $(#[$meta:meta])*
        pub struct $wire:ident { $(
            #[at($at:literal)]
            $(#[plain($plain:ty)])?
            #[doc = $doc:literal]
            $field:ident: $type:ty,
        )+ }
        $($fields:tt)*
    ) => {
        layout! { @wire pub $places $wire [
            $(#[$meta])*
            #[doc = "\n| at | field | type | meaning |\n|---|---|---|---|"]
            $(#[doc = concat!("| ", $at, " | ", stringify!($field), " | ", stringify!($type), " |", $doc, " |")])+
        ] { $($at $field [$type] $doc)+ } }
        layout! { @fields $wire { $([$($plain)?] $field [$type] $doc)+ } $($fields)* }

        impl $wire { $($(
            #[doc = $doc]
            pub fn $field(&self) -> $plain {
                <$plain as $crate::layout::Plain<$type>>::of(self.$field)
            }
        )?)+ }
    };
    (
        #[places($places:ident)]
        $(#[$meta:meta])*
        pub(crate) struct $wire:ident { $(
            #[at($at:literal)]
            $(#[plain($plain:ty)])?
            #[doc = $doc:literal]
            $field:ident: $type:ty,
        )+ }
        $(#[$fields_meta:meta])*
        pub struct $($fields:tt)*
    ) => {
        layout! { @wire pub(crate) $places $wire [$(#[$meta])*] { $($at $field [$type] $doc)+ } }
        layout! { @fields $wire { $([$($plain)?] $field [$type] $doc)+ }
            $(#[$fields_meta])*
            #[doc = "\n| at | field | type | meaning |\n|---|---|---|---|"]
            $(#[doc = concat!("| ", $at, " | ", stringify!($field), " | ", stringify!($type), " |", $doc, " |")])+
            pub struct $($fields)*
        }
    };

    (@wire $vis:vis $places:ident $wire:ident [$($attrs:tt)*]
        { $($at:literal $field:ident [$type:ty] $doc:literal)+ }
    ) => {
        $($attrs)*
        $vis struct $wire { $(#[doc = $doc] pub(crate) $field: $type,)+ }

        #[derive(Clone, Copy)]
        pub(crate) struct $places { $(
            pub(crate) $field: $crate::layout::Field<{ size_of::<$type>() }, { size_of::<$wire>() }>,
        )+ }

        impl $wire {
            /// Where each field lies, and what errors call it.
            pub(crate) const AT: $places = $places {
                $($field: $crate::layout::Field::at(stringify!($field), $at),)+
            };

            /// Takes the fields as they are: the rules come after.
            pub(crate) fn of_wire(bytes: &[u8; size_of::<$wire>()]) -> Self {
                Self { $($field: $crate::layout::Wire::of_wire(Self::AT.$field.get(bytes)),)+ }
            }

            pub(crate) fn wire(&self) -> [u8; size_of::<$wire>()] {
                let mut bytes = [0; size_of::<$wire>()];
                $(Self::AT.$field.put(&mut bytes, $crate::layout::Wire::to_wire(self.$field));)+
                bytes
            }
        }

        // Every byte is one field's, and lies in memory where it lies on the wire.
        const _: () = {
            let end = 0;
            $(
                assert!(
                    end == $at && core::mem::offset_of!($wire, $field) == $at,
                    concat!(stringify!($field), " starts where the field before it ends")
                );
                let end = $wire::AT.$field.end;
            )+
            assert!(end == size_of::<$wire>());
        };
    };

    (@fields $wire:ident $rows:tt) => {};
    (@fields $wire:ident { $([$($plain:ty)?] $field:ident [$type:ty] $doc:literal)+ }
        $(#[$meta:meta])*
        pub struct $fields:ident { $(
            $(#[doc = $special_doc:literal])+
            $special:ident: $special_type:ty,
        )* }
    ) => {
        $(#[$meta])*
        pub struct $fields {
            $($(#[doc = $doc] pub $field: $plain,)?)+
            $($(#[doc = $special_doc])+ pub $special: $special_type,)*
        }

        impl $wire {
            /// What users read: the plain fields, and the others.
            #[allow(clippy::too_many_arguments)]
            pub(crate) fn fields_with(&self, $($special: $special_type),*) -> $fields {
                $fields {
                    $($($field: <$plain as $crate::layout::Plain<$type>>::of(self.$field),)?)+
                    $($special,)*
                }
            }

            /// Takes the plain fields; the others stay as they are.
            pub(crate) fn with_plain(mut self, fields: &$fields) -> Self {
                $($(self.$field = <$plain as $crate::layout::Plain<$type>>::raw(fields.$field);)?)+
                self
            }
        }

        impl $fields {
            /// Shows the plain fields.
            #[allow(dead_code)]
            fn debug_plain(&self, debug: &mut core::fmt::DebugStruct<'_, '_>) {
                $($(
                    let _: &$plain = &self.$field;
                    debug.field(stringify!($field), &self.$field);
                )?)+
            }
        }
    };
}
pub(crate) use layout;
