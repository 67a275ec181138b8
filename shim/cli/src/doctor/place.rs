//! Where this process runs: namespaces, users, containers.

use super::check::{Check, Verdict};
use gpuipc::TRUST_VARIABLE;
use gpuipc::sys::environment::variable;
use std::path::Path;

/// The findings.
pub(crate) fn checks() -> Vec<Check> {
    vec![namespaces(), users(), containers()]
}

/// The number of one of this process's namespaces.
pub(crate) fn namespace(kind: &str) -> String {
    let link = std::fs::read_link(format!("/proc/self/ns/{kind}"));
    let link = link.map(|link| link.to_string_lossy().into_owned());
    let number = link.as_deref().unwrap_or_default();
    number
        .split_once('[')
        .and_then(|(_, rest)| rest.strip_suffix(']'))
        .unwrap_or("unknown")
        .to_owned()
}

fn namespaces() -> Check {
    let kinds = ["pid", "net", "ipc", "mnt", "user"];
    let texts = kinds.map(|kind| format!("{kind} {}", namespace(kind)));
    Check::note("namespaces", texts.join(", "))
}

fn users() -> Check {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let overflow = read("/proc/sys/kernel/overflowuid");
    // 65534 is the kernel's own default.
    let overflow = overflow.trim().parse().unwrap_or(65534);
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let map = match std::fs::read_to_string("/proc/self/uid_map") {
        Ok(map) => map,
        Err(error) => {
            let found = format!("uid {uid}, gid {gid}; /proc/self/uid_map: {error}");
            return Check::unknown("users", found);
        }
    };
    let check = users_of(uid, gid, &map, overflow);
    match variable(TRUST_VARIABLE) {
        // Then it does not matter who has a number.
        Some(trust)
            if trust.to_string_lossy().trim() == "token" && check.verdict != Verdict::Ok =>
        {
            let found = format!("{}; {TRUST_VARIABLE}=token lifts that", check.found);
            Check::note("users", found)
        }
        _ => check,
    }
}

fn users_of(uid: u32, gid: u32, map: &str, overflow: u32) -> Check {
    let who = format!("uid {uid}, gid {gid}");
    let lines: Vec<Vec<&str>> = map
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    if lines.iter().any(|line| line.get(2) == Some(&"4294967295")) {
        return Check::ok(
            "users",
            format!("{who}; everyone has a number in this user namespace"),
        );
    }
    let token = format!("{TRUST_VARIABLE}=token on both sides");
    if lines.is_empty() || uid == overflow {
        return Check::no(
            "users",
            format!(
                "{who}: this user has no number in this user namespace: broker and importer cannot tell who is there \
                 and trust nobody"
            ),
            format!("map the user (/proc/PID/uid_map), or {token}"),
        );
    }
    let ranges: Vec<String> = lines
        .iter()
        .filter_map(|line| match line[..] {
            [inside, outside, count] => {
                Some(format!("{count} from {inside} on (outside: {outside})"))
            }
            _ => None,
        })
        .collect();
    Check::note(
        "users",
        format!(
            "{who}; this user namespace has numbers for {}; all others show as uid {overflow}, which is trusted \
             by nobody",
            ranges.join(", ")
        ),
    )
    .cure(format!(
        "with a process in another user namespace: the same mapping for both, or {token}"
    ))
}

fn containers() -> Check {
    let hints = [("/.dockerenv", "Docker"), ("/run/.containerenv", "Podman")];
    let seen: Vec<String> = hints
        .into_iter()
        .filter(|(path, _)| Path::new(path).exists())
        .map(|(path, name)| format!("{name} ({path})"))
        .collect();
    if seen.is_empty() {
        return Check::note(
            "container",
            "no sign of Docker or Podman (other runtimes leave none)",
        );
    }
    Check::note("container", seen.join(", ")).cure(
        "two containers share what one of these gives: --network=host, --ipc=host or container:NAME, \
         or a volume named by GPUIPC_SOCKET_DIR",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_a_number_is_trusted_by_nobody() {
        let all = users_of(65534, 0, "0 0 4294967295\n", 65534);
        assert_eq!(all.verdict, Verdict::Ok);
        let none = users_of(65534, 65534, "", 65534);
        assert_eq!(none.verdict, Verdict::No);
        assert!(none.cure.is_some_and(|cure| cure.contains("=token")));
        let some = users_of(0, 0, "         0       1000          1\n", 65534);
        assert_eq!(some.verdict, Verdict::Note);
        assert!(
            some.found.contains("1 from 0 on (outside: 1000)"),
            "{}",
            some.found
        );
    }

    #[test]
    fn a_namespace_has_a_number() {
        assert!(namespace("pid").parse::<u64>().is_ok());
        assert_eq!(namespace("none"), "unknown");
    }
}
