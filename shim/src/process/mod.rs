//! This process and its kernel: who it is, forks, descriptors, waits. Knows Linux, no CUDA.

pub(crate) mod identity;
pub(crate) mod losses;
pub(crate) mod nodelete;
pub(crate) mod private_fd;
pub(crate) mod sync;
pub(crate) mod wait;
