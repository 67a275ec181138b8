//! Limits that sharing meets, and the settings in the environment.

use super::check::Check;
use rustix::process::{Resource, getrlimit};

/// A container's default /dev/shm; less holds little but sockets.
const SMALL_SHM: u64 = 64 << 20;
/// What the program needs beside the memory that it shares.
const FEW: u64 = 32;
/// What most systems give.
const USUAL: u64 = 1024;

/// The limits.
pub(crate) fn checks() -> Vec<Check> {
    let limit = getrlimit(Resource::Nofile);
    // The folder's own descriptor is one of them.
    let open = std::fs::read_dir("/proc/self/fd")
        .map(|entries| (entries.count() as u64).saturating_sub(1));
    vec![
        open_files(limit.current, limit.maximum, open.ok()),
        shared_memory(),
    ]
}

/// `None` is without limit.
fn open_files(soft: Option<u64>, hard: Option<u64>, open: Option<u64>) -> Check {
    let number = |limit: Option<u64>| limit.map_or("none".to_owned(), |limit| limit.to_string());
    let now = open.map_or("unknown".to_owned(), |open| open.to_string());
    let found = format!(
        "RLIMIT_NOFILE soft {}, hard {}; {now} open here. An exporter keeps one open for each allocation shared by \
         descriptor, and one for each importer that asks",
        number(soft),
        number(hard),
    );
    let cure = "raise the soft limit (ulimit -n), docker run --ulimit nofile=N, or LimitNOFILE= in the service";
    let left = soft.map_or(u64::MAX, |soft| soft.saturating_sub(open.unwrap_or(0)));
    if left < FEW {
        Check::no("open files", format!("only {left} left: {found}"), cure)
    } else if soft.is_some_and(|soft| soft < USUAL) {
        Check::note("open files", found).cure(cure)
    } else {
        Check::ok("open files", found)
    }
}

fn shared_memory() -> Check {
    let stat = match rustix::fs::statvfs("/dev/shm") {
        Ok(stat) => stat,
        Err(errno) => {
            return Check::no(
                "/dev/shm",
                std::io::Error::from(errno).to_string(),
                "name a folder by GPUIPC_SOCKET_DIR; the emulated driver takes GPUIPC_EMULATED_DIR",
            );
        }
    };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let found = format!(
        "{} MiB free: room for brokers' names, and for the emulated driver's memory",
        free >> 20
    );
    match free {
        0 => Check::no(
            "/dev/shm",
            "full",
            "remove what is not needed there, or make it larger (docker run --shm-size)",
        ),
        1..SMALL_SHM => Check::note("/dev/shm", found)
            .cure("for the emulated driver: docker run --shm-size=1g, or GPUIPC_EMULATED_DIR"),
        _ => Check::ok("/dev/shm", found),
    }
}

/// The settings that are made, none of which is secret.
pub(crate) fn environment() -> Vec<Check> {
    let mut variables: Vec<(String, String)> = std::env::vars_os()
        .map(|(name, value)| {
            (
                name.to_string_lossy().into_owned(),
                value.to_string_lossy().into_owned(),
            )
        })
        .filter(|(name, _)| name.starts_with("GPUIPC_") || name == "CUDA_VISIBLE_DEVICES")
        .collect();
    variables.sort();
    if gpuipc::sys::environment::is_secure() {
        let found =
            "this program runs with more rights than its caller: no GPUIPC_ variable is read";
        return vec![Check::note("environment", found)];
    }
    if variables.is_empty() {
        return vec![Check::note("environment", "no GPUIPC_ variable is set")];
    }
    let note = |(name, value)| Check::note("environment", format!("{name}={value:?}"));
    variables.into_iter().map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Verdict;

    #[test]
    fn few_descriptors_left_are_no_good() {
        let verdict = |soft, open| open_files(soft, Some(4096), Some(open)).verdict;
        assert_eq!(verdict(Some(1024), 10), Verdict::Ok);
        assert_eq!(verdict(Some(256), 10), Verdict::Note);
        assert_eq!(verdict(Some(16), 10), Verdict::No);
        assert_eq!(verdict(Some(1024), 1020), Verdict::No);
        assert_eq!(verdict(None, 5000), Verdict::Ok);
    }
}
