//! Objects of the driver that undo themselves on drop: contexts, references,
//! reservations, mappings. These modules call CUDA and know no handles.

pub(crate) mod context;
pub(crate) mod device_memory;
pub(crate) mod driver;
pub(crate) mod imported_pool;
pub(crate) mod keepalive;
pub(crate) mod mapping;
pub(crate) mod reservation;
pub(crate) mod undo;
