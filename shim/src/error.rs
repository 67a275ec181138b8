//! The errors of the library: one variant per cause.

#[cfg(feature = "multicast")]
pub(crate) mod multicast;

#[cfg(feature = "multicast")]
use self::multicast::{TeamError, Unavailable};
use crate::attempt::{Attempt, Reason};
use crate::sys::{CuResult, DriverError, LoadError};
use core::fmt;
use gpuipc_core::{DecodeError, DeviceUuid, EncodeError, RegisteredError, Status};

/// An error of this library.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// No driver could be loaded.
    Load(LoadError),
    /// A driver call failed outside of an attempt.
    Driver(DriverError),
    /// A system call failed outside of an attempt.
    Os {
        /// What was being done.
        step: &'static str,
        /// The errno.
        errno: i32,
    },
    /// An environment variable has a value that it cannot have.
    Setting {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        rule: &'static str,
    },
    /// An argument that cannot be.
    Argument {
        /// The argument.
        name: &'static str,
        /// What is wrong with it.
        rule: &'static str,
    },
    /// An argument that goes against a number which it must keep to.
    Number {
        /// The argument.
        name: &'static str,
        /// Its value.
        value: u64,
        /// What it must be, in words that end with the number.
        rule: &'static str,
        /// The number.
        number: u64,
    },
    /// The bytes are no handle.
    Decode(DecodeError),
    /// This process was forked from one that used the library; nothing works in it.
    Forked,
    /// The memory cannot be shared.
    NotExportable(NotExportable),
    /// The broker could not be started.
    BrokerStart {
        /// What was being done.
        step: &'static str,
        /// The errno.
        errno: i32,
        /// The folder for its name, if that was the trouble.
        folder: Option<std::path::PathBuf>,
    },
    /// The handle asks for what this version does not do.
    Unsupported {
        /// What that is.
        what: &'static str,
    },
    /// The bytes are no registered memory.
    Registered(RegisteredError),
    /// What is to be registered breaks a rule of the form.
    Register(EncodeError),
    /// The handles are not the segments of one range.
    Range(RangeError),
    /// No GPU that this process sees has this UUID.
    DeviceNotVisible(DeviceUuid),
    /// No type led to a mapping.
    Import(ImportError),
    /// A multicast object cannot be had or used here.
    #[cfg(feature = "multicast")]
    MulticastUnavailable(Unavailable),
    /// A member of a multicast team failed, is gone, or is out of step.
    #[cfg(feature = "multicast")]
    MulticastTeam(TeamError),
}

/// Why memory cannot be shared, and what would be needed.
#[derive(Clone, Debug)]
pub struct NotExportable {
    /// What kind of memory it is.
    pub kind: MemoryKind,
    /// The types that were tried, and how each failed.
    pub attempts: Vec<Attempt>,
}

/// What a pointer turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryKind {
    /// CUDA does not know the pointer.
    NotCuda,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemHostAlloc` or registered host memory.
    PinnedHost,
    /// VMM memory on the host, but on no certain NUMA node.
    Host,
    /// A device's default memory pool, or a pool without a handle type.
    PoolWithoutHandleType,
    /// A memory pool with a handle type.
    Pool,
    /// VMM memory that was created without a handle type.
    VmmWithoutHandleType,
    /// VMM memory with a handle type, all of whose exports failed.
    Vmm,
    /// `cuMemAlloc` memory.
    CudaMalloc,
    /// Memory that this process imported itself.
    Imported,
    /// More bytes than the allocation has behind the pointer.
    BeyondAllocation,
}

impl MemoryKind {
    /// What it is, in words.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::NotCuda => "the driver does not know this pointer (plain host memory, or freed)",
            Self::Managed => "managed memory (cuMemAllocManaged) has no handle",
            Self::PinnedHost => "pinned host memory (cuMemHostAlloc) has no handle",
            Self::Host => "the memory lies on the host, but on no certain NUMA node",
            Self::PoolWithoutHandleType => {
                "the memory pool was made without a handle type (the default pool never has one)"
            }
            Self::Pool => "no handle type of this memory's pool could be exported",
            Self::VmmWithoutHandleType => {
                "the memory was created by cuMemCreate without a handle type"
            }
            Self::Vmm => "no handle type of this memory could be exported",
            Self::CudaMalloc => "no legacy handle could be made for this memory",
            Self::Imported => {
                "the memory was itself imported, and the driver does not pass imported memory on"
            }
            Self::BeyondAllocation => {
                "the range goes beyond the allocation around the pointer, and what lies behind it cannot be \
                 mapped side by side with it"
            }
        }
    }

    /// What to do instead.
    #[must_use]
    pub const fn cure(self) -> &'static str {
        match self {
            Self::NotCuda => "pass a device pointer of this process that is still allocated",
            Self::Managed => {
                "use cuMemAlloc, or cuMemCreate on the device with CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR"
            }
            Self::PinnedHost | Self::Host => {
                "use cuMemCreate with CU_MEM_LOCATION_TYPE_HOST_NUMA and CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR"
            }
            Self::PoolWithoutHandleType => {
                "create a pool with cuMemPoolCreate and handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, and \
                 allocate from it with cuMemAllocFromPoolAsync (PyTorch: not backend:cudaMallocAsync)"
            }
            Self::VmmWithoutHandleType => {
                "set requestedHandleTypes to CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR when creating it"
            }
            Self::Vmm | Self::CudaMalloc | Self::Pool => "see the attempts",
            Self::Imported => "have its owner export it to every process that needs it",
            Self::BeyondAllocation => {
                "export each allocation by itself; only VMM memory (cuMemCreate, cuMemMap) that is mapped side by \
                 side can be shared as one range"
            }
        }
    }
}

/// Why handles are not all segments of one range, each once.
///
/// Positions count the handles as they were given, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RangeError {
    /// Nobody gave this segment.
    Missing {
        /// The segment's index.
        index: u32,
        /// Segments of the range.
        count: u32,
    },
    /// Two handles are for the same segment.
    Doubled {
        /// The segment's index.
        index: u32,
        /// The second of them.
        position: usize,
    },
    /// A handle is of another range than the first one.
    Foreign {
        /// Its position.
        position: usize,
        /// The field by which that shows.
        field: &'static str,
    },
    /// The segments cannot lie side by side.
    Gap {
        /// The segment in front of or behind which something is missing.
        index: u32,
        /// The field by which that shows.
        field: &'static str,
    },
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { index, count } => write!(
                f,
                "segment {index} of {count} is missing; ship every handle that the export gave"
            ),
            Self::Doubled { index, position } => {
                write!(
                    f,
                    "the handle at position {position} is a second one for segment {index}"
                )
            }
            Self::Foreign { position, field } => write!(
                f,
                "the handle at position {position} is of another range than the first one ({field} differs)"
            ),
            Self::Gap { index, field } => write!(
                f,
                "segment {index} does not lie side by side with its neighbours ({field}): the handle is forged"
            ),
        }
    }
}

/// No type led to a mapping: every attempt, in the order in which they were made.
#[derive(Clone, Debug)]
pub struct ImportError {
    /// The types that were tried, and how each failed.
    pub attempts: Vec<Attempt>,
}

impl ImportError {
    /// The reason that explains the whole failure best: the exporter's end or
    /// revocation and the deadline before what followed from them.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        const TELLING: [Reason; 5] = [
            Reason::Cancelled,
            Reason::ExporterGone,
            Reason::ExportRevoked,
            Reason::TimedOut,
            Reason::OtherHost,
        ];
        let has = |reason: &Reason| {
            self.attempts
                .iter()
                .any(|attempt| attempt.reason == *reason)
        };
        TELLING
            .into_iter()
            .find(has)
            .or(self.attempts.first().map(|attempt| attempt.reason))
    }
}

impl Error {
    pub(crate) fn os(step: &'static str, errno: rustix::io::Errno) -> Self {
        Self::Os {
            step,
            errno: errno.raw_os_error(),
        }
    }

    /// The number that C sees.
    #[must_use]
    pub fn status(&self) -> Status {
        match self {
            Self::Load(LoadError::Library { .. }) => Status::DRIVER_LIBRARY,
            Self::Load(_) => Status::DRIVER_SYMBOL,
            Self::Driver(error) => match error.code() {
                Some(CuResult::NO_DEVICE | CuResult::INVALID_DEVICE) => Status::NO_DEVICE,
                Some(_) => Status::DRIVER_CALL,
                None => Status::DRIVER_SYMBOL,
            },
            Self::Os { .. } => Status::SYSTEM_CALL,
            Self::Setting { .. } => Status::INVALID_SETTING,
            Self::Argument { .. } | Self::Number { .. } => Status::INVALID_ARGUMENT,
            Self::Decode(error) => Status::from(error),
            Self::Forked => Status::FORKED,
            Self::NotExportable(_) => Status::NOT_EXPORTABLE,
            Self::BrokerStart { .. } => Status::BROKER_START,
            Self::Unsupported { .. } => Status::UNSUPPORTED,
            Self::Range(_) => Status::NOT_ONE_RANGE,
            Self::Registered(RegisteredError::Handle { error, .. }) => Status::from(error),
            Self::Registered(_) | Self::Register(_) => Status::REGISTERED_MEMORY,
            Self::DeviceNotVisible(_) => Status::NO_DEVICE,
            Self::Import(error) => match error.reason() {
                Some(Reason::ExporterGone) => Status::EXPORTER_GONE,
                Some(Reason::ExportRevoked) => Status::EXPORT_REVOKED,
                Some(Reason::TimedOut) => Status::TIMED_OUT,
                Some(Reason::OtherHost) => Status::OTHER_HOST,
                Some(Reason::Cancelled) => Status::CANCELLED,
                _ => Status::NO_TYPE_WORKED,
            },
            #[cfg(feature = "multicast")]
            Self::MulticastUnavailable(_) => Status::MULTICAST_UNAVAILABLE,
            #[cfg(feature = "multicast")]
            Self::MulticastTeam(_) => Status::MULTICAST_TEAM,
        }
    }

    /// The attempts behind the error, in order; none for most errors.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        match self {
            Self::NotExportable(error) => &error.attempts,
            Self::Import(error) => &error.attempts,
            _ => &[],
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errno = |errno: i32| std::io::Error::from_raw_os_error(errno);
        match self {
            Self::Load(error) => error.fmt(f),
            Self::Driver(error) => error.fmt(f),
            Self::Os { step, errno: code } => write!(f, "{step} failed: {}", errno(*code)),
            Self::Setting { variable, value, rule } => write!(f, "{variable}={value:?} is not valid: {rule}"),
            Self::Argument { name, rule } => write!(f, "argument {name}: {rule}"),
            Self::Number { name, value, rule, number } => write!(f, "argument {name} is {value}, but {rule} {number}"),
            Self::Decode(error) => error.fmt(f),
            Self::Forked => f.write_str(
                "this process was forked after the library was used; CUDA does not work in such a process: \
                 start it anew (exec, or Python's spawn)",
            ),
            Self::NotExportable(error) => {
                write!(f, "this memory cannot be shared: {}; {}", error.kind.what(), error.kind.cure())?;
                list(f, &error.attempts, None)
            }
            Self::BrokerStart { step, errno: code, folder } => {
                write!(f, "the broker that hands out file descriptors cannot start: {step} failed: {}", errno(*code))?;
                match folder {
                    Some(folder) => write!(f, " (folder {}; GPUIPC_SOCKET_DIR names another)", folder.display()),
                    None => Ok(()),
                }
            }
            Self::Unsupported { what } => write!(f, "not supported by this version: {what}"),
            Self::Range(error) => write!(f, "the handles are not one range: {error}"),
            Self::Registered(error) => error.fmt(f),
            Self::Register(error) => error.fmt(f),
            Self::DeviceNotVisible(uuid) => write!(
                f,
                "no GPU that this process sees has the UUID {uuid}; see CUDA_VISIBLE_DEVICES"
            ),
            Self::Import(error) => {
                match error.reason() {
                    Some(reason) => write!(f, "the memory cannot be imported: {}; {}", reason.why(), reason.hint())?,
                    None => f.write_str("the memory cannot be imported: the handle exports no type that is allowed here")?,
                }
                list(f, &error.attempts, error.reason())
            }
            #[cfg(feature = "multicast")]
            Self::MulticastUnavailable(error) => error.fmt(f),
            #[cfg(feature = "multicast")]
            Self::MulticastTeam(error) => error.fmt(f),
        }
    }
}

/// One line an attempt. A reason has its words and its hint where it is met first, which
/// for one that was `said` is before the list.
fn list(f: &mut fmt::Formatter<'_>, attempts: &[Attempt], said: Option<Reason>) -> fmt::Result {
    for (index, attempt) in attempts.iter().enumerate() {
        let mut before = attempts[..index].iter().map(|attempt| attempt.reason);
        let is_new = said != Some(attempt.reason) && before.all(|said| said != attempt.reason);
        write!(f, "\n  {}. ", index + 1)?;
        attempt.write(f, is_new)?;
    }
    Ok(())
}

impl std::error::Error for Error {
    /// What is behind it that its own text does not say. The text of a wrapped error is
    /// this one's, so its source is, too.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Registered(error) => error.source(),
            Self::Register(error) => error.source(),
            _ => None,
        }
    }
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        Self::Driver(error)
    }
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::{Code, Failure, Step};
    use gpuipc_core::HandleType;
    use std::error::Error as _;
    use std::time::Duration;

    /// The error and what is behind it, as `anyhow` prints a chain.
    fn chain(error: &Error) -> Vec<String> {
        let mut texts = vec![error.to_string()];
        let mut cause = error.source();
        while let Some(deeper) = cause {
            texts.push(deeper.to_string());
            cause = deeper.source();
        }
        texts
    }

    #[test]
    fn the_rule_that_a_registered_memory_breaks_is_the_last_cause() {
        let broken = DecodeError::Field {
            field: "length",
            value: 7,
            rule: "it is another",
        };
        let refused = RegisteredError::Handle {
            index: 3,
            error: broken,
        };
        let refused_text = "handle 3 of the registered memory is refused";
        let read = chain(&Error::Registered(refused));
        assert_eq!(read, [refused_text.to_owned(), broken.to_string()]);
        let written = chain(&Error::Register(EncodeError::Content(refused)));
        assert_eq!(written[1..], read);
    }

    #[test]
    fn no_cause_is_told_twice() {
        let driver = DriverError {
            call: "cuInit",
            cause: crate::sys::DriverCause::Code(CuResult(999)),
        };
        for error in [
            Error::Driver(driver),
            Error::Decode(DecodeError::Length { got: 3 }),
            Error::Load(LoadError::Library {
                path: "libcuda.so.1".into(),
                message: "not there".to_owned(),
            }),
        ] {
            assert_eq!(chain(&error).len(), 1, "{error}");
        }
    }

    #[test]
    fn a_failed_import_says_each_reason_and_each_hint_once() {
        let failed = |handle_type, reason| {
            let errno = rustix::io::Errno::CONNREFUSED;
            let failure = Failure::os(Step::BrokerConnect, reason, errno);
            failure.attempt(handle_type, Duration::ZERO)
        };
        let attempts = vec![
            failed(HandleType::PosixFd, Reason::BrokerUnreachable),
            failed(HandleType::Fabric, Reason::ExporterGone),
            failed(HandleType::RuntimeIpc, Reason::BrokerUnreachable),
        ];
        let text = Error::Import(ImportError { attempts }).to_string();
        for reason in [Reason::ExporterGone, Reason::BrokerUnreachable] {
            assert_eq!(text.matches(reason.why()).count(), 1, "{text}");
            assert_eq!(text.matches(reason.hint()).count(), 1, "{text}");
        }
        let lines: Vec<&str> = text.lines().collect();
        let code = format!("[{}]", Code::Os(111));
        assert_eq!(
            lines[2],
            format!("  2. Fabric failed at broker connect {code}")
        );
        assert_eq!(lines.len(), 4);
    }
}
