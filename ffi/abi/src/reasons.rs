//! The numbers of what an attempt says: where it ended, and why. Fixed forever.
//! A test compares them with the library's lists.

use gpuipc::{Code, Reason, Step};

/// A step that has no number in this header: see the text.
pub const GPUIPC_STEP_OTHER: u32 = 0;
/// Settings, and what the handle itself says.
pub const GPUIPC_STEP_SELECT: u32 = 1;
/// Finding and reaching the exporter's broker.
pub const GPUIPC_STEP_BROKER_CONNECT: u32 = 2;
/// Asking it and reading its answer.
pub const GPUIPC_STEP_BROKER_REQUEST: u32 = 3;
/// Fetching the descriptor by its number: `pidfd_open`, `pidfd_getfd`.
pub const GPUIPC_STEP_FETCH_BY_NUMBER: u32 = 4;
/// Getting a context: `cuDevicePrimaryCtxRetain`, `cuCtxPushCurrent`.
pub const GPUIPC_STEP_CONTEXT: u32 = 5;
// 6 was GPUIPC_STEP_RETAIN, which no attempt ever had.
/// `cuIpcGetMemHandle` or `cuMemExportToShareableHandle`.
pub const GPUIPC_STEP_EXPORT: u32 = 7;
/// `cuMemImportFromShareableHandle`.
pub const GPUIPC_STEP_IMPORT: u32 = 8;
/// `cuMemAddressReserve`.
pub const GPUIPC_STEP_RESERVE: u32 = 9;
/// `cuMemMap`.
pub const GPUIPC_STEP_MAP: u32 = 10;
/// `cuMemSetAccess`.
pub const GPUIPC_STEP_SET_ACCESS: u32 = 11;
/// `cuIpcOpenMemHandle`.
pub const GPUIPC_STEP_OPEN: u32 = 12;
/// Comparing what was mapped with what the handle says.
pub const GPUIPC_STEP_COMPARE: u32 = 13;
/// Asking the broker whether the memory is still the one that was exported.
pub const GPUIPC_STEP_LIVENESS: u32 = 14;
/// `cuMemPoolImportFromShareableHandle`.
pub const GPUIPC_STEP_IMPORT_POOL: u32 = 15;
/// `cuMemPoolSetAccess`.
pub const GPUIPC_STEP_SET_POOL_ACCESS: u32 = 16;
/// `cuMemPoolImportPointer`.
pub const GPUIPC_STEP_IMPORT_POINTER: u32 = 17;

/// A reason that has no number in this header: see the text.
pub const GPUIPC_REASON_OTHER: u32 = 0;
/// Options or `GPUIPC_TYPES` exclude the type.
pub const GPUIPC_REASON_NOT_ALLOWED: u32 = 1;
/// The handle comes from another host.
pub const GPUIPC_REASON_OTHER_HOST: u32 = 2;
/// The exporting process has ended, or shut its broker down.
pub const GPUIPC_REASON_EXPORTER_GONE: u32 = 3;
/// The exporter runs, but no longer exports this memory (or never did, if the handle is
/// forged).
pub const GPUIPC_REASON_EXPORT_REVOKED: u32 = 4;
/// No name of the broker leads to it.
pub const GPUIPC_REASON_BROKER_UNREACHABLE: u32 = 5;
/// Another user's process is at the other end.
pub const GPUIPC_REASON_NOT_TRUSTED: u32 = 6;
/// The broker does not serve this user.
pub const GPUIPC_REASON_USER_REFUSED: u32 = 7;
/// The broker closed the connection without an answer, and its process lives.
pub const GPUIPC_REASON_BROKER_HUNG_UP: u32 = 8;
/// The broker had no room in time.
pub const GPUIPC_REASON_BROKER_BUSY: u32 = 9;
/// The answer was no valid reply to the request.
pub const GPUIPC_REASON_BROKER_BAD_REPLY: u32 = 10;
/// The library itself is at the other end.
pub const GPUIPC_REASON_OWN_BROKER: u32 = 11;
/// The deadline came first.
pub const GPUIPC_REASON_TIMED_OUT: u32 = 12;
/// `pidfd_getfd` was refused: EPERM.
pub const GPUIPC_REASON_PTRACE_REFUSED: u32 = 13;
/// `pidfd_getfd` does not exist: ENOSYS.
pub const GPUIPC_REASON_NO_PIDFD: u32 = 14;
/// The caller's cancel flag was set.
pub const GPUIPC_REASON_CANCELLED: u32 = 15;
/// The export has no descriptor.
pub const GPUIPC_REASON_NO_DESCRIPTOR: u32 = 16;
/// The driver does not take the descriptor.
pub const GPUIPC_REASON_NOT_CUDA_DESCRIPTOR: u32 = 17;
/// The driver does not take the fabric handle.
pub const GPUIPC_REASON_FABRIC_UNAVAILABLE: u32 = 18;
/// What is mapped is not as long as the handle says.
pub const GPUIPC_REASON_SIZE_MISMATCH: u32 = 19;
/// The memory behind a legacy handle was freed.
pub const GPUIPC_REASON_STALE_MEMORY: u32 = 20;
/// Nobody could be asked whether the memory is still the same.
pub const GPUIPC_REASON_LIVENESS_UNKNOWN: u32 = 21;
/// A legacy mapping cannot be read-only.
pub const GPUIPC_REASON_CANNOT_BE_READ_ONLY: u32 = 22;
/// The two GPUs are not peers.
pub const GPUIPC_REASON_PEER_UNSUPPORTED: u32 = 23;
/// All peer mappings are taken.
pub const GPUIPC_REASON_TOO_MANY_PEERS: u32 = 24;
/// The driver wants another context.
pub const GPUIPC_REASON_CONTEXT_REFUSED: u32 = 25;
/// The exporter has the same pid, in another pid namespace.
pub const GPUIPC_REASON_SAME_PID: u32 = 26;
/// Out of GPU memory or address space.
pub const GPUIPC_REASON_OUT_OF_MEMORY: u32 = 27;
/// The machine does not allow it.
pub const GPUIPC_REASON_NOT_PERMITTED: u32 = 28;
/// The driver or device cannot do this.
pub const GPUIPC_REASON_NOT_SUPPORTED: u32 = 29;
/// The memory was not made for this type.
pub const GPUIPC_REASON_NOT_CREATED_FOR: u32 = 30;
/// The driver has shut down in this process.
pub const GPUIPC_REASON_DRIVER_SHUT_DOWN: u32 = 31;
/// A system call failed otherwise.
pub const GPUIPC_REASON_SYSTEM: u32 = 32;
/// The driver failed otherwise.
pub const GPUIPC_REASON_DRIVER: u32 = 33;
/// The exporter's driver did not make the descriptor.
pub const GPUIPC_REASON_EXPORT_FAILED: u32 = 34;
/// The memory's GPU is not visible in this process, and the driver does not map its memory
/// here.
pub const GPUIPC_REASON_DEVICE_NOT_VISIBLE: u32 = 35;
/// A type that gives access to one device only.
pub const GPUIPC_REASON_ONE_DEVICE_ONLY: u32 = 36;
/// A type that chooses its address itself.
pub const GPUIPC_REASON_CANNOT_BE_PLACED: u32 = 37;
/// A type that cannot map several allocations side by side.
pub const GPUIPC_REASON_CANNOT_BE_SEGMENTED: u32 = 38;
/// The place has no room.
pub const GPUIPC_REASON_PLACE_TOO_SMALL: u32 = 39;
/// Something is mapped at the place already, or it is not aligned.
pub const GPUIPC_REASON_PLACE_TAKEN: u32 = 40;
/// A GPU's memory is not for the CPU.
pub const GPUIPC_REASON_NOT_HOST_MEMORY: u32 = 41;
/// The legacy handle is open in this process, by another user of the driver, and the
/// driver does not open it once more.
pub const GPUIPC_REASON_ALREADY_MAPPED: u32 = 42;
/// A limit of open files is reached in this process, or on this machine.
pub const GPUIPC_REASON_TOO_MANY_FILES: u32 = 43;

/// No call failed: the library itself refused. The code is 0.
pub const GPUIPC_CODE_NONE: u32 = 0;
/// The code is the driver's: a `CUresult`.
pub const GPUIPC_CODE_DRIVER: u32 = 1;
/// The driver lacks the call; the code is the CUDA version that brought it, such
/// as 12030 for 12.3.
pub const GPUIPC_CODE_MISSING: u32 = 2;
/// The code is the kernel's: an errno.
pub const GPUIPC_CODE_OS: u32 = 3;

/// The number of a step.
pub(crate) const fn step(step: Step) -> u32 {
    match step {
        Step::Select => GPUIPC_STEP_SELECT,
        Step::BrokerConnect => GPUIPC_STEP_BROKER_CONNECT,
        Step::BrokerRequest => GPUIPC_STEP_BROKER_REQUEST,
        Step::FetchByNumber => GPUIPC_STEP_FETCH_BY_NUMBER,
        Step::Context => GPUIPC_STEP_CONTEXT,
        Step::Export => GPUIPC_STEP_EXPORT,
        Step::Import => GPUIPC_STEP_IMPORT,
        Step::Reserve => GPUIPC_STEP_RESERVE,
        Step::Map => GPUIPC_STEP_MAP,
        Step::SetAccess => GPUIPC_STEP_SET_ACCESS,
        Step::Open => GPUIPC_STEP_OPEN,
        Step::Compare => GPUIPC_STEP_COMPARE,
        Step::Liveness => GPUIPC_STEP_LIVENESS,
        Step::ImportPool => GPUIPC_STEP_IMPORT_POOL,
        Step::SetPoolAccess => GPUIPC_STEP_SET_POOL_ACCESS,
        Step::ImportPointer => GPUIPC_STEP_IMPORT_POINTER,
        _ => GPUIPC_STEP_OTHER,
    }
}

/// The number of a reason.
pub(crate) const fn reason(reason: Reason) -> u32 {
    match reason {
        Reason::NotAllowed => GPUIPC_REASON_NOT_ALLOWED,
        Reason::OtherHost => GPUIPC_REASON_OTHER_HOST,
        Reason::ExporterGone => GPUIPC_REASON_EXPORTER_GONE,
        Reason::ExportRevoked => GPUIPC_REASON_EXPORT_REVOKED,
        Reason::BrokerUnreachable => GPUIPC_REASON_BROKER_UNREACHABLE,
        Reason::NotTrusted => GPUIPC_REASON_NOT_TRUSTED,
        Reason::UserRefused => GPUIPC_REASON_USER_REFUSED,
        Reason::BrokerHungUp => GPUIPC_REASON_BROKER_HUNG_UP,
        Reason::BrokerBusy => GPUIPC_REASON_BROKER_BUSY,
        Reason::BrokerBadReply => GPUIPC_REASON_BROKER_BAD_REPLY,
        Reason::OwnBroker => GPUIPC_REASON_OWN_BROKER,
        Reason::TimedOut => GPUIPC_REASON_TIMED_OUT,
        Reason::PtraceRefused => GPUIPC_REASON_PTRACE_REFUSED,
        Reason::NoPidfd => GPUIPC_REASON_NO_PIDFD,
        Reason::Cancelled => GPUIPC_REASON_CANCELLED,
        Reason::NoDescriptor => GPUIPC_REASON_NO_DESCRIPTOR,
        Reason::NotCudaDescriptor => GPUIPC_REASON_NOT_CUDA_DESCRIPTOR,
        Reason::FabricUnavailable => GPUIPC_REASON_FABRIC_UNAVAILABLE,
        Reason::SizeMismatch => GPUIPC_REASON_SIZE_MISMATCH,
        Reason::StaleMemory => GPUIPC_REASON_STALE_MEMORY,
        Reason::LivenessUnknown => GPUIPC_REASON_LIVENESS_UNKNOWN,
        Reason::CannotBeReadOnly => GPUIPC_REASON_CANNOT_BE_READ_ONLY,
        Reason::PeerUnsupported => GPUIPC_REASON_PEER_UNSUPPORTED,
        Reason::TooManyPeers => GPUIPC_REASON_TOO_MANY_PEERS,
        Reason::ContextRefused => GPUIPC_REASON_CONTEXT_REFUSED,
        Reason::SamePid => GPUIPC_REASON_SAME_PID,
        Reason::OutOfMemory => GPUIPC_REASON_OUT_OF_MEMORY,
        Reason::NotPermitted => GPUIPC_REASON_NOT_PERMITTED,
        Reason::NotSupported => GPUIPC_REASON_NOT_SUPPORTED,
        Reason::NotCreatedFor => GPUIPC_REASON_NOT_CREATED_FOR,
        Reason::DriverShutDown => GPUIPC_REASON_DRIVER_SHUT_DOWN,
        Reason::System => GPUIPC_REASON_SYSTEM,
        Reason::Driver => GPUIPC_REASON_DRIVER,
        Reason::ExportFailed => GPUIPC_REASON_EXPORT_FAILED,
        Reason::DeviceNotVisible => GPUIPC_REASON_DEVICE_NOT_VISIBLE,
        Reason::OneDeviceOnly => GPUIPC_REASON_ONE_DEVICE_ONLY,
        Reason::CannotBePlaced => GPUIPC_REASON_CANNOT_BE_PLACED,
        Reason::CannotBeSegmented => GPUIPC_REASON_CANNOT_BE_SEGMENTED,
        Reason::PlaceTooSmall => GPUIPC_REASON_PLACE_TOO_SMALL,
        Reason::PlaceTaken => GPUIPC_REASON_PLACE_TAKEN,
        Reason::NotHostMemory => GPUIPC_REASON_NOT_HOST_MEMORY,
        Reason::AlreadyMapped => GPUIPC_REASON_ALREADY_MAPPED,
        Reason::TooManyFiles => GPUIPC_REASON_TOO_MANY_FILES,
        _ => GPUIPC_REASON_OTHER,
    }
}

/// What kind of code it is, and the code.
pub(crate) fn code(code: Code) -> (u32, i32) {
    let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    match code {
        Code::None => (GPUIPC_CODE_NONE, 0),
        Code::Driver(code) => (GPUIPC_CODE_DRIVER, number(code.0)),
        Code::MissingSymbol(version) => (GPUIPC_CODE_MISSING, number(version)),
        Code::Os(errno) => (GPUIPC_CODE_OS, errno),
    }
}
