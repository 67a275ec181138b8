//! Whether what was being done to the two processes explains an error. What is
//! explained is counted; what is not is a failure of the soak.

use super::notice::{Disturbance, Disturbances};
use gpuipc::sys::CuResult;
use gpuipc::{Attempt, Code, DriverCause, Error, Reason, Step};
use gpuipc_emulated::faults::RANDOM_CODES;
use rustix::io::Errno;

/// What is known about a call that failed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Situation {
    /// What was done to this process while the call was under way.
    pub(super) own: Disturbances,
    /// What was done to the exporter.
    pub(super) exporter: Disturbances,
    /// The exporter had begun to withdraw the offer before the call was over.
    pub(super) gone: bool,
}

impl Situation {
    /// Whether the exporter's end, of its offer or of itself, explains it.
    const fn ended(&self) -> bool {
        self.gone || self.exporter.has(Disturbance::Kill)
    }

    const fn either(&self, what: Disturbance) -> bool {
        self.own.has(what) || self.exporter.has(what)
    }
}

/// Codes with which a driver says that it gets no descriptor.
const NO_DESCRIPTOR: [CuResult; 3] = [
    CuResult::OUT_OF_MEMORY,
    CuResult::OPERATING_SYSTEM,
    CuResult::UNKNOWN,
];

/// Whether the situation explains this error.
pub(super) fn explains(situation: &Situation, error: &Error) -> bool {
    match error {
        Error::Import(import) => {
            !import.attempts.is_empty()
                && import
                    .attempts
                    .iter()
                    .all(|attempt| explains_attempt(situation, attempt))
        }
        // What a driver says about memory may be wrong as a whole when a question
        // about it fails.
        Error::NotExportable(_) | Error::DeviceNotVisible(_) | Error::Unsupported { .. } => {
            situation.own.has(Disturbance::Faults)
                || (situation.own.has(Disturbance::Descriptors)
                    && error
                        .attempts()
                        .iter()
                        .any(|attempt| explains_code(situation, attempt.code)))
        }
        Error::Driver(driver) => match driver.cause {
            DriverCause::Code(code) => explains_code(situation, Code::Driver(code)),
            DriverCause::Missing(_) => false,
        },
        Error::Os { errno, .. } | Error::BrokerStart { errno, .. } => {
            explains_code(situation, Code::Os(*errno))
        }
        // Whether this process's own memory is still there is a question to the driver.
        Error::Argument { name: "self", .. } => situation.own.has(Disturbance::Faults),
        // Neither a forked child nor a caller that does not know what it does.
        _ => false,
    }
}

/// What the code alone says.
fn explains_code(situation: &Situation, code: Code) -> bool {
    match code {
        Code::Driver(code) => {
            let faults = situation.own.has(Disturbance::Faults) && RANDOM_CODES.contains(&code);
            let full = situation.own.has(Disturbance::Descriptors) && NO_DESCRIPTOR.contains(&code);
            faults || full
        }
        Code::Os(errno) => {
            let table = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
            situation.own.has(Disturbance::Descriptors) && table.contains(&errno)
        }
        Code::None | Code::MissingSymbol(_) => false,
    }
}

fn explains_attempt(situation: &Situation, attempt: &Attempt) -> bool {
    if explains_code(situation, attempt.code) {
        return true;
    }
    // A driver that cannot open what it is to import, for want of a descriptor, says
    // what it says of memory that is gone.
    if situation.own.has(Disturbance::Descriptors)
        && matches!(attempt.code, Code::Driver(_))
        && matches!(attempt.step, Step::Open | Step::Import | Step::ImportPool)
    {
        return true;
    }
    match attempt.reason {
        // Not tried at all: another attempt says what was.
        Reason::CannotBeReadOnly | Reason::CannotBeSegmented | Reason::NotAllowed => true,
        Reason::ExporterGone
        | Reason::OfferWithdrawn
        | Reason::BrokerUnreachable
        | Reason::OwnBroker
        | Reason::ContextRefused => situation.ended(),
        Reason::BrokerHungUp => situation.ended() || situation.either(Disturbance::Descriptors),
        // A question to the exporter's driver that fails says nothing good.
        Reason::StaleMemory => situation.ended() || situation.exporter.has(Disturbance::Faults),
        Reason::ExportFailed | Reason::NoDescriptor => {
            situation.ended()
                || situation.exporter.has(Disturbance::Faults)
                || situation.exporter.has(Disturbance::Descriptors)
        }
        Reason::TimedOut => situation.either(Disturbance::Stop),
        Reason::BrokerBusy => {
            situation.either(Disturbance::Stop) || situation.exporter.has(Disturbance::Descriptors)
        }
        Reason::LivenessUnknown => {
            situation.ended()
                || situation.exporter.has(Disturbance::Faults)
                || situation.either(Disturbance::Stop)
                || situation.either(Disturbance::Descriptors)
        }
        // The way around a broker that did not answer: that it did not is told, too.
        Reason::PtraceRefused | Reason::NoPidfd => {
            situation.ended()
                || situation.either(Disturbance::Stop)
                || situation.either(Disturbance::Descriptors)
        }
        // The driver does not know the memory any more.
        Reason::FabricUnavailable | Reason::Driver | Reason::SizeMismatch => {
            situation.ended()
                && matches!(
                    attempt.step,
                    Step::Import | Step::Open | Step::Map | Step::Compare
                )
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuipc::{HandleType, ImportError};
    use std::time::Duration;

    fn attempt(step: Step, code: Code, reason: Reason) -> Attempt {
        Attempt {
            handle_type: HandleType::PosixFd,
            step,
            code,
            reason,
            segment: None,
            peers: None,
            elapsed: Duration::ZERO,
        }
    }

    fn import(attempts: &[Attempt]) -> Error {
        Error::Import(ImportError {
            attempts: attempts.to_vec(),
        })
    }

    fn own(what: Disturbance) -> Situation {
        Situation {
            own: Disturbances::NONE.with(what),
            ..Situation::default()
        }
    }

    fn exporter(what: Disturbance) -> Situation {
        Situation {
            exporter: Disturbances::NONE.with(what),
            ..Situation::default()
        }
    }

    const GONE: Situation = Situation {
        own: Disturbances::NONE,
        exporter: Disturbances::NONE,
        gone: true,
    };

    #[test]
    fn what_is_on_offer_and_undisturbed_has_no_excuse() {
        let quiet = Situation::default();
        for reason in [
            Reason::ExporterGone,
            Reason::OfferWithdrawn,
            Reason::TimedOut,
            Reason::StaleMemory,
            Reason::BrokerBusy,
            Reason::System,
        ] {
            let error = import(&[attempt(Step::BrokerRequest, Code::None, reason)]);
            assert!(!explains(&quiet, &error), "{reason:?}");
        }
    }

    #[test]
    fn each_attempt_needs_its_own_excuse() {
        let withdrawn = attempt(Step::BrokerRequest, Code::None, Reason::OfferWithdrawn);
        let late = attempt(Step::BrokerRequest, Code::None, Reason::TimedOut);
        assert!(explains(&GONE, &import(std::slice::from_ref(&withdrawn))));
        assert!(!explains(&GONE, &import(&[withdrawn, late.clone()])));
        assert!(explains(&exporter(Disturbance::Stop), &import(&[late])));
        assert!(!explains(&GONE, &import(&[])));
    }

    #[test]
    fn a_disturbance_explains_its_own_codes_only() {
        let failed = |code| import(&[attempt(Step::Map, Code::Driver(code), Reason::Driver)]);
        let faults = own(Disturbance::Faults);
        assert!(explains(&faults, &failed(CuResult::NOT_PERMITTED)));
        assert!(!explains(&faults, &failed(CuResult::ILLEGAL_ADDRESS)));
        assert!(!explains(
            &exporter(Disturbance::Faults),
            &failed(CuResult::NOT_PERMITTED)
        ));
        let errno = |errno: Errno| Error::Os {
            step: "socket",
            errno: errno.raw_os_error(),
        };
        let full = own(Disturbance::Descriptors);
        assert!(explains(&full, &errno(Errno::MFILE)));
        assert!(!explains(&full, &errno(Errno::BADF)));
        assert!(!explains(&faults, &errno(Errno::MFILE)));
        assert!(!explains(&own(Disturbance::Stop), &errno(Errno::INTR)));
    }

    #[test]
    fn nothing_explains_a_forked_process_that_did_not_fork() {
        let mut all = own(Disturbance::Faults);
        all.own = all.own.with(Disturbance::Kill).with(Disturbance::Stop);
        assert!(!explains(&all, &Error::Forked));
    }
}
