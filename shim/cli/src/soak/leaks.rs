//! What a process holds, before and after: a leak is what is more afterwards.

use crate::driver::Kind;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long what ends by itself, such as a broker's thread, may take.
const TIME_TO_SETTLE: Duration = Duration::from_secs(20);

/// Numbers of descriptors are below this, which is a worker's limit.
const MOST_DESCRIPTORS: u32 = 1024;

/// One number of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) name: String,
    pub(super) before: u64,
    pub(super) after: u64,
    /// More than before is a leak; of others it is only told.
    pub(super) counts: bool,
    /// What differs.
    pub(super) detail: String,
}

impl Item {
    pub(super) fn new(name: &str, before: u64, after: u64) -> Self {
        Self {
            name: name.to_owned(),
            before,
            after,
            counts: true,
            detail: String::new(),
        }
    }

    /// As a table tells it.
    pub(super) const fn is_leaked(&self) -> bool {
        self.counts && (self.after > self.before || !self.detail.is_empty())
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "item": self.name,
            "before": self.before,
            "after": self.after,
            "counts": self.counts,
            "leaked": self.is_leaked(),
            "detail": self.detail,
        })
    }

    pub(super) fn from_json(value: &Value) -> Option<Self> {
        let text = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
        Some(Self {
            name: text("item")?,
            before: value.get("before")?.as_u64()?,
            after: value.get("after")?.as_u64()?,
            counts: value.get("counts")?.as_bool()?,
            detail: text("detail")?,
        })
    }

    /// The sum over several processes.
    pub(super) fn add(&mut self, other: &Self) {
        self.before += other.before;
        self.after += other.after;
        if !other.detail.is_empty() && !self.detail.contains(&other.detail) {
            if !self.detail.is_empty() {
                self.detail.push_str("; ");
            }
            self.detail.push_str(&other.detail);
        }
    }
}

/// What a process holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Holdings {
    /// By what they are, without the numbers that differ from time to time.
    descriptors: BTreeMap<String, u64>,
    /// The emulated driver's live objects: their number, and their kinds.
    objects: Option<(u64, String)>,
    /// Of the emulated driver's memory.
    mappings: u64,
    threads: u64,
    children: u64,
    /// Resident memory in KiB; whatever it is, it is no leak by itself.
    resident: u64,
}

impl Holdings {
    /// Of this process. `gpu` is the folder of the emulated driver's memory.
    pub(super) fn read(kind: Kind, gpu: &Path) -> Self {
        let descriptors = descriptors();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let gpu = gpu.to_string_lossy();
        let mappings = maps.lines().filter(|line| line.contains(&*gpu)).count();
        let objects = (kind == Kind::Emulated).then(|| {
            let text = gpuipc_emulated::counters::read().to_string();
            let numbers = text.split(' ').filter_map(|word| word.parse::<u64>().ok());
            (numbers.sum(), text)
        });
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok())
                .unwrap_or(0)
        };
        Self {
            descriptors,
            objects,
            mappings: mappings as u64,
            threads: field("Threads:"),
            children: u64::from(has_children()),
            resident: field("VmRSS:"),
        }
    }

    /// Once two looks see the same.
    pub(super) fn settled(kind: Kind, gpu: &Path) -> Self {
        let end = Instant::now() + TIME_TO_SETTLE;
        let mut seen = Self::read(kind, gpu);
        loop {
            std::thread::sleep(Duration::from_millis(100));
            let next = Self::read(kind, gpu);
            if next.is_like(&seen) || Instant::now() > end {
                return next;
            }
            seen = next;
        }
    }

    /// As [`Self::settled`], but waits for what is more than `before` to go.
    pub(super) fn returned(before: &Self, kind: Kind, gpu: &Path) -> Self {
        let end = Instant::now() + TIME_TO_SETTLE;
        loop {
            let now = Self::read(kind, gpu);
            let leaked = now.against(before).iter().any(Item::is_leaked);
            if !leaked || Instant::now() > end {
                return now;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        let resident = self.resident;
        *self
            == Self {
                resident,
                ..other.clone()
            }
    }

    /// The rows of the table: this beside what was before.
    pub(super) fn against(&self, before: &Self) -> Vec<Item> {
        let sum = |holdings: &Self| holdings.descriptors.values().sum();
        let mut descriptors = Item::new("open descriptors", sum(before), sum(self));
        let more = self.descriptors.iter().filter_map(|(name, count)| {
            let had = before.descriptors.get(name).copied().unwrap_or(0);
            (*count > had).then(|| format!("{} more of {name}", count - had))
        });
        descriptors.detail = more.collect::<Vec<_>>().join(", ");
        let mut items = vec![
            descriptors,
            Item::new("threads", before.threads, self.threads),
            Item::new("child processes", before.children, self.children),
        ];
        if let (Some((had, kinds_before)), Some((has, kinds))) = (&before.objects, &self.objects) {
            let mut objects = Item::new("live driver objects", *had, *has);
            if kinds != kinds_before {
                objects.detail = format!("{kinds} instead of {kinds_before}");
            }
            items.push(objects);
            items.push(Item::new(
                "mappings of GPU memory",
                before.mappings,
                self.mappings,
            ));
        }
        items.push(Item {
            counts: false,
            ..Item::new("resident memory, KiB", before.resident, self.resident)
        });
        items
    }
}

/// This process's open descriptors by what they are, without numbers. Needs none
/// itself.
pub(super) fn descriptors() -> BTreeMap<String, u64> {
    let mut found = BTreeMap::<String, u64>::new();
    for number in 0..MOST_DESCRIPTORS {
        if let Ok(target) = std::fs::read_link(format!("/proc/self/fd/{number}")) {
            let target = target.to_string_lossy();
            let target = target.chars().filter(|letter| !letter.is_ascii_digit());
            *found.entry(target.collect()).or_default() += 1;
        }
    }
    found
}

/// Whether there is a child process, a zombie too. Reaps none.
pub(super) fn has_children() -> bool {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    // ECHILD is the answer of a process without any.
    waitid(WaitId::All, options).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holdings() -> Holdings {
        Holdings {
            descriptors: [("socket:[]".to_owned(), 2)].into(),
            objects: Some((3, "mappings 1 files 2".to_owned())),
            mappings: 4,
            threads: 3,
            children: 0,
            resident: 1000,
        }
    }

    fn leaked(change: impl FnOnce(&mut Holdings)) -> Vec<String> {
        let mut after = holdings();
        change(&mut after);
        let items = after.against(&holdings());
        let leaked = items.into_iter().filter(Item::is_leaked);
        leaked.map(|item| item.name).collect()
    }

    #[test]
    fn what_is_as_before_or_less_is_no_leak() {
        assert!(leaked(|_| {}).is_empty());
        assert!(leaked(|after| after.descriptors.clear()).is_empty());
        assert!(leaked(|after| after.threads = 1).is_empty());
        assert!(leaked(|after| after.resident = 1_000_000).is_empty());
    }

    #[test]
    fn each_thing_that_is_more_is_a_leak() {
        let another = |after: &mut Holdings| {
            // As many as before, but another.
            after.descriptors = [("socket:[]".to_owned(), 1), ("/memfd:x".to_owned(), 1)].into();
        };
        assert_eq!(leaked(another), ["open descriptors"]);
        assert_eq!(leaked(|after| after.threads += 1), ["threads"]);
        assert_eq!(leaked(|after| after.children += 1), ["child processes"]);
        assert_eq!(
            leaked(|after| after.mappings += 1),
            ["mappings of GPU memory"]
        );
        let objects = |after: &mut Holdings| {
            after.objects = Some((3, "mappings 2 files 1".to_owned()));
        };
        assert_eq!(leaked(objects), ["live driver objects"]);
    }

    #[test]
    fn an_item_arrives_as_it_was_sent_and_a_leak_stays_one_in_a_sum() {
        let mut item = Item::new("threads", 3, 4);
        assert_eq!(Item::from_json(&item.to_json()), Some(item.clone()));
        assert!(item.is_leaked());
        // One process less than before does not hide another's leak of descriptors.
        item = Item {
            detail: "1 more of pipe:[]".to_owned(),
            ..Item::new("open descriptors", 5, 6)
        };
        item.add(&Item::new("open descriptors", 6, 5));
        assert!(item.is_leaked());
    }

    #[test]
    fn this_process_holds_what_it_opens() {
        let read = || Holdings::read(Kind::Cuda, Path::new("/nowhere"));
        let before = read();
        let file = std::fs::File::open("/proc/self/stat").expect("it is there");
        let items = read().against(&before);
        drop(file);
        let descriptors = items.first().expect("the first row");
        assert!(descriptors.is_leaked(), "{descriptors:?}");
    }
}
