//! One type that an import or export tried and that failed: the step, the code, the
//! reason, and a hint.

use crate::sys::{CuResult, DriverCause, DriverError};
use core::fmt;
use gpuipc_core::{DeviceUuid, HandleType};
use std::time::Duration;

/// A failed step of an export or import, up to which everything was undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The type that was tried.
    pub handle_type: HandleType,
    /// Where it ended.
    pub step: Step,
    /// What the driver or the kernel answered.
    pub code: Code,
    /// What that means.
    pub reason: Reason,
    /// The segment at which it ended; `None` if the memory has only one, or it
    /// was not about one of them.
    pub segment: Option<u32>,
    /// The GPUs between which there was no way, where that was the trouble.
    pub gpu_pair: Option<GpuPair>,
    /// How long the attempt took.
    pub elapsed: Duration,
}

/// Two GPUs of which one cannot reach the other's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuPair {
    /// The importing GPU.
    pub from: DeviceUuid,
    /// The GPU that holds the memory.
    pub to: DeviceUuid,
}

/// The code behind a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// No call failed: the library itself refused.
    None,
    /// A driver call returned this.
    Driver(CuResult),
    /// The driver lacks the call; the CUDA version that brought it.
    MissingSymbol(u32),
    /// A system call returned this errno.
    Os(i32),
}

/// A step of the way from a handle to a mapped address, or from memory to a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// Settings, and what the handle itself says.
    Select,
    /// Finding and reaching the exporter's broker.
    BrokerConnect,
    /// Asking it and reading its answer.
    BrokerRequest,
    /// Fetching the descriptor by its number: `pidfd_open`, `pidfd_getfd`.
    FetchByNumber,
    /// Getting a context: `cuDevicePrimaryCtxRetain`, `cuCtxPushCurrent`.
    Context,
    /// `cuIpcGetMemHandle` or `cuMemExportToShareableHandle`.
    Export,
    /// `cuMemImportFromShareableHandle`.
    Import,
    /// `cuMemPoolImportFromShareableHandle`.
    ImportPool,
    /// `cuMemPoolSetAccess`.
    SetPoolAccess,
    /// `cuMemPoolImportPointer`.
    ImportPointer,
    /// `cuMemAddressReserve`.
    Reserve,
    /// `cuMemMap`.
    Map,
    /// `cuMemSetAccess`.
    SetAccess,
    /// `cuIpcOpenMemHandle`.
    Open,
    /// Comparing what was mapped with what the handle says.
    Compare,
    /// Asking the broker whether the memory is still the one that was exported.
    Liveness,
}

impl Step {
    /// The step in words, with the driver call where there is one.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Select => "select",
            Self::BrokerConnect => "broker connect",
            Self::BrokerRequest => "broker request",
            Self::FetchByNumber => "pidfd_getfd",
            Self::Context => "context",
            Self::Export => "export",
            Self::Import => "cuMemImportFromShareableHandle",
            Self::ImportPool => "cuMemPoolImportFromShareableHandle",
            Self::SetPoolAccess => "cuMemPoolSetAccess",
            Self::ImportPointer => "cuMemPoolImportPointer",
            Self::Reserve => "cuMemAddressReserve",
            Self::Map => "cuMemMap",
            Self::SetAccess => "cuMemSetAccess",
            Self::Open => "cuIpcOpenMemHandle",
            Self::Compare => "compare",
            Self::Liveness => "liveness",
        }
    }
}

/// An enum of reasons, each with its words and what to do about it.
macro_rules! reasons {
    ($(#[$of:meta])* enum Reason; $($(#[$doc:meta])* $name:ident: $why:literal, $hint:literal;)*) => {
        $(#[$of])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// The reason in words.
            #[must_use]
            pub const fn why(self) -> &'static str {
                match self { $(Self::$name => $why,)* }
            }

            /// What to do about it.
            #[must_use]
            pub const fn hint(self) -> &'static str {
                match self { $(Self::$name => $hint,)* }
            }
        }
    };
}

#[cfg(feature = "multicast")]
pub(crate) use reasons;

reasons! {
    /// Why an attempt failed.
    enum Reason;

    /// Options or `GPUIPC_TYPES` exclude the type.
    NotAllowed: "this type is excluded by the options or by GPUIPC_TYPES",
        "allow the type";
    /// The handle comes from another host, or host ids do not show that it does not.
    OtherHost: "the exporter runs on another host, or in a container with a boot id of its own or none: only a fabric handle can work",
        "on one host give GPUIPC_HOST_ID the same value in both processes; else create the memory with CU_MEM_HANDLE_TYPE_FABRIC \
         and run the IMEX service on both hosts";
    /// The exporting process has ended, or shut its broker down.
    ExporterGone: "the exporting process has ended or has shut its broker down",
        "keep the exporter and its export alive until every importer has imported";
    /// The exporter runs, but no longer exports this memory (or never did, if
    /// the handle is forged).
    ExportRevoked: "the exporter no longer exports memory under this handle's token",
        "keep the exported object until every importer has imported, and ship the handle anew";
    /// No name of the broker leads to it.
    BrokerUnreachable: "the exporter's broker cannot be reached from here",
        "share a network namespace, or a folder named by GPUIPC_SOCKET_DIR, between exporter and importer";
    /// Another user's process is at the other end.
    NotTrusted: "the process at the other end belongs to another user",
        "run exporter and importer as the same user, or name the user in GPUIPC_TRUST";
    /// The broker does not serve this user.
    UserRefused: "the exporter's broker does not serve this user",
        "run exporter and importer as the same user, or the importer as root, or name the user in the exporter's GPUIPC_TRUST";
    /// The broker closed the connection without an answer, and its process lives.
    BrokerHungUp: "the exporter's broker hangs up without an answer",
        "try again; if that does not help, something else has the broker's name";
    /// The broker had no room in time.
    BrokerBusy: "the exporter's broker is busy",
        "try again, or raise the exporter's limit of open files";
    /// The answer was no valid reply to the request.
    BrokerBadReply: "the process behind the broker's name answers what no broker would",
        "use the same version of the library on both sides; if it is, something else has the broker's name";
    /// The library itself is at the other end.
    OwnBroker: "the handle leads back into this process, which does not export it",
        "import in another process, or use the original pointer";
    /// The deadline came first.
    TimedOut: "the deadline passed",
        "see what the exporter is waiting for, or raise the timeout (GPUIPC_TIMEOUT_MS)";
    /// `pidfd_getfd` was refused: EPERM.
    PtraceRefused: "the kernel does not let this process fetch the exporter's descriptor",
        "make the exporter's broker reachable (share a network namespace, or a folder named by GPUIPC_SOCKET_DIR); else \
         what ptrace needs: the same user, and in containers --cap-add=SYS_PTRACE or Yama's ptrace_scope 0";
    /// `pidfd_getfd` does not exist: ENOSYS.
    NoPidfd: "this kernel has no pidfd_getfd (Linux 5.6), or a seccomp filter hides it",
        "make the exporter's broker reachable (share a network namespace, or a folder named by GPUIPC_SOCKET_DIR)";
    /// The caller's cancel flag was set.
    Cancelled: "the caller cancelled the import",
        "nothing: this is what the caller asked for";
    /// The exporter's driver did not make the descriptor.
    ExportFailed: "the exporter's driver does not export a file descriptor of this memory now",
        "see the code; if it says out of memory, raise the exporter's limit of open files";
    /// The export has no descriptor.
    NoDescriptor: "the exporter has no file descriptor for this memory",
        "see the exporter's log for why its export failed";
    /// The driver does not take the descriptor.
    NotCudaDescriptor: "the driver does not know the file descriptor as its own",
        "check that exporter and importer use the same driver and the same machine";
    /// The driver does not take the fabric handle.
    FabricUnavailable: "the driver cannot import the fabric handle here",
        "check that the IMEX service runs, both processes have the same IMEX channel device, and are in one domain";
    /// What is mapped is not as long as the handle says.
    SizeMismatch: "the memory is not as large as the handle says",
        "ship the handle anew; if that does not help, it is forged or comes from another version";
    /// The legacy handle is open in this process, by another user of the driver, and the
    /// driver does not open it once more.
    AlreadyMapped: "another user of the driver in this process has the memory open, and the driver does not open it twice",
        "try again or raise the timeout; if it stays so, let all of the process import by one copy of the library";
    /// The memory behind a legacy handle was freed.
    StaleMemory: "the memory was freed, or other memory lies at its address now",
        "keep the memory allocated until every importer has imported, and ship the handle anew";
    /// Nobody could be asked whether the memory is still the same.
    LivenessUnknown: "nobody could say whether this is still the memory that was exported, and require_live asks for it",
        "make the exporter's broker reachable, or do without require_live";
    /// A legacy mapping cannot be read-only.
    CannotBeReadOnly: "a legacy mapping is always writable",
        "ask for read and write, or create the memory with cuMemCreate and a handle type";
    /// The memory's GPU is not visible in this process, and the driver does not
    /// map its memory here.
    DeviceNotVisible: "this process does not see the memory's GPU, and the driver does not map its memory here",
        "make that GPU visible (CUDA_VISIBLE_DEVICES, the container's --gpus), or import on a GPU that reaches it";
    /// A type that gives access to one device only.
    OneDeviceOnly: "this type gives access to one device only",
        "ask for one device (in the exporting process for the memory's own), or create the memory with cuMemCreate and a handle type";
    /// A type that chooses its address itself.
    CannotBePlaced: "this type cannot map memory at an address of the caller's choice",
        "do without a place, or create the memory with cuMemCreate and a handle type";
    /// A type that cannot map several allocations side by side.
    CannotBeSegmented: "this type cannot map several allocations side by side",
        "create the memory with cuMemCreate and a handle type";
    /// The place has no room.
    PlaceTooSmall: "the reservation has no room for the memory at this place",
        "reserve the sum of the handles' base_size";
    /// Something is mapped at the place already, or it is not aligned.
    PlaceTaken: "the driver does not map the memory at this place: something is mapped there, or it is not aligned",
        "choose a free place, aligned to the granularity";
    /// A GPU's memory is not for the CPU.
    NotHostMemory: "the memory lies in a GPU, and the CPU cannot have access to it",
        "do without host_access";
    /// The two GPUs are not peers.
    PeerUnsupported: "the importing GPU cannot reach the memory's GPU",
        "import on the memory's own GPU, or on one that nvidia-smi topo -p2p r shows as its peer";
    /// All peer mappings are taken.
    TooManyPeers: "the importing GPU has no peer mapping left",
        "close mappings of other GPUs' memory first";
    /// The driver wants another context.
    ContextRefused: "the driver refuses this context (it does so for memory of this same process, too)",
        "import in another process than the exporter, with a valid context or none current";
    /// The exporter has the same pid, in another pid namespace.
    SamePid: "the driver takes every process with the exporter's pid for the exporter, and this one has that pid in another pid namespace",
        "give the containers different pids (--init, --pid=host, --pid=container:NAME), or share memory of cuMemCreate by descriptor";
    /// Out of GPU memory or address space.
    OutOfMemory: "out of memory or address space",
        "free GPU memory in this process";
    /// The machine does not allow it.
    NotPermitted: "the driver does not permit this here",
        "for fabric handles: start the IMEX service and make its channel device visible; else see the driver's documentation";
    /// The driver or device cannot do this.
    NotSupported: "the driver or device does not support this",
        "use another kind of memory, or a newer driver";
    /// The memory was not made for this type.
    NotCreatedFor: "the memory was not created for this type",
        "create it with cuMemAlloc (RuntimeIpc) or with cuMemCreate and the type in requestedHandleTypes";
    /// The driver has shut down in this process.
    DriverShutDown: "the driver has shut down or is unusable in this process",
        "a process forked after cuInit cannot use CUDA: start it anew (exec, or Python's spawn)";
    /// A limit of open files is reached in this process, or on this machine.
    TooManyFiles: "too many open files in this process or on this machine",
        "raise the limit (ulimit -n, RLIMIT_NOFILE; EMFILE is the process's, ENFILE the machine's), or close files";
    /// A system call failed otherwise.
    System: "a system call failed",
        "see the code";
    /// The driver failed otherwise.
    Driver: "the driver call failed",
        "see the code in CUDA's documentation";
}

impl Reason {
    /// What a driver's code means at a step.
    pub(crate) fn of_driver(step: Step, handle_type: HandleType, error: &DriverError) -> Self {
        let DriverCause::Code(code) = error.cause else {
            return Self::NotSupported;
        };
        match (step, handle_type, code) {
            (_, _, CuResult::OUT_OF_MEMORY) => Self::OutOfMemory,
            (_, _, CuResult::NOT_INITIALIZED | CuResult::DEINITIALIZED) => Self::DriverShutDown,
            (_, _, CuResult::PEER_ACCESS_UNSUPPORTED) => Self::PeerUnsupported,
            (_, _, CuResult::TOO_MANY_PEERS) => Self::TooManyPeers,
            (Step::Import | Step::ImportPool, HandleType::Fabric, _) => Self::FabricUnavailable,
            (
                Step::Import | Step::ImportPool,
                HandleType::PosixFd,
                CuResult::UNKNOWN | CuResult::INVALID_VALUE,
            ) => Self::NotCudaDescriptor,
            (Step::ImportPointer, _, CuResult::INVALID_VALUE) => Self::StaleMemory,
            (Step::Open, _, CuResult::INVALID_HANDLE) => Self::ExporterGone,
            (Step::Open, _, CuResult::ALREADY_MAPPED) => Self::AlreadyMapped,
            // The second where memory of another kind came to lie there (seen on an
            // H200, driver 580).
            (Step::Open, _, CuResult::INVALID_VALUE | CuResult::NOT_PERMITTED) => Self::StaleMemory,
            (_, _, CuResult::INVALID_CONTEXT | CuResult::CONTEXT_IS_DESTROYED) => {
                Self::ContextRefused
            }
            (Step::Reserve | Step::Map, _, CuResult::NOT_SUPPORTED | CuResult::INVALID_VALUE) => {
                Self::SizeMismatch
            }
            (Step::Export, _, CuResult::INVALID_VALUE) => Self::NotCreatedFor,
            (_, _, CuResult::NOT_PERMITTED) => Self::NotPermitted,
            (_, _, CuResult::NOT_SUPPORTED) => Self::NotSupported,
            _ => Self::Driver,
        }
    }
}

impl Code {
    /// A driver call's.
    pub(crate) const fn of(error: &DriverError) -> Self {
        match error.cause {
            DriverCause::Code(code) => Self::Driver(code),
            DriverCause::Missing(version) => Self::MissingSymbol(version),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("refused by gpuipc"),
            Self::Driver(code) => code.fmt(f),
            Self::MissingSymbol(version) => {
                write!(
                    f,
                    "not in this driver, came with CUDA {}.{}",
                    version / 1000,
                    version % 1000 / 10
                )
            }
            Self::Os(errno) => write!(f, "{}", std::io::Error::from_raw_os_error(*errno)),
        }
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, true)
    }
}

impl Attempt {
    /// In one line, with the reason's words and hint or without.
    pub(crate) fn write(&self, f: &mut fmt::Formatter<'_>, with_reason: bool) -> fmt::Result {
        write!(f, "{} failed at {}", self.handle_type, self.step.name())?;
        if let Some(segment) = self.segment {
            write!(f, " of segment {segment}")?;
        }
        if with_reason {
            write!(f, ": {}", self.reason.why())?;
        }
        if let Some(GpuPair { from, to }) = self.gpu_pair {
            write!(f, " (from {from} to {to})")?;
        }
        write!(f, " [{}]", self.code)?;
        if with_reason {
            write!(f, "; {}", self.reason.hint())?;
        }
        Ok(())
    }
}

/// A step that failed, before it is known which attempt it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub(crate) step: Step,
    pub(crate) code: Code,
    pub(crate) reason: Reason,
    pub(crate) segment: Option<u32>,
    pub(crate) gpu_pair: Option<GpuPair>,
}

impl Failure {
    /// The library's own refusal.
    pub(crate) const fn refused(step: Step, reason: Reason) -> Self {
        Self {
            step,
            code: Code::None,
            reason,
            segment: None,
            gpu_pair: None,
        }
    }

    /// A system call's.
    pub(crate) const fn os(step: Step, reason: Reason, errno: rustix::io::Errno) -> Self {
        let errno = errno.raw_os_error();
        Self {
            step,
            code: Code::Os(errno),
            reason: match (reason, errno) {
                (Reason::System, libc::EMFILE | libc::ENFILE) => Reason::TooManyFiles,
                (reason, _) => reason,
            },
            segment: None,
            gpu_pair: None,
        }
    }

    /// A driver call's.
    pub(crate) fn driver(step: Step, handle_type: HandleType, error: &DriverError) -> Self {
        Self {
            step,
            code: Code::of(error),
            reason: Reason::of_driver(step, handle_type, error),
            segment: None,
            gpu_pair: None,
        }
    }

    /// The same, at one segment of several.
    pub(crate) const fn at_segment(self, segment: Option<u32>) -> Self {
        Self { segment, ..self }
    }

    /// The attempt that this failure ended.
    pub(crate) const fn attempt(self, handle_type: HandleType, elapsed: Duration) -> Attempt {
        Attempt {
            handle_type,
            step: self.step,
            code: self.code,
            reason: self.reason,
            segment: self.segment,
            gpu_pair: self.gpu_pair,
            elapsed,
        }
    }
}
