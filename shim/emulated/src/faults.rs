//! Calls that fail on purpose, and how often each call was used.
//!
//! A failing call has no effect at all. From the environment:
//! `GPUIPC_EMULATED_FAIL="cuMemMap@1=801,cuMemSetAccess@*=999"` makes the first
//! `cuMemMap` of the process answer 801 and every `cuMemSetAccess` 999.

use crate::config::config;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use gpuipc::sys::{CALLS, CuResult};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

struct Rule {
    call: usize,
    /// Uses of the call, counted from 1, that fail.
    first: u64,
    last: u64,
    code: CuResult,
}

static USES: [AtomicU64; CALLS.len()] = [const { AtomicU64::new(0) }; CALLS.len()];
/// Spares the lock while there are no rules.
static ARMED: AtomicBool = AtomicBool::new(false);
static RULES: Mutex<Vec<Rule>> = Mutex::new(Vec::new());

fn rules() -> MutexGuard<'static, Vec<Rule>> {
    RULES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn index_of(symbol: &str) -> Option<usize> {
    CALLS.iter().position(|call| call.symbol == symbol)
}

#[allow(clippy::panic)] // A test that misspells a symbol must not pass.
fn known(symbol: &str) -> usize {
    index_of(symbol).unwrap_or_else(|| panic!("the emulated driver has no call {symbol:?}"))
}

/// Makes `times` uses of a call fail with `code`, from the `nth` next one on
/// (1 is the next); `u32::MAX` times is for ever.
///
/// # Panics
/// If no call has that symbol.
pub fn fail(symbol: &str, nth: u32, code: CuResult, times: u32) {
    from_environment();
    let call = known(symbol);
    if times == 0 {
        return;
    }
    let mut rules = rules();
    let first = USES[call].load(Ordering::SeqCst) + u64::from(nth.max(1));
    rules.push(Rule {
        call,
        first,
        last: first + u64::from(times) - 1,
        code,
    });
    ARMED.store(true, Ordering::SeqCst);
}

/// Forgets all that [`fail`] and the environment set.
pub fn clear() {
    from_environment();
    rules().clear();
    ARMED.store(false, Ordering::SeqCst);
}

/// How often a call was used in this process, failures included.
///
/// # Panics
/// If no call has that symbol.
#[must_use]
pub fn calls(symbol: &str) -> u64 {
    USES[known(symbol)].load(Ordering::SeqCst)
}

/// Counts a use, and says whether it is to fail.
pub(crate) fn used(call: usize) -> Option<CuResult> {
    from_environment();
    let nth = USES.get(call)?.fetch_add(1, Ordering::SeqCst) + 1;
    if !ARMED.load(Ordering::SeqCst) {
        return None;
    }
    let rules = rules();
    rules
        .iter()
        .find(|rule| rule.call == call && (rule.first..=rule.last).contains(&nth))
        .map(|rule| rule.code)
}

/// Takes the environment's rules, once.
fn from_environment() {
    static TAKEN: OnceLock<()> = OnceLock::new();
    TAKEN.get_or_init(|| {
        let list = config().fail.as_deref().unwrap_or_default();
        for entry in list
            .split(',')
            .map(str::trim)
            .filter(|entry| !entry.is_empty())
        {
            match parse(entry) {
                Some(rule) => rules().push(rule),
                None => log::error!(
                    "GPUIPC_EMULATED_FAIL: {entry:?} is not SYMBOL@NTH=CODE; it is left out"
                ),
            }
        }
        ARMED.store(!rules().is_empty(), Ordering::SeqCst);
    });
}

fn parse(entry: &str) -> Option<Rule> {
    let (symbol, rest) = entry.split_once('@')?;
    let (nth, code) = rest.split_once('=')?;
    let code = CuResult(code.parse().ok()?);
    let (first, last) = match nth {
        "*" => (1, u64::MAX),
        nth => {
            let nth = nth.parse().ok().filter(|nth| *nth > 0)?;
            (nth, nth)
        }
    };
    Some(Rule {
        call: index_of(symbol)?,
        first,
        last,
        code,
    })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn rules_of_the_environment() {
        let rule = parse("cuMemMap@2=801").expect("a rule");
        assert_eq!((rule.first, rule.last, rule.code.0), (2, 2, 801));
        assert_eq!(parse("cuMemMap@*=1").expect("a rule").last, u64::MAX);
        for bad in [
            "cuMemMap",
            "cuMemMap@0=1",
            "cuMemMap@1",
            "cuNothing@1=1",
            "cuMemMap@1=x",
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
