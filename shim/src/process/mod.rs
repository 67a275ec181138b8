//! This process and its kernel: identity, forks, descriptors, waits. These modules know
//! Linux and do not call CUDA.

pub(crate) mod identity;
pub(crate) mod losses;
pub(crate) mod nodelete;
pub(crate) mod private_fd;
pub(crate) mod sync;
pub(crate) mod wait;
