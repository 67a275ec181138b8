//! Sixteen-byte names: of devices, processes, hosts, fabric domains and brokers.
//!
//! None of them is a secret, and each of them is only compared, never interpreted.

use core::fmt;

/// Writes two hex digits a byte.
fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// What all the names share but their declaration, which stays readable to a header generator.
macro_rules! name {
    ($name:ident) => {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::{format, string::ToString};

    const BYTES: [u8; 16] = [
        0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xf0, 0xe1, 0xd2, 0xc3, 0xb4, 0xa5, 0x96,
        0x87,
    ];

    #[test]
    fn a_device_reads_as_nvidia_smi_prints_it() {
        let text = "GPU-01234567-89ab-cdef-f0e1-d2c3b4a59687";
        assert_eq!(DeviceUuid(BYTES).to_string(), text);
    }

    #[test]
    fn other_names_read_as_hex_digits() {
        let text = "0123456789abcdeff0e1d2c3b4a59687";
        assert_eq!(ProcessId(BYTES).to_string(), text);
        assert_eq!(HostId(BYTES).to_string(), text);
        assert_eq!(ClusterUuid(BYTES).to_string(), text);
        assert_eq!(Endpoint(BYTES).to_string(), text);
        assert_eq!(format!("{:?}", HostId(BYTES)), format!("HostId({text})"));
    }

    #[test]
    fn only_all_zeros_says_nothing() {
        assert!(DeviceUuid([0; 16]).is_zero());
        assert!(!DeviceUuid(BYTES).is_zero());
    }
}
