//! What a process holds: a leak is what is more afterwards.

use gpuipc_kit::Kind;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long what ends by itself, such as a broker's thread, may take.
const TIME_TO_SETTLE: Duration = Duration::from_secs(20);
/// Numbers of descriptors are below a worker's limit.
const MOST_DESCRIPTORS: u32 = 1024;

/// How many of each thing.
pub(crate) type Holdings = BTreeMap<String, u64>;

/// Of this process. `gpu` is the folder of the emulated driver's memory.
fn read(kind: Kind, gpu: &Path) -> Holdings {
    let mut held = Holdings::new();
    // By what they are, without the numbers that differ from time to time. Needs no descriptor.
    for number in 0..MOST_DESCRIPTORS {
        if let Ok(target) = std::fs::read_link(format!("/proc/self/fd/{number}")) {
            let target = target
                .to_string_lossy()
                .replace(|c: char| c.is_ascii_digit(), "");
            *held.entry(format!("descriptor of {target}")).or_default() += 1;
        }
    }
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    held.insert("threads".to_owned(), threads as u64);
    held.insert("child processes".to_owned(), u64::from(has_children()));
    if kind == Kind::Emulated {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let gpu = gpu.to_string_lossy();
        let mapped = maps.lines().filter(|line| line.contains(&*gpu)).count();
        held.insert("mappings of GPU memory".to_owned(), mapped as u64);
        let counters = gpuipc_emulated::counters::read().to_string();
        let mut name = String::from("driver's");
        for word in counters.split(' ') {
            if let Ok(count) = word.parse() {
                held.insert(
                    std::mem::replace(&mut name, String::from("driver's")),
                    count,
                );
            } else {
                name = format!("{name} {word}");
            }
        }
    }
    held
}

/// What is more than before.
fn more(before: &Holdings, after: &Holdings) -> Vec<String> {
    let more = after.iter().filter_map(|(name, count)| {
        let had = before.get(name).copied().unwrap_or(0);
        (*count > had).then(|| format!("{name}: {had} before, {count} after"))
    });
    more.collect()
}

/// What this process holds once two looks see the same.
pub(crate) fn settled(kind: Kind, gpu: &Path) -> Holdings {
    let end = Instant::now() + TIME_TO_SETTLE;
    let mut seen = read(kind, gpu);
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let next = read(kind, gpu);
        if next == seen || Instant::now() > end {
            return next;
        }
        seen = next;
    }
}

/// What stays more than before.
pub(crate) fn since(before: &Holdings, kind: Kind, gpu: &Path) -> Vec<String> {
    let end = Instant::now() + TIME_TO_SETTLE;
    loop {
        let leaks = more(before, &read(kind, gpu));
        if leaks.is_empty() || Instant::now() > end {
            return leaks;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether there is a child process, a zombie too. Reaps none.
pub(crate) fn has_children() -> bool {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    // A process without any gets ECHILD.
    waitid(WaitId::All, options).is_ok()
}

/// Every file below a folder, by its path from there.
pub(crate) fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let below = files(&entry.path());
            found.extend(below.iter().map(|file| format!("{name}/{file}")));
        } else {
            found.push(name);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_more_is_a_leak() {
        let look = || read(Kind::Cuda, Path::new("/nowhere"));
        let before = look();
        let file = std::fs::File::open("/proc/self/stat").expect("it is there");
        let after = look();
        drop(file);
        let leaks = more(&before, &after);
        assert!(
            leaks
                .iter()
                .any(|leak| leak.starts_with("descriptor of /proc//stat")),
            "{leaks:?}"
        );
        let fewer = [("threads".to_owned(), 1)].into();
        assert!(more(&before, &fewer).is_empty());
    }
}
