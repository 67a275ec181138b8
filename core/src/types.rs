//! The ways of sharing, and the bits that announce them in a handle.

use bitflags::bitflags;
use core::array;
use core::fmt;
use core::iter::Flatten;
use core::ops::Deref;

/// A way of sharing memory between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HandleType {
    /// Legacy IPC: `cuIpcGetMemHandle`, `cuIpcOpenMemHandle`. One host only.
    RuntimeIpc,
    /// A POSIX file descriptor, fetched from the exporter's broker:
    /// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`. One host only.
    PosixFd,
    /// A fabric handle: `CU_MEM_HANDLE_TYPE_FABRIC`. Also between hosts of one NVLink domain.
    Fabric,
}

/// Some of the types, each at most once, in an order. It is used as a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeList(heapless::Vec<HandleType, 3>);

impl TypeList {
    /// None of them.
    pub const fn new() -> Self {
        Self(heapless::Vec::new())
    }

    /// Puts a type behind the others.
    ///
    /// # Errors
    ///
    /// Gives the type back where it is in the list already.
    pub fn push(&mut self, handle_type: HandleType) -> Result<(), HandleType> {
        if self.contains(&handle_type) {
            return Err(handle_type);
        }
        self.0.push(handle_type)
    }

    /// The types, in their order.
    pub fn as_slice(&self) -> &[HandleType] {
        &self.0
    }

    /// Keeps only the types of which `keep` is true.
    pub fn retain(&mut self, keep: impl FnMut(&HandleType) -> bool) {
        self.0.retain(keep);
    }
}

impl IntoIterator for TypeList {
    type Item = HandleType;
    type IntoIter = Flatten<array::IntoIter<Option<HandleType>, 3>>;

    fn into_iter(self) -> Self::IntoIter {
        let mut types = self.0.into_iter();
        [types.next(), types.next(), types.next()]
            .into_iter()
            .flatten()
    }
}

impl Deref for TypeList {
    type Target = [HandleType];

    fn deref(&self) -> &[HandleType] {
        self.as_slice()
    }
}

/// Each type counts where it comes first.
impl FromIterator<HandleType> for TypeList {
    fn from_iter<I: IntoIterator<Item = HandleType>>(types: I) -> Self {
        let mut list = Self::new();
        for handle_type in types {
            // One that is there already stays where it is.
            let _ = list.push(handle_type);
        }
        list
    }
}

impl HandleType {
    /// All types, in the order of their bits. This is no order of preference.
    pub const ALL: [Self; 3] = [Self::RuntimeIpc, Self::PosixFd, Self::Fabric];

    /// The type's name in texts and settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RuntimeIpc => "RuntimeIpc",
            Self::PosixFd => "PosixFd",
            Self::Fabric => "Fabric",
        }
    }

    /// Finds a type by [`name`](Self::name). Case, `-` and `_` do not matter: `posix-fd`,
    /// `POSIX_FD` and `PosixFd` are one.
    pub fn from_name(name: &str) -> Option<Self> {
        let given = || {
            name.bytes()
                .filter(|byte| !matches!(byte, b'-' | b'_'))
                .map(|byte| byte.to_ascii_lowercase())
        };
        Self::ALL.into_iter().find(|handle_type| {
            let wanted = handle_type.name().bytes();
            given().eq(wanted.map(|byte| byte.to_ascii_lowercase()))
        })
    }

    /// The bit that announces the type in a handle.
    pub const fn flag(self) -> TypeFlags {
        match self {
            Self::RuntimeIpc => TypeFlags::RUNTIME_IPC,
            Self::PosixFd => TypeFlags::POSIX_FD,
            Self::Fabric => TypeFlags::FABRIC,
        }
    }
}

impl fmt::Display for HandleType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

bitflags! {
    /// A set of types, as a handle announces them in its byte 7. The values are mscclpp's.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct TypeFlags: u8 {
        /// [`HandleType::RuntimeIpc`].
        const RUNTIME_IPC = 1;
        /// [`HandleType::PosixFd`].
        const POSIX_FD = 2;
        /// [`HandleType::Fabric`].
        const FABRIC = 4;
    }
}

impl TypeFlags {
    /// The types of the set, in the order of [`HandleType::ALL`].
    pub fn types(self) -> TypeList {
        HandleType::ALL
            .into_iter()
            .filter(|handle_type| self.contains(handle_type.flag()))
            .collect()
    }
}

bitflags! {
    /// What kind of memory a handle describes, and what else it carries.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Attributes: u16 {
        /// Slot 1 holds a [`Ticket`](crate::Ticket).
        const TICKET = 1;
        /// The memory is from a pool: descriptor and fabric handle are the pool's, and slot 0
        /// holds the pointer's 64 bytes (`cuMemPoolExportPointer`).
        const MEM_POOL = 2;
        /// The memory is pinned host memory on one NUMA node, not a GPU's.
        const HOST_NUMA = 4;
        /// The handle describes a multicast object (`cuMulticastCreate`).
        const MULTICAST = 8;
    }
}
