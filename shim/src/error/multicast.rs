//! Why multicast does not work: the stage, the code, its meaning, and which member of a
//! team failed.

use crate::attempt::{Code, reasons};
use crate::error::Error;
use crate::sys::{CuResult, DriverError};
use core::fmt;

macro_rules! stages {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $words:literal;)*) => {
        /// A step on the way to a mapped multicast object.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Stage {
            $($(#[$doc])* $name,)*
        }

        impl Stage {
            /// The stage in words, with the driver call where there is one.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $words,)* }
            }

            /// The number that travels between members; never reused.
            pub(crate) const fn number(self) -> u8 {
                match self { $(Self::$name => $number,)* }
            }

            pub(crate) const fn from_number(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

stages! {
    /// Whether multicast is allowed on this driver.
    OptIn = 1, "opt-in";
    /// `cuDeviceGetAttribute` of `MULTICAST_SUPPORTED`.
    Capability = 2, "cuDeviceGetAttribute";
    /// `cuMulticastGetGranularity`.
    Granularity = 3, "cuMulticastGetGranularity";
    /// `cuMulticastCreate`.
    Create = 4, "cuMulticastCreate";
    /// `cuMemExportToShareableHandle`.
    Export = 5, "cuMemExportToShareableHandle";
    /// Fetching the handle, and `cuMemImportFromShareableHandle`.
    Import = 6, "cuMemImportFromShareableHandle";
    /// `cuMulticastAddDevice`.
    AddDevice = 7, "cuMulticastAddDevice";
    /// What is to be bound: its kind, place and alignment, and that all members
    /// mean the same part of the object.
    Layout = 8, "layout";
    /// `cuMulticastBindMem`.
    Bind = 9, "cuMulticastBindMem";
    /// `cuMemAddressReserve`.
    Reserve = 10, "cuMemAddressReserve";
    /// `cuMemMap`.
    Map = 11, "cuMemMap";
    /// `cuMemSetAccess`.
    SetAccess = 12, "cuMemSetAccess";
    /// `cuMulticastUnbind`.
    Unbind = 13, "cuMulticastUnbind";
    /// `cuMemUnmap`, `cuMemAddressFree`.
    Unmap = 14, "cuMemUnmap";
}

reasons! {
    /// What a failure of multicast means.
    enum Reason;

    /// This is no emulated driver, and the caller did not allow it.
    NotOptedIn: "multicast of this library has never run on a real driver",
        "share the memory without multicast, or allow it with IpcOptions::experimental_multicast";
    /// The driver or a GPU has no multicast: 801, a missing call, or the attribute.
    NotSupported: "the driver or the GPU has no multicast",
        "share the memory without multicast";
    /// `CUDA_ERROR_ILLEGAL_STATE` (401).
    IllegalState: "the NVLink system is in an illegal state",
        "look at the Fabric Manager and its log; until it is well, share the memory without multicast";
    /// `CUDA_ERROR_SYSTEM_NOT_READY` (802).
    SystemNotReady: "the NVLink system is not ready",
        "start the Fabric Manager and wait until it has configured the switches";
    /// `CUDA_ERROR_OUT_OF_MEMORY` (2): of the switches' slots, or of memory.
    ResourceExhausted: "no multicast slot, memory or address space is left",
        "drop multicast objects that are not used, or share the memory without multicast";
    /// `CUDA_ERROR_NOT_PERMITTED` (800).
    NotPermitted: "the driver does not permit this here",
        "for fabric handles: start the IMEX service; else share the memory without multicast";
    /// `CUDA_ERROR_INVALID_VALUE` (1).
    InvalidValue: "the driver refused the arguments, or the system's state (it uses one code for both)",
        "check that every member has a GPU of its own; else look at the Fabric Manager";
    /// The memory is not what can be bound.
    NotBindable: "this memory cannot be bound: it is no cuMemCreate memory of the GPU that was added",
        "create it with cuMemCreate and a handle type, on the member's own GPU";
    /// No room of that length is left in the object.
    NoRoom: "the object has no free range of that length",
        "make a larger object, or drop buffers on every member";
    /// The driver failed otherwise.
    Driver: "the driver call failed",
        "see the code in CUDA's documentation";
}

/// A multicast object cannot be had or used here. All that was done up to the
/// stage was undone; memory that is shared in the ordinary way is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// Where it ended.
    pub stage: Stage,
    /// What the driver answered.
    pub code: Code,
    /// What that means.
    pub reason: Reason,
}

impl Unavailable {
    pub(crate) const fn refused(stage: Stage, reason: Reason) -> Self {
        Self {
            stage,
            code: Code::None,
            reason,
        }
    }

    pub(crate) const fn with_code(stage: Stage, code: Code) -> Self {
        let reason = match code {
            Code::Driver(CuResult::OUT_OF_MEMORY) => Reason::ResourceExhausted,
            Code::Driver(CuResult::ILLEGAL_STATE) => Reason::IllegalState,
            Code::Driver(CuResult::SYSTEM_NOT_READY) => Reason::SystemNotReady,
            Code::Driver(CuResult::NOT_PERMITTED) => Reason::NotPermitted,
            Code::Driver(CuResult::NOT_SUPPORTED) | Code::MissingSymbol(_) => Reason::NotSupported,
            Code::Driver(CuResult::INVALID_VALUE) => Reason::InvalidValue,
            _ => Reason::Driver,
        };
        Self {
            stage,
            code,
            reason,
        }
    }

    /// A driver call that failed at this stage.
    pub(crate) const fn driver(stage: Stage, error: &DriverError) -> Self {
        Self::with_code(stage, Code::of(error))
    }

    /// For `map_err`.
    pub(crate) fn at(stage: Stage) -> impl Fn(DriverError) -> Self {
        move |error| Self::driver(stage, &error)
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "multicast is not available: {} failed: {} [{}]; {}",
            self.stage.name(),
            self.reason.why(),
            self.code,
            self.reason.hint()
        )
    }
}

impl std::error::Error for Unavailable {}

impl From<Unavailable> for Error {
    fn from(error: Unavailable) -> Self {
        Self::MulticastUnavailable(error)
    }
}

/// What is wrong with a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// It has left or died.
    Gone,
    /// It said nothing until the deadline.
    Silent,
    /// It says that this failed there.
    Failed {
        /// Where.
        stage: Stage,
        /// With which code.
        code: Code,
    },
    /// It is at another stage, holds another object, or means another part of it.
    OutOfStep,
    /// What it said is no message of this version.
    Unreadable,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("has left or died"),
            Self::Silent => f.write_str("said nothing until the deadline"),
            Self::Failed { stage, code } => write!(f, "failed at {} [{code}]", stage.name()),
            Self::OutOfStep => {
                f.write_str("is at another stage, holds another object or means another part of it")
            }
            Self::Unreadable => f.write_str("sent what is no message of this version"),
        }
    }
}

/// The members did not agree. Every member that is well gets the same answer;
/// the one that failed gets its own error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TeamError {
    /// What was to be agreed on.
    pub stage: Stage,
    /// The member, by its rank.
    pub member: usize,
    /// What is wrong with it.
    pub fault: Fault,
}

impl fmt::Display for TeamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the multicast team does not agree after {}: member {} {}; share the memory without multicast, or begin \
             anew with the members that are left",
            self.stage.name(),
            self.member,
            self.fault
        )
    }
}

impl std::error::Error for TeamError {}

impl From<TeamError> for Error {
    fn from(error: TeamError) -> Self {
        Self::MulticastTeam(error)
    }
}

#[cfg(test)]
mod tests {
    use super::{Reason, Stage, Unavailable};
    use crate::attempt::Code;
    use crate::sys::CuResult;

    #[test]
    fn every_stage_has_a_number_of_its_own() {
        let known: Vec<Stage> = (0..=255).filter_map(Stage::from_number).collect();
        assert_eq!(known.len(), 14);
        for stage in known {
            assert_eq!(Stage::from_number(stage.number()), Some(stage));
        }
    }

    #[test]
    fn the_codes_of_a_sick_system_have_reasons_of_their_own() {
        let reason =
            |code| Unavailable::with_code(Stage::Bind, Code::Driver(CuResult(code))).reason;
        assert_eq!(reason(401), Reason::IllegalState);
        assert_eq!(reason(802), Reason::SystemNotReady);
        assert_eq!(reason(2), Reason::ResourceExhausted);
        assert_eq!(
            (reason(800), reason(801)),
            (Reason::NotPermitted, Reason::NotSupported)
        );
        assert_eq!(
            (reason(1), reason(999)),
            (Reason::InvalidValue, Reason::Driver)
        );
    }
}
