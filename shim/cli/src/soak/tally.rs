//! How much was done.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Deed {
    Allocate,
    Export,
    Register,
    CanImport,
    Import,
    ImportOwn,
    Deserialize,
    ImportStale,
    Verify,
    WriteReadOnly,
    Unmap,
    Withdraw,
    Free,
    FreeOnOffer,
    Fork,
    NewIpc,
}

impl Deed {
    pub(super) const ALL: [Self; 16] = [
        Self::Allocate,
        Self::Export,
        Self::Register,
        Self::CanImport,
        Self::Import,
        Self::ImportOwn,
        Self::Deserialize,
        Self::ImportStale,
        Self::Verify,
        Self::WriteReadOnly,
        Self::Unmap,
        Self::Withdraw,
        Self::Free,
        Self::FreeOnOffer,
        Self::Fork,
        Self::NewIpc,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Allocate => "allocate",
            Self::Export => "export",
            Self::Register => "register",
            Self::CanImport => "can_import",
            Self::Import => "import",
            Self::ImportOwn => "import in the own process",
            Self::Deserialize => "deserialize",
            Self::ImportStale => "import what is gone",
            Self::Verify => "verify",
            Self::WriteReadOnly => "write to a read-only mapping",
            Self::Unmap => "unmap",
            Self::Withdraw => "withdraw",
            Self::Free => "free",
            Self::FreeOnOffer => "free while on offer",
            Self::Fork => "fork",
            Self::NewIpc => "new Ipc",
        }
    }
}

/// Numbers by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Done, and refused as expected.
    pub(super) deeds: BTreeMap<String, [u64; 2]>,
    /// Anything else that is counted.
    pub(super) numbers: BTreeMap<String, u64>,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        for (name, [done, refused]) in &other.deeds {
            let sum = self.deeds.entry(name.clone()).or_default();
            sum[0] += done;
            sum[1] += refused;
        }
        for (name, number) in &other.numbers {
            *self.numbers.entry(name.clone()).or_default() += number;
        }
    }

    pub(super) fn count(&mut self, name: &str, number: u64) {
        *self.numbers.entry(name.to_owned()).or_default() += number;
    }

    pub(super) fn number(&self, name: &str) -> u64 {
        self.numbers.get(name).copied().unwrap_or(0)
    }

    /// Everything that was done or refused.
    pub(super) fn all_deeds(&self) -> u64 {
        self.deeds.values().flatten().sum()
    }

    pub(super) fn to_json(&self) -> Value {
        let deeds: Map<String, Value> = self
            .deeds
            .iter()
            .map(|(name, [done, refused])| (name.clone(), json!([done, refused])))
            .collect();
        json!({ "deeds": deeds, "numbers": self.numbers })
    }

    pub(super) fn from_json(value: &Value) -> Option<Self> {
        let mut tally = Self::default();
        for (name, pair) in value.get("deeds")?.as_object()? {
            let pair = [pair.get(0)?.as_u64()?, pair.get(1)?.as_u64()?];
            tally.deeds.insert(name.clone(), pair);
        }
        for (name, number) in value.get("numbers")?.as_object()? {
            tally.numbers.insert(name.clone(), number.as_u64()?);
        }
        Some(tally)
    }
}

/// A tally that several threads write.
#[derive(Debug, Default)]
pub(super) struct Counting(Mutex<Tally>);

impl Counting {
    pub(super) fn lock(&self) -> MutexGuard<'_, Tally> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn done(&self, deed: Deed) {
        self.lock().deeds.entry(deed.name().to_owned()).or_default()[0] += 1;
    }

    pub(super) fn refused(&self, deed: Deed) {
        self.lock().deeds.entry(deed.name().to_owned()).or_default()[1] += 1;
    }

    pub(super) fn count(&self, name: &str, number: u64) {
        self.lock().count(name, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_arrives_as_it_was_sent_and_sums() {
        let counting = Counting::default();
        counting.done(Deed::Import);
        counting.refused(Deed::Import);
        counting.count("bytes", 7);
        let tally = counting.lock().clone();
        let mut twice = Tally::from_json(&tally.to_json()).expect("it is one");
        assert_eq!(twice, tally);
        twice.add(&tally);
        assert_eq!(twice.deeds["import"], [2, 2]);
        assert_eq!((twice.number("bytes"), twice.all_deeds()), (14, 4));
    }
}
