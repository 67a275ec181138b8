//! What happens to which use of a call.

use super::random::Random;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use gpuipc_sys::{CALLS, CuResult};
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a rule does to a use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Act {
    /// It answers this.
    Fail(CuResult),
    /// It waits first.
    Delay(Duration),
}

/// Uses of one call, counted from 1, and what happens to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rule {
    pub(super) call: usize,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) act: Act,
}

/// All rules of the process.
#[derive(Debug)]
pub(super) struct Rules {
    listed: Vec<Rule>,
    random: Vec<Random>,
    /// What is done before a call's use with this number.
    before: Vec<(usize, u64, fn())>,
}

/// How often each call was used.
pub(super) static USES: [AtomicU64; CALLS.len()] = [const { AtomicU64::new(0) }; CALLS.len()];
/// Spares the lock while there are no rules.
static ARMED: AtomicBool = AtomicBool::new(false);
static RULES: Mutex<Rules> = Mutex::new(Rules {
    listed: Vec::new(),
    random: Vec::new(),
    before: Vec::new(),
});

/// Access to the rules; what a change means for [`ARMED`] is done at its end.
pub(super) struct Locked(MutexGuard<'static, Rules>);

pub(super) fn rules() -> Locked {
    Locked(RULES.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Deref for Locked {
    type Target = Rules;
    fn deref(&self) -> &Rules {
        &self.0
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Rules {
        &mut self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let any = !self.listed.is_empty() || !self.random.is_empty() || !self.before.is_empty();
        ARMED.store(any, Ordering::SeqCst);
    }
}

impl Rules {
    pub(super) fn add(&mut self, rule: Rule) {
        self.listed.push(rule);
    }

    pub(super) fn add_random(&mut self, random: Random) {
        self.random.push(random);
    }

    pub(super) fn add_before(&mut self, call: usize, nth: u64, act: fn()) {
        self.before.push((call, nth, act));
    }

    pub(super) fn clear(&mut self) {
        self.listed.clear();
        self.random.clear();
        self.before.clear();
    }

    fn before(&self, call: usize, nth: u64) -> Option<fn()> {
        let hit = |rule: &&(usize, u64, fn())| (rule.0, rule.1) == (call, nth);
        self.before.iter().find(hit).map(|rule| rule.2)
    }

    /// What happens to the `nth` use of a call: how long it waits, and the code
    /// with which it fails.
    fn fate(&self, call: usize, nth: u64) -> (Duration, Option<CuResult>) {
        let mut wait = Duration::ZERO;
        let mut code = None;
        let hit = |rule: &&Rule| rule.call == call && (rule.first..=rule.last).contains(&nth);
        for rule in self.listed.iter().filter(hit) {
            match rule.act {
                Act::Delay(time) => wait += time,
                Act::Fail(with) => code = code.or(Some(with)),
            }
        }
        let chance = || self.random.iter().find_map(|random| random.fate(call, nth));
        (wait, code.or_else(chance))
    }
}

/// Counts a use, lets it wait, and says whether it is to fail.
pub(super) fn used(call: usize) -> Option<CuResult> {
    super::environment::taken();
    let nth = USES.get(call)?.fetch_add(1, Ordering::SeqCst) + 1;
    if let Some(code) = super::environment::refusal(call) {
        return Some(code);
    }
    if !ARMED.load(Ordering::SeqCst) {
        return None;
    }
    // The lock is free again while it runs.
    let before = rules().before(call, nth);
    if let Some(act) = before {
        act();
    }
    let (wait, code) = rules().fate(call, nth);
    if !wait.is_zero() {
        std::thread::sleep(wait);
    }
    code
}

/// The number of a call's next use.
pub(super) fn next_use(call: usize) -> u64 {
    USES[call].load(Ordering::SeqCst) + 1
}

pub(super) fn index_of(symbol: &str) -> Option<usize> {
    CALLS.iter().position(|call| call.symbol == symbol)
}

#[allow(clippy::panic)] // A test that misspells a symbol must not pass.
pub(super) fn known(symbol: &str) -> usize {
    index_of(symbol).unwrap_or_else(|| panic!("the list of driver calls has no {symbol:?}"))
}
