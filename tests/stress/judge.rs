//! Whether what was really done to the two processes explains an error.

use gpuipc::sys::CuResult;
use gpuipc::{Attempt, Code, DriverCause, Error, Reason, Step};
use gpuipc_emulated::faults::RANDOM_CODES;
use rustix::io::Errno;

/// The export or its owner had ended before the call was over.
pub(crate) const GONE: u8 = 1;
/// Driver calls of this process failed at random.
pub(crate) const OWN_FAULTS: u8 = 2;
/// This process was starved of descriptors.
pub(crate) const OWN_FILES: u8 = 4;
/// As the two above, of the exporter.
pub(crate) const EXPORTER_FAULTS: u8 = 8;
pub(crate) const EXPORTER_FILES: u8 = 16;
/// One of the two was stopped.
pub(crate) const STOPPED: u8 = 32;

const FILES: u8 = OWN_FILES | EXPORTER_FILES;

/// Whether one of these disturbances explains this error, each failed attempt by itself.
pub(crate) fn is_explained(disturbances: u8, error: &Error) -> bool {
    let explained_by = match error {
        Error::Import(import) => {
            // A question that another way followed waited for a part of the time only; a
            // process that is killed may keep its socket open for that long while it ends.
            let last = import.attempts.last();
            let was_cut = |attempt: &Attempt| {
                attempt.reason == Reason::TimedOut && last.is_some_and(|last| last != attempt)
            };
            let explained = |attempt: &Attempt| {
                let cut = if was_cut(attempt) { GONE } else { 0 };
                disturbances & (explains_attempt(attempt) | cut) != 0
            };
            let is_tried = |attempt: &&Attempt| !was_not_tried(attempt.reason);
            return import.attempts.iter().filter(is_tried).all(explained)
                && !import.attempts.is_empty();
        }
        // A question about the memory that fails makes it look like another kind.
        Error::NotExportable(_) | Error::DeviceNotVisible(_) | Error::Unsupported { .. } => {
            OWN_FAULTS | OWN_FILES
        }
        Error::Argument { name: "self", .. } => OWN_FAULTS,
        Error::Driver(driver) => match driver.cause {
            DriverCause::Code(code) => explains_code(Code::Driver(code)),
            DriverCause::Missing(_) => 0,
        },
        Error::Os { errno, .. } | Error::BrokerStart { errno, .. } => {
            explains_code(Code::Os(*errno))
        }
        _ => 0,
    };
    disturbances & explained_by != 0
}

/// Which disturbances explain this code.
fn explains_code(code: Code) -> u8 {
    const NO_DESCRIPTOR: [CuResult; 3] = [
        CuResult::OUT_OF_MEMORY,
        CuResult::OPERATING_SYSTEM,
        CuResult::UNKNOWN,
    ];
    match code {
        Code::Driver(code) => {
            (if RANDOM_CODES.contains(&code) {
                OWN_FAULTS
            } else {
                0
            }) | (if NO_DESCRIPTOR.contains(&code) {
                OWN_FILES
            } else {
                0
            })
        }
        Code::Os(errno)
            if [Errno::MFILE, Errno::NFILE]
                .map(Errno::raw_os_error)
                .contains(&errno) =>
        {
            OWN_FILES
        }
        // A message lost its descriptors to this process's full table, which has room again.
        Code::Os(errno) if errno == Errno::ACCESS.raw_os_error() => OWN_FILES,
        _ => 0,
    }
}

/// Which disturbances explain this attempt.
fn explains_attempt(attempt: &Attempt) -> u8 {
    let opens = matches!(attempt.step, Step::Open | Step::Import | Step::ImportPool);
    let uses = opens || matches!(attempt.step, Step::Map | Step::Compare);
    let by_reason = match attempt.reason {
        Reason::ExporterGone
        | Reason::ExportRevoked
        | Reason::OwnBroker
        | Reason::ContextRefused => GONE,
        // Who had no descriptor left when its broker was to start exported without one.
        Reason::BrokerUnreachable => GONE | EXPORTER_FILES,
        Reason::BrokerHungUp => GONE | FILES,
        Reason::StaleMemory => GONE | EXPORTER_FAULTS,
        Reason::ExportFailed | Reason::NoDescriptor => GONE | EXPORTER_FAULTS | EXPORTER_FILES,
        Reason::TimedOut => STOPPED,
        Reason::BrokerBusy => STOPPED | EXPORTER_FILES,
        Reason::LivenessUnknown => GONE | EXPORTER_FAULTS | STOPPED | FILES,
        Reason::PtraceRefused | Reason::NoPidfd => GONE | STOPPED | FILES,
        Reason::FabricUnavailable | Reason::Driver | Reason::SizeMismatch if uses => GONE,
        _ => 0,
    };
    // A driver that gets no descriptor for what it opens says that the memory is gone.
    let starved = matches!(attempt.code, Code::Driver(_)) && opens;
    by_reason | explains_code(attempt.code) | if starved { OWN_FILES } else { 0 }
}

/// Another attempt of the same error says what was tried.
const fn was_not_tried(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::CannotBeReadOnly | Reason::CannotBeSegmented | Reason::NotAllowed
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuipc::{HandleType, ImportError};

    fn import(attempts: &[(Step, Code, Reason)]) -> Error {
        let attempt = |&(step, code, reason): &_| Attempt {
            handle_type: HandleType::PosixFd,
            step,
            code,
            reason,
            segment: None,
            gpu_pair: None,
            elapsed: std::time::Duration::ZERO,
        };
        let attempts = attempts.iter().map(attempt).collect();
        Error::Import(ImportError { attempts })
    }

    #[test]
    fn each_attempt_needs_an_explanation_of_its_own() {
        let revoked = (Step::BrokerRequest, Code::None, Reason::ExportRevoked);
        let late = (Step::BrokerRequest, Code::None, Reason::TimedOut);
        assert!(!is_explained(0, &import(&[revoked])));
        assert!(is_explained(GONE, &import(&[revoked])));
        assert!(!is_explained(GONE, &import(&[revoked, late])));
        assert!(is_explained(GONE | STOPPED, &import(&[revoked, late])));
        assert!(!is_explained(u8::MAX, &import(&[])));
    }

    #[test]
    fn a_disturbance_explains_its_own_codes_only() {
        let failed = |code| import(&[(Step::Map, Code::Driver(code), Reason::Driver)]);
        assert!(is_explained(OWN_FAULTS, &failed(CuResult::NOT_PERMITTED)));
        assert!(!is_explained(
            OWN_FAULTS,
            &failed(CuResult::ILLEGAL_ADDRESS)
        ));
        assert!(!is_explained(
            EXPORTER_FAULTS,
            &failed(CuResult::NOT_PERMITTED)
        ));
        let errno = |errno: Errno| Error::Os {
            step: "socket",
            errno: errno.raw_os_error(),
        };
        assert!(is_explained(OWN_FILES, &errno(Errno::MFILE)));
        assert!(!is_explained(OWN_FILES, &errno(Errno::BADF)));
        assert!(!is_explained(u8::MAX, &Error::Forked));
    }
}
