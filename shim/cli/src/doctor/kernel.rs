//! What the kernel lets one process do with another's descriptors.

use super::check::Check;
use super::probe::{self, Fetched};
use rustix::io::Errno;

/// Fetching a descriptor by pidfd, tried in both directions.
pub(crate) fn pidfd() -> Vec<Check> {
    let rules = Rules::read();
    let mut checks = vec![Check::note("rules for pidfd", rules.to_string())];
    match probe::both() {
        Err(reason) => checks.push(Check::unknown("pidfd_getfd", reason)),
        Ok(both) => {
            checks.push(verdict(
                "pidfd from exporter",
                "another process fetches a descriptor of this one",
                both.from_here,
                &rules,
            ));
            checks.push(verdict(
                "pidfd from child",
                "this process fetches a descriptor of its child",
                both.from_child,
                &rules,
            ));
        }
    }
    checks
}

fn verdict(subject: &str, what: &str, fetched: Fetched, rules: &Rules) -> Check {
    let (call, errno) = match fetched {
        Fetched::Right => return Check::ok(subject, format!("{what}: the right one came")),
        Fetched::Wrong => return Check::unknown(subject, format!("{what}: another file came")),
        Fetched::Not(call, errno) => (call, errno),
    };
    let (why, cure) = rules.explain(errno);
    let error = std::io::Error::from(errno);
    Check::no(
        subject,
        format!("{what}: {call} failed ({error}): {why}"),
        format!("{cure}; not needed where the broker can be reached"),
    )
}

/// What decides, as far as it can be read.
#[derive(Clone, Debug)]
struct Rules {
    release: String,
    /// `None` without Yama.
    yama: Option<u32>,
    /// 0 off, 1 strict, 2 a filter; `None` if the kernel does not say.
    seccomp: Option<u32>,
    sys_ptrace: Option<bool>,
}

/// The bit of CAP_SYS_PTRACE.
const CAP_SYS_PTRACE: u64 = 1 << 19;

impl Rules {
    fn read() -> Self {
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self::parse(
            &text("/proc/sys/kernel/osrelease"),
            &text("/proc/sys/kernel/yama/ptrace_scope"),
            &text("/proc/self/status"),
        )
    }

    fn parse(release: &str, yama: &str, status: &str) -> Self {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim().to_owned())
        };
        let release = release.trim();
        Self {
            release: if release.is_empty() {
                "unknown"
            } else {
                release
            }
            .to_owned(),
            yama: yama.trim().parse().ok(),
            seccomp: field("Seccomp:").and_then(|text| text.parse().ok()),
            sys_ptrace: field("CapEff:")
                .and_then(|text| u64::from_str_radix(&text, 16).ok())
                .map(|capabilities| capabilities & CAP_SYS_PTRACE != 0),
        }
    }

    /// Why a call failed, and what to do.
    fn explain(&self, errno: Errno) -> (String, &'static str) {
        match errno {
            Errno::PERM
                if self.yama.is_some_and(|scope| scope > 0) && self.sys_ptrace != Some(true) =>
            {
                (
                    format!("Yama forbids it ({self})"),
                    "sysctl kernel.yama.ptrace_scope=0 on the host, or CAP_SYS_PTRACE (docker run --cap-add=SYS_PTRACE), \
                 or the exporter's own prctl(PR_SET_PTRACER)",
                )
            }
            Errno::PERM if self.seccomp.is_some_and(|mode| mode > 0) => (
                format!("a seccomp filter or the right to ptrace ({self})"),
                "CAP_SYS_PTRACE (docker run --cap-add=SYS_PTRACE, which lets Docker's filter pass the call, too), \
                 or --security-opt seccomp=unconfined",
            ),
            Errno::PERM => (
                format!("no right to ptrace that process ({self})"),
                "run both as the same user, in one user namespace",
            ),
            Errno::NOSYS => (
                format!(
                    "no such call ({self}): pidfd_open came with Linux 5.3, pidfd_getfd with 5.6; an old container runtime's filter answers so, too"
                ),
                "a newer kernel or container runtime",
            ),
            Errno::MFILE | Errno::NFILE => (
                "the table of open files is full".to_owned(),
                "raise the limit of open files (ulimit -n)",
            ),
            Errno::SRCH => (
                format!("no such process ({self})"),
                "one pid namespace for both",
            ),
            _ => (
                format!("unexpected ({self})"),
                "see the code in man pidfd_getfd",
            ),
        }
    }
}

impl std::fmt::Display for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let yama = match self.yama {
            None => "no Yama".to_owned(),
            Some(0) => "Yama ptrace_scope 0".to_owned(),
            Some(1) => "Yama ptrace_scope 1: only its own descendants".to_owned(),
            Some(2) => "Yama ptrace_scope 2: only CAP_SYS_PTRACE".to_owned(),
            Some(scope) => format!("Yama ptrace_scope {scope}: nobody"),
        };
        let seccomp = match self.seccomp {
            None => "seccomp unknown",
            Some(0) => "seccomp off",
            Some(1) => "seccomp strict",
            Some(_) => "seccomp filter",
        };
        let capability = match self.sys_ptrace {
            None => "CAP_SYS_PTRACE unknown",
            Some(true) => "CAP_SYS_PTRACE yes",
            Some(false) => "CAP_SYS_PTRACE no",
        };
        write!(f, "Linux {}, {yama}, {seccomp}, {capability}", self.release)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\nCapEff:\t00000000a80425fb\n";

    #[test]
    fn yama_is_named_first_and_a_capability_lifts_it() {
        let rules = Rules::parse("6.8.0\n", "1\n", STATUS);
        assert_eq!(
            rules.to_string(),
            "Linux 6.8.0, Yama ptrace_scope 1: only its own descendants, seccomp filter, CAP_SYS_PTRACE no"
        );
        assert!(rules.explain(Errno::PERM).0.starts_with("Yama forbids it"));
        let capable = Rules::parse("6.8.0", "1", "Seccomp:\t0\nCapEff:\t000001ffffffffff\n");
        assert!(capable.explain(Errno::PERM).0.starts_with("no right"));
    }

    #[test]
    fn a_filter_and_an_old_kernel_have_words_of_their_own() {
        let rules = Rules::parse("5.4.0", "", STATUS);
        assert!(rules.explain(Errno::PERM).0.starts_with("a seccomp filter"));
        assert!(
            rules
                .explain(Errno::NOSYS)
                .0
                .contains("pidfd_getfd with 5.6")
        );
    }

    #[test]
    fn what_cannot_be_read_is_unknown() {
        let text = Rules::parse("", "", "").to_string();
        assert_eq!(
            text,
            "Linux unknown, no Yama, seccomp unknown, CAP_SYS_PTRACE unknown"
        );
    }
}
