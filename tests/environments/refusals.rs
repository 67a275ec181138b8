//! Each refusal alone, with every answer that systems give, and in pairs.

use crate::can_unshare;
use crate::ways::{Exporter, Refused, Ways};
use libc::{EACCES, EAFNOSUPPORT, EAGAIN, EINVAL, ENOSYS, EPERM};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is refused, and which ways an exporter and an importer keep without it.
struct Row {
    /// The first one stands for all in pairs.
    refused: &'static [Refused],
    exporter: Ways,
    importer: Ways,
    /// What the exporter's log says, once.
    told: &'static str,
}

const ALL: Ways = Ways::ALL;
const NO_TABLE: Ways = Ways {
    number: false,
    ..ALL
};
const NO_BROKER: Ways = Ways {
    abstract_name: false,
    file_name: false,
    ..ALL
};
const FILE_NAME_ONLY: Ways = Ways {
    abstract_name: false,
    ..ALL
};
/// Numbers of other processes mean nothing where the host is not known.
const NO_HOST: Ways = Ways {
    number: false,
    host: false,
    ..ALL
};

const NO_PROC_SYS: &str = "mount -t tmpfs none /proc/sys";
const ONLY_PIDS: &str = "mount -t proc -o subset=pid none /proc";

const fn row(
    refused: &'static [Refused],
    exporter: Ways,
    importer: Ways,
    told: &'static str,
) -> Row {
    Row {
        refused,
        exporter,
        importer,
        told,
    }
}

#[rustfmt::skip]
const ROWS: &[Row] = {
    use Refused::{Calls, LargeFiles, Proc};
    &[
        row(&[Calls("memfd_create", EPERM), Calls("memfd_create", ENOSYS), Calls("memfd_create", EACCES)], NO_TABLE, ALL, "no export table"),
        row(&[Calls("add-seals", EINVAL), Calls("add-seals", EPERM)], NO_TABLE, ALL, "no export table"),
        row(&[Calls("get-seals", EPERM), Calls("get-seals", ENOSYS), Calls("get-seals", EINVAL)], ALL, NO_TABLE, ""),
        row(&[LargeFiles((2 << 20) - 1), LargeFiles(0)], NO_TABLE, ALL, "(RLIMIT_FSIZE)"),
        row(&[Calls("wipe-on-fork", EINVAL), Calls("wipe-on-fork", ENOSYS)], ALL, ALL, "MADV_WIPEONFORK"),
        row(&[Calls("madvise", EPERM), Calls("madvise", ENOSYS)], ALL, ALL, "MADV_WIPEONFORK"),
        row(&[Calls("socket", EAFNOSUPPORT), Calls("socket", EPERM), Calls("socket", EACCES)], NO_BROKER, NO_BROKER, "there is no broker"),
        row(&[Calls("bind", EACCES), Calls("bind", EPERM)], NO_BROKER, ALL, "there is no broker"),
        row(&[Calls("bind-abstract", EACCES), Calls("bind-abstract", EPERM)], FILE_NAME_ONLY, ALL, "no abstract name"),
        row(&[Calls("connect-abstract", EACCES), Calls("connect-abstract", EPERM)], ALL, FILE_NAME_ONLY, ""),
        row(&[Calls("passrights", EPERM), Calls("passrights", ENOSYS)], ALL, ALL, ""),
        row(&[Calls("pidfd_open", EPERM), Calls("pidfd_open", ENOSYS)], ALL, NO_TABLE, ""),
        row(&[Calls("pidfd_getfd", EPERM), Calls("pidfd_getfd", ENOSYS)], ALL, NO_TABLE, ""),
        row(&[Calls("clone3", ENOSYS)], ALL, ALL, ""),
        row(&[Calls("clone+clone3", EAGAIN), Calls("clone+clone3", EPERM), Calls("clone+clone3", ENOSYS), Calls("clone3", EPERM)], NO_BROKER, ALL, "there is no broker"),
        row(&[Calls("getrandom", ENOSYS), Calls("getrandom", EPERM)], ALL, ALL, ""),
        row(&[Proc(NO_PROC_SYS)], NO_HOST, NO_HOST, "no boot id"),
        row(&[Proc(ONLY_PIDS)], NO_HOST, NO_HOST, "no boot id"),
    ]
};

/// The rows that this machine can play.
fn rows() -> Vec<&'static Row> {
    let can = can_unshare(&["--mount"], ONLY_PIDS);
    let is_proc = |row: &Row| matches!(row.refused, [Refused::Proc(_), ..]);
    ROWS.iter().filter(|row| can || !is_proc(row)).collect()
}

/// Runs `play` on each of `all`, on two threads: most of the time is waiting.
fn each<T: Sync>(all: &[T], play: impl Fn(&T) -> Result<(), String> + Sync) {
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(text) = play(one) {
                        wrong.lock().expect("no panic in here").push(text);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no panic in here");
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Shares memory between two such processes, and compares what is left with `expected`.
fn play(exporter: &[Refused], importer: &[Refused], expected: Ways) -> Result<Exporter, String> {
    let name = |refused: &[Refused]| {
        let names: Vec<String> = refused.iter().map(|refused| refused.name()).collect();
        names.join(", ")
    };
    let mut sharing = Exporter::start(exporter);
    let found = sharing.importer(importer).try_all(&sharing);
    if found.differs(expected) {
        return Err(format!(
            "exporter without [{}], importer without [{}]: {found:?}, expected {expected:?}; exports: {:?} {:?}; log: {}",
            name(exporter),
            name(importer),
            sharing.vmm.as_ref().err(),
            sharing.legacy.as_ref().err(),
            sharing.child.ok("log-lines"),
        ));
    }
    Ok(sharing)
}

#[test]
fn an_exporter_that_lacks_one_thing_keeps_the_other_ways_and_says_so_once() {
    let rows = rows();
    let all: Vec<_> = rows
        .iter()
        .flat_map(|row| row.refused.iter().map(move |refused| (*row, *refused)))
        .collect();
    each(&all, |(row, refused)| {
        let mut exporter = play(&[*refused], &[], row.exporter)?;
        let told = exporter.child.ok("log-lines");
        let times = if row.told.is_empty() {
            0
        } else {
            told.matches(row.told).count()
        };
        if times == usize::from(!row.told.is_empty()) {
            Ok(())
        } else {
            Err(format!(
                "{}: {:?} is told {times} times: {told}",
                refused.name(),
                row.told
            ))
        }
    });
}

#[test]
fn an_importer_that_lacks_one_thing_keeps_the_other_ways() {
    let rows = rows();
    let all: Vec<_> = rows
        .iter()
        .flat_map(|row| {
            row.refused
                .iter()
                .map(move |refused| (row.importer, *refused))
        })
        .collect();
    each(&all, |(ways, refused)| {
        play(&[], &[*refused], *ways).map(drop)
    });
}

/// Where memory is not shared at all, and why that cannot be otherwise.
struct Nothing {
    /// Any of these with any of those.
    of: [&'static [&'static str]; 2],
    why: &'static str,
}

const NO_BROKERS: &[&str] = &["socket", "bind", "clone+clone3"];
const NO_NUMBERS: &[&str] = &[
    "memfd_create",
    "add-seals",
    "get-seals",
    "RLIMIT_FSIZE",
    "pidfd_open",
    "pidfd_getfd",
    "mount",
];

const NOTHING: &[Nothing] = &[Nothing {
    of: [NO_BROKERS, NO_NUMBERS],
    why: "a descriptor goes over the broker's socket, or is fetched by its number; without \
              both nothing leads to memory of cuMemCreate, nor shows to which host a legacy \
              handle belongs",
}];

/// Whether a pair is listed.
fn may_share_nothing(first: Refused, second: Refused) -> bool {
    let (first, second) = (first.name(), second.name());
    let is = |name: &str, list: &[&str]| list.iter().any(|word| name.starts_with(word));
    NOTHING.iter().any(
        |Nothing {
             of: [some, others],
             why,
         }| {
            assert!(!why.is_empty());
            is(&first, some) && is(&second, others) || is(&second, some) && is(&first, others)
        },
    )
}

/// All pairs of rows, each as what is refused first.
fn pairs() -> Vec<(&'static Row, &'static Row)> {
    let rows = rows();
    let is_proc = |row: &Row| matches!(row.refused[0], Refused::Proc(_));
    let mut pairs = Vec::new();
    for (at, first) in rows.iter().enumerate() {
        for second in &rows[at + 1..] {
            // One /proc is mounted over the other.
            if !(is_proc(first) && is_proc(second)) {
                pairs.push((*first, *second));
            }
        }
    }
    pairs
}

#[test]
fn an_exporter_that_lacks_two_things_keeps_what_neither_gives() {
    each(&pairs(), |(first, second)| {
        let refused = [first.refused[0], second.refused[0]];
        let expected = first.exporter.and(second.exporter);
        play(&refused, &[], expected)?;
        listed(refused, expected)
    });
}

#[test]
fn an_importer_that_lacks_two_things_keeps_what_neither_gives() {
    each(&pairs(), |(first, second)| {
        let refused = [first.refused[0], second.refused[0]];
        let expected = first.importer.and(second.importer);
        play(&[], &refused, expected)?;
        listed(refused, expected)
    });
}

#[test]
fn two_processes_that_lack_one_thing_each_keep_what_neither_gives() {
    each(&pairs(), |(first, second)| {
        let refused = [first.refused[0], second.refused[0]];
        let expected = first.exporter.and(second.importer);
        play(&refused[..1], &refused[1..], expected)?;
        listed(refused, expected)
    });
}

fn listed(refused: [Refused; 2], expected: Ways) -> Result<(), String> {
    let [first, second] = refused;
    let shares = expected.shares_vmm() && expected.shares_legacy();
    if shares || may_share_nothing(first, second) {
        Ok(())
    } else {
        Err(format!(
            "{} and {} share nothing",
            first.name(),
            second.name()
        ))
    }
}
