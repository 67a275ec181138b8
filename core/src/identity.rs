//! Sixteen-byte names: of devices, processes, hosts, fabric domains and brokers.
//!
//! None of them is a secret, and each of them is only compared, never interpreted.

use crate::layout::Plain;
use core::fmt;

/// Writes two hex digits a byte.
fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// What all the names share but their declaration, which stays readable to a header generator.
macro_rules! name {
    ($name:ident) => {
        impl Plain<[u8; 16]> for $name {
            fn of(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }
            fn raw(self) -> [u8; 16] {
                self.0
            }
        }

        impl $name {
            /// True where the name says nothing: all bytes are zero.
            pub fn is_zero(&self) -> bool {
                self.0 == [0; 16]
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}

/// A name whose text is its 32 hex digits.
macro_rules! hex_name {
    ($name:ident) => {
        name!($name);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                hex(&self.0, f)
            }
        }
    };
}

/// A GPU, as `cuDeviceGetUuid_v2` names it; zero for memory that no GPU holds.
///
/// The text is the one that `nvidia-smi -L` prints: `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
#[repr(transparent)]
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceUuid(pub [u8; 16]);

name!(DeviceUuid);

impl fmt::Display for DeviceUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU-")?;
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// A process: random, drawn once in each process. A forked child has none: nothing works there.
#[repr(transparent)]
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub [u8; 16]);

hex_name!(ProcessId);

/// One boot of a host's kernel (`/proc/sys/kernel/random/boot_id`), which most of its containers
/// share, or what a user said in its place; zeros where neither is known.
#[repr(transparent)]
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub [u8; 16]);

hex_name!(HostId);

/// A fabric domain, as NVML's fabric info names it; zero where there is none.
#[repr(transparent)]
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterUuid(pub [u8; 16]);

hex_name!(ClusterUuid);

/// The name under which an exporter's broker listens. Knowing it permits nothing: the broker asks
/// for a [`Token`](crate::Token).
#[repr(transparent)]
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint(pub [u8; 16]);

hex_name!(Endpoint);
